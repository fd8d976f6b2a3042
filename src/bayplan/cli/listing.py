"""`bayplan list`: gangs, queues and topologies of a cluster as they are now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from bayplan.cli.gang_facts import outlook
from bayplan.cli.list_gangs import gang_records, gang_table
from bayplan.cli.list_queues import queue_records, queue_tables
from bayplan.cli.list_topologies import topology_records, topology_tables
from bayplan.cli.live_state import Live, Target, reaches_a_cluster
from bayplan.cli.tables import say, say_json

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
def gangs(target: Target, all_namespaces: bool, output: str | None) -> None:
    """Show every gang in a queue: where it stands, or the reason why it waits."""
    with target.live() as live:
        namespace = "" if all_namespaces else checked_namespace(live, live.namespace)
        found = [one for one in outlook(live).gangs if namespace in ("", one.demand.gang.source.namespace)]
        if output == JSON:
            say_json(gang_records(live, found))
        elif found:
            say(gang_table(live, found, wide=output == WIDE))
        else:
            click.echo(f"no gangs in namespace {namespace}" if namespace else "no gangs", err=True)


@listing.command()
@reaches_a_cluster
@_everywhere
@_output
def queues(target: Target, all_namespaces: bool, output: str | None) -> None:
    """Show ClusterQueues with their quota, and the LocalQueues that lead to them."""
    with target.live() as live:
        namespace = target.namespace if target.namespace and not all_namespaces else ""
        if namespace:
            checked_namespace(live, namespace)
        if output == JSON:
            say_json(queue_records(live, namespace))
        elif live.state.rules.queues:
            say(queue_tables(live, namespace, wide=output == WIDE))
        else:
            click.echo("no ClusterQueue is defined", err=True)


@listing.command()
@reaches_a_cluster
@_everywhere
@_output
def topologies(target: Target, all_namespaces: bool, output: str | None) -> None:
    """Show the levels of every topology: what is free, and the largest gang that one domain takes."""
    del all_namespaces  # a topology is in none
    with target.live() as live:
        if output == JSON:
            say_json(topology_records(live))
        elif live.state.holdings.clusters:
            say(topology_tables(live, wide=output == WIDE))
        else:
            click.echo("no Topology is defined", err=True)


def checked_namespace(live: Live, name: str) -> str:
    """A namespace that exists; one sentence if it does not."""
    if not live.has_namespace(name):
        raise click.ClickException(f"there is no namespace {name}")
    return name
