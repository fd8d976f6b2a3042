"""Large gangs under a stream of small ones that keeps the cluster full: they start within a stated bound."""

from __future__ import annotations

import pytest

from bayplan.model.gang import Locality
from bayplan.simulation.traces.cluster_shapes import RACK, parse_shape
from tests.support.streams import LONGEST, PATHS, WaitingPath, large_gang, run_stream, stream

HOSTS = parse_shape("2x4 gpu=8")
SEEDS = range(3)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_large_gang_starts_within_the_bound_with_a_reservation_only(path: WaitingPath, seed: int) -> None:
    trace = stream(HOSTS, seed, 2.0, [large_gang(0, 0.2, 3)], load=1.2 * path.share)
    without = run_stream(path, HOSTS, trace, reserve=False)
    assert without.start > without.ends, "without a reservation the gang starves as long as the stream lasts"
    found = run_stream(path, HOSTS, trace, reserve=True)
    assert found.start <= found.bound <= found.reserved + LONGEST
    assert found.start < found.ends
    assert found.allocation > without.allocation - 0.1 * path.share, "the rest of the cluster is used"
    if path.share == 1:
        assert found.started_meanwhile() > 0, "gangs that the reservation leaves room for start"


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_the_bound_holds_for_a_gang_that_requires_a_rack(path: WaitingPath) -> None:
    large = large_gang(0, 0.2, 3, Locality(required=RACK))
    found = run_stream(path, HOSTS, stream(HOSTS, 5, 2.0, [large], load=1.2 * path.share), reserve=True)
    assert found.start <= found.bound <= found.reserved + LONGEST
