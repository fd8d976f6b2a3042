"""Which nodes are reserved for a gang that has been pending long."""

from __future__ import annotations

import pytest

from bayplan.model.node_rules import Requirement
from bayplan.model.pod_spec import PodAffinity, PodAffinityTerm, Selector
from bayplan.model.profile import Profile
from bayplan.model.rejection import RejectionReason
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.scheduling.attempt.gang import request_for
from bayplan.scheduling.binding.backfill_reservation import BackfillReservation, nodes_to_reserve
from bayplan.scheduling.preemption.context import PreemptionContext
from bayplan.scheduling.preemption.search import PreemptionSearch
from tests.support.gang_snapshots import candidate, charter, cpu_node, cpu_pod, decide, lone, look, ref, shape

OTHERS = Selector((Requirement("app", "In", ("nobody",)),))
ALOOF = PodAffinity(required_anti=(PodAffinityTerm("zone", OTHERS, ("ns",)),))


@pytest.mark.parametrize("neighbours", [PodAffinity(), ALOOF])
def test_the_emptiest_nodes_are_reserved(neighbours: PodAffinity) -> None:
    """Whether its pods are counted or placed one by one, the capacity that is free now counts."""
    running = [cpu_pod("a-1", 2, on="a"), cpu_pod("a-2", 2, on="a"), cpu_pod("b-1", 2, on="b")]
    like = shape(2, affinity=neighbours)
    waits = candidate(charter("g", 2), [cpu_pod(f"g-{at}", gang="g", like=like) for at in range(2)])
    seen = look([cpu_node("a", 4), cpu_node("b", 4)], running, waits)
    with NodeOverlay(seen.filter_input) as floor:
        assert nodes_to_reserve(
            PreemptionSearch(PreemptionContext(seen, Profile(), floor)), request_for(waits), 0
        ) == ("b",)


def test_victims_are_not_searched_for_a_gang_that_no_node_can_hold() -> None:
    """Of 300,000 pods that takes seconds. Pods beyond the minimum may be as large as they are."""
    running = [cpu_pod("a-1", 2, on="a")]
    for minimum, searched in ((2, False), (1, True)):
        waits = candidate(charter("g", minimum), [cpu_pod("g-0", 4, gang="g"), cpu_pod("g-1", 5, gang="g")])
        seen = look([cpu_node("a", 4)], running, waits)
        with NodeOverlay(seen.filter_input) as floor:
            search = PreemptionSearch(PreemptionContext(seen, Profile(), floor))
            assert nodes_to_reserve(search, request_for(waits), 0) == (("a",) if searched else ())
            assert (search.nodes is not None) == searched


def test_a_pod_in_the_slot_of_an_admitted_gang_is_bound_although_its_node_is_reserved() -> None:
    """What its slot holds can be given to no other gang, so it cannot be reserved for one."""
    queued, other = cpu_pod("queued", 2), cpu_pod("other", 2)
    seen = look(
        [cpu_node("a", 4)], (), lone(queued), lone(other),
        reserved=(ref("large"), frozenset({"a"})), reserved_priority=0, claims={queued.key: (queued, "a")},
    )  # fmt: skip
    assert decide(seen).binds == {"queued": "a"}


def test_a_gang_of_higher_priority_takes_the_reservation_over_and_an_equal_one_does_not() -> None:
    """Otherwise it would starve until the gang of lower priority has started."""
    running = [cpu_pod("a-1", 4, on="a")]
    for priority, expected in ((1, ("a",)), (0, ())):
        waits = candidate(charter("g", 1, priority=priority), [cpu_pod("g-0", 4, gang="g")])
        seen = look(
            [cpu_node("a", 4)], running, waits, reserved=(ref("other"), frozenset({"a"})), reserved_priority=0
        )
        with NodeOverlay(seen.filter_input) as floor:
            search = PreemptionSearch(PreemptionContext(seen, Profile(keep_after_seconds=1.0), floor))
            assert BackfillReservation(search, now=1e9).reserve(request_for(waits)) == expected


def test_a_gang_that_fits_only_on_reserved_nodes_preempts_elsewhere() -> None:
    """What is free there may be taken later, and no event has it look for victims then (seed 300139)."""
    for below, expected in ((-1, ("low",)), (0, ())):
        waits = candidate(charter("g", 1), [cpu_pod("g-0", 4, gang="g")])
        seen = look(
            [cpu_node("a", 4), cpu_node("b", 4)], [cpu_pod("low", 4, below, on="b")], waits,
            reserved=(ref("large"), frozenset({"a"})), reserved_priority=0,
        )  # fmt: skip
        decided = decide(seen)
        assert decided.binds == {} and decided.displaced == expected
        reason = RejectionReason.PREEMPTING if expected else RejectionReason.RESERVED
        assert decided.refused["g"].rejection.reason is reason
