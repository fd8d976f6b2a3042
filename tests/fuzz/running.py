"""Runs targets: draws inputs by seed and number, and watches for crashes, hangs and growth."""

from __future__ import annotations

import json
import signal
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import FrameType

from tests.fuzz.mutator import places
from tests.fuzz.target import Case, Target

HANG_SECONDS = 5.0
"""Of processor time for one input; a loaded machine is no hang."""
STUCK_SECONDS = 120.0
"""Of real time: whoever waits for something uses no processor."""
LOOK_EVERY = 256  # cases between two looks at what is kept
GROWTH_BYTES = 64 * 1024 * 1024
"""What caches that have bounds may gain after the first third of a run."""
SHRINK_SECONDS = 20.0
SIZE_SLACK = 8


class Hang(Exception):
    """One input took too long."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A contract that does not hold: what happened, with which input, and how often."""

    what: str  # the same for the same defect
    number: int
    told: str
    case: Case


@dataclass(slots=True)
class Result:
    """How a target fared."""

    target: str
    seed: int
    inputs: int = 0
    cases: int = 0
    seconds: float = 0.0
    findings: dict[str, Finding] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    grown_bytes: int = 0


def case_of(target: Target, seed: int, number: int) -> Case:
    """The input with this number."""
    return target.draw(Random(f"{target.name}:{seed}:{number}"))


def fuzz(target: Target, seed: int, *, seconds: float = 0.0, inputs: int = 0, first: int = 0) -> Result:
    """Run inputs until the time is up or there were enough."""
    result = Result(target.name, seed)
    before, began, number = target.sizes(), time.monotonic(), first
    at_a_third, looked = 0, 0
    while _goes_on(result, began, seconds, inputs):
        case = case_of(target, seed, number)
        found = attempt(target, case)
        if isinstance(found, int):
            result.inputs += found
        else:
            result.inputs += 1
            _note(result, Finding(*found[:1], number, found[1], case))
            target.reset()
        number += 1
        result.cases += 1
        if result.cases % LOOK_EVERY == 0:
            _look(result, target, before, number - 1, case)
            looked = resident()
            done = max(
                result.inputs / inputs if inputs else 0,
                (time.monotonic() - began) / seconds if seconds else 0,
            )
            at_a_third = at_a_third or (looked if done > 1 / 3 else 0)
    _look(result, target, before, number - 1, None)
    result.seconds = time.monotonic() - began
    result.grown_bytes = max(0, resident() - at_a_third) if at_a_third else 0
    if result.grown_bytes > GROWTH_BYTES:
        told = f"{result.grown_bytes >> 20} MiB more than after a third of the run"
        _note(result, Finding("growth of memory", number - 1, told, None))
    return result


def attempt(target: Target, case: Case) -> int | tuple[str, str]:
    """How many inputs went well, or what is wrong: a name of the defect, and everything about it."""
    try:
        with alarm():
            return target.run(case)
    except Exception as error:
        return signature(error), "".join(traceback.format_exception(error, limit=-12))


def signature(error: BaseException) -> str:
    """The same for the same defect: the sort of error and the last place in the product."""
    inside = [
        one for one in traceback.extract_tb(error.__traceback__) if "bayplan" in Path(one.filename).parts
    ]
    if isinstance(error, RecursionError):
        inside = inside[:30]  # where it began; the end is anywhere
        names = {one.name for one in inside}
        return f"RecursionError through {', '.join(sorted(names)[:4])}"
    where = f" in {Path(inside[-1].filename).name} {inside[-1].name}" if inside else f": {error}"
    if isinstance(error, Hang) and inside:
        where = f" in {Path(inside[0].filename).name} {inside[0].name}"
    return f"{type(error).__name__}{where}"


@contextmanager
def alarm() -> Iterator[None]:
    """Raise Hang in the block when one input takes too long."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise Hang(f"more than {HANG_SECONDS:g} s for one input")

    before = signal.signal(signal.SIGPROF, ring), signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_PROF, HANG_SECONDS)
    signal.setitimer(signal.ITIMER_REAL, STUCK_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGPROF, before[0])
        signal.signal(signal.SIGALRM, before[1])


def shrunk(target: Target, case: Case, what: str, seconds: float = SHRINK_SECONDS) -> Case:
    """A smaller case with the same defect: entries are left out as long as it stays."""
    end = time.monotonic() + seconds

    def still(smaller: Case) -> bool:
        target.reset()
        found = attempt(target, smaller)
        return not isinstance(found, int) and found[0] == what

    if not still(case):
        return case
    at, tried = 0, 0
    while time.monotonic() < end and tried < len(places(case)):
        smaller = json.loads(json.dumps(case))
        spots = places(smaller)
        holder, step = spots[at % len(spots)]
        del holder[step]
        if still(smaller):
            case, tried = smaller, 0
        else:
            at, tried = at + 1, tried + 1
    target.reset()
    return case


def resident() -> int:
    """Bytes of memory in use."""
    pages = int(Path("/proc/self/statm").read_text().split()[1]) if Path("/proc/self/statm").exists() else 0
    return pages * 4096


def _goes_on(result: Result, began: float, seconds: float, inputs: int) -> bool:
    if inputs and result.inputs >= inputs:
        return False
    return not seconds or time.monotonic() - began < seconds


def _look(result: Result, target: Target, before: dict[str, int], number: int, case: Case) -> None:
    for where, size in target.sizes().items():
        if size > before.get(where, 0) + SIZE_SLACK:
            told = f"{where} holds {size} entries, {before.get(where, 0)} before"
            _note(result, Finding(f"growth of {where}", number, told, case))
            target.reset()
            return


def _note(result: Result, finding: Finding) -> None:
    result.findings.setdefault(finding.what, finding)
    result.counts[finding.what] = result.counts.get(finding.what, 0) + 1
