"""Time, allocations and resident memory of a call, and the line that both sides report them in."""

from __future__ import annotations

import gc
import hashlib
import json
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from bayplan.model.assignment import Placement

T = TypeVar("T")
R = TypeVar("R")

ROUNDS_MIN = 3
MEMORY, PROCESS = "memory", "process"
SNAPSHOT, PLACE = "snapshot", "place"
CHANGED, ADDED, REMOVED = "node changed", "node added", "node removed"


@dataclass(frozen=True, slots=True)
class Line:
    """One row as measured. Of the peer, `bytes` and `allocs` are all it allocated in a call; of ours, the
    peak above the start and the blocks still held with the answer."""

    row: str
    shape: str = ""
    rounds: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    allocs: int = 0
    bytes: int = 0
    placed: bool = False
    digest: str = ""
    varies: bool = False  # another snapshot of the same cluster gave another answer
    reason: str = ""
    again_ms: float = 0.0  # the same request once more on the same snapshot


def encode(line: Line) -> str:
    """One line of JSON."""
    return json.dumps(asdict(line))


def decode(text: str) -> Line:
    """The line in a text of either side."""
    return Line(**json.loads(text))


def times(
    rounds: int,
    budget: float,
    prepare: Callable[[int], T],
    act: Callable[[T], R],
    restore: Callable[[R], object] = id,
) -> list[float]:
    """Milliseconds of `act`, sorted: after one to warm up, until the rounds or the seconds are used up."""
    restore(act(prepare(rounds)))
    gc.collect()
    taken: list[float] = []
    stop = time.perf_counter() + budget
    while len(taken) < rounds and (len(taken) < ROUNDS_MIN or time.perf_counter() < stop):
        given = prepare(len(taken))
        begin = time.perf_counter_ns()
        result = act(given)
        taken.append((time.perf_counter_ns() - begin) / 1e6)
        restore(result)
    return sorted(taken)


def quantile(ordered: list[float], percent: int) -> float:
    """The nearest rank in sorted times."""
    return ordered[max(-(-len(ordered) * percent // 100), 1) - 1]


def allocations(act: Callable[[], object]) -> tuple[int, int]:
    """Peak bytes during the call, and blocks held after it together with its answer. Slow; never timed."""
    gc.collect()
    tracemalloc.start()
    try:
        result = act()
        _, peak = tracemalloc.get_traced_memory()
        blocks = sum(entry.count for entry in tracemalloc.take_snapshot().statistics("filename"))
        del result
    finally:
        tracemalloc.stop()
    return peak, blocks


def resident() -> int:
    """Bytes of memory this process has in use now (where the system only tells the peak: that)."""
    status = Path("/proc/self/status")
    if status.exists():
        for text in status.read_text(encoding="ascii").splitlines():
            if text.startswith("VmRSS:"):
                return int(text.split()[1]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def digest(placement: Placement) -> str:
    """A fingerprint of who goes where; the peer computes the same over its answer."""
    if not placement.ok:
        return ""
    places = sorted(
        f"{name} {share.values[-1]}:{share.count}"
        for name, assignment in placement.assignments.items()
        for share in assignment.shares
    )
    return hashlib.sha256("\n".join(places).encode()).hexdigest()
