"""The CustomResourceDefinitions that Bayplan brings along: JSON files beside the dialects that read them."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from bayplan.cli.webhooks import SERVICE, registry

Object = dict[str, Any]


def definitions() -> list[Object]:
    """All of them, by name."""
    found = [
        json.loads(file.read_text(encoding="utf-8"))
        for dialect in files("bayplan.dialects").iterdir()
        if dialect.is_dir() and (dialect / "crds").is_dir()
        for file in (dialect / "crds").iterdir()
        if file.name.endswith(".json")
    ]
    return sorted(found, key=lambda definition: str(definition["metadata"]["name"]))


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
