"""OpenAPI v3 of what is served: enough for kubectl to explain, to validate and to apply."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from bayplan.backends.embedded.api.decoding import TypedField, types
from bayplan.backends.embedded.api.resource import Resource
from bayplan.backends.embedded.api.resources import ResourceRegistry

Object = dict[str, Any]

_PREFIX = "io.k8s."
_SCALARS: dict[str, Object] = {
    "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "string": {"type": "string"},
    "bytes": {"type": "string", "format": "byte"},
    "bool": {"type": "boolean"},
    "number": {"type": "number"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "intOrString": {"type": "string", "format": "int-or-string"},
    "quantity": {"type": "string", "format": "quantity"},
    "time": {"type": "string", "format": "date-time"},
    "microtime": {"type": "string", "format": "date-time"},
}
_ASKED = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]


def index(resources: ResourceRegistry) -> Object:
    """The answer to /openapi/v3: where the document of each group version is."""
    places = sorted({_place(one) for one in resources.by_place.values()})
    paths = {}
    for place in places:
        content = msgspec.json.encode(document(resources, place))
        mark = hashlib.sha256(content).hexdigest()[:32].upper()
        paths[place] = {"serverRelativeURL": f"/openapi/v3/{place}?hash={mark}"}
    return {"paths": paths}


def document(resources: ResourceRegistry, place: str) -> Object | None:
    """The document of one group version, by its place: api/v1 or apis/GROUP/VERSION."""
    found = [one for one in resources.by_place.values() if _place(one) == place]
    if not found:
        return None
    schemas: dict[str, Object] = {}
    paths: dict[str, Object] = {}
    for resource in sorted(found, key=lambda one: one.plural):
        _describe(resource, schemas)
        collection, item = _paths(resource)
        kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        paths[collection] = {verb: _operation(resource, verb, kind) for verb in ("get", "post")}
        paths[item] = {verb: _operation(resource, verb, kind) for verb in ("get", "put", "patch", "delete")}
    return {
        "openapi": "3.0.0",
        "info": {"title": "Bayplan's cluster in memory", "version": "v1.35.4"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _place(resource: Resource) -> str:
    return f"apis/{resource.group}/{resource.version}" if resource.group else f"api/{resource.version}"


def _paths(resource: Resource) -> tuple[str, str]:
    scope = "/namespaces/{namespace}" if resource.namespaced else ""
    collection = f"/{_place(resource)}{scope}/{resource.plural}"
    return collection, f"{collection}/{{name}}"


def _operation(resource: Resource, verb: str, kind: Object) -> Object:
    action = {"get": "get", "post": "post", "put": "put", "patch": "patch", "delete": "delete"}[verb]
    operation: Object = {
        "operationId": f"{action}{resource.kind}",
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": kind,
        "parameters": _ASKED if verb in ("post", "put", "patch") else [],
    }
    body = {"content": {"application/json": {"schema": {"$ref": _reference(_root(resource))}}}}
    if verb in ("post", "put"):
        operation["requestBody"] = body
    operation["responses"] = {"200": {"description": "OK", **body}}
    return operation


def _root(resource: Resource) -> str:
    return f"{resource.group or 'core'}.{resource.version}.{resource.kind}"


def _reference(name: str) -> str:
    return f"#/components/schemas/{_PREFIX}{name}"


def _describe(resource: Resource, schemas: dict[str, Object]) -> None:
    """Add the schema of a kind, and of all types below it."""
    kind = [{"group": resource.group, "version": resource.version, "kind": resource.kind}]
    named = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
    if resource.definition is not None:
        given = resource.definition.schema
        properties = {**given.get("properties", {}), **named, "metadata": _value("ObjectMeta", schemas)}
        schema = {**given, "properties": properties, "x-kubernetes-group-version-kind": kind}
    else:
        properties = {key: _field(one, schemas) for key, one in types()[resource.type].items()}
        schema = {"type": "object", "properties": {**named, **properties}}
        schema["x-kubernetes-group-version-kind"] = kind
    schemas[_PREFIX + _root(resource)] = schema


def _field(field: TypedField, schemas: dict[str, Object]) -> Object:
    schema = _value(field.type, schemas)
    given = {"merge": field.merge, "replace": field.replace, "retainKeys": field.retain_keys}
    strategies = [name for name, holds in given.items() if holds]
    if strategies:
        schema["x-kubernetes-patch-strategy"] = ",".join(strategies)
    if field.merge_key:
        schema["x-kubernetes-patch-merge-key"] = field.merge_key
    return schema


def _value(type_: str, schemas: dict[str, Object]) -> Object:
    if type_[0] == "[":
        return {"type": "array", "items": _value(type_[1:-1], schemas)}
    if type_[0] == "{":
        return {"type": "object", "additionalProperties": _value(type_[1:-1], schemas)}
    if type_ not in types():
        return dict(_SCALARS[type_])
    name = _PREFIX + type_
    if name not in schemas:
        schemas[name] = {}  # before its fields: a type may contain itself
        properties = {key: _field(one, schemas) for key, one in types()[type_].items()}
        schemas[name] = {"type": "object", "properties": properties}
    return {"allOf": [{"$ref": _reference(type_)}], "default": {}}
