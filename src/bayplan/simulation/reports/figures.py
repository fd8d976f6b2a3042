"""The figures of a run: waiting by size, completion, allocation over time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from bayplan.simulation.virtual_time.free_slots import NO_SLOTS, SLOT_SIZES
from bayplan.simulation.virtual_time.outcome import JobRecord, JobState, RunOutcome

SIZES = ((1, "1"), (8, "2–8"), (64, "9–64"), (255, "65–255"), (math.inf, "256+"))
"""The largest size of each class, in GPUs or processors, and its name."""

POINTS = 400
"""Samples of a run that are kept for the report."""


def quantile(values: Sequence[float], share: float) -> float | None:
    """The value that this share of all values is at most; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)), 1) - 1]


def size_class(record: JobRecord) -> str:
    """The class of a job."""
    return next(name for most, name in SIZES if record.gpus <= most)


def figures(outcome: RunOutcome) -> dict[str, Any]:
    """All figures as JSON values. Waiting counts the jobs that started; the others are counted beside it."""
    counts = {state.value: sum(one.state is state for one in outcome.jobs) for state in JobState}
    gangs = [one for one in outcome.jobs if one.pods > 1 and one.start is not None]
    across = sum(one.racks > 1 for one in gangs)
    return {
        "policy": outcome.policy,
        "jobs": counts,
        "interrupted": outcome.interrupted,
        "ended": _rounded(outcome.ended),
        "capacity": outcome.capacity,
        "restarts": outcome.restarts,
        "allocatedMean": _rounded(_mean_allocation(outcome)),
        "waitingMean": _rounded(_mean_waiting(outcome)),
        "wait": _waits(outcome.jobs),
        "bySize": {
            name: _waits([one for one in outcome.jobs if size_class(one) == name])
            for _, name in SIZES
            if any(size_class(one) == name for one in outcome.jobs)
        },
        "gangsAcrossRacks": _rounded(across / len(gangs)) if gangs else None,
        "freeSlots": _mean_slots(outcome),
        "neverFit": [one.name for one in outcome.jobs if one.state is JobState.NEVER_FITS],
    }


def thinned(outcome: RunOutcome) -> list[list[float]]:
    """Samples at even distances: time, share allocated, jobs waiting, share of nodes partly used."""
    if not outcome.samples:
        return []
    step = max(outcome.ended - outcome.samples[0].time, 1e-9) / POINTS
    kept, at = [], outcome.samples[0].time
    for sample, after in zip(outcome.samples, (*outcome.samples[1:], None), strict=True):
        if after is None or after.time > at:
            allocated = sample.allocated / outcome.capacity if outcome.capacity else 0.0
            broken = sample.broken / max(outcome.nodes, 1)
            kept.append([round(sample.time, 3), round(allocated, 4), sample.waiting, round(broken, 4)])
            at = sample.time + step
    return kept


def _waits(records: Iterable[JobRecord]) -> dict[str, Any]:
    records = [one for one in records if one.state not in (JobState.NEVER_FITS, JobState.NO_DURATION)]
    waits = [one.wait for one in records if one.wait is not None]
    return {
        "jobs": len(records),
        "started": len(waits),
        "done": sum(one.state is JobState.DONE for one in records),
        "mean": _rounded(sum(waits) / len(waits)) if waits else None,
        "p50": _rounded(quantile(waits, 0.5)),
        "p90": _rounded(quantile(waits, 0.9)),
        "p99": _rounded(quantile(waits, 0.99)),
    }


def _mean_allocation(outcome: RunOutcome) -> float:
    """The share of the capacity that was allocated, weighted by time, until the last arrival."""
    return _mean(outcome, [one.allocated for one in outcome.samples]) / max(outcome.capacity, 1e-9)


def _mean_waiting(outcome: RunOutcome) -> float:
    return _mean(outcome, [float(one.waiting) for one in outcome.samples])


def _mean_slots(outcome: RunOutcome) -> dict[str, Any]:
    """How many more gangs of each size fitted, on average over time; empty in a cluster without GPUs."""
    if not outcome.samples or outcome.samples[0].slots == NO_SLOTS:
        return {}
    slots = [one.slots for one in outcome.samples]
    return {
        str(size): {
            "inRacks": _rounded(_mean(outcome, [one.in_racks[at] for one in slots])),
            "anywhere": _rounded(_mean(outcome, [one.anywhere[at] for one in slots])),
        }
        for at, size in enumerate(SLOT_SIZES)
    }


def _mean(outcome: RunOutcome, values: Sequence[float]) -> float:
    last = min(max((one.arrival for one in outcome.jobs), default=0.0), outcome.ended)
    total = spent = 0.0
    for number, value in enumerate(values):
        start = outcome.samples[number].time
        end = outcome.samples[number + 1].time if number + 1 < len(values) else outcome.ended
        seconds = max(min(end, last) - start, 0.0)
        total, spent = total + value * seconds, spent + seconds
    return total / spent if spent else 0.0


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
