"""Tables of what was measured, for people, and the same as JSON, for comparing runs."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from tests.benchmarks import measure, targets
from tests.benchmarks.measure import Line
from tests.benchmarks.targets import Lines
from tests.benchmarks.theirs import NAME

OURS = ("row", "p50 ms", "p99 ms", "again", "peak kB", "blocks", "target", "")
PEER = ("p50 ms", "p99 ms", "alloc kB", "allocs", "ratio", "answer")
TITLES = {
    measure.SNAPSHOT: "usage changed, snapshot, {shape}",
    measure.PLACE: "  {shape}",
    measure.CHANGED: "node changed, snapshot, {shape}",
    measure.ADDED: "node added, snapshot, {shape}",
    measure.REMOVED: "node removed, snapshot, {shape}",
}


def table(nodes: int, ours: Lines, peer: Lines) -> str:
    """All rows of one size, the peer's figures to the right where there are any."""
    judged = nodes >= targets.SIZE
    head = [*OURS, *(PEER if peer else ())]
    body = [
        _cells(line, peer.get(key), judged, len(head)) for key, line in ours.items() if line.row in TITLES
    ]
    title = f"{nodes:,} nodes" + (f"   (right: {NAME}, same run, same cluster)" if peer else "")
    return "\n".join([title, *_columns([head, *body]), _memory(ours, peer)])


def _columns(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(_align(cell, widths[column], column) for column, cell in enumerate(row)).rstrip()
        for row in rows
    ]


def _align(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column in (0, len(OURS) - 1, len(OURS) + len(PEER) - 1) else cell.rjust(width)


def _cells(line: Line, other: Line | None, judged: bool, columns: int) -> list[str]:
    limit = targets.of_time(line) if judged else None
    cells = [
        TITLES[line.row].format(shape=line.shape),
        f"{line.p50_ms:.2f}",
        f"{line.p99_ms:.2f}",
        f"{line.again_ms:.2f}" if line.again_ms else "",
        f"{line.bytes / 1e3:,.0f}",
        f"{line.allocs:,}",
        "" if limit is None else f"≤ {limit:g}",
        "" if limit is None else _word(line.p50_ms <= limit),
    ]
    if other is not None:
        cells += [
            f"{other.p50_ms:.2f}",
            f"{other.p99_ms:.2f}",
            f"{other.bytes / 1e3:,.0f}",
            f"{other.allocs:,}",
            f"{other.p50_ms / line.p50_ms:.0f} ×",
            _compare(line, other),
        ]
    return cells + [""] * (columns - len(cells))


def _compare(line: Line, other: Line) -> str:
    if line.placed != other.placed:
        return "only ours places it" if line.placed else "only the peer places it"
    if not line.placed:
        return "both refuse"
    if other.varies:
        return "the peer's varies"
    return "same nodes" if line.digest == other.digest else "other nodes"


def _word(met: bool | None) -> str:
    return "not measured" if met is None else "met" if met else "missed"


def _memory(ours: Lines, peer: Lines) -> str:
    told = [
        f"{label} {lines[row, ''].bytes / 1e6:.0f} MB"
        for label, row, lines in (
            ("held for the cluster", measure.MEMORY, ours),
            ("the whole process", measure.PROCESS, ours),
            ("the peer's heap for the cluster", measure.MEMORY, peer),
        )
        if (row, "") in lines
    ]
    return f"memory: {', '.join(told)}"


def summary(ours: Lines, peer: Lines) -> str:
    """The targets, each beside what was measured."""
    found = targets.verdicts(ours, peer)
    rows = [(v.subject, v.target, v.measured, _word(v.met)) for v in found]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([f"Targets at {targets.SIZE:,} nodes", *(line.rstrip() for line in lines)])


LEGEND = """\
p50, p99: a request with amounts never seen before; again: an equal request once more on the same snapshot.
peak kB, blocks: memory above the start of a call, blocks held with its answer; of the peer, all it allocated.
answer: whether both put the gang on the same nodes."""


def save(path: Path, ours: Mapping[int, Lines], peer: Mapping[int, Lines]) -> None:
    """Write everything measured, with the machine it was measured on."""
    machine = {
        "system": platform.platform(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
    }
    sizes = {
        str(nodes): {
            "ours": [asdict(line) for line in lines.values()],
            "peer": [asdict(line) for line in peer.get(nodes, {}).values()],
        }
        for nodes, lines in ours.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"machine": machine, "peer": NAME, "sizes": sizes}, indent=1)
    path.write_text(text + "\n", encoding="utf-8")
