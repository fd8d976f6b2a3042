"""`bayplan list`: the gangs, queues and topologies of a cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

import click

from bayplan.cli.config.output import echo, echo_coloured
from bayplan.cli.listing.gang_listing import GangListing, list_gangs
from bayplan.cli.listing.gang_selection import SORT_KEYS, GangSelection, sort_keys, words
from bayplan.cli.live.gangs import ClusterOutlook
from bayplan.cli.live.list_gangs import Starts
from bayplan.cli.live.list_groups import fair_queue_records, fair_queue_table, fair_queues
from bayplan.cli.live.list_queues import queue_records, queue_tables
from bayplan.cli.live.list_topologies import live_devices, topology_records, topology_tables
from bayplan.cli.live.scheduled_state import read_scheduled
from bayplan.cli.live.state import ClusterTarget, checked_namespace, cluster_options
from bayplan.cli.render.redraw import STATE_COLOURS, Redraw, coloured, takes_colours
from bayplan.cli.render.tables import say, say_json
from bayplan.cli.starts.past_runs import journal_option, runs_of
from bayplan.cli.starts.queued_gangs import outlook_starts
from bayplan.cli.starts.scheduled_gangs import scheduled_forecast
from bayplan.dialects.kai.api.names import USER_LABEL
from bayplan.dialects.kube.fields.terminal_text import clean

WIDE, JSON = "wide", "json"


def _output(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("-o", "--output", type=click.Choice([WIDE, JSON]), help="More columns, or JSON.")(
        command
    )


_all_namespaces = click.option("-A", "--all-namespaces", is_flag=True, help="List all namespaces.")


@click.group()
def listing() -> None:
    """List gangs, queues or topologies of a cluster. Nothing is changed."""


def _selection(command: Callable[..., Any]) -> Callable[..., Any]:
    """The filters and sort keys; the command gets them as one `selection`."""

    @click.option("--queue", "queue_names", multiple=True, help="Only gangs of a queue or ClusterQueue.")
    @click.option("--user", "users", multiple=True, help="Only gangs of a user (see --user-label).")
    @click.option("--state", "states", multiple=True, help="Only gangs in a state, e.g. pending.")
    @click.option("--reason", "reasons", multiple=True, help="Only gangs whose reason contains a text.")
    @click.option(
        "--sort",
        default="",
        callback=lambda _, __, value: sort_keys(value),
        help=f"Sort by keys separated by commas: {', '.join(SORT_KEYS)}; -KEY sorts in descending order.",
    )
    @wraps(command)
    def wrapped(**options: Any) -> Any:
        queues, users = words(options.pop("queue_names")), words(options.pop("users"))
        states, reasons = (words(options.pop(name), fold=True) for name in ("states", "reasons"))
        selection = GangSelection(queues, users, states, reasons, options.pop("sort"))
        return command(selection=selection, **options)

    return wrapped


@dataclass(frozen=True, slots=True)
class ListRequest:
    """What `list gangs` was asked to show."""

    target: ClusterTarget
    all_namespaces: bool
    selection: GangSelection
    user_label: str
    journal: Path | None = None
    quiet: bool = False  # shows no progress

    @contextmanager
    def listing(self) -> Iterator[tuple[GangListing, str]]:
        """The gangs, and what to say if there are none."""
        with self.target.live(quiet=self.quiet) as live:
            namespace = "" if self.all_namespaces else checked_namespace(live, live.namespace)
            none = (
                "no gangs"
                if self.all_namespaces
                else f"no gangs in namespace {namespace}; -A lists all namespaces"
            )
            scheduled = read_scheduled(live)

            def forecast(cluster: ClusterOutlook) -> Starts:
                past = runs_of(self.journal)
                starts = scheduled_forecast(live, scheduled, past.pod_runs).starts()
                return starts | outlook_starts(live, cluster, past.runs.values())

            found = list_gangs(live, scheduled, namespace, self.selection, self.user_label, forecast=forecast)
            yield found, found.unmatched or none


@listing.command()
@cluster_options
@_all_namespaces
@journal_option
@_output
@_selection
@click.option(
    "--user-label", default=USER_LABEL, show_default=True, help="The label that names a gang's user."
)
@click.option("-w", "--watch", is_flag=True, help="Show the list again and again, until Ctrl-C.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    help="Seconds between two readings with --watch.",
)
def gangs(
    target: ClusterTarget, all_namespaces: bool, output: str | None, selection: GangSelection,
    user_label: str, journal: Path | None, watch: bool, interval: float,
) -> None:  # fmt: skip
    """List all gangs: Workloads, pod groups, and jobs and pods with the scheduler bayplan.

    Shows where each gang is placed, or the reason why it is pending and when it is expected to start.
    Filters can be repeated, or hold several values separated by commas.
    """
    query = ListRequest(target, all_namespaces, selection, user_label, journal)
    if watch:
        if output == JSON:
            raise click.UsageError("--watch draws a table; leave out -o json, or call the command again")
        _watch(query, interval, wide=output == WIDE)
        return
    with query.listing() as (found, none):
        _report_unread(found.unread)
        if output == JSON:
            say_json(found.records())
        elif found.is_empty:
            echo(none, err=True)
        else:
            echo_coloured(_separated(found.tables(wide=output == WIDE)), _coloured)


def _watch(query: ListRequest, interval: float, *, wide: bool) -> None:
    """Draw the list until Ctrl-C. A server that does not answer is reported below the last list."""

    def read() -> list[str]:
        with query.listing() as (found, none):
            lines = _separated(found.tables(wide=wide)) or [none]
            return _coloured([clean(line) for line in lines])

    body, trouble = read(), list[str]()  # if the first reading fails, the command does, as without --watch
    query = replace(query, quiet=True)
    with Redraw(sys.stdout) as screen, suppress(KeyboardInterrupt):
        while True:
            screen.draw([*body, *trouble])
            query.target.clock.sleep(interval)
            try:
                body, trouble = read(), []
            except click.ClickException as error:
                trouble = ["", clean(f"not up to date: {error.message}")]


def _coloured(lines: list[str]) -> list[str]:
    """The lines of tables, with coloured states on a terminal."""
    if not takes_colours(sys.stdout):
        return lines
    tables = "\n".join(lines).split("\n\n")
    return _separated(coloured(one.split("\n"), "STATE", STATE_COLOURS) for one in tables)


@listing.command()
@cluster_options
@_all_namespaces
@_output
def queues(target: ClusterTarget, all_namespaces: bool, output: str | None) -> None:
    """List ClusterQueues with their quota, their LocalQueues, and the queues of pod groups."""
    with target.live() as live:
        namespace = target.namespace if target.namespace and not all_namespaces else ""
        if namespace:
            checked_namespace(live, namespace)
        fair = fair_queues(live)
        if output == JSON:
            more = {"queues": fair_queue_records(fair)} if fair else {}
            say_json({**queue_records(live, namespace), **more})
        elif live.state.config.queues or fair:
            known = bool(live.state.config.queues)
            tables = [queue_tables(live, namespace, wide=output == WIDE)] if known else []
            say(_separated([*tables, *([fair_queue_table(fair)] if fair else [])]))
        else:
            live.require_queues()
            echo("no ClusterQueue is defined", err=True)


@listing.command()
@cluster_options
@_all_namespaces
@_output
def topologies(target: ClusterTarget, all_namespaces: bool, output: str | None) -> None:
    """List the levels of every topology: free capacity, and the largest gang that fits in one domain."""
    del all_namespaces  # topologies are cluster-scoped
    with target.live() as live:
        if output == JSON:
            say_json(topology_records(live, live_devices(live)))
        elif live.state.usage.topologies:
            say(topology_tables(live, wide=output == WIDE, devices=live_devices(live)))
        else:
            live.require_queues()
            echo("no Topology is defined", err=True)


def _report_unread(unread: list[str]) -> None:
    if unread:
        echo(f"not included, because you may not list them: {', '.join(unread)}", err=True)


def _separated(tables: Iterable[list[str]]) -> list[str]:
    """The lines of tables, with an empty line between them."""
    lines: list[str] = []
    for one in tables:
        lines += ["", *one] if lines else one
    return lines
