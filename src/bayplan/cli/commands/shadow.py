"""`bayplan shadow report`: how the decisions of a shadow differ from those of the running scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import click

from bayplan.cli.config.output import echo
from bayplan.cli.render.tables import TableColumn, age, column_table, moment, say, say_json
from bayplan.cli.watching.shadow_comparison import (
    Closeness,
    GangComparison,
    ShadowReport,
    Verdict,
    compare,
)
from bayplan.dialects.kube.fields.times import timestamp
from bayplan.explanation.text import counted, short_levels
from bayplan.model.node import HOSTNAME
from bayplan.runtime.core.journal import Damaged
from bayplan.runtime.core.journal import replay as entries_of

SENTENCES = {
    Verdict.EARLIER: "would have started earlier here",
    Verdict.SAME: "would have started at the same time",
    Verdict.ONLY_OURS: "would have started here, and have not started",
    Verdict.REFUSED: "were started, and would still be pending here",
    Verdict.PENDING: "are pending, and would be pending here",
    Verdict.UNCOMPARED: "were started before the shadow had decided",
}


@click.group()
def shadow() -> None:
    """Compare the decisions of a shadow with those of the running scheduler."""


@shadow.command()
@click.argument("journal", type=click.Path(exists=True, path_type=Path))
@click.option("-o", "--output", type=click.Choice(["json"]), help="JSON instead of a table.")
def report(journal: Path, output: str | None) -> None:
    """Report how decisions would have differed: gangs started earlier, closer together, or refused.

    JOURNAL is the folder that `bayplan run --shadow --journal JOURNAL` wrote, or one file of it.
    """
    try:
        found = compare(entries_of(journal))
    except (Damaged, OSError) as error:
        raise click.ClickException(str(error)) from None
    if output == "json":
        say_json(_record(found))
    elif not found.gangs:
        echo("no gang was pending while the journal was written; there is nothing to compare", err=True)
    else:
        say(column_table(_columns(found), found.gangs, wide=True))
        say(["", *_totals(found)])


def _columns(found: ShadowReport) -> tuple[TableColumn[GangComparison], ...]:
    return (
        TableColumn("NAMESPACE", lambda one: one.gang.namespace),
        TableColumn("KIND", lambda one: one.gang.kind),
        TableColumn("NAME", lambda one: one.gang.name),
        TableColumn("PODS", lambda one: one.pods, right=True),
        TableColumn("START", lambda one: one.verdict),
        TableColumn("BY", _by, right=True),
        TableColumn("PLACEMENT", lambda one: one.closeness),
        TableColumn("HERE", lambda one: _spans(found, one.our_domains)),
        TableColumn("THERE", lambda one: _spans(found, one.their_domains)),
        TableColumn("REMARK", _remark),
    )


def _by(one: GangComparison) -> str:
    return age(one.earlier or 0.0) if one.verdict is Verdict.EARLIER else ""


def _spans(found: ShadowReport, domains: tuple[int, ...]) -> str:
    """`1 block, 2 racks, 4 hosts`."""
    names = short_levels(found.levels)
    levels = [*(names[level] for level in found.levels if level != HOSTNAME), "host"]
    return ", ".join(counted(*pair) for pair in zip(domains, levels, strict=False)) if domains else ""


def _remark(one: GangComparison) -> str:
    parts = [f"refused here: {one.reason}"] if one.reason else []
    parts += [f"preempts {counted(one.preempts, 'pod')} here"] if one.preempts else []
    if one.partial_seconds >= 1.0:
        parts.append(f"was partly started for {age(one.partial_seconds)}")
    return "; ".join(parts)


def _totals(found: ShadowReport) -> Iterator[str]:
    yield f"{counted(len(found.gangs), 'gang')} from {moment(found.begin)} to {moment(found.end)}"
    for verdict, sentence in SENTENCES.items():
        gangs = found.having(verdict)
        if gangs:
            waits = [one.earlier for one in gangs if one.earlier is not None]
            by = f", half of them by {age(median(waits))} or more" if verdict is Verdict.EARLIER else ""
            yield f"  {len(gangs)} {sentence}{by}"
    closer = [sum(one.closeness is kind for one in found.gangs) for kind in Closeness]
    if any(closer[:3]):
        yield f"  {closer[0]} would be closer together here, {closer[2]} farther apart, {closer[1]} alike"
    partial = [one.partial_seconds for one in found.gangs if one.partial_seconds >= 1.0]
    if partial:
        yield f"  {len(partial)} were partly started there, for {age(sum(partial))} in total"


def _record(found: ShadowReport) -> dict[str, Any]:
    waits = [one.earlier for one in found.having(Verdict.EARLIER) if one.earlier is not None]
    return {
        "begin": timestamp(found.begin),
        "end": timestamp(found.end),
        "levels": [*(level for level in found.levels if level != HOSTNAME), HOSTNAME],
        "total": {
            "gangs": len(found.gangs),
            **{_key(verdict): len(found.having(verdict)) for verdict in Verdict},
            **{str(kind): sum(one.closeness is kind for one in found.gangs) for kind in list(Closeness)[:3]},
            "medianSecondsEarlier": median(waits) if waits else None,
            "partialSeconds": sum(one.partial_seconds for one in found.gangs),
        },
        "gangs": [_gang_record(one) for one in found.gangs],
    }


def _gang_record(one: GangComparison) -> dict[str, Any]:
    return {
        "namespace": one.gang.namespace,
        "kind": one.gang.kind,
        "name": one.gang.name,
        "pods": one.pods,
        "pending": timestamp(one.seen),
        "start": _key(one.verdict),
        "here": timestamp(one.ours) if one.ours is not None else None,
        "there": timestamp(one.theirs) if one.theirs is not None else None,
        "secondsEarlier": one.earlier,
        "placement": str(one.closeness) or None,
        "domainsHere": list(one.our_domains),
        "domainsThere": list(one.their_domains),
        "reason": one.reason or None,
        "preempts": one.preempts,
        "partialSeconds": one.partial_seconds,
    }


def _key(verdict: Verdict) -> str:
    """The verdict in camel case."""
    first, *rest = verdict.split()
    return first + "".join(map(str.capitalize, rest))
