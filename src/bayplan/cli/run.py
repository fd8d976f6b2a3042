"""`bayplan run`: the scheduler on a real cluster."""

from __future__ import annotations

import os
import random
import socket
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import click

from bayplan import __version__
from bayplan.backends.remote.backend import RemoteBackend
from bayplan.backends.remote.kubeconfig import load
from bayplan.dialects.api import Backend, Kind
from bayplan.dialects.errors import Trouble
from bayplan.dialects.kueue import scheduled
from bayplan.runtime import health, logs
from bayplan.runtime.clock import SystemClock
from bayplan.runtime.election import Election, ElectionThread
from bayplan.runtime.journal import FileJournal, InUse, Journal
from bayplan.runtime.loop import Dialect, Loop
from bayplan.runtime.metrics import Metrics
from bayplan.runtime.objects import ApiObject
from bayplan.runtime.service import Metered, MeteredJournal, Service, Shadow
from bayplan.runtime.serving import Address, Server
from bayplan.runtime.shutdown import Closing, stop_on_signal

LEASES = Kind("coordination.k8s.io", "v1", "Lease", "leases")
LEASE = "bayplan"


class Forgetful:
    """No journal: what was decided shows in the API only."""

    def record(self, now: float, what: str, body: object) -> None:
        """Nothing is kept."""

    def flush(self) -> None:
        """Nothing was kept."""

    def close(self) -> None:
        """Nothing was opened."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the command line asked for."""

    shadow: bool
    elect: bool
    namespace: str
    journal: Path | None
    listen: str


@click.command()
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    help="Default: KUBECONFIG, ~/.kube/config, or the pod's own account.",
)
@click.option("--context", help="A context of the kubeconfig (default: its current one).")
@click.option("--shadow", is_flag=True, help="Decide and journal, but write nothing.")
@click.option(
    "--elect/--no-elect", default=True, show_default=True, help="Let only one replica work, by a Lease."
)
@click.option("--namespace", default="bayplan-system", show_default=True, help="Where the Lease is.")
@click.option("--journal", type=click.Path(file_okay=False, path_type=Path), help="Folder for the journal.")
@click.option(
    "--listen", default="127.0.0.1:0", show_default=True, help="Address of /metrics, /healthz and /readyz."
)
@click.option(
    "--log-format", type=click.Choice([str(f) for f in logs.Format]), default="console", show_default=True
)
@click.option("--log-level", type=click.Choice(list(logs.LEVELS)), default="info", show_default=True)
def run(
    kubeconfig: Path | None, context: str | None, shadow: bool, elect: bool, namespace: str,
    journal: Path | None, listen: str, log_format: str, log_level: str,
) -> None:  # fmt: skip
    """Schedule the pods of a cluster that name bayplan as their scheduler.

    Runs until SIGTERM or Ctrl-C, then finishes the writes in flight and releases the Lease.
    """
    logs.set_up(logs.Format(log_format), log_level)
    try:
        status = _serve(kubeconfig, context, Wishes(shadow, elect and not shadow, namespace, journal, listen))
    except (Trouble, InUse, ValueError) as trouble:
        raise click.ClickException(str(trouble)) from None
    sys.exit(status)


def _serve(kubeconfig: Path | None, context: str | None, wishes: Wishes) -> int:
    clock, log = SystemClock(), logs.logger("run")
    stop = threading.Event()
    closing = Closing(clock, log.warning)
    metrics = Metrics(__version__)
    backend = RemoteBackend(load(kubeconfig, context), log=logs.logger("api").warning)
    closing.opened("the connection", backend.close)
    try:
        version = backend.server_version()
        log.info("connected", server=backend.access.server, kubernetes=version, shadow=wishes.shadow)
        book: Journal = FileJournal(wishes.journal) if wishes.journal else Forgetful()
        closing.opened("the journal", lambda _: book.close())
        election = _elect(backend, wishes, clock, closing) if wishes.elect else None
        loop = _loop(backend, book, metrics, wishes.shadow, election, clock)
        service = Service(loop, clock, metrics, stop)
        server = _probes(service, metrics, election, clock, wishes.listen)
        closing.opened("the probes", lambda _: server.stop())
        log.info("serving", probes=f"http://{server.address}")
        with stop_on_signal(stop):
            service.run()
        log.info("stopping")
    finally:
        well = closing.close()
    return 0 if well else 1


def _loop(
    backend: RemoteBackend,
    book: Journal,
    metrics: Metrics,
    shadow: bool,
    election: Election | None,
    clock: SystemClock,
) -> Loop:
    edge: Backend = Shadow(backend, metrics) if shadow else Metered(backend, metrics)

    def may_write(_: float) -> bool:
        leads = election is None or election.is_leader(clock.monotonic())
        metrics.leads(leads)
        return leads

    dialect = Dialect(scheduled.KINDS, scheduled.decode, scheduled.encode)
    return Loop(edge, (dialect,), MeteredJournal(book, metrics), may_write=may_write)


def _elect(backend: RemoteBackend, wishes: Wishes, clock: SystemClock, closing: Closing) -> Election:
    identity = f"{socket.gethostname()}_{os.getpid()}_{random.getrandbits(32):08x}"
    lease = ApiObject(backend.request, LEASES, wishes.namespace, LEASE)
    election = Election(lease, identity, clock, random.random, note=logs.logger("election").info)
    thread = ElectionThread(election)
    closing.opened("the lease", lambda _: thread.stop())
    return election


def _probes(
    service: Service, metrics: Metrics, election: Election | None, clock: SystemClock, listen: str
) -> Server:
    alive = {"loop": health.steps(clock, lambda: service.last_step)}
    ready = {"watches": health.synced(lambda: service.loop.unsynced)}
    if election is not None:
        ready["leader"] = health.leading(clock, election.is_leader)
    return health.serve_health(metrics, alive, ready, Address.parse(listen))
