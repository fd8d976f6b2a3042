"""The role webhooks: the functions for each resource, and the server with its certificates."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bayplan.backends.conversion import convert
from bayplan.dialects.api import Kind
from bayplan.dialects.errors import ApiError, Unreachable
from bayplan.dialects.kueue.conversion.versions import CONVERTED
from bayplan.dialects.registry import reviews
from bayplan.dialects.reviews import NO_LOOK_UPS, LookUps
from bayplan.runtime.core.api_object import SECRET, ApiCall, ApiObject, WriteConflict
from bayplan.runtime.core.clock import Clock
from bayplan.runtime.core.containment import UNCONTAINED, Containment, SupervisedThread
from bayplan.runtime.process.first_answers import first_answer
from bayplan.runtime.telemetry.metrics import Metrics
from bayplan.runtime.webhooks.admission_review import Handlers, Registry
from bayplan.runtime.webhooks.certificate_rotation import DEFINITION, TRUSTING, CertificateKeeper, trusting
from bayplan.runtime.webhooks.certificates import Served, reload, server_context
from bayplan.runtime.webhooks.http_server import Address, Server
from bayplan.runtime.webhooks.metrics_server import CertificateFiles
from bayplan.runtime.webhooks.server import Note, serve_webhooks

SERVICE = "bayplan-webhooks"
SECRET_NAME = "bayplan-webhook-certificate"
AUTHORITY_NAME = "bayplan-webhook-authority"
"""The Secret with the CA key; read only by a replica that renews a certificate."""
CONFIGURATION = "bayplan"
TRUST_SECONDS = 60.0
RETRY_SECONDS = 5.0  # after a CA bundle could not be written
CALL_SECONDS = 10.0


def registry(look_ups: LookUps = NO_LOOK_UPS) -> Registry:
    """All webhook functions by resource. The in-memory cluster calls the same functions."""
    handlers = Registry()
    for one in reviews(look_ups):
        functions = Handlers(one.mutate, one.validate, one.advise, fail_open=one.fail_open)
        handlers.add(one.group, one.resource, functions, one.operations)
    handlers.conversion.update(dict.fromkeys(CONVERTED, convert))
    return handlers


def hook_name(group: str, resource: str) -> str:
    """The name of the webhook of a resource."""
    return f"{resource.replace('/', '-')}.{group or 'core'}.bayplan.dev"


@dataclass(frozen=True, slots=True)
class WebhookEndpoint:
    """The address and names of the webhook server."""

    namespace: str
    address: Address = Address()  # noqa: RUF009 - it is frozen
    definitions: tuple[str, ...] = ()  # CRDs that are converted
    files: CertificateFiles | None = None  # a certificate of another authority, which publishes its own CA

    @property
    def names(self) -> tuple[str, ...]:
        """The names in the certificate: the Service, and the address if it is a single one."""
        inside = f"{SERVICE}.{self.namespace}.svc"
        here = () if self.address.host in ("0.0.0.0", "::") else (self.address.host,)
        return (inside, f"{inside}.cluster.local", *here)


class Webhooks:
    """The webhook server; renews its certificate, and writes the CA bundle to the cluster.

    With a certificate from files another authority does both.
    """

    def __init__(
        self,
        request: ApiCall,
        endpoint: WebhookEndpoint,
        clock: Clock,
        metrics: Metrics,
        note: Note = lambda sentence, bug: None,
        look_ups: LookUps = NO_LOOK_UPS,
        containment: Containment = UNCONTAINED,
    ) -> None:
        self._troubles: dict[str, str] = {}  # by object: what was warned of last
        self._namespace = endpoint.namespace
        self._note, self._metrics, self._last_message = note, metrics, ""
        self.certificates: Served | None = None
        self._files = endpoint.files
        secret, authority = (
            ApiObject(request, SECRET, endpoint.namespace, name) for name in (SECRET_NAME, AUTHORITY_NAME)
        )
        self._keeper = CertificateKeeper(secret, authority, endpoint.names, clock, self._use, self._say)
        self._configurations = list(_configurations(request, endpoint))
        self._stop = threading.Event()
        self._tls = (
            server_context(first_answer(self._first, clock, self._say))
            if self._files is None
            else self._files.context
        )
        self.server: Server = serve_webhooks(
            registry(look_ups), self._tls, clock, metrics, endpoint.address, note
        )
        self._thread = SupervisedThread("certificates", self._keep, containment, self._stop, clock)
        self._thread.start()

    def stop(self) -> None:
        """Finish the reviews in flight, then close the server."""
        self._stop.set()
        self._thread.join()
        self.server.stop()

    def _first(self) -> Served:
        for _ in range(3):  # two replicas may start at once; the second one uses the certificate of the first
            self._keeper.step()
            if self._keeper.current is not None:
                return self._keeper.current
        kind = Unreachable if isinstance(self._keeper.error, Unreachable) else ApiError
        raise kind(f"there is no certificate for the webhooks: {self._last_message}")

    def _use(self, certificates: Served) -> None:
        if self.certificates is not None:
            reload(self._tls, certificates)
        self.certificates = certificates
        self._metrics.certificate_ends(certificates.expires)

    def _keep(self) -> None:
        if self._files is not None:
            self._keep_files(self._files)
            return
        due, passed = 0.0, 0.0
        while not self._stop.is_set():
            if passed >= due:
                due, passed = self._keeper.step(), 0.0
            written = self.write_ca_bundles()
            seconds = min(TRUST_SECONDS if written else RETRY_SECONDS, due)
            self._stop.wait(seconds)
            passed += seconds

    def _keep_files(self, files: CertificateFiles) -> None:
        while not self._stop.is_set():
            files.refresh()
            self._metrics.certificate_ends(files.expires)
            self._stop.wait(TRUST_SECONDS)

    def write_ca_bundles(self) -> bool:
        """Write the CA bundle into webhook configurations and CRDs that lack it; whether all have it now."""
        assert self.certificates is not None
        written = True
        for kind, name, configuration in self._configurations:
            title = f"{kind.kind} {name}"
            try:
                current = configuration.get(CALL_SECONDS)
                if current is not None and (other := foreign_conversion(kind, current, self._namespace)):
                    self._trouble(title, f"{title} {other}")
                    continue
                write = trusting(kind, current, self.certificates.bundle) if current else None
                if write is not None:
                    configuration.update(write.body, CALL_SECONDS)
                    self._say(f"wrote the CA bundle into {title}")
                self._troubles.pop(title, None)
            except WriteConflict:
                written = False
            except ApiError as error:
                written = False
                self._trouble(
                    title,
                    f"the CA bundle of {title} could not be checked: {error}. Until it is, the API server "
                    "may refuse what it asks the webhooks about. The next try is in "
                    f"{RETRY_SECONDS:g} s; if this lasts, look at the API server's load and at the rights of "
                    "Bayplan's account",
                )
        return written

    def _trouble(self, title: str, sentence: str) -> None:
        """Warn once, until it is over or something else is wrong."""
        if self._troubles.get(title) != sentence:
            self._troubles[title] = sentence
            self._note(sentence, ApiError(sentence))

    def _say(self, sentence: str) -> None:
        self._last_message = sentence
        self._note(sentence, None)


def foreign_conversion(kind: Kind, obj: Mapping[str, Any], namespace: str) -> str:
    """What is to be done about a CRD that is converted by the webhook of another product; empty if it is not.

    Our CA bundle would break that webhook, and not help ours.
    """
    if kind != DEFINITION:
        return ""
    webhook = (obj["spec"].get("conversion") or {}).get("webhook") or {}
    service = (webhook.get("clientConfig") or {}).get("service")
    if service is None or (service["namespace"], service["name"]) == (namespace, SERVICE):
        return ""
    return (
        f"is converted by the Service {service['namespace']}/{service['name']}, not by "
        f"{namespace}/{SERVICE}: requests in other versions than the stored one fail when that Service is "
        "gone. To have Bayplan convert it, run: bayplan install --take-over-crds"
    )


def _configurations(request: ApiCall, endpoint: WebhookEndpoint) -> Iterable[tuple[Kind, str, ApiObject]]:
    mutating, validating, definition = TRUSTING
    for kind in (mutating, validating):
        yield kind, CONFIGURATION, ApiObject(request, kind, "", CONFIGURATION)
    for name in endpoint.definitions:
        yield definition, name, ApiObject(request, definition, "", name)
