"""Expected starts: run times from limits and history, the queue run forward, past errors."""

from __future__ import annotations

import numpy as np
import pytest

from bayplan.simulation.forecast.calibration import ERRORS_NEEDED, Calibration, WaitMarks
from bayplan.simulation.forecast.expected_starts import (
    ExpectedStart,
    ForecastInput,
    expected_starts,
    kept,
    rounding,
)
from bayplan.simulation.forecast.forward_run import (
    NEVER,
    ForwardRun,
    QueuePicture,
    RunningGang,
    StartOption,
    WaitingGang,
)
from bayplan.simulation.forecast.node_room import Measure, NodeCapacity, NodeRoom, NodeShare
from bayplan.simulation.forecast.quota_room import NO_QUOTA, UNLIMITED, QuotaLimits, QuotaRoom
from bayplan.simulation.forecast.run_times import RunRequest, RunTimeHistory, series

HOUR = 3600.0


def hosts(count: int, *, racks: int = 1) -> NodeCapacity:
    """Hosts of 8 GPUs; shape 0 is a pod of a whole host, shape 1 of half a host. Measure 2: within a rack."""
    return NodeCapacity(
        free=np.full((count, 1), 8, np.int64),
        requests=np.array([[8], [4]], np.int64),
        allowed=np.ones((2, count), bool),
        domains=(np.arange(count) % racks,),
        measures=(Measure(0), Measure(1), Measure(0, 0)),
    )


def on_hosts(*rows: int) -> NodeShare:
    return NodeShare(np.array(rows), np.full((len(rows), 1), 8, np.int64))


def waits(name: str, pods: int, measure: int = 0, since: float = 0.0) -> WaitingGang:
    return WaitingGang(name, (StartOption(((measure, pods),)),), since=since)


def starts(picture: QueuePicture, ends: list[float], runs: list[float]) -> list[float]:
    found: list[float] = ForwardRun(picture).run(0.0, np.array(ends), np.array(runs)).times.tolist()
    return found


# ── run times ──────────────────────────────────────────────────────────────────────────────────────


def test_without_limit_and_history_nothing_is_known() -> None:
    assert RunTimeHistory().samples(RunRequest("ml")) is None


def test_without_history_the_limit_is_assumed() -> None:
    samples = RunTimeHistory().samples(RunRequest("ml", limit=HOUR))
    assert samples is not None and samples.tolist() == [HOUR]


def test_past_runs_count_by_the_part_of_the_limit_that_they_used() -> None:
    history = RunTimeHistory()
    for _ in range(3):
        history.learn(RunRequest("ml", "train", "8", limit=4 * HOUR), HOUR)
    samples = history.samples(RunRequest("ml", "train", "8", limit=8 * HOUR))
    assert samples is not None and samples.tolist() == [2 * HOUR] * 3


def test_runs_of_the_same_name_count_before_other_runs_of_the_owner() -> None:
    history = RunTimeHistory()
    for _ in range(3):
        history.learn(RunRequest("ml", "train", "8"), HOUR)
        history.learn(RunRequest("ml", "eval", "8"), 60.0)
    samples = history.samples(RunRequest("ml", "train", "16"))
    assert samples is not None and set(samples.tolist()) == {HOUR}
    assert history.samples(RunRequest("other", "train", "8")) is None


def test_a_gang_that_runs_already_gets_only_longer_runs() -> None:
    history = RunTimeHistory()
    for seconds in (60.0, 120.0, 3000.0, 4000.0, 5000.0):
        history.learn(RunRequest("ml"), seconds)
    samples = history.samples(RunRequest("ml"), elapsed=130.0)
    assert samples is not None and samples.tolist() == [3000.0, 4000.0, 5000.0]
    assert history.samples(RunRequest("ml"), elapsed=6000.0) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [("train-17", "train"), ("train-x7k2p", "train"), ("llama-70b", "llama-70b"), ("train", "train")],
)
def test_numbers_and_random_letters_at_the_end_do_not_belong_to_the_series(name: str, expected: str) -> None:
    assert series(name) == expected


# ── the queue run forward ──────────────────────────────────────────────────────────────────────────


def test_a_gang_starts_when_enough_hosts_are_free() -> None:
    running = (RunningGang("a", on_hosts(0, 1)), RunningGang("b", on_hosts(2)))
    picture = QueuePicture(hosts(4), NO_QUOTA, running, (waits("c", 3), waits("d", 4)))
    assert starts(picture, [100.0, 50.0], [10.0, 10.0]) == [100.0, 110.0]


def test_a_later_gang_overtakes_one_that_does_not_fit() -> None:
    picture = QueuePicture(
        hosts(2), NO_QUOTA, (RunningGang("a", on_hosts(0)),), (waits("b", 2), waits("c", 1))
    )
    assert starts(picture, [100.0], [10.0, 500.0]) == [500.0, 0.0]


def test_nodes_are_kept_for_a_gang_that_has_waited_for_long() -> None:
    running = (RunningGang("a", on_hosts(0)), RunningGang("b", on_hosts(1)))
    gangs = (waits("c", 2, since=-400.0), waits("d", 1, since=-10.0))
    picture = QueuePicture(hosts(2), NO_QUOTA, running, gangs, keep_after=300.0)
    assert starts(picture, [100.0, 200.0], [10.0, 500.0]) == [200.0, 210.0]


def test_a_gang_waits_for_room_within_one_rack() -> None:
    running = (RunningGang("a", on_hosts(0)), RunningGang("b", on_hosts(1)))
    picture = QueuePicture(hosts(4, racks=2), NO_QUOTA, running, (waits("c", 2, measure=2),))
    assert starts(picture, [100.0, 70.0], [10.0]) == [70.0]


def test_a_gang_that_waits_for_an_end_without_a_time_does_not_start() -> None:
    picture = QueuePicture(hosts(1), NO_QUOTA, (RunningGang("a", on_hosts(0)),), (waits("b", 1),))
    assert starts(picture, [NEVER], [10.0]) == [NEVER]


def test_the_first_gang_of_a_strict_queue_is_not_overtaken() -> None:
    quota = QuotaLimits((-1,), *(np.array([[amount]]) for amount in (100, 0, UNLIMITED, 0)))
    gangs = tuple(
        WaitingGang(name, (StartOption(((0, pods),), np.array([pods * 8])),), queue=0)
        for name, pods in (("b", 2), ("c", 1))
    )
    running = (RunningGang("a", on_hosts(0), 0, np.array([8])),)
    free, strict = (
        QueuePicture(hosts(2), quota, running, gangs, one) for one in (frozenset(), frozenset({0}))
    )
    assert starts(free, [100.0], [10.0, 500.0]) == [500.0, 0.0]
    assert starts(strict, [100.0], [10.0, 500.0]) == [100.0, 110.0]


def test_a_gang_waits_for_quota_that_another_queue_has_borrowed() -> None:
    rows = np.array([[0], [8], [8]])
    limits = QuotaLimits((-1, 0, 0), np.array([[16], [8], [8]]), 0 * rows, 0 * rows + UNLIMITED, 0 * rows)
    borrower = RunningGang("a", on_hosts(0, 1), 1, np.array([16]))
    gang = WaitingGang("b", (StartOption(((0, 1),), np.array([8])),), queue=2)
    assert starts(QueuePicture(hosts(4), limits, (borrower,), (gang,)), [100.0], [10.0]) == [100.0]


def test_quota_that_is_not_lent_stays_with_its_queue() -> None:
    room = QuotaRoom(
        QuotaLimits(
            (-1, 0, 0),
            np.array([[4], [8], [4]]),
            np.array([[0], [8], [0]]),
            np.full((3, 1), UNLIMITED),
            np.zeros((3, 1), np.int64),
        )
    )
    room.use(1, np.array([8]))
    assert room.left.ravel().tolist() == [4, 4, 4]
    room.use(1, np.array([2]))
    assert room.left.ravel().tolist() == [2, 2, 2]
    room.use(1, np.array([10]), -1)
    assert room.left.ravel().tolist() == [4, 12, 4]


def test_counts_after_starts_and_ends_are_those_of_a_fresh_room() -> None:
    capacity, random = hosts(6, racks=3), np.random.default_rng(3)
    room, used = NodeRoom(capacity), list[NodeShare]()
    for _ in range(60):
        share = room.find(int(random.integers(3)), int(random.integers(1, 3)))
        if share is not None and random.random() < 0.6:
            room.use(share)
            used.append(share)
        elif used:
            room.use(used.pop(int(random.integers(len(used)))), -1)
    fresh = NodeRoom(capacity)
    for share in used:
        fresh.use(share)
    assert (room.counts == fresh.counts).all() and (room.available == fresh.available).all()


# ── expected starts ────────────────────────────────────────────────────────────────────────────────


def asked(*limits: float | None) -> ForecastInput:
    """One host; a gang has been running on it for half an hour, two wait for it."""
    running, first, second = (RunRequest("ml", limit=limit) for limit in limits)
    picture = QueuePicture(
        hosts(1), NO_QUOTA, (RunningGang("a", on_hosts(0)),), (waits("b", 1), waits("c", 1))
    )
    return ForecastInput(picture, (running,), np.array([-HOUR / 2]), (first, second))


def test_limits_give_the_start_and_name_the_gang_that_it_comes_after() -> None:
    found = expected_starts(asked(HOUR, HOUR, None), RunTimeHistory(), Calibration(), 0.0)
    assert (found["b"].middle, found["b"].latest, found["b"].after) == (HOUR / 2, HOUR / 2, ("a",))
    assert (found["c"].middle, found["c"].after, found["c"].limits_known) == (1.5 * HOUR, ("b",), True)


def test_a_gang_with_neither_limit_nor_history_is_named_and_no_time_is_made_up() -> None:
    found = expected_starts(asked(None, HOUR, HOUR), RunTimeHistory(), Calibration(), 0.0)
    assert not found["b"].known and found["b"].unknown == ("a",)
    later = expected_starts(asked(HOUR, None, HOUR), RunTimeHistory(), Calibration(), 0.0)
    assert later["b"].known and later["c"].unknown == ("b",)


def test_history_replaces_a_missing_limit_and_gives_an_interval() -> None:
    history = RunTimeHistory()
    for seconds in range(1800, 9000, 100):
        history.learn(RunRequest("ml"), float(seconds))
    found = expected_starts(asked(None, None, None), history, Calibration(), 0.0)["b"]
    assert 0 < found.low < found.middle < found.high < 9000 and found.latest == NEVER


# ── past errors ────────────────────────────────────────────────────────────────────────────────────


def test_few_past_forecasts_correct_nothing() -> None:
    marks = WaitMarks(100.0, 200.0, 300.0, 400.0)
    few = Calibration([(marks, 5000.0)] * (ERRORS_NEEDED - 1))
    shown = few.apply(marks)
    assert (shown.low, shown.middle, shown.high, shown.latest) == (100.0, 200.0, 300.0, 400.0)


def test_the_corrected_interval_holds_for_four_of_five_past_starts() -> None:
    random = np.random.default_rng(7)
    past = []
    for _ in range(600):
        middle = float(random.uniform(600, 20000))
        marks = WaitMarks(0.9 * middle, middle, 1.1 * middle, 1.5 * middle)
        past.append((marks, middle * float(random.lognormal(0.2, 0.5))))
    calibration = Calibration(past[:400])
    held = [calibration.apply(marks).low <= wait <= calibration.apply(marks).high for marks, wait in past]
    assert 0.7 <= sum(held[400:]) / 200 <= 0.9
    later = [wait > calibration.apply(marks).latest for marks, wait in past[400:]]
    assert sum(later) / 200 <= 0.1


# ── what is shown ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("width", "unit"), [(60.0, 60.0), (8400.0, 600.0), (86400.0, 7200.0)])
def test_a_forecast_is_rounded_to_its_width(width: float, unit: float) -> None:
    assert rounding(ExpectedStart(0.0, width / 2, width, width)) == unit


def test_a_forecast_is_kept_until_it_moves_by_more_than_what_is_shown() -> None:
    old = {"a": ExpectedStart(1000.0, 2000.0, 8200.0, 9000.0)}
    near = {"a": ExpectedStart(1300.0, 2100.0, 8600.0, 9300.0)}
    far = {"a": ExpectedStart(5000.0, 9000.0, 18600.0, 19300.0)}
    assert kept(old, near, 0.0) == old
    assert kept(old, far, 0.0) == far
    assert kept(old, near, 8300.0) == near  # the old one is over
