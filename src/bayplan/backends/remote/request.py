"""A write as an HTTP request: method, path, content type and body, with the precondition where it belongs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from bayplan.dialects.api import Kind, Verb, Write

MANAGER = "bayplan"
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"  # JSON is YAML
PLAIN = re.compile(r"[a-z0-9.-]*")  # nearly every name
OWN_KINDS = {"binding": ("v1", "Binding"), "eviction": ("policy/v1", "Eviction")}

_encode = msgspec.json.Encoder().encode


class HttpRequest(NamedTuple):
    """What to send."""

    method: str
    path: str
    body: bytes
    content_type: str = JSON


def request_of(write: Write) -> HttpRequest:
    """The request that makes a write."""
    match write.verb:
        case Verb.CREATE:
            return _create(write)
        case Verb.UPDATE:
            return HttpRequest("PUT", f"{path_of(write)}?fieldManager={MANAGER}", _encode(_whole(write)))
        case Verb.MERGE_PATCH | Verb.STRATEGIC_PATCH:
            form = MERGE_PATCH if write.verb is Verb.MERGE_PATCH else STRATEGIC_PATCH
            body = _with_precondition(write.body, write)
            return HttpRequest("PATCH", f"{path_of(write)}?fieldManager={MANAGER}", _encode(body), form)
        case Verb.APPLY:  # forced, as is right for a controller that owns what it states
            path = f"{path_of(write)}?fieldManager={MANAGER}&force=true"
            return HttpRequest("PATCH", path, _encode(_whole(write)), APPLY_PATCH)
        case Verb.DELETE:
            return HttpRequest("DELETE", path_of(write), _encode(_delete_options(write)))


def path_of(write: Write) -> str:
    """The path of the object, or of the part of it that is written."""
    return write.kind.path(_quoted(write.namespace), _quoted(write.name), write.subresource)


def collection(kind: Kind, **parameters: object) -> str:
    """The path of all objects of a kind that its selectors choose."""
    given = {**parameters, "fieldSelector": kind.field_selector, "labelSelector": kind.label_selector}
    query = "&".join(f"{key}={quote(str(value), safe='')}" for key, value in given.items() if value != "")
    return f"{kind.path()}?{query}" if query else kind.path()


def _quoted(name: str) -> str:
    return name if PLAIN.fullmatch(name) else quote(name, safe=":")


def _create(write: Write) -> HttpRequest:
    if not write.subresource:
        path = write.kind.path(_quoted(write.namespace))
        return HttpRequest("POST", f"{path}?fieldManager={MANAGER}", _encode(_whole(write)))
    body: dict[str, Any] = {}
    if write.subresource in OWN_KINDS:
        body["apiVersion"], body["kind"] = OWN_KINDS[write.subresource]
    body.update(write.body)
    body["metadata"] = {"name": write.name, "namespace": write.namespace, **body.get("metadata", {})}
    if write.subresource == "eviction":
        options = {**_delete_options(write), **body.get("deleteOptions", {})}
        body |= {"deleteOptions": options} if options else {}
    else:
        body = _with_precondition(body, write)
    return HttpRequest("POST", path_of(write), _encode(body))


def _whole(write: Write) -> dict[str, Any]:
    """The body as a complete object: what it is and what it is called need not be repeated in it."""
    body: dict[str, Any] = {"apiVersion": write.kind.api_version, "kind": write.kind.kind, **write.body}
    metadata = dict(body.get("metadata", {}))
    if write.name:
        metadata.setdefault("name", write.name)
    if write.namespace and write.kind.namespaced:
        metadata.setdefault("namespace", write.namespace)
    body["metadata"] = metadata
    return body if write.verb is Verb.CREATE else _with_precondition(body, write)


def _with_precondition(body: Mapping[str, Any], write: Write) -> dict[str, Any]:
    """The server compares uid and resourceVersion of what is sent with what it has."""
    if not (write.uid or write.version):
        return dict(body)
    metadata = dict(body.get("metadata", {}))
    if write.uid:
        metadata["uid"] = write.uid
    if write.version:
        metadata["resourceVersion"] = write.version
    return {**body, "metadata": metadata}


def _delete_options(write: Write) -> dict[str, Any]:
    options: dict[str, Any] = dict(write.body) if write.verb is Verb.DELETE else {}
    if write.grace_seconds is not None:
        options["gracePeriodSeconds"] = write.grace_seconds
    same = {"uid": write.uid, "resourceVersion": write.version}
    if conditions := {key: value for key, value in same.items() if value}:
        options["preconditions"] = conditions
    if write.verb is Verb.DELETE:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", **options}
    return options
