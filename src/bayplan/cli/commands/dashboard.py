"""`bayplan dashboard`: pages that show a cluster: the map of its hosts, and which gangs wait and why."""

from __future__ import annotations

import socket
import sys
import threading
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import click

from bayplan.backends.remote.backend import RemoteBackend, connect
from bayplan.cli.commands.dashboard_source import DashboardSource
from bayplan.cli.config.output import echo
from bayplan.cli.live.state import ClusterTarget, cluster_options
from bayplan.cli.watching.journal_timeline import JournalTimeline
from bayplan.cli.watching.watched import WatchedCluster
from bayplan.dashboard.access import TokenAccess
from bayplan.dashboard.headers import LOOPBACK
from bayplan.dashboard.hub import SnapshotHub
from bayplan.dashboard.server import DashboardServer
from bayplan.dashboard.snapshot import DashboardSnapshot
from bayplan.dialects.errors import ApiError
from bayplan.runtime.core.containment import Containment, SupervisedThread
from bayplan.runtime.process.freed_memory import return_freed_memory
from bayplan.runtime.process.gc_tuning import collect_rarely
from bayplan.runtime.process.shutdown import stop_on_signal
from bayplan.runtime.webhooks.http_server import Address

PORT = 7080


@click.command()
@cluster_options
@click.option(
    "--listen", default=f"127.0.0.1:{PORT}", show_default=True,
    help="Address of the pages. Elsewhere than on loopback, users need a token of the cluster.",
)  # fmt: skip
@click.option(
    "--name", "names", multiple=True, metavar="HOST",
    help="A name that users reach it by, besides localhost. May be repeated.",
)  # fmt: skip
@click.option(
    "--journal", type=click.Path(file_okay=False, path_type=Path), metavar="FOLDER",
    help="The journal that `bayplan run` writes, for the view of time and the histories of gangs.",
)  # fmt: skip
@click.option(
    "--socket", "inherited", type=int, hidden=True, help="A listening socket of the parent process."
)
def dashboard(
    target: ClusterTarget, listen: str, names: tuple[str, ...], journal: Path | None, inherited: int | None
) -> None:
    """Serve pages that show the cluster: hosts and gangs on a map, who waits and why. Nothing is written.

    On loopback everyone on this machine sees what the kubeconfig may read. On any other address users sign
    in with a token, and see the namespaces that they may list.
    """
    try:
        address = Address.parse(listen)
    except ValueError as error:
        raise click.UsageError(f"--listen: {error}") from None
    collect_rarely()
    stop = threading.Event()
    with ExitStack() as cleanup:
        cleanup.enter_context(stop_on_signal(stop))
        try:
            backend = connect(target.kubeconfig, target.context)
            cleanup.callback(backend.close, 0)
            serve(cleanup, target, backend, address, names, journal, inherited, stop)
        except ApiError as error:
            raise click.ClickException(str(error)) from None
        except OSError as error:
            raise click.ClickException(f"cannot listen at {address}: {error.strerror or error}") from None


def serve(
    cleanup: ExitStack, target: ClusterTarget, backend: RemoteBackend, address: Address,
    names: tuple[str, ...], journal: Path | None, inherited: int | None, stop: threading.Event,
) -> None:  # fmt: skip
    """Serve until it is stopped, or the cluster cannot be read any more."""
    containment = Containment(_report)
    cluster = WatchedCluster(
        backend, target.clock, target.settings, containment, target.namespace or backend.access.namespace
    )
    hub = SnapshotHub()
    source = DashboardSource(cluster, hub, containment, journal)
    access = None
    if address.host not in LOOPBACK:

        def current() -> DashboardSnapshot | None:
            found = hub.current()
            return None if found is None else found[1]

        access = TokenAccess(backend.request, target.clock, current)
    listening = socket.socket(fileno=inherited) if inherited is not None else None
    if inherited is not None:
        threading.Thread(target=_stop_with_parent, args=(stop,), name="parent", daemon=True).start()
    timeline = None
    if journal is not None:
        timeline = JournalTimeline(journal, target.settings, target.clock, source.maker.ids)
        follow = partial(timeline.run, stop)
        SupervisedThread("journal", follow, containment, stop, target.clock).start()
    SupervisedThread("memory", partial(return_freed_memory, stop), containment, stop, target.clock).start()
    forecast = partial(source.forecasts.run, stop)
    SupervisedThread("forecasts", forecast, containment, stop, target.clock).start()
    server = DashboardServer(
        hub, source, address, access=access, timeline=timeline, names=names, listening=listening
    )
    cleanup.callback(server.stop)
    echo(f"The dashboard of {backend.access.server} is at {server.url}")
    source.run(stop)


def _stop_with_parent(stop: threading.Event) -> None:
    """The process that passed the socket on keeps a pipe open as long as it runs."""
    sys.stdin.buffer.read()
    stop.set()


def _report(sentence: str, error: BaseException, **facts: str) -> None:
    """An error that was contained: a line, and the dashboard goes on."""
    echo(f"{sentence}: {error!r} (error id {facts['id']})", err=True)
