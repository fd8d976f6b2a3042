"""What a soak found: figures, violations, and a plot of load, faults and memory over time."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.soak.replicas import Sample

WARM_UP = 300.0
GROWTH_MAX = 0.05


@dataclass(slots=True)
class Findings:
    """Everything that was recorded."""

    commit: str = ""
    seed: int = 0
    seconds: float = 0.0
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
    violations: list[str] = field(default_factory=list)


def growth(samples: list[Sample], warm_up: float = WARM_UP) -> dict[str, float]:
    """By life of a replica that lasted long enough: the growth of its memory after the warm-up."""
    lives: dict[tuple[str, int], list[Sample]] = {}
    for one in samples:
        if one.age >= warm_up:
            lives.setdefault((one.replica, one.life), []).append(one)
    found = {}
    for (name, life), kept in lives.items():
        if len(kept) < 6:
            continue
        third = len(kept) // 3
        early = sum(one.megabytes for one in kept[:third]) / third
        late = sum(one.megabytes for one in kept[-third:]) / third
        found[f"{name} life {life}"] = late / early - 1
    return found


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


def told(findings: Findings) -> str:
    """The summary in the terminal."""
    families = ", ".join(f"{count} {name}" for name, count in sorted(findings.submitted.items()))
    grown = growth(findings.samples)
    lines = [
        f"{findings.seconds / 60:.0f} minutes, {findings.nodes:,} nodes, seed {findings.seed}, "
        f"commit {findings.commit}",
        f"gangs submitted: {families}; finished: {findings.finished}",
        f"longest time that a gang took beside its run time: {findings.slowest_seconds:.0f} s",
        f"faults: {len(findings.faults)}; events judged: {findings.events:,}",
        f"descriptors of a replica: at most {max((one.descriptors for one in findings.samples), default=0)}",
        "memory after warm-up: "
        + (
            ", ".join(f"{name} {100 * value:+.1f} %" for name, value in grown.items())
            or "no life was long enough"
        ),
        f"violations: {len(findings.violations)}",
        *(f"  {one}" for one in findings.violations[:50]),
    ]
    return "\n".join(lines)
