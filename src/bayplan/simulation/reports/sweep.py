"""The report of a sweep: how waiting falls with each rack added, and which capacity meets a target."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from bayplan.simulation.reports.figures import figures, quantile
from bayplan.simulation.reports.plots import BarPlot, legend, seconds_in_words
from bayplan.simulation.reports.wait_target import WaitTarget, waited_gpu_hours
from bayplan.simulation.virtual_time.outcome import RunOutcome

HEADS = ("racks added", "hosts", "allocated", "wait p50", "p95", "GPU-hours waited", "saved by the last rack")


@dataclass(frozen=True, slots=True)
class SweepReport:
    """One policy with more and more racks."""

    trace: str
    cluster: str
    policy: str
    seed: int
    runs: tuple[tuple[int, RunOutcome], ...]  # racks added, and how it went
    target: WaitTarget | None = None
    notes: tuple[str, ...] = ()

    def data(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return {
            "trace": self.trace,
            "cluster": self.cluster,
            "policy": self.policy,
            "seed": self.seed,
            "notes": list(self.notes),
            "runs": self.rows(),
            "target": self.target.text if self.target else None,
            "smallest": self.smallest(),
        }

    def rows(self) -> list[dict[str, Any]]:
        """One record for each number of racks."""
        found: list[dict[str, Any]] = []
        for racks, outcome in self.runs:
            known = figures(outcome)
            waits = [one.wait for one in outcome.jobs if one.wait is not None]
            waited = waited_gpu_hours(outcome)
            steps = racks - found[-1]["racksAdded"] if found else 0
            found.append(
                {
                    "racksAdded": racks,
                    "hosts": outcome.nodes,
                    "capacity": outcome.capacity,
                    "allocatedMean": known["allocatedMean"],
                    "freeSlots": known["freeSlots"],
                    "waitP50": quantile(waits, 0.5),
                    "waitP95": quantile(waits, 0.95),
                    "gpuHoursWaited": round(waited, 3),
                    "gpuHoursSavedPerRack": round((found[-1]["gpuHoursWaited"] - waited) / steps, 3)
                    if steps
                    else None,
                    "targetWait": self.target.found(outcome) if self.target else None,
                    "meetsTarget": self.target.is_met(outcome) if self.target else None,
                }
            )
        return found

    def smallest(self) -> int | None:
        """The fewest racks that meet the target."""
        return next((row["racksAdded"] for row in self.rows() if row["meetsTarget"]), None)

    def json(self) -> str:
        """The data as text."""
        return json.dumps(self.data(), indent=1, ensure_ascii=False) + "\n"

    def plots(self) -> tuple[BarPlot, ...]:
        """What is drawn."""
        rows = self.rows()
        classes = tuple(str(row["racksAdded"]) for row in rows)
        waits = {"p50": [row["waitP50"] for row in rows], "p95": [row["waitP95"] for row in rows]}
        saved = {"saved": [row["gpuHoursSavedPerRack"] for row in rows]}
        return (
            BarPlot("wait", "Wait in seconds, by racks added", classes, waits),
            BarPlot("saved", "GPU-hours of waiting saved by each rack, by racks added", classes, saved),
        )

    def html(self) -> str:
        """One page that loads nothing."""
        title = f"Racks added to {self.cluster}: {self.trace}"
        head = "".join(f"<th>{escape(cell)}</th>" for cell in HEADS)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
            for cells in self._cells()
        )
        plots = "".join(
            f"<h2>{escape(plot.title)}</h2><p>{legend([*plot.series])}</p>{plot.svg()}"
            for plot in self.plots()
        )
        return (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
            f"</head><body><h1>{escape(title)}</h1><p>Policy {escape(self.policy)}; seed {self.seed}."
            f" {escape(self.verdict())}</p><table><tr>{head}</tr>{body}</table>{plots}</body></html>\n"
        )

    def text(self) -> str:
        """The table for a terminal, and the answer to the target."""
        rows: Sequence[Sequence[str]] = [HEADS, *self._cells()]
        widths = [max(len(row[at]) for row in rows) for at in range(len(HEADS))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join([*lines, *([self.verdict()] if self.target else [])])

    def verdict(self) -> str:
        """Whether and with how many racks the target is met."""
        if self.target is None:
            return ""
        racks = self.smallest()
        if racks is None:
            return f"{self.target.text}: not met with up to {self.runs[-1][0]} racks more"
        return (
            f"{self.target.text}: met with {racks} racks more"
            if racks
            else f"{self.target.text}: met as it is"
        )

    def _cells(self) -> list[tuple[str, ...]]:
        return [
            (
                str(row["racksAdded"]),
                f"{row['hosts']:,}",
                f"{100 * row['allocatedMean']:.1f} %",
                seconds_in_words(row["waitP50"]),
                seconds_in_words(row["waitP95"]),
                f"{row['gpuHoursWaited']:,.0f}",
                "-" if row["gpuHoursSavedPerRack"] is None else f"{row['gpuHoursSavedPerRack']:,.0f}",
            )
            for row in self.rows()
        ]
