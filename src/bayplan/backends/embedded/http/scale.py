"""The scale subresource: the number of replicas wanted, alike for every kind that has one."""

from __future__ import annotations

from typing import Any

from bayplan.backends.embedded.api.options import Options
from bayplan.backends.embedded.api.resource import Resource
from bayplan.backends.embedded.api.status import bad_request, conflict, invalid, wrong
from bayplan.backends.embedded.patching import apply
from bayplan.backends.embedded.storage.store import Store
from bayplan.backends.embedded.tables.cells import selector_text

Object = dict[str, Any]

_BUILTIN = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}


def scale_of(resource: Resource, item: Object) -> Object:
    """The Scale of an object."""
    paths = _paths(resource)
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    metadata = {key: item["metadata"][key] for key in kept if key in item["metadata"]}
    replicas = _at(item, paths["specReplicasPath"])
    scale: Object = {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata}
    scale["spec"] = {"replicas": replicas} if replicas else {}
    status: Object = {"replicas": _at(item, paths["statusReplicasPath"]) or 0}
    if resource.custom:
        selector = _at(item, paths.get("labelSelectorPath", ""))
    else:
        selector = selector_text(item["spec"].get("selector"))
    if selector:
        status["selector"] = selector
    return {**scale, "status": status}


def update(
    store: Store, resource: Resource, namespace: str, name: str, body: Object, options: Options
) -> Object:
    """Set the number of replicas."""
    item = store.get(resource, namespace, name)
    if not isinstance(body, dict) or body.get("kind", "Scale") != "Scale":
        raise bad_request("a Scale of autoscaling/v1 is expected here")
    for part in ("metadata", "spec"):
        if not isinstance(body.get(part) or {}, dict):
            raise bad_request(f'Scale in version "v1" cannot be handled as a Scale: {part} must be an object')
    version = (body.get("metadata") or {}).get("resourceVersion")
    if version and version != item["metadata"]["resourceVersion"]:
        raise conflict(resource, name)
    replicas = (body.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int):
        raise bad_request(
            'Scale in version "v1" cannot be handled as a Scale: json: cannot unmarshal '
            "string into Go struct field ScaleSpec.spec.replicas of type int32"
        )
    if replicas < 0:
        custom = wrong(_paths(resource)["specReplicasPath"], replicas, "should be a non-negative integer")
        builtin = wrong("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid(resource, name, [custom if resource.custom else builtin])
    changed = apply.merge({}, _nested(_paths(resource)["specReplicasPath"], replicas))
    return scale_of(resource, store.patch(resource, namespace, name, changed, options=options))


def patch(
    store: Store, resource: Resource, namespace: str, name: str, body: Any, form: str, options: Options
) -> Object:
    """Change the number of replicas by a patch of the Scale."""
    scale = scale_of(resource, store.get(resource, namespace, name))
    form = apply.MERGE if form == apply.STRATEGIC else form
    return update(store, resource, namespace, name, apply.patched(resource, scale, body, form), options)


def _paths(resource: Resource) -> Object:
    given = resource.definition.scale if resource.definition is not None else _BUILTIN
    return dict(given or _BUILTIN)


def _at(item: Any, path: str) -> Any:
    for key in path.split(".")[1:]:
        item = item.get(key) if isinstance(item, dict) else None
    return item if path else None


def _nested(path: str, value: Any) -> Object:
    for key in reversed(path.split(".")[1:]):
        value = {key: value}
    found: Object = value
    return found
