"""Everything the HTTP face serves beside resources: health, version, discovery, OpenAPI."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bayplan.backends.embedded import discovery, openapi
from bayplan.backends.embedded.calls import JSON, Call, Place
from bayplan.backends.embedded.serving import Answer, Stream
from bayplan.backends.embedded.status import method_not_allowed
from bayplan.backends.embedded.store import Store

Serve = Callable[[Store, Call, Place], Answer | Stream]


@dataclass(frozen=True, slots=True)
class Document:
    """What is sent back: text, or values to be written as JSON."""

    body: Any
    code: int = 200
    content_type: str = JSON


NOT_FOUND = Document("404 page not found\n", 404)


def find(store: Store, call: Call, address: str) -> Document:
    """The document at a path."""
    if call.method not in ("GET", "HEAD"):
        raise method_not_allowed()
    parts = [part for part in call.path.split("/") if part]
    resources = store.resources
    found: Any = None
    match parts:
        case ["healthz" | "livez" | "readyz", *_]:
            return Document("ok")
        case ["version"]:
            found = discovery.VERSION
        case ["api"] | ["apis"]:
            return _root(store, call, parts[0] == "api", address)
        case ["apis", group]:
            found = discovery.group(resources, group)
        case ["api", version]:
            found = discovery.resource_list(resources, "", version)
        case ["apis", group, version]:
            found = discovery.resource_list(resources, group, version)
        case ["openapi", "v3"]:
            found = openapi.index(resources)
        case ["openapi", "v3", *place]:
            found = openapi.document(resources, "/".join(place))
        case []:
            found = {"paths": ["/api", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]}
    return NOT_FOUND if found is None else Document(found)


def serve_place(store: Store, call: Call, place: Place, serve: Serve) -> Answer | Stream | Document:
    """What is at a resource's path; a group version that is not served at all has no Status to tell."""
    versions = {(one.group, one.version) for one in store.resources.by_place.values()}
    known = (place.group, place.version) in versions
    return serve(store, call, place) if known else NOT_FOUND


def _root(store: Store, call: Call, core: bool, address: str) -> Document:
    for part in call.accept.replace(" ", "").split(","):
        if "g=apidiscovery.k8s.io" in part:
            version = "v2" if "v=v2;" in f"{part};" else "v2beta1"
            body = discovery.aggregated(store.resources, core, version)
            return Document(body, content_type=discovery.AGGREGATED.format(version=version))
        if part.startswith(JSON):
            break
    body = discovery.versions(store.resources, address) if core else discovery.groups(store.resources)
    return Document(body)
