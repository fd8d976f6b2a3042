"""`bayplan up`: a local in-memory cluster with Bayplan and an API for kubectl."""

from __future__ import annotations

import math
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from rich.console import Console
from rich.live import Live

from bayplan.assembly.local_cluster import ClusterShape, LocalCluster
from bayplan.backends.embedded.http.kubeconfig import CONTEXT
from bayplan.backends.embedded.http.server import free_port
from bayplan.backends.fake_controllers.manifests import is_finished
from bayplan.cli.commands.up_view import ViewSize, clock_text, picture
from bayplan.cli.config.options import takes_configuration
from bayplan.cli.config.output import echo
from bayplan.cli.render.console import console as new_console
from bayplan.cli.running.dashboard_process import DashboardProcess
from bayplan.cli.running.up_examples import TimedJob, example_mix
from bayplan.configuration.settings import DEFAULTS, Settings
from bayplan.dialects.errors import ApiError
from bayplan.runtime.core.clock import SystemClock
from bayplan.runtime.core.journal import FileJournal
from bayplan.runtime.process.gc_tuning import collect_rarely
from bayplan.runtime.webhooks.http_server import Address

FRAME_SECONDS = 0.25
MIX_SECONDS_MAX = 120.0
NODES_MAX = 100_000
JOURNAL_NODES_MAX = 10_000
"""With more nodes no journal is kept: the nodes alone would fill it, and delay the start."""


@click.command()
@click.option(
    "--nodes",
    type=click.IntRange(1, NODES_MAX),
    help="Approximate number of hosts, instead of the options below.",
)
@click.option(
    "--blocks", type=click.IntRange(1, 1000), default=4, show_default=True, help="Number of blocks."
)
@click.option("--racks", type=click.IntRange(1, 1000), default=4, show_default=True, help="Racks per block.")
@click.option("--hosts", type=click.IntRange(1, 1000), default=8, show_default=True, help="Hosts per rack.")
@click.option("--gpus", type=click.IntRange(1, 64), default=8, show_default=True, help="GPUs per host.")
@click.option(
    "--devices",
    type=click.IntRange(0, 128),
    default=0,
    show_default=True,
    help="Devices per host of the DeviceClass gpu.example.com, for pods with resource claims.",
)
@click.option("--mix/--no-mix", default=True, show_default=True, help="Submit the example jobs.")
@click.option(
    "--grouper/--no-grouper",
    default=False,
    show_default=True,
    help="Run the role grouper, which puts pods into PodGroups as KAI does.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port for kubectl (default: a free one)."
)
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=f"Add the context '{CONTEXT}' to this file while it runs (default: a new file).",
)
@click.option(
    "--dashboard-port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port of the dashboard on loopback (default: a free one).",
)
@click.option("--for", "seconds", type=click.FloatRange(min=0), help="Stop after this many seconds.")
@takes_configuration
def up(
    nodes: int | None, blocks: int, racks: int, hosts: int, gpus: int, devices: int, mix: bool,
    grouper: bool, port: int, kubeconfig: Path | None, dashboard_port: int, seconds: float | None,
    settings: Settings,
) -> None:  # fmt: skip
    """Start a local in-memory cluster with Bayplan and show how its racks fill up.

    Nothing is installed, and the API listens on loopback only. In a terminal it runs until Ctrl-C;
    otherwise it stops when the example jobs have run.
    """
    collect_rarely()
    clock, console = SystemClock(), new_console()
    shape = shape_for(nodes, gpus) if nodes else checked(ClusterShape(blocks, racks, hosts, gpus))
    shape = replace(shape, devices=devices)
    began = clock.wall()
    with interrupted_by_signals(), ExitStack() as cleanup:
        folder = Path(cleanup.enter_context(TemporaryDirectory(prefix="bayplan-")))
        path = kubeconfig or folder / "kubeconfig"
        past = folder / "journal" if shape.nodes <= JOURNAL_NODES_MAX else None
        journal = None if past is None else FileJournal(past)
        cluster = LocalCluster(shape, clock, port, demo_settings(settings), grouper=grouper, journal=journal)
        try:
            cluster.start(path)
        except ApiError as error:
            raise click.ClickException(str(error)) from None
        try:
            dashboard = _dashboard(path, past, dashboard_port)
            cleanup.callback(dashboard.stop)
            console.print(f"Dashboard: {dashboard.url}", soft_wrap=True, highlight=False)
            ready = (
                f"{shape.nodes:,} nodes ready after {clock.wall() - began:.1f} s at {cluster.api_server.url}"
            )
            console.print(ready, highlight=False)
            console.print(next_commands(path, mix), soft_wrap=True, highlight=False)
            submissions = example_mix(shape) if mix else []
            if console.is_terminal and sys.stdin.isatty():
                _watch(console, cluster, submissions, began, seconds)
            else:
                _log(console, cluster, submissions, began, seconds)
        except KeyboardInterrupt:
            console.print("Stopped.")
        finally:
            _stop(cluster)
    if cluster.error is not None:
        raise click.ClickException(f"the loop ended: {cluster.error!r}. This is a bug; please report it.")


def _dashboard(kubeconfig: Path, journal: Path | None, port: int) -> DashboardProcess:
    try:
        options = ["--kubeconfig", str(kubeconfig.expanduser().absolute()), "--context", CONTEXT]
        options += [] if journal is None else ["--journal", str(journal)]
        address = Address(port=port or free_port())
        return DashboardProcess(address, options, is_quiet=True, is_lazy=True)
    except OSError as error:
        why = error.strerror or error
        raise click.ClickException(f"cannot listen at port {port} for the dashboard: {why}") from None


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP like Ctrl-C, so that the kubeconfig is restored."""
    previous = {}
    for name in (signal.SIGTERM, signal.SIGHUP):
        with suppress(ValueError):  # not the main thread: the caller handles signals
            previous[name] = signal.signal(name, signal.default_int_handler)
    try:
        yield
    finally:
        for name, handler in previous.items():
            signal.signal(name, handler)


def checked(shape: ClusterShape) -> ClusterShape:
    """The shape; an error if it is too large for one process."""
    if shape.nodes > NODES_MAX:
        size = f"{shape.blocks:,} blocks of {shape.racks:,} racks of {shape.hosts:,} hosts"
        raise click.UsageError(
            f"{size} are {shape.nodes:,} nodes; a local cluster has at most {NODES_MAX:,}. "
            "Give smaller numbers, or --nodes."
        )
    return shape


def _stop(cluster: LocalCluster) -> None:
    try:
        cluster.stop()
    except ApiError as error:
        echo(f"The context '{CONTEXT}' was not removed from the kubeconfig: {error}", err=True)


def demo_settings(settings: Settings) -> Settings:
    """Defaults for the demonstration: capacity is reserved, so that large gangs do not starve."""
    if settings != DEFAULTS:
        return settings
    return replace(settings, scheduling=replace(settings.scheduling, reserve=True))


def shape_for(nodes: int, gpus: int) -> ClusterShape:
    """A shape of at least this many nodes: racks of up to 32 hosts, blocks of up to 32 racks."""
    hosts = min(nodes, 32)
    racks = min(math.ceil(nodes / hosts), 32)
    return ClusterShape(math.ceil(nodes / (hosts * racks)), racks, hosts, gpus)


def next_commands(kubeconfig: Path, mix: bool) -> str:
    """Commands to try next, as text."""
    commands = [f"export KUBECONFIG={shlex.quote(str(kubeconfig.expanduser().absolute()))}"]
    if mix:
        commands += ["kubectl get jobs,pods -o wide", "kubectl describe job giant"]
    else:
        commands += [
            "kubectl get nodes",
            "kubectl create deployment web --image=web --replicas=3",
            "kubectl get deployments,pods -o wide",
        ]
    commands += ["kubectl cordon b01-r01-h01", "kubectl uncordon b01-r01-h01"]
    return "Try next, in another terminal:\n" + "\n".join(f"  {command}" for command in commands)


def _watch(
    console: Console, cluster: LocalCluster, mix: list[TimedJob], began: float, seconds: float | None
) -> None:
    started = cluster.clock.wall()
    with Live(console=console, auto_refresh=False) as live:
        while not _is_over(cluster, began, seconds):
            _submit(cluster, mix, started)
            size = ViewSize.of(console.width, console.height)
            live.update(picture(cluster, began, size), refresh=True)
            cluster.clock.sleep(FRAME_SECONDS)


def _log(
    console: Console, cluster: LocalCluster, mix: list[TimedJob], began: float, seconds: float | None
) -> None:
    """Without a terminal: a line per decision, one picture, and a stop when the example jobs have run."""
    started, shown, had_mix, drawn = cluster.clock.wall(), 0, bool(mix), False
    while not _is_over(cluster, began, seconds):
        _submit(cluster, mix, started)
        cluster.clock.sleep(FRAME_SECONDS)
        shown = _print_decisions(console, cluster, shown)
        if not had_mix or mix:
            continue
        if not drawn:
            console.print(picture(cluster, began))
            drawn = True
        if _all_settled(cluster) or cluster.clock.wall() - started > MIX_SECONDS_MAX:
            break
    _print_decisions(console, cluster, shown)
    finished = sum(is_finished(job) for job in cluster.jobs())
    console.print(f"{finished} of {len(cluster.jobs())} jobs finished.")


def _print_decisions(console: Console, cluster: LocalCluster, shown: int) -> int:
    lines = list(cluster.decision_log.lines)
    for when, line in lines[len(lines) - (cluster.decision_log.decided - shown) :]:
        console.print(f"{clock_text(when)}  {line}", soft_wrap=True, highlight=False)
    return cluster.decision_log.decided


def _submit(cluster: LocalCluster, mix: list[TimedJob], started: float) -> None:
    while mix and mix[0].after <= cluster.clock.wall() - started:
        cluster.submit(mix.pop(0).job)


def _is_over(cluster: LocalCluster, began: float, seconds: float | None) -> bool:
    ended = seconds is not None and cluster.clock.wall() - began >= seconds
    return ended or cluster.error is not None


def _all_settled(cluster: LocalCluster) -> bool:
    """Whether every job is finished, or unschedulable while no other job runs."""
    jobs = cluster.jobs()
    active = [job for job in jobs if not is_finished(job)]
    with cluster.lock:
        state = cluster.scheduler.state
        unschedulable = {entry.ref.name for entry in state.entries() if state.reported(entry.ref) is not None}
        running = any(pod.uses_capacity for pod in state.store.pods.values())
    return bool(jobs) and not running and all(job["metadata"]["name"] in unschedulable for job in active)
