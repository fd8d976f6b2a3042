"""`bayplan list`: gangs, queues and topologies of a cluster as they are now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from bayplan.cli.config.output import echo
from bayplan.cli.live.gangs import outlook
from bayplan.cli.live.list_gangs import gang_records, gang_table
from bayplan.cli.live.list_groups import (
    fair_queue_records,
    fair_queue_table,
    fair_queues,
    group_records,
    group_table,
    pod_groups,
)
from bayplan.cli.live.list_queues import queue_records, queue_tables
from bayplan.cli.live.list_scheduled import scheduled_records, scheduled_rows, scheduled_table
from bayplan.cli.live.list_topologies import topology_records, topology_tables
from bayplan.cli.live.scheduled_state import Scheduled, read_scheduled
from bayplan.cli.live.state import ClusterTarget, checked_namespace, reaches_a_cluster
from bayplan.cli.render.tables import say, say_json

WIDE, JSON = "wide", "json"


def _output(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("-o", "--output", type=click.Choice([WIDE, JSON]), help="More columns, or JSON.")(
        command
    )


_everywhere = click.option("-A", "--all-namespaces", is_flag=True, help="Every namespace.")


@click.group()
def listing() -> None:
    """Show gangs, queues or topologies of a cluster. Nothing is changed."""


@listing.command()
@reaches_a_cluster
@_everywhere
@_output
def gangs(target: ClusterTarget, all_namespaces: bool, output: str | None) -> None:
    """Show every gang: Workloads of queues, pod groups, jobs and pods that name bayplan as their scheduler.

    Tells where each stands, or the reason why it waits.
    """
    with target.live() as live:
        namespace = "" if all_namespaces else checked_namespace(live, live.namespace)
        found = [one for one in outlook(live).gangs if namespace in ("", one.demand.gang.source.namespace)]
        groups, scheduled = pod_groups(live, namespace), read_scheduled(live)
        rows = scheduled_rows(live, scheduled, namespace)
        _say_unread(scheduled)
        if output == JSON:
            say_json([*gang_records(live, found), *group_records(live, groups), *scheduled_records(rows)])
        elif found or groups or rows:
            tables = [gang_table(live, found, wide=output == WIDE)] if found else []
            tables += [group_table(live, groups)] if groups else []
            tables += [scheduled_table(live, rows, wide=output == WIDE)] if rows else []
            _say_all(*tables)
        else:
            where = f"no gangs in namespace {namespace}" if namespace else "no gangs"
            echo(where if all_namespaces else f"{where}; -A lists all namespaces", err=True)


@listing.command()
@reaches_a_cluster
@_everywhere
@_output
def queues(target: ClusterTarget, all_namespaces: bool, output: str | None) -> None:
    """Show ClusterQueues with their quota, the LocalQueues that lead to them, and queues of pod groups."""
    with target.live() as live:
        namespace = target.namespace if target.namespace and not all_namespaces else ""
        if namespace:
            checked_namespace(live, namespace)
        fair = fair_queues(live)
        if output == JSON:
            more = {"queues": fair_queue_records(fair)} if fair else {}
            say_json({**queue_records(live, namespace), **more})
        elif live.state.rules.queues or fair:
            known = bool(live.state.rules.queues)
            tables = [queue_tables(live, namespace, wide=output == WIDE)] if known else []
            _say_all(*tables, *([fair_queue_table(fair)] if fair else []))
        else:
            live.require_queues()
            echo("no ClusterQueue is defined", err=True)


@listing.command()
@reaches_a_cluster
@_everywhere
@_output
def topologies(target: ClusterTarget, all_namespaces: bool, output: str | None) -> None:
    """Show the levels of every topology: what is free, and the largest gang that one domain takes."""
    del all_namespaces  # a topology is in none
    with target.live() as live:
        if output == JSON:
            say_json(topology_records(live))
        elif live.state.holdings.clusters:
            say(topology_tables(live, wide=output == WIDE))
        else:
            live.require_queues()
            echo("no Topology is defined", err=True)


def _say_unread(scheduled: Scheduled) -> None:
    if scheduled.unread:
        kinds = ", ".join(scheduled.unread)
        echo(f"not counted, for want of the right to list them: {kinds}", err=True)


def _say_all(*tables: list[str]) -> None:
    """Tables with an empty line between them."""
    for number, lines in enumerate(tables):
        say(["", *lines] if number else lines)
