"""Which nodes are kept for a gang that has waited long."""

from __future__ import annotations

import pytest

from bayplan.model.node_rules import Requirement
from bayplan.model.pod_spec import Neighbours, NeighbourTerm, Selector
from bayplan.model.profile import Profile
from bayplan.placement.overlay.node_overlay import Floor
from bayplan.scheduling.attempt.gang import asked_of
from bayplan.scheduling.binding.backfill_reservation import nodes_to_keep
from bayplan.scheduling.preemption.context import PreemptionContext
from bayplan.scheduling.preemption.search import Rooms
from tests.support.gang_snapshots import charter, gang, look, node, pod, shape

OTHERS = Selector((Requirement("app", "In", ("nobody",)),))
ALOOF = Neighbours(apart=(NeighbourTerm("zone", OTHERS, ("ns",)),))


@pytest.mark.parametrize("neighbours", [Neighbours(), ALOOF])
def test_where_the_least_has_to_end(neighbours: Neighbours) -> None:
    """Whether its pods are counted or seated one by one, what is free now is what counts."""
    running = [pod("a-1", 2, on="a"), pod("a-2", 2, on="a"), pod("b-1", 2, on="b")]
    like = shape(2, neighbours=neighbours)
    waits = gang(charter("g", 2), [pod(f"g-{at}", gang="g", like=like) for at in range(2)])
    seen = look([node("a", 4), node("b", 4)], running, waits)
    with Floor(seen.scene) as floor:
        assert nodes_to_keep(Rooms(PreemptionContext(seen, Profile(), floor)), asked_of(waits), 0) == ("b",)
