"""`bayplan run`: the controllers and webhooks of Bayplan on a real cluster."""

from __future__ import annotations

import os
import random
import socket
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import click

from bayplan import __version__
from bayplan.assembly.crds import converted
from bayplan.assembly.gang_api import gang_api_words, gang_versions
from bayplan.assembly.rbac import LEASE_NAME
from bayplan.assembly.webhooks import WebhookEndpoint, Webhooks
from bayplan.backends.remote.backend import RemoteBackend
from bayplan.backends.remote.kubeconfig import load
from bayplan.cli.commands.run_dashboard import (
    DASHBOARD,
    DashboardOptions,
    dashboard_options,
    open_dashboard,
    takes_dashboard,
)
from bayplan.cli.config.cluster_access import takes_cluster
from bayplan.cli.config.options import takes_configuration
from bayplan.cli.running.certificate_options import certificate_files
from bayplan.cli.running.defragment_process import DEFRAGMENT, check_defragment, open_moves, passed_on
from bayplan.cli.running.metrics_options import (
    GuardedMetrics,
    guarded_metrics,
    open_metrics,
    takes_guarded_metrics,
)
from bayplan.cli.running.role_controllers import controllers_for
from bayplan.cli.running.run_telemetry import containment, decision_log, open_spans
from bayplan.cli.running.shadow_options import shadowing, takes_shadow
from bayplan.cli.running.webhook_options import takes_webhooks
from bayplan.configuration.settings import DEFAULTS, Settings, UngatingSettings
from bayplan.dialects.api import Backend
from bayplan.dialects.errors import ApiError
from bayplan.dialects.registry import watched_facts
from bayplan.dialects.reviews import LookUps, WatchedFacts, no_owner
from bayplan.runtime.controllers.pod_grouper.controller import PodGrouperController
from bayplan.runtime.core.api_object import LEASE, ApiObject
from bayplan.runtime.core.clock import SystemClock
from bayplan.runtime.core.containment import Containment, SupervisedThread
from bayplan.runtime.core.journal import FileJournal, InUse, Journal, NullJournal
from bayplan.runtime.core.loop import Loop
from bayplan.runtime.core.spans import NO_SPANS, Spans
from bayplan.runtime.process.election import Election, ElectionThread
from bayplan.runtime.process.first_answers import first_answer
from bayplan.runtime.process.freed_memory import return_freed_memory
from bayplan.runtime.process.gc_tuning import collect_rarely
from bayplan.runtime.process.service import Meter, Metered, Service, Shadow
from bayplan.runtime.process.shutdown import ShutdownStack, stop_on_signal
from bayplan.runtime.telemetry import logs
from bayplan.runtime.telemetry.admission_metrics import AdmissionMetrics
from bayplan.runtime.telemetry.metrics import Metrics
from bayplan.runtime.webhooks import probes as health
from bayplan.runtime.webhooks.http_server import Address, Server
from bayplan.runtime.webhooks.live_objects import LiveObjects
from bayplan.runtime.webhooks.look_up_watch import LookUpWatch
from bayplan.runtime.webhooks.metrics_server import CertificateFiles

ROLES = ("admission", "scheduler", "webhooks")
"""The default roles of a replica."""
KNOWN_ROLES = (*ROLES, PodGrouperController.name, DASHBOARD, DEFRAGMENT)
LOOP_ROLES = frozenset({"admission", "scheduler", PodGrouperController.name})


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of the command line."""

    roles: frozenset[str]
    shadow: bool
    elect: bool
    namespace: str
    journal: Path | None
    listen: str
    webhook_listen: str
    settings: Settings = DEFAULTS
    guarded: GuardedMetrics | None = None
    dashboard: DashboardOptions | None = None
    tracing: bool = False
    certificate: CertificateFiles | None = None  # of the webhooks; None: of our own authority
    passed_on: tuple[str, ...] = ()  # options of the process of the role defragment


@click.command()
@takes_cluster
@click.option(
    "--roles",
    default=",".join(ROLES),
    show_default=True,
    callback=lambda _, __, value: roles_of(value),
    help=f"The roles of this replica, separated by commas: {', '.join(KNOWN_ROLES)}.",
)
@takes_shadow
@click.option(
    "--elect/--no-elect",
    default=True,
    show_default=True,
    help="Elect a leader with a Lease; other replicas stand by.",
)
@click.option("--namespace", default="bayplan-system", show_default=True, help="The namespace of the Lease.")
@click.option(
    "--journal",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder of the journal (default: none is written).",
)
@click.option(
    "--listen", default="127.0.0.1:0", show_default=True, help="Address of /metrics, /healthz and /readyz."
)
@takes_webhooks
@takes_guarded_metrics
@takes_dashboard
@click.option(
    "--pod-batch-seconds",
    type=click.FloatRange(min=0.0),
    help="How long new pods of an admitted gang are collected before ungating; overrides the configuration.",
)
@takes_configuration
@click.option(
    "--log-format", type=click.Choice([str(f) for f in logs.Format]), default="console", show_default=True
)
@click.option("--log-level", type=click.Choice(list(logs.LEVELS)), default="info", show_default=True)
@click.option("--tracing", is_flag=True, help="Send OpenTelemetry spans to the collector that OTEL_* names.")
def run(
    kubeconfig: Path | None, context: str | None, roles: frozenset[str], shadow: bool,
    shadow_schedulers: tuple[str, ...], elect: bool, namespace: str, journal: Path | None,
    listen: str, webhook_listen: str, webhook_cert_file: Path | None, webhook_key_file: Path | None,
    pod_batch_seconds: float | None,
    settings: Settings, metrics_listen: str | None, metrics_cert_file: Path | None,
    metrics_key_file: Path | None, dashboard_listen: str, dashboard_names: tuple[str, ...],
    log_format: str, log_level: str, tracing: bool,
) -> None:  # fmt: skip
    """Run Bayplan for a cluster: admission, scheduling and webhooks.

    Admits queued gangs, and schedules pods whose schedulerName is that of a Bayplan profile. Runs until
    SIGTERM or Ctrl-C, then finishes the writes in flight and releases the Lease.
    """
    logs.set_up(logs.Format(log_format), log_level)
    collect_rarely()
    try:
        if pod_batch_seconds is not None:
            settings = replace(settings, ungating=UngatingSettings(pod_batch_seconds))
        settings = shadowing(settings, shadow_schedulers, shadow=shadow)
        check_defragment(roles, LOOP_ROLES, shadow=shadow)
        addresses = (listen, webhook_listen)
        _check_addresses(addresses)
        guarded = guarded_metrics(metrics_listen, metrics_cert_file, metrics_key_file)
        elects = elect and not shadow
        pages = dashboard_options(dashboard_listen, dashboard_names, kubeconfig, context, journal)
        options = RunOptions(
            *(roles, shadow, elects, namespace, journal, *addresses, settings, guarded),
            dashboard=pages if DASHBOARD in roles else None,
            tracing=tracing,
            certificate=certificate_files("webhook", webhook_cert_file, webhook_key_file),
            passed_on=tuple(passed_on(kubeconfig, context, log_format, log_level)),
        )
        status = _serve(kubeconfig, context, options)
    except (ApiError, InUse) as error:
        raise click.ClickException(str(error)) from None
    sys.exit(status)


def _check_addresses(texts: Iterable[str]) -> None:
    """Reject an invalid address before anything is started."""
    for text in texts:
        try:
            Address.parse(text)
        except ValueError as error:
            raise click.ClickException(str(error)) from None


def roles_of(text: str) -> frozenset[str]:
    """The named roles; an error that lists the known roles if one is unknown."""
    named = frozenset(part.strip() for part in text.split(",") if part.strip())
    if not named or named - set(KNOWN_ROLES):
        unknown = ", ".join(sorted(named - set(KNOWN_ROLES))) or "none"
        raise click.BadParameter(f"{unknown} is not a role; the roles are {', '.join(KNOWN_ROLES)}")
    return named


def _serve(kubeconfig: Path | None, context: str | None, options: RunOptions) -> int:
    clock, log = SystemClock(), logs.logger("run")
    stop = threading.Event()
    shutdown = ShutdownStack(clock, log.warning)
    metrics = Metrics(__version__)
    contained = containment(metrics, clock)
    SupervisedThread("memory", partial(return_freed_memory, stop), contained, stop, clock).start()
    backend = RemoteBackend(
        load(kubeconfig, context), log=logs.logger("api").warning, restarted=metrics.watch_restarted
    )
    shutdown.opened("the connection", backend.close)
    settings = options.settings
    grouper = (
        PodGrouperController(settings.profiles, settings.grouper, logs.logger("grouper").warning)
        if PodGrouperController.name in options.roles
        else None
    )
    try:
        asked_again = logs.logger("api").warning
        version = first_answer(backend.server_version, clock, asked_again)
        log.info("connected", server=backend.access.server, kubernetes=version, shadow=options.shadow)
        if "scheduler" in options.roles:
            served = first_answer(partial(gang_versions, backend.request), clock, asked_again)
            log.info(gang_api_words(served))
        journal: Journal = (
            FileJournal(options.journal, note=logs.logger("journal").warning)
            if options.journal
            else NullJournal()
        )
        shutdown.opened("the journal", lambda _: journal.close())
        if "webhooks" in options.roles and not options.shadow:
            watching = RemoteBackend(load(kubeconfig, context), log=logs.logger("api").warning)
            note = logs.logger("webhooks").warning
            look_ups = LookUpWatch(watching, watched_facts(), note, contained, clock)
            shutdown.opened("the watch for look-ups", lambda _: look_ups.stop())
            _serve_webhooks(backend, look_ups.facts, grouper, options, clock, metrics, shutdown, contained)
        if options.guarded is not None:
            page = open_metrics(options.guarded, backend.request, metrics, clock)
            shutdown.opened("the metrics", lambda _: page.stop())
            log.info("serving", metrics=f"https://{page.address}/metrics")
        ready: dict[str, health.Check] = {}
        if options.dashboard is not None:
            pages = open_dashboard(options.dashboard)
            shutdown.opened("the dashboard", lambda _: pages.stop())
            ready[DASHBOARD] = pages.check
            log.info("serving", dashboard=pages.url)
        with stop_on_signal(stop):
            if options.roles & LOOP_ROLES:
                _schedule(backend, journal, options, grouper, clock, metrics, stop, shutdown, contained)
            else:
                server = _probes({}, ready, metrics, options)
                shutdown.opened("the probes", lambda _: server.stop())
                stop.wait()
        log.info("stopping")
    finally:
        stop.set()
        is_clean = shutdown.close()
    return 0 if is_clean else 1


def _schedule(
    backend: RemoteBackend, journal: Journal, options: RunOptions, grouper: PodGrouperController | None,
    clock: SystemClock, metrics: Metrics, stop: threading.Event, shutdown: ShutdownStack,
    contained: Containment,
) -> None:  # fmt: skip
    """Run the loop until it is stopped; writes in flight finish before the Lease is released."""
    election = _election(backend, options, clock) if options.elect else None
    admission_metrics = (
        AdmissionMetrics(metrics.registry, __version__) if "admission" in options.roles else None
    )
    spans = open_spans(shutdown) if options.tracing else NO_SPANS
    loop = _loop(
        backend, options, grouper, journal, metrics, admission_metrics, election, clock, contained, spans
    )
    if election is not None:
        election.acquire_when(lambda: loop.synced)
        thread = ElectionThread(election, contained, clock)
        shutdown.opened("the lease", lambda _: thread.stop())
    service = Service(loop, clock, metrics, stop, logs.logger("run").warning)
    shutdown.opened("the writes in flight", service.finish)
    alive = {"loop": health.steps(clock, lambda: service.last_step)}
    ready = {"watches": health.synced(lambda: service.loop.unsynced)}
    if election is not None:
        ready["leader"] = health.leading(clock, election.is_leader)
    if DEFRAGMENT in options.roles:
        moves = open_moves(options.passed_on, election, clock, metrics)
        shutdown.opened("the moves of gangs", lambda _: moves.stop())
    server = _probes(alive, ready, metrics, options)
    shutdown.opened("the probes", lambda _: server.stop())
    logs.logger("run").info("serving", probes=f"http://{server.address}")
    service.run()


def _serve_webhooks(
    backend: RemoteBackend, facts: WatchedFacts, grouper: PodGrouperController | None, options: RunOptions,
    clock: SystemClock, metrics: Metrics, shutdown: ShutdownStack, contained: Containment,
) -> None:  # fmt: skip
    log = logs.logger("webhooks")

    def note(sentence: str, bug: BaseException | None) -> None:
        if bug is None:
            log.info(sentence)
        else:  # what the API server answered is in the sentence
            log.warning(sentence, exc_info=None if isinstance(bug, ApiError) else bug)

    address = Address.parse(options.webhook_listen)
    endpoint = WebhookEndpoint(options.namespace, address, converted(), options.certificate)
    live = LiveObjects(backend.request, clock)
    owner = no_owner if grouper is None else grouper.cache.owner
    look_ups = LookUps(facts.queue, owner, facts.levels, live.controller, live.has_class)
    webhooks = Webhooks(backend.request, endpoint, clock, metrics, note, look_ups, contained)
    shutdown.opened("the webhooks", lambda _: webhooks.stop())
    log.info("serving", webhooks=f"https://{webhooks.server.address}")


def _loop(
    backend: RemoteBackend,
    options: RunOptions,
    grouper: PodGrouperController | None,
    journal: Journal,
    metrics: Metrics,
    admission_metrics: AdmissionMetrics | None,
    election: Election | None,
    clock: SystemClock,
    contained: Containment,
    spans: Spans,
) -> Loop:
    target: Backend = (Shadow if options.shadow else Metered)(backend, metrics, spans)
    watch, removed = (
        (admission_metrics.summarised, admission_metrics.gate_removed) if admission_metrics else (None, None)
    )
    roles = controllers_for(options.roles, watch, removed, options.settings, grouper, shadow=options.shadow)
    reported: list[bool] = []

    def may_write(_: float) -> bool:
        leads = election is None or election.is_leader(clock.monotonic())
        metrics.leads(leads)
        if admission_metrics is not None and election is not None and reported != [leads]:
            reported[:] = [leads]
            admission_metrics.leads(leads)
        return leads

    decisions = decision_log(roles, journal, shadow=options.shadow)
    meter = Meter(clock, metrics, admission_metrics, logs.logger("run").warning, decisions, spans)
    return Loop(target, roles, journal, may_write=may_write, observer=meter, containment=contained)


def _election(backend: RemoteBackend, options: RunOptions, clock: SystemClock) -> Election:
    identity = f"{socket.gethostname()}_{os.getpid()}_{random.getrandbits(32):08x}"
    lease = ApiObject(backend.request, LEASE, options.namespace, LEASE_NAME)
    election = Election(lease, identity, clock, random.random, note=logs.logger("election").info)
    backend.write_only_while(lambda: election.is_leader(clock.monotonic()), election.timing.write_seconds)
    return election


def _probes(
    alive: Mapping[str, health.Check],
    ready: Mapping[str, health.Check],
    metrics: Metrics,
    options: RunOptions,
) -> Server:
    address = Address.parse(options.listen)
    return health.serve_health(metrics, alive, ready, address, with_metrics=options.guarded is None)
