"""Rotates the webhook certificate: in the Secrets shared by replicas, in the server, in the caBundles."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bayplan.dialects.api import Kind, Verb, Write
from bayplan.dialects.errors import ApiError
from bayplan.runtime.core.api_object import NamedObject, WriteConflict
from bayplan.runtime.core.clock import Clock
from bayplan.runtime.webhooks.certificates import (
    AUTHORITY_KEY,
    Certificates,
    Served,
    is_due,
    read,
    read_authorities,
    renewed,
)

OURS = "app.kubernetes.io/part-of=bayplan"
MUTATING = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    namespaced=False,
    label_selector=OURS,
)
VALIDATING = replace(
    MUTATING, kind="ValidatingWebhookConfiguration", plural="validatingwebhookconfigurations"
)
DEFINITION = Kind(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    namespaced=False,
    label_selector=OURS,
)
TRUSTING = (MUTATING, VALIDATING, DEFINITION)
"""The kinds that hold a caBundle. Watch them, and pass the objects to `trusting`."""

LOOK_SECONDS = 3600.0
CALL_SECONDS = 10.0
RETRY_SECONDS = 10.0


class CertificateKeeper:
    """One per replica; they coordinate through two Secrets. `use` is called with each new certificate.

    One Secret holds what is served. The other holds the CAs with their private keys, and is read only by a
    replica that renews.
    """

    def __init__(
        self,
        secret: NamedObject,
        authority: NamedObject,
        names: Sequence[str],
        clock: Clock,
        use: Callable[[Served], None],
        note: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self._secret, self._authority, self._names, self._clock = secret, authority, names, clock
        self._use, self._note = use, note
        self.current: Served | None = None
        self.error: ApiError | None = None  # of the last check

    def step(self) -> float:
        """Read the Secrets, renew if due, use what is new; returns the seconds until the next check."""
        self.error = None
        try:
            found = self._current_certificates()
        except WriteConflict:
            return 1.0  # another replica renewed at the same time: use its certificate
        except ApiError as error:
            self.error = error
            self._note(f"the webhook certificate could not be checked: {error}")
            return RETRY_SECONDS
        if self.current is None or found.data() != self.current.data():
            self.current = found
            self._use(found)
        return LOOK_SECONDS

    def _current_certificates(self) -> Served:
        secret = self._secret.get(CALL_SECONDS)
        known = (secret or {}).get("data") or {}
        served = read(secret)
        if served is None and known:
            self._note("the Secret of the webhook certificate is unreadable; a new certificate is made")
        now = self._clock.wall()
        if served is not None and AUTHORITY_KEY not in known and not is_due(served, self._names, now):
            return served
        return self._renewed(secret, served, now)

    def _renewed(self, secret: dict[str, Any] | None, served: Served | None, now: float) -> Served:
        """Renew, and write what has changed: the CAs first, so that each one served is stored."""
        kept = self._authority.get(CALL_SECONDS)
        # An earlier version kept the CA key beside the served certificate; it moves to its own Secret.
        pairs = {one.pem: one for one in (*read_authorities(secret), *read_authorities(kept))}
        current = Certificates(tuple(pairs.values()), served.serving if served else None)
        wanted = renewed(current, self._names, now)
        if wanted.data().items() - ((kept or {}).get("data") or {}).items():
            self._write(self._authority, kept, wanted.data())
        before = (secret or {}).get("data") or {}
        if AUTHORITY_KEY in before or wanted.served.data().items() - before.items():
            self._write(self._secret, secret, wanted.served.data())
            self._note("made a new webhook certificate")
        return wanted.served

    def _write(self, where: NamedObject, found: dict[str, Any] | None, data: dict[str, str]) -> None:
        others = dict((found or {}).get("data") or {})
        if where is self._secret:
            others.pop(AUTHORITY_KEY, None)
        body = {**(found or {}), "data": {**others, **data}}
        (where.create if found is None else where.update)(body, CALL_SECONDS)


def trusting(kind: Kind, obj: Mapping[str, Any], bundle: bytes) -> Write | None:
    """The write that puts the CA bundle into one of our objects; None if it is there already."""
    encoded = base64.b64encode(bundle).decode()
    if kind.kind == DEFINITION.kind:
        changed = _definition(obj, encoded)
    else:
        webhooks = [
            {**hook, "clientConfig": {**hook["clientConfig"], "caBundle": encoded}}
            for hook in obj.get("webhooks") or ()
        ]
        changed = {**obj, "webhooks": webhooks} if webhooks else dict(obj)
    if changed == obj:
        return None
    metadata = obj["metadata"]
    return Write(
        Verb.UPDATE,
        kind,
        "",
        metadata["name"],
        changed,
        uid=metadata["uid"],
        version=metadata["resourceVersion"],
    )


def _definition(obj: Mapping[str, Any], encoded: str) -> dict[str, Any]:
    spec = obj["spec"]
    conversion = spec.get("conversion") or {}
    if conversion.get("strategy") != "Webhook":
        return dict(obj)
    webhook = conversion["webhook"]
    config = {**(webhook.get("clientConfig") or {}), "caBundle": encoded}
    return {
        **obj,
        "spec": {**spec, "conversion": {**conversion, "webhook": {**webhook, "clientConfig": config}}},
    }
