"""The report of several policies on one trace: JSON, one HTML page without network, and a table of text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from bayplan.simulation.reports.figures import SIZES, figures, thinned
from bayplan.simulation.reports.plots import BarPlot, LinePlot, legend, seconds_in_words
from bayplan.simulation.traces.workload import GPU
from bayplan.simulation.virtual_time.free_slots import SLOT_SIZES
from bayplan.simulation.virtual_time.outcome import RunOutcome

NAMED_MAX = 20
STYLE = """body{font:14px/1.4 system-ui,sans-serif;max-width:760px;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse}td,th{padding:.2em .7em;text-align:right;border-bottom:1px solid #ddd}
td:first-child,th:first-child{text-align:left}svg{width:100%;font-size:11px;fill:#444}
.key{margin-right:1em}.key i{display:inline-block;width:.8em;height:.8em;margin-right:.3em}"""


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """What was simulated, and how each policy did."""

    trace: str
    cluster: str
    seed: int
    outcomes: tuple[RunOutcome, ...]
    notes: tuple[str, ...] = ()

    def data(self) -> dict[str, Any]:
        """Everything as JSON values. It has no wall-clock time: one seed gives the same bytes."""
        return {
            "trace": self.trace,
            "cluster": self.cluster,
            "seed": self.seed,
            "notes": list(self.notes),
            "policies": [figures(outcome) for outcome in self.outcomes],
            "sampleColumns": ["time", "allocatedShare", "jobsWaiting", "nodesPartlyUsedShare"],
            "samples": {outcome.policy: thinned(outcome) for outcome in self.outcomes},
        }

    def json(self) -> str:
        """The data as text."""
        return json.dumps(self.data(), indent=1, ensure_ascii=False) + "\n"

    def html(self) -> str:
        """One page that loads nothing."""
        data = self.data()
        names = [one["policy"] for one in data["policies"]]
        title = f"Simulation of {self.trace}"
        body = "".join(
            f"<h2>{escape(plot.title)}</h2><p>{legend(names)}</p>{plot.svg()}" for plot in self.plots()
        )
        return (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
            f"<style>{STYLE}</style></head><body><h1>{escape(title)}</h1>"
            f"<p>Cluster: {escape(self.cluster)}; seed {self.seed}.</p>{_notes(self.notes)}"
            f"{_table(HEADER, map(_row, data['policies']))}{_slot_table(data)}{body}{_never(data)}"
            "</body></html>\n"
        )

    def plots(self) -> tuple[LinePlot | BarPlot, ...]:
        """What is drawn, on the page and as images."""
        data, unit = self.data(), _unit(self.outcomes)
        across = {one["policy"]: [one["gangsAcrossRacks"]] for one in data["policies"]}
        return (
            LinePlot("allocation", "Allocated capacity", _over_time(data, 1), percent=True),
            LinePlot("waiting", "Jobs waiting", _over_time(data, 2)),
            LinePlot("fragmentation", "Nodes partly used", _over_time(data, 3), percent=True),
            _by_size("wait", f"Mean wait in seconds, by {unit}", data, lambda one: one["mean"]),
            _by_size(
                "completion",
                f"Jobs completed, by {unit}",
                data,
                lambda one: one["done"] / one["jobs"],
                percent=True,
            ),
            BarPlot(
                "across-racks", "Gangs of several pods across racks", ("all gangs",), across, percent=True
            ),
            *_slot_plots(data),
        )

    def text(self) -> str:
        """The summary for a terminal."""
        data = self.data()
        lines = _aligned([HEADER, *map(_row, data["policies"])])
        if slots := _slot_rows(data):
            lines += [SLOTS_TITLE, *_aligned(slots)]
        never = data["policies"][0]["neverFit"] if self.outcomes else []
        if never:
            more = f" and {len(never) - NAMED_MAX} more" if len(never) > NAMED_MAX else ""
            lines.append(
                f"{len(never)} jobs can never fit this cluster: {', '.join(never[:NAMED_MAX])}{more}"
            )
        lines += [f"note: {note}" for note in self.notes]
        if any(outcome.interrupted for outcome in self.outcomes):
            lines.append("interrupted: the figures are those up to the interrupt")
        return "\n".join(lines)


SLOTS_TITLE = "gangs that would fit besides, on average over time: each within a rack / anywhere"
HEADER = ("policy", "done", "running", "waiting", "allocated", "wait p50", "p90", "p99", "mean")


def _row(one: Mapping[str, Any]) -> tuple[str, ...]:
    jobs, wait = one["jobs"], one["wait"]
    return (
        one["policy"],
        *(f"{jobs[state]:,}" for state in ("done", "running", "waiting")),
        f"{100 * one['allocatedMean']:.1f} %",
        *(seconds_in_words(wait[key]) for key in ("p50", "p90", "p99", "mean")),
    )


def _unit(outcomes: Sequence[RunOutcome]) -> str:
    return "GPUs of a job" if not outcomes or outcomes[0].resource == GPU else "processors of a job"


def _over_time(data: Mapping[str, Any], column: int) -> dict[str, list[tuple[float, float]]]:
    return {name: [(row[0], row[column]) for row in rows] for name, rows in data["samples"].items()}


def _by_size(name: str, title: str, data: Mapping[str, Any], pick: Any, percent: bool = False) -> BarPlot:
    found = tuple(name for _, name in SIZES if any(name in one["bySize"] for one in data["policies"]))
    series = {
        one["policy"]: [
            pick(one["bySize"][name]) if one["bySize"].get(name, {}).get("jobs") else None for name in found
        ]
        for one in data["policies"]
    }
    return BarPlot(name, title, found, series, percent)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = ("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{cells}</tr>{''.join(body)}</table>"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def _slot_rows(data: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The free slots of each policy below a header; nothing in a cluster without GPUs."""
    policies = [one for one in data["policies"] if one["freeSlots"]]
    if not policies:
        return []
    rows = [("policy", *(f"{size} GPUs" for size in SLOT_SIZES))]
    for one in policies:
        found = one["freeSlots"].values()
        rows.append((one["policy"], *(f"{each['inRacks']:.1f} / {each['anywhere']:.1f}" for each in found)))
    return rows


def _slot_table(data: Mapping[str, Any]) -> str:
    rows = _slot_rows(data)
    return f"<p>{escape(SLOTS_TITLE)}</p>{_table(rows[0], rows[1:])}" if rows else ""


def _slot_plots(data: Mapping[str, Any]) -> Iterator[BarPlot]:
    for key, name, where in (
        ("inRacks", "slots-in-racks", "within a rack"),
        ("anywhere", "slots", "anywhere"),
    ):
        series = {
            one["policy"]: [each[key] for each in one["freeSlots"].values()]
            for one in data["policies"]
            if one["freeSlots"]
        }
        if series:
            title = f"Free slots {where}, by GPUs of a gang"
            yield BarPlot(name, title, tuple(map(str, SLOT_SIZES)), series)


def _notes(notes: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(note)}</li>" for note in notes) + "</ul>" if notes else ""


def _never(data: Mapping[str, Any]) -> str:
    never = data["policies"][0]["neverFit"] if data["policies"] else []
    if not never:
        return ""
    named = ", ".join(escape(name) for name in never)
    return f"<h2>Jobs that can never fit</h2><p>{len(never)}: {named}</p>"
