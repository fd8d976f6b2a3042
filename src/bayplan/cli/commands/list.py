"""`bayplan list`: the gangs, queues and topologies of a cluster."""

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
from bayplan.cli.live.list_topologies import live_devices, topology_records, topology_tables
from bayplan.cli.live.scheduled_state import Scheduled, read_scheduled
from bayplan.cli.live.state import ClusterTarget, checked_namespace, cluster_options
from bayplan.cli.render.tables import say, say_json

WIDE, JSON = "wide", "json"


def _output(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("-o", "--output", type=click.Choice([WIDE, JSON]), help="More columns, or JSON.")(
        command
    )


_all_namespaces = click.option("-A", "--all-namespaces", is_flag=True, help="List all namespaces.")


@click.group()
def listing() -> None:
    """List gangs, queues or topologies of a cluster. Nothing is changed."""


@listing.command()
@cluster_options
@_all_namespaces
@_output
def gangs(target: ClusterTarget, all_namespaces: bool, output: str | None) -> None:
    """List all gangs: Workloads, pod groups, and jobs and pods with the scheduler bayplan.

    Shows where each gang is placed, or the reason why it is pending.
    """
    with target.live() as live:
        namespace = "" if all_namespaces else checked_namespace(live, live.namespace)
        queued = [g for g in outlook(live).gangs if namespace in ("", g.queued_gang.gang.source.namespace)]
        groups, scheduled = pod_groups(live, namespace), read_scheduled(live)
        rows = scheduled_rows(live, scheduled, namespace)
        _report_unread(scheduled)
        if output == JSON:
            say_json([*gang_records(live, queued), *group_records(live, groups), *scheduled_records(rows)])
        elif queued or groups or rows:
            tables = [gang_table(live, queued, wide=output == WIDE)] if queued else []
            tables += [group_table(live, groups)] if groups else []
            tables += [scheduled_table(live, rows, wide=output == WIDE)] if rows else []
            _say_all(*tables)
        else:
            where = f"no gangs in namespace {namespace}" if namespace else "no gangs"
            echo(where if all_namespaces else f"{where}; -A lists all namespaces", err=True)


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
            _say_all(*tables, *([fair_queue_table(fair)] if fair else []))
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


def _report_unread(scheduled: Scheduled) -> None:
    if scheduled.unread:
        kinds = ", ".join(scheduled.unread)
        echo(f"not included, because you may not list them: {kinds}", err=True)


def _say_all(*tables: list[str]) -> None:
    """Tables with an empty line between them."""
    for number, lines in enumerate(tables):
        say(["", *lines] if number else lines)
