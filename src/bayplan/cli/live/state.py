"""The state of a live cluster: everything that admission reads, listed once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from bayplan.backends.remote.answers import api_error_of
from bayplan.backends.remote.backend import RemoteBackend, connect
from bayplan.backends.remote.decoding import Wire
from bayplan.backends.remote.request import collection
from bayplan.cli.config.cluster_access import takes_cluster
from bayplan.cli.config.options import takes_configuration
from bayplan.cli.config.paused_collector import collector_paused
from bayplan.cli.live.read_ahead import Pages, ReadingAhead
from bayplan.cli.render.progress import Progress
from bayplan.configuration.settings import DEFAULTS, Settings
from bayplan.dialects.api import Event, Happened, Kind
from bayplan.dialects.errors import ApiError, Forbidden, NotServed
from bayplan.dialects.kube.decode import volumes
from bayplan.dialects.kube.decode.pod_spec_cache import PodSpecCache
from bayplan.dialects.kube.decode.wire import NODES, PODS_KIND
from bayplan.dialects.kube.fields.closest_name import closest
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.conversion.versions import CONVERSIONS
from bayplan.dialects.kueue.decode import events
from bayplan.dialects.kueue.fields.pod_sets import source
from bayplan.dialects.kueue.names import api_kinds
from bayplan.dialects.nrt import decoder as zones
from bayplan.model.change import Change
from bayplan.model.gang import Ref
from bayplan.runtime.core.clock import Clock, SystemClock
from bayplan.runtime.process.election import Timing
from bayplan.state.admission.fork import fork
from bayplan.state.admission.state import AdmissionState

PAGE = 500
SECONDS = 60.0
LED_WRITE_SECONDS = Timing().write_seconds
"""How long a write may take where only a leader may write: no other replica leads before it ends."""
NEVER = 1e6
"""Seconds after which a command that shows no progress would show it."""
OLDER = "v1beta1"
EVENTS = Kind("", "v1", "Event", "events")
RULES = (
    api_kinds.NAMESPACES, api_kinds.TOPOLOGIES, api_kinds.FLAVORS, api_kinds.COHORTS,
    api_kinds.CLUSTER_QUEUES, api_kinds.LOCAL_QUEUES, api_kinds.CHECKS,
)  # fmt: skip

Object = dict[str, Any]


@dataclass(slots=True)
class Live:
    """The state of a cluster, as listed at the start of the command."""

    backend: RemoteBackend
    now: float
    namespace: str  # the default namespace
    settings: Settings = DEFAULTS
    workloads: dict[Ref, Object] = field(default_factory=dict)  # including finished ones
    admission: AdmissionState = field(default_factory=AdmissionState)
    unapplied: list[Event] = field(default_factory=list)  # listed, and not yet applied to `admission`
    no_queues: str = ""  # the error message if the cluster does not serve the queue API
    lists: dict[Kind, list[Any]] = field(default_factory=dict)  # already listed objects, by kind
    events: dict[Kind, list[Event]] = field(default_factory=dict)  # the same, decoded once
    progress: Progress = field(default_factory=Progress)
    ahead: ReadingAhead = field(init=False)

    def __post_init__(self) -> None:
        self.ahead = ReadingAhead(partial(pages, self.backend))

    def copy(self) -> Live:
        """The same cluster with its own admission state, for simulations."""
        return replace(self, admission=fork(self.state))

    @property
    def state(self) -> AdmissionState:
        """The admission state. It is made when it is first needed: a gang without a queue needs none."""
        if self.unapplied:
            unapplied, self.unapplied = self.unapplied, []
            self.admission.apply_all(_decoded(unapplied, self.settings))
        return self.admission

    @property
    def namespaces(self) -> set[str]:
        """The names of all namespaces."""
        return {one["metadata"]["name"] for one in self.listed(api_kinds.NAMESPACES)}

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Read one object from the cluster; None if it does not exist."""
        return get(self.backend, kind, namespace, name)

    def has_namespace(self, name: str) -> bool:
        return name in self.namespaces

    def require_queues(self) -> None:
        """Raise an error if the cluster does not serve the queue API."""
        if self.no_queues:
            raise click.ClickException(self.no_queues)

    def levels(self) -> set[str]:
        """The levels of all topologies of queues."""
        clusters = self.state.usage.topologies.values()
        return {level for cluster in clusters for level in cluster.topology.levels}

    def listed(self, kind: Kind) -> list[Any]:
        """All objects of a kind; each kind is listed once."""
        if kind not in self.lists:
            self.lists[kind] = list(self.progress.counted(kind.plural, self.ahead.items(kind)))
        return self.lists[kind]

    def seen(self, kind: Kind) -> list[Event]:
        """All objects of a kind as watch events."""
        if kind not in self.events:
            self.events[kind] = [Event(Happened.SEEN, kind, one) for one in self.listed(kind)]
        return self.events[kind]


@dataclass(frozen=True, slots=True)
class ClusterTarget:
    """The cluster, namespace, clock and settings of a command."""

    kubeconfig: Path | None
    context: str | None
    namespace: str | None
    clock: Clock
    settings: Settings = DEFAULTS
    may_write: Callable[[], bool] | None = None  # asked before each write; None: always

    @contextmanager
    def connected(self) -> Iterator[RemoteBackend]:
        """A connection; API errors become one-line errors of the command."""
        try:
            backend = connect(self.kubeconfig, self.context)
        except ApiError as error:
            raise click.ClickException(str(error)) from None
        try:
            if self.may_write is not None:
                backend.write_only_while(self.may_write, LED_WRITE_SECONDS)
            yield backend
        except ApiError as error:
            raise click.ClickException(str(error)) from None
        finally:
            backend.close(0)

    @contextmanager
    def live(self, *, quiet: bool = False) -> Iterator[Live]:
        """The state of the cluster."""
        with self.connected() as backend:
            namespace = self.namespace or backend.access.namespace
            state = AdmissionState(self.settings.numa_staleness)
            live = Live(backend, self.clock.wall(), namespace, self.settings, admission=state)
            if quiet:
                live.progress = Progress(after=NEVER)
            with collector_paused(), closing(live.ahead):
                read(live)
                yield live


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of commands that read a cluster; the command gets them as one `target`."""

    @takes_cluster
    @click.option("-n", "--namespace", help="Default: the namespace of the context.")
    @takes_configuration
    @click.pass_context
    @wraps(command)
    def wrapped(ctx: click.Context, /, **options: Any) -> Any:
        clock: Clock = ctx.obj or SystemClock()
        where = (options.pop("kubeconfig"), options.pop("context"), options.pop("namespace"))
        target = ClusterTarget(*where, clock, options.pop("settings"))
        return ctx.invoke(command, target=target, **options)

    return wrapped


def read(live: Live) -> None:
    """List everything that admission reads. Nothing is watched or written.

    A cluster that does not serve the queue API may have gangs of other APIs: the rest is read.
    """
    wanted = (NODES, PODS_KIND, api_kinds.WORKLOADS, *RULES, *zones.KINDS)  # long lists first
    live.ahead.begin(kind for kind in wanted if kind not in live.lists)
    try:
        workloads = _seen(live, api_kinds.WORKLOADS)
    except NotServed as missing:
        workloads, live.no_queues = [], str(missing)
    live.workloads = {source(Field(one.object), "Workload"): one.object for one in workloads}
    for kind in (*RULES, NODES, api_kinds.WORKLOADS, PODS_KIND):  # gangs before their pods
        if kind.group == api_kinds.GROUP and live.no_queues:
            continue
        live.unapplied += workloads if kind is api_kinds.WORKLOADS else _seen(live, kind)
    filtered = volumes.KINDS if live.settings.profile.binding_filters else ()
    for kind in (*zones.KINDS, *filtered):
        live.unapplied += _seen_if_served(live, kind)


def _decoded(unapplied: list[Event], settings: Settings) -> Iterator[Change]:
    numa = zones.NumaReportDecoder()
    pod_specs = PodSpecCache() if settings.profile.binding_filters else None
    for event in unapplied:
        if event.kind in zones.KINDS:
            yield from numa.decode(event)
        else:
            yield from events.decode(event, settings.resources, pod_specs=pod_specs)


def checked_namespace(live: Live, name: str) -> str:
    """The namespace; an error if it does not exist."""
    if not live.has_namespace(name):
        near = closest(name, live.namespaces)
        raise click.ClickException(f"there is no namespace {name}{f'; did you mean {near}?' if near else ''}")
    return name


def _seen_if_served(live: Live, kind: Kind) -> list[Event]:
    """All objects of an optional kind; none if it is not served or the user may not list it."""
    try:
        return live.seen(kind)
    except (NotServed, Forbidden):
        return []


def get(backend: RemoteBackend, kind: Kind, namespace: str, name: str) -> Object | None:
    """One object; None if it or its kind does not exist."""
    status, body = backend.request("GET", kind.path(quote(namespace), quote(name)), b"", SECONDS)
    if status == 404:
        return None
    if status != 200:
        raise api_error_of(status, body, kind, backend.access)
    decoded: Object = Wire(kind).object(body)
    return decoded


def events_about(live: Live, namespace: str, names: set[tuple[str, str]]) -> list[Object]:
    """The events of a namespace about objects given by kind and name, oldest first."""
    about = []
    for kind, name in sorted(names):  # events of one second keep this order
        chosen = replace(EVENTS, field_selector=f"involvedObject.kind={kind},involvedObject.name={name}")
        about += [one for page in pages(live.backend, chosen, namespace) for one in page]
    return sorted(about, key=event_time)


def event_time(event: Object) -> str:
    """The last time an event occurred."""
    series = event.get("series") or {}
    times = (
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event.get("metadata", {}).get("creationTimestamp"),
    )
    return next((str(time) for time in times if time), "")


def _seen(live: Live, kind: Kind) -> list[Event]:
    """All objects of a kind. A server that serves only the older version of the queue API is read in that."""
    try:
        return live.seen(kind)
    except NotServed:
        if kind.group != api_kinds.GROUP:
            raise
    older = replace(kind, version=OLDER)
    try:
        objects = live.listed(older)
    except NotServed:
        raise NotServed(
            f"{live.backend.access.server} has no queues: it does not serve {kind.plural} of {kind.group};"
            " install the CRDs with: bayplan install"
        ) from None
    from bayplan.backends.conversion import convert  # noqa: PLC0415 — few servers need it

    newer = (convert(one, kind.api_version) if kind.kind in CONVERSIONS else one for one in objects)
    return [Event(Happened.SEEN, kind, one) for one in newer]


def pages(backend: RemoteBackend, kind: Kind, namespace: str = "") -> Pages:
    """All objects of a kind, page by page. Raises ApiError if the server does not return them."""
    wire, token = Wire(kind), ""
    base = kind.path(quote(namespace))
    while True:
        path = collection(kind, limit=PAGE, **{"continue": token}).replace(kind.path(), base, 1)
        status, body = backend.request("GET", path, b"", SECONDS)
        if status != 200:
            raise api_error_of(status, body, kind, backend.access)
        page = wire.page(body)
        yield page.items
        token = page.metadata.next_page
        if not token:
            return
