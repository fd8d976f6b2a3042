"""Keeps the webhook certificate good: in the Secret that replicas share, in the server, in the caBundles."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bayplan.dialects.api import Kind, Verb, Write
from bayplan.dialects.errors import Trouble
from bayplan.runtime.certificates import Certificates, read, renewed
from bayplan.runtime.clock import Clock
from bayplan.runtime.objects import NamedObject, Taken

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
"""The kinds that hold a caBundle. Watch them, and give what is seen to `trusting`."""

LOOK_SECONDS = 3600.0
CALL_SECONDS = 10.0
RETRY_SECONDS = 10.0


class CertificateKeeper:
    """One per replica; they agree through the Secret. `use` is called with the first and each later one."""

    def __init__(
        self,
        secret: NamedObject,
        names: Sequence[str],
        clock: Clock,
        use: Callable[[Certificates], None],
        note: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self._secret, self._names, self._clock, self._use, self._note = secret, names, clock, use, note
        self.current: Certificates | None = None

    def step(self) -> float:
        """Look, renew if it is time, use what is new; return in how many seconds to look again."""
        try:
            found = self._agreed()
        except Taken:
            return 1.0  # another replica was renewing too: take what it made
        except Trouble as trouble:
            self._note(f"the webhook certificate was not looked after: {trouble}")
            return RETRY_SECONDS
        if self.current is None or found.data() != self.current.data():
            self.current = found
            self._use(found)
        return LOOK_SECONDS

    def _agreed(self) -> Certificates:
        secret = self._secret.get(CALL_SECONDS)
        current = read(secret)
        if current is None and secret is not None and secret.get("data"):
            self._note("the Secret of the webhook certificate is unreadable; it is made anew")
        wanted = renewed(current, self._names, self._clock.wall())
        if wanted is not current:
            body = {**(secret or {}), "data": {**((secret or {}).get("data") or {}), **wanted.data()}}
            (self._secret.create if secret is None else self._secret.update)(body, CALL_SECONDS)
            self._note("made a new webhook certificate")
        return wanted


def trusting(kind: Kind, obj: Mapping[str, Any], bundle: bytes) -> Write | None:
    """The write that puts our bundle into an object of ours; None if it is there already."""
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
