"""What placement is meant to reach at 100,000 nodes, and whether a measurement does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tests.benchmarks import measure
from tests.benchmarks.measure import Line

SIZE = 100_000
RATIO = 100.0  # how many times faster than the peer a whole cycle is meant to be
SNAPSHOT_MS, PLACE_MS, CHANGED_MS, BALANCED_MS = 5.0, 2.0, 10.0, 20.0
AGAIN_SHARE = 0.5  # of the first rack-sized request, spent on the second one
HELD_BYTES = 300_000_000
RACK_SIZED = "required rack, 8 pods"

Lines = Mapping[tuple[str, str], Line]
"""Measured lines by row and shape."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One target beside its measurement. `met` is None where nothing was measured."""

    subject: str
    target: str
    measured: str
    met: bool | None


def of_time(line: Line) -> float | None:
    """Milliseconds that the median of a row is meant to stay below."""
    match line.row:
        case measure.SNAPSHOT:
            return SNAPSHOT_MS
        case measure.PLACE:
            return BALANCED_MS if line.shape.startswith("balanced") else PLACE_MS
        case measure.CHANGED | measure.ADDED | measure.REMOVED:
            return CHANGED_MS
    return None


def verdicts(ours: Lines, peer: Lines) -> list[Verdict]:
    """Every target with its measurement, in the order in which they were set."""
    found = [_slowest(ours, row) for row in (measure.SNAPSHOT, measure.PLACE)]
    found.insert(1, _against_peer(ours, peer))
    changed = [
        line for line in ours.values() if line.row in (measure.CHANGED, measure.ADDED, measure.REMOVED)
    ]
    found.append(_time("after one node changed, slowest p50", changed, CHANGED_MS))
    found.append(_rack_again(ours))
    balanced = [line for line in ours.values() if of_time(line) == BALANCED_MS]
    found.append(_time("balanced, p50", balanced, BALANCED_MS))
    held = ours.get((measure.PROCESS, ""))
    text = f"{held.bytes / 1e6:.0f} MB" if held else "–"
    met = held.bytes < HELD_BYTES if held else None
    return [*found, Verdict("memory of the whole process", f"< {HELD_BYTES / 1e6:.0f} MB", text, met)]


def _slowest(ours: Lines, row: str) -> Verdict:
    subject = "snapshot + placement, p50" if row == measure.SNAPSHOT else "a further placement, slowest p50"
    limit = SNAPSHOT_MS if row == measure.SNAPSHOT else PLACE_MS
    return _time(
        subject, [line for line in ours.values() if line.row == row and of_time(line) == limit], limit
    )


def _time(subject: str, lines: list[Line], limit: float) -> Verdict:
    if not lines:
        return Verdict(subject, f"≤ {limit:g} ms", "–", None)
    slowest = max(lines, key=lambda line: line.p50_ms)
    which = slowest.shape if slowest.row == measure.PLACE else slowest.row
    told = f"{slowest.p50_ms:.2f} ms" + (f" ({which})" if len(lines) > 1 else "")
    return Verdict(subject, f"≤ {limit:g} ms", told, slowest.p50_ms <= limit)


def _against_peer(ours: Lines, peer: Lines) -> Verdict:
    subject, target = "snapshot + placement against the peer", f"≥ {RATIO:g} times faster"
    for key, line in ours.items():
        if line.row == measure.SNAPSHOT and key in peer and line.p50_ms:
            ratio = peer[key].p50_ms / line.p50_ms
            return Verdict(subject, target, f"{ratio:.0f} times", ratio >= RATIO)
    return Verdict(subject, target, "not measured", None)


def _rack_again(ours: Lines) -> Verdict:
    """Two equal requests on one snapshot: the second must not count the whole cluster once more."""
    subject, target = "a rack-sized request once more, of the first", f"≤ {AGAIN_SHARE:.0%}"
    line = ours.get((measure.PLACE, RACK_SIZED))
    if line is None or not line.p50_ms:
        return Verdict(subject, target, "–", None)
    share = line.again_ms / line.p50_ms
    return Verdict(
        subject, target, f"{share:.0%} ({line.again_ms:.2f} of {line.p50_ms:.2f} ms)", share <= AGAIN_SHARE
    )
