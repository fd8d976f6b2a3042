"""Conversion webhooks that another product leaves behind when Bayplan takes over its API."""

from __future__ import annotations

import msgspec

from bayplan.assembly.crds import is_left_over, unconverted
from bayplan.backends.remote.backend import RemoteBackend
from bayplan.cli.config.output import echo
from bayplan.dialects.errors import ApiError
from bayplan.runtime.webhooks.certificate_rotation import DEFINITION

CALL_SECONDS = 30.0


def stop_conversions(backend: RemoteBackend, *, dry_run: bool = False) -> bool:
    """Serve kinds that only the other product has in their stored version: no webhook converts them now."""
    status, body = backend.request("GET", DEFINITION.path(), b"", CALL_SECONDS)
    if status != 200:
        raise ApiError(f"CustomResourceDefinitions could not be listed: {_answer(body)}")
    done = True
    for one in filter(is_left_over, msgspec.json.decode(body)["items"]):
        title, wanted = f"customresourcedefinition/{one['metadata']['name']}", unconverted(one)
        if dry_run or wanted is None:
            echo(f"{title} would be served in its stored version only")
            continue
        put = msgspec.json.encode({"apiVersion": DEFINITION.api_version, "kind": DEFINITION.kind, **wanted})
        path = DEFINITION.path(name=one["metadata"]["name"])
        status, answer = backend.request("PUT", path, put, CALL_SECONDS)
        if status == 200:
            echo(f"{title} is served in its stored version only: the webhook of its product is gone")
        else:
            done = False
            echo(f"{title} not changed: {_answer(answer)}; run the command again", err=True)
    return done


def _answer(body: bytes) -> str:
    return str(msgspec.json.decode(body).get("message", "the server gave no reason"))
