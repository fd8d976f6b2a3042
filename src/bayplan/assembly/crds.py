"""The CRDs that the conversion webhook converts, and their conversion section."""

from __future__ import annotations

from functools import cache
from typing import Any

from bayplan.assembly.webhooks import SERVICE, registry
from bayplan.backends.crds import definitions

Object = dict[str, Any]


@cache
def converted() -> tuple[str, ...]:
    """The names of the CRDs that are served in several versions, which the webhook converts."""
    known = registry().conversion
    return tuple(
        str(one["metadata"]["name"])
        for one in definitions()
        if len(one["spec"]["versions"]) > 1 and (one["spec"]["group"], one["spec"]["names"]["kind"]) in known
    )


def conversion(namespace: str) -> Object:
    """The conversion section of a CRD."""
    service = {"name": SERVICE, "namespace": namespace, "path": "/convert"}
    webhook = {"conversionReviewVersions": ["v1"], "clientConfig": {"service": service}}
    return {"strategy": "Webhook", "webhook": webhook}
