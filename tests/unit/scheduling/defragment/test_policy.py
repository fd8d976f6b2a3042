"""When moves are worth it: hysteresis, and a budget of moves per hour and GPU-hours per day."""

from __future__ import annotations

from bayplan.scheduling.defragment.policy import HOUR, DefragmentPolicy, MoveBudget


def test_a_gang_has_to_wait_and_is_not_tried_again_at_once() -> None:
    budget = MoveBudget(DefragmentPolicy(waits=600, again_after=1000))
    assert not budget.may_try("a", 0.0, 599.0)
    assert budget.may_try("a", 0.0, 600.0)
    budget.tried("a", 600.0)
    assert not budget.may_try("a", 0.0, 1599.0)
    assert budget.may_try("b", 0.0, 1599.0)
    assert budget.may_try("a", 0.0, 1600.0)


def test_moves_of_the_last_hour_count() -> None:
    budget = MoveBudget(DefragmentPolicy(moves_per_hour=3))
    assert budget.spend(2, 0, 0.0)
    assert not budget.spend(2, 0, 10.0)
    assert budget.spend(1, 0, 10.0)
    assert not budget.has_moves(HOUR - 1)
    assert budget.has_moves(HOUR)
    assert budget.spend(2, 0, HOUR)


def test_work_done_again_counts_for_a_day() -> None:
    budget = MoveBudget(DefragmentPolicy(gpu_hours_per_day=2.0))
    assert budget.spend(1, int(1.5 * HOUR), 0.0)
    assert not budget.spend(1, int(HOUR), 23 * HOUR)
    assert budget.spend(1, int(HOUR), 24 * HOUR)


def test_the_longer_a_gang_waits_the_more_may_be_lost_for_it() -> None:
    policy = DefragmentPolicy(gain_ratio=2.0)
    assert policy.cost_below(8, 3600.0) == 4 * 3600
    assert policy.cost_below(8, 7200.0) == 8 * 3600
