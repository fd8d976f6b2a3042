"""The role webhooks: the functions for each resource, and the server with its certificates."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bayplan.backends.conversion import convert
from bayplan.dialects.errors import ApiError
from bayplan.dialects.kueue.conversion.versions import CONVERTED
from bayplan.dialects.registry import reviews
from bayplan.dialects.reviews import NO_LOOK_UPS, LookUps
from bayplan.runtime.core.api_object import SECRET, ApiCall, ApiObject, WriteConflict
from bayplan.runtime.core.clock import Clock
from bayplan.runtime.core.containment import UNCONTAINED, Containment, SupervisedThread
from bayplan.runtime.telemetry.metrics import Metrics
from bayplan.runtime.webhooks.admission_review import Handlers, Registry
from bayplan.runtime.webhooks.certificate_rotation import TRUSTING, CertificateKeeper, trusting
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
        self._note, self._metrics, self._last_message = note, metrics, ""
        self.certificates: Served | None = None
        self._files = endpoint.files
        secret, authority = (
            ApiObject(request, SECRET, endpoint.namespace, name) for name in (SECRET_NAME, AUTHORITY_NAME)
        )
        self._keeper = CertificateKeeper(secret, authority, endpoint.names, clock, self._use, self._say)
        self._configurations = list(_configurations(request, endpoint))
        self._stop = threading.Event()
        self._tls = server_context(self._first()) if self._files is None else self._files.context
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
        raise ApiError(f"there is no certificate for the webhooks: {self._last_message}")

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
            self.write_ca_bundles()
            seconds = min(TRUST_SECONDS, due)
            self._stop.wait(seconds)
            passed += seconds

    def _keep_files(self, files: CertificateFiles) -> None:
        while not self._stop.is_set():
            files.refresh()
            self._metrics.certificate_ends(files.expires)
            self._stop.wait(TRUST_SECONDS)

    def write_ca_bundles(self) -> None:
        """Write the CA bundle into webhook configurations and CRDs that lack it."""
        assert self.certificates is not None
        for kind, configuration in self._configurations:
            try:
                current = configuration.get(CALL_SECONDS)
                write = trusting(kind, current, self.certificates.bundle) if current else None
                if write is not None:
                    configuration.update(write.body, CALL_SECONDS)
                    self._say(f"wrote the CA bundle into {kind.kind} {write.name}")
            except WriteConflict:
                continue  # retried in the next round
            except ApiError as error:
                self._say(f"writing the CA bundle failed, the API server may not trust the webhooks: {error}")

    def _say(self, sentence: str) -> None:
        self._last_message = sentence
        self._note(sentence, None)


def _configurations(request: ApiCall, endpoint: WebhookEndpoint) -> Iterable[tuple[Any, ApiObject]]:
    mutating, validating, definition = TRUSTING
    for kind in (mutating, validating):
        yield kind, ApiObject(request, kind, "", CONFIGURATION)
    for name in endpoint.definitions:
        yield definition, ApiObject(request, definition, "", name)
