"""Which of our definitions the webhook converts, and how the API server reaches it."""

from __future__ import annotations

from functools import cache
from typing import Any

from bayplan.assembly.webhooks import SERVICE, registry
from bayplan.backends.definitions import definitions

Object = dict[str, Any]


@cache
def converted() -> tuple[str, ...]:
    """The names of those that are served in several versions, which our webhook converts."""
    known = registry().conversion
    return tuple(
        str(one["metadata"]["name"])
        for one in definitions()
        if len(one["spec"]["versions"]) > 1 and (one["spec"]["group"], one["spec"]["names"]["kind"]) in known
    )


def conversion(namespace: str) -> Object:
    """How the API server reaches the webhook that converts."""
    service = {"name": SERVICE, "namespace": namespace, "path": "/convert"}
    webhook = {"conversionReviewVersions": ["v1"], "clientConfig": {"service": service}}
    return {"strategy": "Webhook", "webhook": webhook}
