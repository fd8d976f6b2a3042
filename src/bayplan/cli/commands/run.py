"""`bayplan run`: the scheduler on a real cluster."""

from __future__ import annotations

import os
import random
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import click

from bayplan import __version__
from bayplan.assembly.crds import converted
from bayplan.assembly.gang_api import gang_api_words, gang_versions
from bayplan.assembly.rbac import LEASE_NAME
from bayplan.assembly.webhooks import LookUps, WebhookEndpoint, Webhooks
from bayplan.backends.remote.backend import RemoteBackend
from bayplan.backends.remote.kubeconfig import load
from bayplan.cli.commands.metrics_options import (
    GuardedMetrics,
    guarded_metrics,
    open_metrics,
    takes_guarded_metrics,
)
from bayplan.cli.config.options import takes_configuration
from bayplan.configuration.settings import DEFAULTS, Settings, UngatingSettings
from bayplan.dialects.api import Backend
from bayplan.dialects.errors import ApiError
from bayplan.dialects.kai.decode.webhooks import no_owner
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.controllers.admission.queue_status import Watcher
from bayplan.runtime.controllers.jobs.controller import JobsController
from bayplan.runtime.controllers.node_health.controller import NodeHealthController
from bayplan.runtime.controllers.pod_grouper.controller import PodGrouperController
from bayplan.runtime.controllers.provisioning.controller import ProvisioningController
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.controllers.ungating import Removed, UngatingController
from bayplan.runtime.core.api_object import LEASE, ApiObject
from bayplan.runtime.core.clock import Clock, SystemClock
from bayplan.runtime.core.containment import Containment
from bayplan.runtime.core.controller import Controller
from bayplan.runtime.core.journal import FileJournal, InUse, Journal
from bayplan.runtime.core.loop import Loop
from bayplan.runtime.process.election import Election, ElectionThread
from bayplan.runtime.process.gc_tuning import collect_rarely
from bayplan.runtime.process.service import Meter, Metered, Service, Shadow
from bayplan.runtime.process.shutdown import ShutdownStack, stop_on_signal
from bayplan.runtime.telemetry import logs
from bayplan.runtime.telemetry.admission_metrics import AdmissionMetrics
from bayplan.runtime.telemetry.metrics import Metrics
from bayplan.runtime.webhooks import probes as health
from bayplan.runtime.webhooks.default_queues import DefaultQueues
from bayplan.runtime.webhooks.http_server import Address, Server
from bayplan.runtime.webhooks.live_objects import LiveObjects

ROLES = ("admission", "scheduler", "webhooks")
"""What a replica does unless told otherwise."""
KNOWN_ROLES = (*ROLES, PodGrouperController.name)


class NullJournal:
    """No journal: what was decided shows in the API only."""

    def record(self, now: float, what: str, body: object, role: str = "") -> None:
        """Nothing is kept."""

    def flush(self) -> None:
        """Nothing was kept."""

    def close(self) -> None:
        """Nothing was opened."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the command line asked for."""

    roles: frozenset[str]
    shadow: bool
    elect: bool
    namespace: str
    journal: Path | None
    listen: str
    webhook_listen: str
    settings: Settings = DEFAULTS
    guarded: GuardedMetrics | None = None


@click.command()
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    help="Default: KUBECONFIG, ~/.kube/config, or the pod's own account.",
)
@click.option("--context", help="A context of the kubeconfig (default: its current one).")
@click.option(
    "--roles",
    default=",".join(ROLES),
    show_default=True,
    callback=lambda _, __, value: roles_of(value),
    help=f"What this replica does, separated by commas, out of {', '.join(KNOWN_ROLES)}.",
)
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
    "--webhook-listen", default="127.0.0.1:0", show_default=True, help="Address of the webhooks, if they run."
)
@takes_guarded_metrics
@click.option(
    "--pod-batch-seconds",
    type=click.FloatRange(min=0.0),
    help="How long new pods of an admitted gang are gathered; outranks the configuration.",
)
@takes_configuration
@click.option(
    "--log-format", type=click.Choice([str(f) for f in logs.Format]), default="console", show_default=True
)
@click.option("--log-level", type=click.Choice(list(logs.LEVELS)), default="info", show_default=True)
def run(
    kubeconfig: Path | None, context: str | None, roles: frozenset[str], shadow: bool, elect: bool,
    namespace: str, journal: Path | None, listen: str, webhook_listen: str, pod_batch_seconds: float | None,
    settings: Settings, metrics_listen: str | None, metrics_cert_file: Path | None,
    metrics_key_file: Path | None, log_format: str, log_level: str,
) -> None:  # fmt: skip
    """Schedule the pods of a cluster that name bayplan as their scheduler, and serve its webhooks.

    Runs until SIGTERM or Ctrl-C, then finishes the writes in flight and releases the Lease.
    """
    logs.set_up(logs.Format(log_format), log_level)
    collect_rarely()
    try:
        if pod_batch_seconds is not None:
            settings = replace(settings, ungating=UngatingSettings(pod_batch_seconds))
        addresses = (listen, webhook_listen)
        _check_addresses(addresses)
        guarded = guarded_metrics(metrics_listen, metrics_cert_file, metrics_key_file)
        elects = elect and not shadow
        wishes = RunOptions(roles, shadow, elects, namespace, journal, *addresses, settings, guarded)
        status = _serve(kubeconfig, context, wishes)
    except (ApiError, InUse) as trouble:
        raise click.ClickException(str(trouble)) from None
    sys.exit(status)


def _check_addresses(texts: Iterable[str]) -> None:
    """Say what is wrong with an address before anything is started."""
    for text in texts:
        try:
            Address.parse(text)
        except ValueError as trouble:
            raise click.ClickException(str(trouble)) from None


def roles_of(text: str) -> frozenset[str]:
    """The roles named, or an error that lists those there are."""
    named = frozenset(part.strip() for part in text.split(",") if part.strip())
    if not named or named - set(KNOWN_ROLES):
        unknown = ", ".join(sorted(named - set(KNOWN_ROLES))) or "none"
        raise click.BadParameter(f"{unknown} is no role; there are {', '.join(KNOWN_ROLES)}")
    return named


def roles_to_play(
    names: frozenset[str],
    watch: Watcher | None = None,
    removed: Removed | None = None,
    settings: Settings = DEFAULTS,
    grouper: PodGrouperController | None = None,
    *,
    shadow: bool = False,
) -> list[Controller]:
    """What the loop does its rounds for; `watch` is told how queues stand, `removed` of pods let go."""
    known: dict[str, Callable[[], list[Controller]]] = {
        "admission": lambda: [
            AdmissionController(
                settings.profile,
                settings.resources,
                watch,
                settings.zone_care,
                tells="scheduler" not in names,
                shadow=shadow,
            ),
            ProvisioningController(),
            JobsController(settings.patience_with_pods, settings.rulebook),
            UngatingController(settings.ungating.batch_seconds, removed),
            NodeHealthController(settings.nodes),
        ],
        "grouper": lambda: [grouper or PodGrouperController(settings.profiles, settings.grouper)],
        "scheduler": lambda: [
            SchedulerController(
                None, settings.profiles, settings.zone_care, awaits_grouper="grouper" in names
            )
        ],
    }
    return [role for name in sorted(names & set(known)) for role in known[name]()]


def _serve(kubeconfig: Path | None, context: str | None, wishes: RunOptions) -> int:
    clock, log = SystemClock(), logs.logger("run")
    stop = threading.Event()
    closing = ShutdownStack(clock, log.warning)
    metrics = Metrics(__version__)
    contained = containment(metrics, clock)
    backend = RemoteBackend(
        load(kubeconfig, context), log=logs.logger("api").warning, restarted=metrics.watch_restarted
    )
    closing.opened("the connection", backend.close)
    chosen = wishes.settings
    grouper = (
        PodGrouperController(chosen.profiles, chosen.grouper, logs.logger("grouper").warning)
        if PodGrouperController.name in wishes.roles
        else None
    )
    try:
        version = backend.server_version()
        log.info("connected", server=backend.access.server, kubernetes=version, shadow=wishes.shadow)
        if "scheduler" in wishes.roles:
            log.info(gang_api_words(gang_versions(backend.request)))
        book: Journal = (
            FileJournal(wishes.journal, note=logs.logger("journal").warning)
            if wishes.journal
            else NullJournal()
        )
        closing.opened("the journal", lambda _: book.close())
        if "webhooks" in wishes.roles and not wishes.shadow:
            watching = RemoteBackend(load(kubeconfig, context), log=logs.logger("api").warning)
            queues = DefaultQueues(watching, logs.logger("webhooks").warning, contained, clock)
            closing.opened("the watch for default queues", lambda _: queues.stop())
            _offer_webhooks(backend, queues, grouper, wishes, clock, metrics, closing, contained)
        if wishes.guarded is not None:
            page = open_metrics(wishes.guarded, backend.request, metrics, clock)
            closing.opened("the metrics", lambda _: page.stop())
            log.info("serving", metrics=f"https://{page.address}/metrics")
        with stop_on_signal(stop):
            if wishes.roles - {"webhooks"}:
                _schedule(backend, book, wishes, grouper, clock, metrics, stop, closing, contained)
            else:
                server = _probes({}, {}, metrics, wishes)
                closing.opened("the probes", lambda _: server.stop())
                stop.wait()
        log.info("stopping")
    finally:
        well = closing.close()
    return 0 if well else 1


def _schedule(
    backend: RemoteBackend, book: Journal, wishes: RunOptions, grouper: PodGrouperController | None, clock: SystemClock,
    metrics: Metrics, stop: threading.Event, closing: ShutdownStack, contained: Containment,
) -> None:  # fmt: skip
    """Decide and bind until told to stop; writes under way end before the lease is released."""
    election = _elect(backend, wishes, clock, closing, contained) if wishes.elect else None
    told = AdmissionMetrics(metrics.registry, __version__) if "admission" in wishes.roles else None
    loop = _loop(backend, wishes, grouper, book, metrics, told, election, clock, contained)
    service = Service(loop, clock, metrics, stop)
    closing.opened("the writes under way", service.finish)
    alive = {"loop": health.steps(clock, lambda: service.last_step)}
    ready = {"watches": health.synced(lambda: service.loop.unsynced)}
    if election is not None:
        ready["leader"] = health.leading(clock, election.is_leader)
    server = _probes(alive, ready, metrics, wishes)
    closing.opened("the probes", lambda _: server.stop())
    logs.logger("run").info("serving", probes=f"http://{server.address}")
    service.run()


def _offer_webhooks(
    backend: RemoteBackend, queues: DefaultQueues, grouper: PodGrouperController | None, wishes: RunOptions,
    clock: SystemClock, metrics: Metrics, closing: ShutdownStack, contained: Containment,
) -> None:  # fmt: skip
    log = logs.logger("webhooks")

    def note(sentence: str, bug: BaseException | None) -> None:
        log.warning(sentence, exc_info=bug) if bug else log.info(sentence)

    site = WebhookEndpoint(wishes.namespace, Address.parse(wishes.webhook_listen), converted())
    live = LiveObjects(backend.request, clock)
    owner = no_owner if grouper is None else grouper.shelf.owner
    look_ups = LookUps(queues.find, owner, queues.levels, live.controller, live.has_class)
    webhooks = Webhooks(backend.request, site, clock, metrics, note, look_ups, contained)
    closing.opened("the webhooks", lambda _: webhooks.stop())
    log.info("serving", webhooks=f"https://{webhooks.server.address}")


def _loop(
    backend: RemoteBackend,
    wishes: RunOptions,
    grouper: PodGrouperController | None,
    book: Journal,
    metrics: Metrics,
    told: AdmissionMetrics | None,
    election: Election | None,
    clock: SystemClock,
    contained: Containment,
) -> Loop:
    edge: Backend = Shadow(backend, metrics) if wishes.shadow else Metered(backend, metrics)
    watch, removed = (told.summarised, told.gate_removed) if told else (None, None)
    roles = roles_to_play(wishes.roles, watch, removed, wishes.settings, grouper, shadow=wishes.shadow)
    led: list[bool] = []

    def may_write(_: float) -> bool:
        leads = election is None or election.is_leader(clock.monotonic())
        metrics.leads(leads)
        if told is not None and election is not None and led != [leads]:
            led[:] = [leads]
            told.leads(leads)
        return leads

    meter = Meter(clock, metrics, told, logs.logger("run").warning)
    return Loop(edge, roles, book, may_write=may_write, observer=meter, containment=contained)


def containment(metrics: Metrics, clock: Clock) -> Containment:
    """Errors of one object, gang or thread are logged with their traceback, and counted."""
    log = logs.logger("containment")

    def report(sentence: str, error: BaseException, **facts: str) -> None:
        log.error(sentence, exc_info=error, **facts)

    def slow(seconds: float, where: str, kind: str, name: str) -> None:
        log.warning(f"{where} of {kind} {name} took {seconds:.1f} s".replace("  ", " "))

    return Containment(report, metrics.contained, clock, slow)


def _elect(
    backend: RemoteBackend,
    wishes: RunOptions,
    clock: SystemClock,
    closing: ShutdownStack,
    contained: Containment,
) -> Election:
    identity = f"{socket.gethostname()}_{os.getpid()}_{random.getrandbits(32):08x}"
    lease = ApiObject(backend.request, LEASE, wishes.namespace, LEASE_NAME)
    election = Election(lease, identity, clock, random.random, note=logs.logger("election").info)
    backend.write_only_while(lambda: election.is_leader(clock.monotonic()), election.timing.write_seconds)
    thread = ElectionThread(election, contained, clock)
    closing.opened("the lease", lambda _: thread.stop())
    return election


def _probes(
    alive: Mapping[str, health.Check], ready: Mapping[str, health.Check], metrics: Metrics, wishes: RunOptions
) -> Server:
    address = Address.parse(wishes.listen)
    return health.serve_health(metrics, alive, ready, address, with_metrics=wishes.guarded is None)
