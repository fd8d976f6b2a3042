"""What a soak found: figures, violations, and a plot of load, faults and memory over time."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.soak.replicas import Sample

WARM_UP = 300.0
GROWTH_MAX = 0.05
DESCRIPTORS_MAX = 4
"""Connections for writes come and go; what leaks raises even the least number."""
SAMPLES_MIN = 12
STEADY = 0.9
"""Of the usual load: from then on the load is no longer growing."""


@dataclass(slots=True)
class Findings:
    """Everything that was recorded."""

    commit: str = ""
    seed: int = 0
    seconds: float = 0.0
    loaded_seconds: float = 0.0  # until the load ended
    nodes: int = 0
    submitted: dict[str, int] = field(default_factory=dict)  # by family
    finished: int = 0
    slowest_seconds: float = 0.0  # from submission to the end, beside its own run time
    events: int = 0
    faults: list[tuple[float, str]] = field(default_factory=list)
    allocation: list[tuple[float, float, int]] = field(
        default_factory=list
    )  # at, share of GPUs, gangs pending
    samples: list[Sample] = field(default_factory=list)
    restarts: list[tuple[float, str]] = field(
        default_factory=list
    )  # of components that did not do their part
    replays: dict[str, str] = field(default_factory=dict)  # by replica: what `bayplan replay` says
    violations: list[str] = field(default_factory=list)


def steady_at(allocation: list[tuple[float, float, int]]) -> float:
    """When the users' load first came near its median: a replica grows with the load until then."""
    if not allocation:
        return 0.0
    usual = STEADY * statistics.median(share for _, share, _ in allocation)
    return next(at for at, share, _ in allocation if share >= usual)


def growth(
    samples: list[Sample], warm_up: float = WARM_UP, steady: float = 0.0
) -> dict[str, tuple[float, int, int]]:
    """By life of a replica that lasted long enough: what it gained after the warm-up, under a steady load.

    As a share of its memory, in descriptors, and in watches.
    """
    found = {}
    for name, kept in _lives(samples, warm_up, steady).items():
        third = len(kept) // 3
        early, late = kept[:third], kept[-third:]
        memory = sum(one.megabytes for one in late) / sum(one.megabytes for one in early) - 1
        descriptors = min(one.descriptors for one in late) - min(one.descriptors for one in early)
        watches = min(one.watches for one in late) - max(one.watches for one in early)
        found[name] = memory, descriptors, watches
    return found


def leaks(samples: list[Sample], warm_up: float = WARM_UP, steady: float = 0.0) -> list[str]:
    """Lives whose memory, descriptors or watches grew."""
    found = []
    for name, (memory, descriptors, watches) in growth(samples, warm_up, steady).items():
        if memory > GROWTH_MAX:
            found.append(f"the memory of {name} grew by {100 * memory:.1f} %")
        if descriptors > DESCRIPTORS_MAX:
            found.append(f"{name} gained {descriptors} descriptors")
        if watches > 0:
            found.append(f"{name} gained {watches} watches")
    return found


def _lives(samples: list[Sample], warm_up: float, steady: float) -> dict[str, list[Sample]]:
    lives: dict[str, list[Sample]] = {}
    for one in samples:
        if one.age >= warm_up and one.at >= steady:
            lives.setdefault(
                f"{one.replica} life {one.life} ({'leads' if one.leads else 'stands by'})", []
            ).append(one)
    return {name: kept for name, kept in lives.items() if len(kept) >= SAMPLES_MIN}


def write(findings: Findings, folder: Path) -> None:
    """soak.json, and soak.png where matplotlib is installed."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "soak.json").write_text(json.dumps(asdict(findings), indent=1) + "\n")
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return
    figure: Any = Figure(figsize=(10, 6))
    FigureCanvasAgg(figure)
    upper, lower = figure.subplots(2, 1, sharex=True)
    upper.plot(
        [at / 60 for at, _, _ in findings.allocation], [100 * share for _, share, _ in findings.allocation]
    )
    upper.set_ylabel("GPUs in use, %")
    for at, _ in findings.faults:
        for axes in (upper, lower):
            axes.axvline(at / 60, color="#d55e00", linewidth=0.5)
    for name in sorted({one.replica for one in findings.samples}):
        mine = [one for one in findings.samples if one.replica == name]
        lower.plot([one.at / 60 for one in mine], [one.megabytes for one in mine], label=name)
    lower.set_ylabel("resident memory, MB")
    lower.set_xlabel("minutes; a line for each fault")
    lower.legend()
    figure.suptitle(
        f"{findings.nodes} nodes, {sum(findings.submitted.values())} gangs, {len(findings.faults)} faults"
    )
    figure.savefig(folder / "soak.png", dpi=100)


def told(findings: Findings, warm_up: float = WARM_UP) -> str:
    """The summary in the terminal."""
    families = ", ".join(f"{count} {name}" for name, count in sorted(findings.submitted.items()))
    kinds = Counter(what.partition(" for ")[0] for _, what in findings.faults)
    steady = steady_at(findings.allocation)
    grown = growth(findings.samples, warm_up, steady)
    memory = ", ".join(f"{name} {100 * value:+.1f} %" for name, (value, _, _) in grown.items())
    samples = findings.samples
    lines = [
        f"{findings.seconds / 60:.0f} minutes, {findings.loaded_seconds / 60:.0f} of them with load; "
        f"{findings.nodes:,} nodes, seed {findings.seed}, commit {findings.commit}",
        f"gangs submitted: {families}; finished: {findings.finished}",
        f"longest time that a gang took beside its run time: {findings.slowest_seconds:.0f} s",
        f"events judged: {findings.events:,}; faults: {len(findings.faults)}",
        *(f"  {count} × {what}" for what, count in sorted(kinds.items())),
        f"components started again by the soak: {len(findings.restarts)}",
        *(f"  {what} ({at:.0f} s)" for at, what in findings.restarts[:20]),
        f"of a replica, at most: {max((one.megabytes for one in samples), default=0):.0f} MB, "
        f"{max((one.descriptors for one in samples), default=0)} descriptors, "
        f"{max((one.watches for one in samples), default=0)} watches",
        f"memory after {warm_up:.0f} s of warm-up, load steady from {steady:.0f} s on: "
        f"{memory or 'no life was long enough'}",
        *(f"replay of {name}: {text}" for name, text in findings.replays.items()),
        f"violations: {len(findings.violations)}",
        *(f"  {one}" for one in findings.violations[:50]),
    ]
    return "\n".join(lines)
