"""POST to subresources: binding and eviction of pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bayplan.backends.embedded.api import scalars
from bayplan.backends.embedded.api.decoding import UnreadableBody, reader
from bayplan.backends.embedded.api.options import Deletion, WriteTarget
from bayplan.backends.embedded.api.resource import key_of
from bayplan.backends.embedded.api.selectors import selects
from bayplan.backends.embedded.api.status import (
    StatusError,
    bad_request,
    conflict,
    method_not_allowed,
    not_found,
    quote,
    success,
)
from bayplan.backends.embedded.storage.interface import ObjectStorage
from bayplan.backends.embedded.storage.write import other_uid

Object = dict[str, Any]

_EVICTION_REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."
_TWO_BUDGETS = (
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
)


def post(store: ObjectStorage, target: WriteTarget, body: Any) -> Object:
    """Handle a POST to a subresource; returns a Status."""
    resource = target.resource
    if resource.plural != "pods" or resource.group or target.subresource not in ("binding", "eviction"):
        raise method_not_allowed()
    type_ = "Binding" if target.subresource == "binding" else "Eviction"
    try:
        named = ("apiVersion", "kind")
        kept: Any = body
        if isinstance(body, Mapping):
            kept = {key: value for key, value in body.items() if key not in named}
        read = reader(type_)(kept, (), [])
    except UnreadableBody as error:
        raise bad_request(f'{type_} in version "v1" cannot be handled as a {type_}: {error}') from None
    pod = store.collection_of(resource).objects.get(target.key)
    if pod is None:
        raise not_found(resource, target.name)
    return (_bind if target.subresource == "binding" else _evict)(store, target, pod, read)


def _bind(store: ObjectStorage, target: WriteTarget, pod: Object, binding: Object) -> Object:
    metadata, name = pod["metadata"], target.name
    asked, aim = binding["metadata"], binding["target"]
    if aim.get("kind", "") not in ("", "Node"):
        known = 'supported values: "Node", "<empty>"'
        raise StatusError(500, f"target.kind: Unsupported value: {quote(aim['kind'])}: {known}", "")
    if not aim.get("name"):
        raise StatusError(500, "target.name: Required value", "")
    if asked.get("uid") and asked["uid"] != metadata["uid"]:
        raise conflict(target.resource, name, other_uid(target, asked["uid"], metadata["uid"]))
    if asked.get("resourceVersion") and asked["resourceVersion"] != metadata["resourceVersion"]:
        raise conflict(target.resource, name)
    if why := _unbindable(pod):
        raise conflict(target.resource, name, why, "binding")
    if target.options.dry_run:
        return success(code=201)
    moment = scalars.at(store.now())
    bound = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": moment}
    status = {**pod["status"], "conditions": with_condition(pod["status"].get("conditions") or [], bound)}
    changed = dict(metadata)
    for key in ("annotations", "labels"):
        if asked.get(key):
            changed[key] = {**metadata.get(key, {}), **asked[key]}
    spec = {**pod["spec"], "nodeName": aim["name"]}
    store.put(target.resource, target.key, {**pod, "metadata": changed, "spec": spec, "status": status})
    return success(code=201)


def _unbindable(pod: Object) -> str:
    """Why a pod cannot be bound, or nothing."""
    name, spec = pod["metadata"]["name"], pod["spec"]
    if pod["metadata"].get("deletionTimestamp"):
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if spec.get("nodeName"):
        return f"pod {name} is already assigned to node {quote(spec['nodeName'])}"
    if spec.get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""


def with_condition(conditions: list[Object], condition: Object) -> list[Object]:
    """Conditions with one of them set; its transition time stays when its status does."""
    result, found = [], False
    for one in conditions:
        if one["type"] == condition["type"]:
            found = True
            if one["status"] == condition["status"]:
                condition = {**condition, "lastTransitionTime": one.get("lastTransitionTime")}
            result.append(condition)
        else:
            result.append(one)
    return result if found else [*result, condition]


def _evict(store: ObjectStorage, target: WriteTarget, pod: Object, eviction: Object) -> Object:
    metadata, status = pod["metadata"], pod["status"]
    asked = eviction.get("deleteOptions") or {}
    dry = target.options.dry_run or bool(asked.get("dryRun"))
    leaving = bool(metadata.get("deletionTimestamp"))
    if not leaving and status.get("phase") not in ("Succeeded", "Failed", "Pending"):
        _ask_budgets(store, pod, dry)
    if not dry and not leaving:
        doomed = {
            "type": "DisruptionTarget",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": scalars.at(store.now()),
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        }
        status = {**status, "conditions": with_condition(status.get("conditions") or [], doomed)}
        store.put(target.resource, target.key, {**pod, "metadata": dict(metadata), "status": status})
    options = replace(target.options, dry_run=dry)
    store.delete_target(replace(target, subresource="", options=options), Deletion.from_body(asked))
    return success(code=201)


def _ask_budgets(store: ObjectStorage, pod: Object, dry: bool) -> None:
    """429 if a budget allows no disruption; else count one against it."""
    kind = store.resources.find("policy", "v1", "poddisruptionbudgets")
    metadata = pod["metadata"]
    found = [
        budget
        for budget in store.collection_of(kind).select(f"{metadata['namespace']}/")
        if selects(budget["spec"].get("selector"), metadata.get("labels") or {})
    ]
    if len(found) > 1:
        raise StatusError(500, _TWO_BUDGETS)
    for budget in found:
        status, name = budget["status"], budget["metadata"]["name"]
        if status.get("disruptionsAllowed", 0) <= 0:
            message = (
                f"The disruption budget {name} needs {status.get('desiredHealthy', 0)} healthy pods and has "
                f"{status.get('currentHealthy', 0)} currently"
            )
            causes = [{"reason": "DisruptionBudget", "message": message}]
            raise StatusError(429, _EVICTION_REFUSED, None, {"causes": causes})
        if not dry:
            disrupted = {**status.get("disruptedPods", {}), metadata["name"]: scalars.at(store.now())}
            fewer = {"disruptionsAllowed": status["disruptionsAllowed"] - 1, "disruptedPods": disrupted}
            new = {**budget, "metadata": dict(budget["metadata"]), "status": {**status, **fewer}}
            store.put(kind, key_of(kind, metadata["namespace"], name), new)
