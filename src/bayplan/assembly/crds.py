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


def unconverted(definition: Object) -> Object | None:
    """A CRD that is served in its stored version, without a webhook; None if it is so already."""
    spec = definition["spec"]
    versions = [{**one, "served": one["served"] and one["storage"]} for one in spec["versions"]]
    if versions == spec["versions"] and (spec.get("conversion") or {}).get("strategy", "None") == "None":
        return None
    return {**definition, "spec": {**spec, "versions": versions, "conversion": {"strategy": "None"}}}


def is_left_over(definition: Object) -> bool:
    """Whether a CRD belongs to an API that Bayplan serves, and has a conversion webhook of another product.

    Bayplan has no such kind, and converts only its own.
    """
    known = {str(one["metadata"]["name"]): str(one["spec"]["group"]) for one in definitions()}
    spec, name = definition["spec"], definition["metadata"]["name"]
    groups = {known[one] for one in converted()}
    by_webhook = (spec.get("conversion") or {}).get("strategy") == "Webhook"
    return spec["group"] in groups and name not in known and by_webhook


def conversion(namespace: str) -> Object:
    """The conversion section of a CRD."""
    service = {"name": SERVICE, "namespace": namespace, "path": "/convert"}
    webhook = {"conversionReviewVersions": ["v1"], "clientConfig": {"service": service}}
    return {"strategy": "Webhook", "webhook": webhook}
