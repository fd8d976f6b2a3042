"""The webhooks role: which functions look at which objects, and the server that offers them to a cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from bayplan.backends.conversion import convert
from bayplan.dialects.errors import ApiError
from bayplan.dialects.jobs.kinds import KINDS, Find
from bayplan.dialects.jobs.part import nothing
from bayplan.dialects.kai.api.hints import advise as of_group_keys
from bayplan.dialects.kai.decode import webhooks as groups
from bayplan.dialects.kai.decode.webhooks import FindOwner, no_owner
from bayplan.dialects.kueue.conversion.versions import CONVERTED
from bayplan.dialects.kueue.conversion.workload import GROUP, V1BETA2
from bayplan.dialects.kueue.fields import hints
from bayplan.dialects.kueue.fields.defaulting import DEFAULTED, default
from bayplan.dialects.kueue.webhooks.controlling_owners import FindController, nothing_known
from bayplan.dialects.kueue.webhooks.job_defaults import CHANGED_TOO, default_written
from bayplan.dialects.kueue.webhooks.priority_class_rules import CLASSED, HasClass, check_class, every_class
from bayplan.dialects.kueue.webhooks.validate import QUEUED, VALIDATED, validate
from bayplan.runtime.core.api_object import SECRET, ApiCall, ApiObject, WriteConflict
from bayplan.runtime.core.clock import Clock
from bayplan.runtime.core.containment import UNCONTAINED, Containment, SupervisedThread
from bayplan.runtime.telemetry.metrics import Metrics
from bayplan.runtime.webhooks.admission_review import Handlers, Registry
from bayplan.runtime.webhooks.certificate_rotation import TRUSTING, CertificateKeeper, trusting
from bayplan.runtime.webhooks.certificates import Served, reload, server_context
from bayplan.runtime.webhooks.http_server import Address, Server
from bayplan.runtime.webhooks.server import Note, serve_webhooks

SERVICE = "bayplan-webhooks"
SECRET_NAME = "bayplan-webhook-certificate"
AUTHORITY_NAME = "bayplan-webhook-authority"
"""The key that signs certificates; read only by a replica that renews one."""
CONFIGURATION = "bayplan"
REVIEWED_AS = {GROUP: V1BETA2}
"""The one version in which our functions see the objects of a group; the API server converts to it."""
TRUST_SECONDS = 60.0
CALL_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class LookUps:
    """How our functions find out about other objects."""

    queue: Find = nothing  # the LocalQueue of a namespace that is for jobs that name none
    owner: FindOwner = no_owner  # what made a pod
    levels: Callable[[], Collection[str]] = tuple  # of all topologies; none: they are not known
    controller: FindController = nothing_known  # what a job or pod says it is controlled by
    has_class: HasClass = every_class  # whether there is a priority class


KNOWS_NOTHING = LookUps()


def registry(look_ups: LookUps = KNOWS_NOTHING) -> Registry:
    """Every function that looks at what people write. The embedded backend asks the same ones."""
    made, find = Registry(), look_ups.queue
    for group, resource in VALIDATED:
        made.add(group, resource, Handlers(validate=(partial(validate, find=find),)))
    known_class = partial(check_class, has_class=look_ups.has_class)
    for group, resource in CLASSED:
        made.add(group, resource, Handlers(validate=(known_class,)))
    written = partial(default_written, find=find, owner=look_ups.controller)
    for group, resource in (*QUEUED, (GROUP, "workloads")):
        advise = partial(_advise, look_ups.levels)
        made.add(group, resource, Handlers(advise=(advise, of_group_keys)))
    for resource in DEFAULTED:
        made.add(GROUP, resource, Handlers(mutate=(default,), fail_open=True), ("CREATE",))
    for name, kind in KINDS.items():
        operations = ("CREATE", "UPDATE") if name in CHANGED_TOO else ("CREATE",)
        made.add(kind.group, kind.plural, Handlers(mutate=(written,)), operations)
    for group, resource in groups.VALIDATED:
        made.add(
            group, resource, Handlers(validate=(groups.validate,), advise=(groups.advise,), fail_open=True)
        )
    tell = partial(groups.tell_segment, owner=look_ups.owner)
    made.add("", "pods", Handlers(mutate=(tell,), fail_open=True), ("CREATE",))
    made.conversion.update(dict.fromkeys(CONVERTED, convert))
    return made


def _advise(levels: Callable[[], Collection[str]], new: dict[str, Any]) -> list[str]:
    return hints.advise(new, levels())


def hook_name(group: str, resource: str) -> str:
    """What the webhook for a resource is called."""
    return f"{resource.replace('/', '-')}.{group or 'core'}.bayplan.dev"


@dataclass(frozen=True, slots=True)
class WebhookEndpoint:
    """Where the webhooks are served, and under which names they are called."""

    namespace: str
    address: Address = Address()  # noqa: RUF009 - it is frozen
    definitions: tuple[str, ...] = ()  # CRDs of ours that are converted

    @property
    def names(self) -> tuple[str, ...]:
        """For the certificate: the Service, and where we listen if that is one place."""
        inside = f"{SERVICE}.{self.namespace}.svc"
        here = () if self.address.host in ("0.0.0.0", "::") else (self.address.host,)
        return (inside, f"{inside}.cluster.local", *here)


class Webhooks:
    """A server with a certificate that renews itself and that the cluster is told to trust."""

    def __init__(
        self,
        request: ApiCall,
        site: WebhookEndpoint,
        clock: Clock,
        metrics: Metrics,
        note: Note = lambda sentence, bug: None,
        look_ups: LookUps = KNOWS_NOTHING,
        containment: Containment = UNCONTAINED,
    ) -> None:
        self._note, self._metrics, self._said = note, metrics, ""
        self.certificates: Served | None = None
        secret, authority = (
            ApiObject(request, SECRET, site.namespace, name) for name in (SECRET_NAME, AUTHORITY_NAME)
        )
        self._keeper = CertificateKeeper(secret, authority, site.names, clock, self._use, self._say)
        self._configurations = list(_configurations(request, site))
        self._stop = threading.Event()
        self._tls = server_context(self._first())
        self.server: Server = serve_webhooks(
            registry(look_ups), self._tls, clock, metrics, site.address, note
        )
        self._thread = SupervisedThread("certificates", self._keep, containment, self._stop, clock)
        self._thread.start()

    def stop(self) -> None:
        """Finish the reviews under way, then close."""
        self._stop.set()
        self._thread.join()
        self.server.stop()

    def _first(self) -> Served:
        for _ in range(3):  # two replicas may begin at the same time; the second takes what the first made
            self._keeper.step()
            if self._keeper.current is not None:
                return self._keeper.current
        raise ApiError(f"there is no certificate for the webhooks: {self._said}")

    def _use(self, certificates: Served) -> None:
        if self.certificates is not None:
            reload(self._tls, certificates)
        self.certificates = certificates
        self._metrics.certificate_ends(certificates.expires)

    def _keep(self) -> None:
        look, passed = 0.0, 0.0
        while not self._stop.is_set():
            if passed >= look:
                look, passed = self._keeper.step(), 0.0
            self.look()
            seconds = min(TRUST_SECONDS, look)
            self._stop.wait(seconds)
            passed += seconds

    def look(self) -> None:
        """Have the cluster trust what we serve, wherever it does not."""
        assert self.certificates is not None
        for kind, configuration in self._configurations:
            try:
                found = configuration.get(CALL_SECONDS)
                write = trusting(kind, found, self.certificates.bundle) if found else None
                if write is not None:
                    configuration.update(write.body, CALL_SECONDS)
                    self._say(f"told the cluster to trust us in {kind.kind} {write.name}")
            except WriteConflict:
                continue  # the next time
            except ApiError as trouble:
                self._say(f"the cluster may not trust our certificate: {trouble}")

    def _say(self, sentence: str) -> None:
        self._said = sentence
        self._note(sentence, None)


def _configurations(request: ApiCall, site: WebhookEndpoint) -> Iterable[tuple[Any, ApiObject]]:
    mutating, validating, definition = TRUSTING
    for kind in (mutating, validating):
        yield kind, ApiObject(request, kind, "", CONFIGURATION)
    for name in site.definitions:
        yield definition, ApiObject(request, definition, "", name)
