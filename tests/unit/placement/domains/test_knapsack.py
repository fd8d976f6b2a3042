"""The choice of the fewest domains with the least to spare, and what bounds it."""

from __future__ import annotations

from bayplan.placement.domains import knapsack as module
from bayplan.placement.domains.knapsack import fewest


def test_the_tightest_of_the_fewest_are_taken() -> None:
    assert fewest([7, 5, 4, 6], [-1] * 4, 10, 2, leader=False) == [2, 3]


def test_where_there_are_too_many_to_try_the_largest_are_taken() -> None:
    pods = [1 + number % 100 for number in range(10_000)]
    chosen = fewest(pods, [-1] * len(pods), 180_000, 2_050, leader=False)
    assert chosen is not None and len(chosen) == 2_050
    assert sum(pods[at] for at in chosen) >= 180_000
    assert min(pods[at] for at in chosen) >= 80
    assert fewest(pods, pods, 180_000, 2_050, leader=True) is None


def test_the_bound_is_far_above_what_racks_and_blocks_need() -> None:
    assert 320 * 32 * (10_000 // 64 + module.STEP_WORDS) < module.WORK_MAX
