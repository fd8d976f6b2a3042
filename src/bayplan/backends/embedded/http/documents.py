"""What the HTTP API server serves besides resources: health, version, discovery, OpenAPI."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from bayplan.backends.embedded.api.resources import ResourceRegistry
from bayplan.backends.embedded.api.status import method_not_allowed
from bayplan.backends.embedded.http import discovery, openapi
from bayplan.backends.embedded.http.handlers import HttpResponse, Stream
from bayplan.backends.embedded.http.request import JSON, Call, RequestPath
from bayplan.backends.embedded.storage.store import Store

Serve = Callable[[Store, Call, RequestPath], HttpResponse | Stream]


@dataclass(frozen=True, slots=True)
class ResponseBody:
    """What is sent back: text, or values to be written as JSON."""

    body: Any
    code: int = 200
    content_type: str = JSON


_SWAGGER = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
NOT_FOUND = ResponseBody("404 page not found\n", 404)


def find(store: Store, call: Call, address: str) -> ResponseBody:
    """The document at a path."""
    if call.method not in ("GET", "HEAD"):
        raise method_not_allowed()
    parts = [part for part in call.path.split("/") if part]
    if parts and parts[0] in ("healthz", "livez", "readyz"):
        return ResponseBody("ok")
    if parts == ["openapi", "v2"] and "protobuf" in call.accept:
        return ResponseBody(
            b"", content_type=_SWAGGER
        )  # kubectl looks here for lists; an empty document will do
    aggregated = _aggregated_version(call.accept) if parts in (["api"], ["apis"]) else ""
    kept = store.resources.rendered
    key = "/".join([*parts, aggregated])
    if key not in kept:
        found = _made(store.resources, parts, aggregated, address)
        if found is None:
            return NOT_FOUND
        kept[key] = msgspec.json.encode(found)
    form = discovery.AGGREGATED.format(version=aggregated) if aggregated else JSON
    return ResponseBody(kept[key], content_type=form)


def _made(resources: ResourceRegistry, parts: list[str], aggregated: str, address: str) -> Any:
    match parts:
        case []:
            return {"paths": ["/api", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]}
        case ["version"]:
            return discovery.VERSION
        case ["api" | "apis" as root] if aggregated:
            return discovery.aggregated(resources, root == "api", aggregated)
        case ["api"]:
            return discovery.versions(address)
        case ["apis"]:
            return discovery.groups(resources)
        case ["apis", group]:
            return discovery.group(resources, group)
        case ["api", version]:
            return discovery.resource_list(resources, "", version)
        case ["apis", group, version]:
            return discovery.resource_list(resources, group, version)
        case ["openapi", "v2"]:
            info = {"title": "Bayplan's cluster in memory: see /openapi/v3", "version": "v1.35.4"}
            return {"swagger": "2.0", "info": info, "paths": {}, "definitions": {}}
        case ["openapi", "v3"]:
            return openapi.index(resources)
        case ["openapi", "v3", *place]:
            return openapi.document(resources, "/".join(place))
    return None


def _aggregated_version(accept: str) -> str:
    """The version of the aggregated form, if a client prefers that to the plain one."""
    for part in accept.replace(" ", "").split(","):
        if "g=apidiscovery.k8s.io" in part:
            return "v2" if "v=v2;" in f"{part};" else "v2beta1"
        if part.startswith(JSON):
            return ""
    return ""


def serve_place(
    store: Store, call: Call, place: RequestPath, serve: Serve
) -> HttpResponse | Stream | ResponseBody:
    """What is at a resource's path; a group version that is not served at all has no Status to tell."""
    versions = {(one.group, one.version) for one in store.resources.by_place.values()}
    known = (place.group, place.version) in versions
    return serve(store, call, place) if known else NOT_FOUND
