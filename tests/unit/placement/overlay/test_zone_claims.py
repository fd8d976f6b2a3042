"""How many pods a node takes beside pods to which its zones are promised."""

from __future__ import annotations

import numpy as np
import pytest

from bayplan.model.numa import NumaRequest
from bayplan.placement.cluster.capacity import COUNT_MAX
from bayplan.placement.numa.capacity import USUAL, aligned_counts, fit_in_turns
from bayplan.placement.overlay.zone_claims import ZoneClaims
from tests.support.numa_nodes import amounts, columns, container, report, request_of


def limited(pods: NumaRequest, promised: NumaRequest, count: int) -> list[int]:
    part = columns(report(amounts(cpu=16, gpu=4), amounts(cpu=16, gpu=4)))
    counts = aligned_counts(part, pods, USUAL)
    found: list[int] = ZoneClaims({0: [(promised, count)]}).limited(counts, part, pods, USUAL).tolist()
    return found


@pytest.mark.parametrize(("promised_gpus", "count"), [(1, 1), (2, 1), (2, 2), (4, 1), (1, 5)])
def test_as_many_pods_fit_as_leave_the_promised_ones_their_zones(promised_gpus: int, count: int) -> None:
    part = columns(report(amounts(cpu=16, gpu=4), amounts(cpu=16, gpu=4)))
    pods, promised = request_of(container(cpu=1, gpu=1)), request_of(container(cpu=1, gpu=promised_gpus))
    one_by_one = 1
    while one_by_one < 8 and fit_in_turns(part, [[(pods, one_by_one + 1), (promised, count)]], USUAL)[0]:
        one_by_one += 1
    assert limited(pods, promised, count) == [one_by_one]


def test_pods_that_take_nothing_of_a_zone_are_not_counted_one_by_one() -> None:
    part = columns(report(amounts(cpu=16, gpu=4), amounts(cpu=16, gpu=4)))
    counts = np.array([COUNT_MAX])
    found = ZoneClaims({0: [(request_of(container(cpu=1, gpu=2)), 1)]}).limited(
        counts, part, request_of(container()), USUAL
    )
    assert found.tolist() == [COUNT_MAX]
