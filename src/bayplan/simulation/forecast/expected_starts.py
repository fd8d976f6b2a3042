"""The expected start of waiting gangs: many forward runs with drawn run times, corrected by past errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from bayplan.simulation.forecast.calibration import CalibratedWait, Calibration, WaitMarks
from bayplan.simulation.forecast.forward_run import (
    AT_ONCE,
    NEVER,
    NO_QUEUE,
    Floats,
    ForwardRun,
    ForwardStarts,
    QueuePicture,
    WaitingGang,
)
from bayplan.simulation.forecast.run_times import RunRequest, RunTimeHistory

DRAWS_MAX, DRAWS_MIN = 40, 8
STEPS_MAX = 12_000
"""Starts and ends of all draws together: what is done in a few seconds."""
FEW = 200
"""Up to so many gangs, each end is a moment of its own."""
LATE = 0.9
NAMED_MAX = 3
SEED = 20


@dataclass(frozen=True, slots=True, eq=False)
class ForecastInput:
    """A queue at one moment, and what is known of each run; in the order of the picture's gangs."""

    picture: QueuePicture
    running: tuple[RunRequest, ...]
    started: Floats  # of running gangs
    waiting: tuple[RunRequest, ...]

    def __post_init__(self) -> None:
        assert len(self.running) == len(self.started) == len(self.picture.running)
        assert len(self.waiting) == len(self.picture.waiting)


@dataclass(frozen=True, slots=True)
class ExpectedStart:
    """When one gang is expected to start, in seconds since the epoch; or why that is not known."""

    low: float = NEVER
    middle: float = NEVER
    high: float = NEVER  # between low and high with a probability of 80 %
    latest: float = NEVER
    limits_known: bool = False  # `latest` is when it starts if all gangs before it use their limits
    after: tuple[str, ...] = ()  # the gangs whose end it waits for, the most likely first
    unknown: tuple[str, ...] = ()  # gangs that it may wait for and that have neither limit nor history
    fits: bool = True  # it fits when all other gangs have ended

    @property
    def known(self) -> bool:
        return self.high < NEVER


@dataclass(frozen=True, slots=True, eq=False)
class DrawnStarts:
    """The forward runs of one moment."""

    marks: tuple[WaitMarks, ...]  # by waiting gang
    after: tuple[tuple[int, ...], ...]  # by waiting gang: whose end it starts after, the most frequent first
    unknown: tuple[int, ...]  # gangs without limit and history; numbers as in `ForwardStarts.after`
    never: tuple[int, ...]  # waiting gangs that do not start even when all others have ended


def expected_starts(
    asked: ForecastInput, history: RunTimeHistory, calibration: Calibration, now: float
) -> dict[str, ExpectedStart]:
    """The expected start of each waiting gang."""
    drawn = drawn_starts(asked, history, now)
    names = [gang.name for gang in asked.picture.running] + [gang.name for gang in asked.picture.waiting]
    count = len(asked.picture.running)
    found: dict[str, ExpectedStart] = {}
    for at, gang in enumerate(asked.picture.waiting):
        marks = drawn.marks[at]
        if at in drawn.never:
            found[gang.name] = ExpectedStart(fits=False)
            continue
        if marks.high == NEVER:
            ahead = (number for number in drawn.unknown if number < count + at)
            needed = [names[number] for number in ahead if _competes(asked.picture, gang, number)]
            found[gang.name] = ExpectedStart(unknown=tuple(needed))
            continue
        wait: CalibratedWait = calibration.apply(marks)
        found[gang.name] = ExpectedStart(
            now + wait.low,
            now + wait.middle,
            now + wait.high,
            now + wait.latest,
            marks.by_limits < NEVER,
            tuple(names[number] for number in drawn.after[at]),
        )
    return found


def drawn_starts(
    asked: ForecastInput,
    history: RunTimeHistory,
    now: float,
    target: int | None = None,
    draws_max: int = DRAWS_MAX,
) -> DrawnStarts:
    """Run the queue forward with drawn run times, and once with limits; with `target`, up to its start."""
    picture = asked.picture
    size = len(picture.running) + len(picture.waiting)
    draws = int(np.clip(STEPS_MAX // max(size, 1), DRAWS_MIN, draws_max))
    run, random = ForwardRun(picture), np.random.default_rng(SEED)
    elapsed = np.maximum(now - asked.started, 0.0)
    samples = [
        *(history.samples(request, float(ran)) for request, ran in zip(asked.running, elapsed, strict=True)),
        *map(history.samples, asked.waiting),
    ]
    drawn = np.array([_draws(one, draws, random) for one in samples]).reshape(size, draws)
    count, resolution = len(picture.running), _resolution(drawn)
    runs = [
        run.run(now, asked.started + drawn[:count, at], drawn[count:, at], target, resolution)
        for at in range(draws)
    ]
    limits = np.array([_limit(request) for request in (*asked.running, *asked.waiting)])
    ends = asked.started + limits[:count]
    overdue = ends < now  # a limit that nothing enforces says no more
    by_limits = run.run(now, np.where(overdue, NEVER, ends), limits[count:], target, resolution).times
    by_limits = by_limits - now
    times = np.array([one.times for one in runs]) - now  # draw x waiting gang
    chosen = range(len(picture.waiting)) if target is None else (target,)
    nothing = WaitMarks(NEVER, NEVER, NEVER, NEVER)
    marks = [nothing] * len(picture.waiting)
    after: list[tuple[int, ...]] = [()] * len(picture.waiting)
    for at in chosen:
        low, middle, high = np.quantile(times[:, at], (1 - LATE, 0.5, LATE), method="higher").tolist()
        marks[at] = WaitMarks(low, middle, high, float(by_limits[at]))
        after[at] = _most_frequent(runs, at)
    unknown = tuple(number for number, one in enumerate(samples) if one is None)
    never: tuple[int, ...] = ()
    if any(marks[at].high == NEVER for at in chosen):
        at_once = run.run(now, np.full(count, now), np.zeros(len(picture.waiting)), target).times
        never = tuple(at for at in chosen if at_once[at] == NEVER)
    return DrawnStarts(tuple(marks), tuple(after), unknown, never)


def _competes(picture: QueuePicture, gang: WaitingGang, number: int) -> bool:
    """Whether the end of another gang gives a waiting one nodes or quota that it may use."""
    count = len(picture.running)
    if number < count:
        other = picture.running[number]
        needs, queue, rows = [other.quota], other.queue, other.share.rows
    else:
        ahead = picture.waiting[number - count]
        needs, queue, rows = [option.quota for option in ahead.options], ahead.queue, None
        if any(option.asks for option in ahead.options) and any(option.asks for option in gang.options):
            return True
    capacity = picture.capacity
    shapes = {capacity.measures[at].shape for option in gang.options for at, _ in option.asks}
    if rows is not None and any(capacity.allowed[shape, rows].any() for shape in shapes):
        return True
    if NO_QUEUE in (queue, gang.queue) or _root(picture, queue) != _root(picture, gang.queue):
        return False
    return any(((need > 0) & (option.quota > 0)).any() for need in needs for option in gang.options)


def _root(picture: QueuePicture, queue: int) -> int:
    while (above := picture.limits.parents[queue]) >= 0:
        queue = above
    return queue


def _draws(samples: Floats | None, draws: int, random: np.random.Generator) -> Floats:
    return np.full(draws, NEVER) if samples is None else random.choice(samples, draws)


def _resolution(drawn: Floats) -> float:
    """With many gangs, ends within a fraction of a usual run time are taken together."""
    known = drawn[drawn < NEVER]
    if len(drawn) <= FEW or not len(known):
        return 0.0
    return float(np.median(known)) / 30 * min(1.0, len(drawn) / 1000)


def _limit(request: RunRequest) -> float:
    return NEVER if request.limit is None else request.limit


def _most_frequent(runs: Sequence[ForwardStarts], gang: int) -> tuple[int, ...]:
    """Whose end comes just before the start, in half of the runs together."""
    counts = Counter(int(one.after[gang]) for one in runs if one.times[gang] < NEVER)
    del counts[AT_ONCE]
    total, found = sum(counts.values()), list[int]()
    for number, _ in sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:NAMED_MAX]:
        if sum(counts[one] for one in found) * 2 < total:
            found.append(number)
    return tuple(found)


Key = TypeVar("Key")


def kept(
    before: Mapping[Key, ExpectedStart], after: Mapping[Key, ExpectedStart], now: float
) -> dict[Key, ExpectedStart]:
    """The new forecasts, where they differ from the old ones by more than what is shown of them.

    An interval that moves a little with every look says more than is known.
    """
    return {
        name: old if (old := before.get(name)) is not None and _still_holds(old, new, now) else new
        for name, new in after.items()
    }


def _still_holds(old: ExpectedStart, new: ExpectedStart, now: float) -> bool:
    if not (old.known and new.known) or old.high <= now or old.limits_known != new.limits_known:
        return False
    unit = rounding(old)
    moved = (abs(new.low - max(old.low, now)), abs(new.high - old.high))
    return max(moved) <= max(unit, (old.high - old.low) / 4) and _latest_holds(old, new)


def _latest_holds(old: ExpectedStart, new: ExpectedStart) -> bool:
    if NEVER in (old.latest, new.latest):
        return old.latest == new.latest
    return abs(new.latest - old.latest) <= max(rounding(old), (old.latest - old.low) / 4)


STEPS = (60.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 10800.0, 21600.0, 43200.0, 86400.0)


def rounding(expected: ExpectedStart) -> float:
    """The seconds that a forecast is rounded to: about a twelfth of its width."""
    width = (expected.high - expected.low) / 12
    return max((step for step in STEPS if step <= width), default=STEPS[0])
