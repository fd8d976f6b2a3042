"""Pods: fields that the server sets, validation, and the few allowed updates."""

from __future__ import annotations

from typing import Any

from bayplan.backends.embedded.api import scalars
from bayplan.backends.embedded.api.status import FieldProblem, unwanted, wrong
from bayplan.backends.embedded.kinds.pod_defaults import admit_pod, default_pod, qos_class
from bayplan.backends.embedded.kinds.pod_rules import check_spec
from bayplan.backends.embedded.kinds.priorities import set_priority
from bayplan.backends.embedded.storage.interface import ObjectStorage
from bayplan.backends.embedded.storage.kind_hooks import KindHooks

Object = dict[str, Any]

_MUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_ONLY_MORE = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
_GATED_MESSAGE = "Scheduling is blocked due to non-empty scheduling gates"


def on_create(store: ObjectStorage, pod: Object) -> None:
    """The first status, the priority, and what admission adds."""
    spec = pod["spec"]
    admit_pod(spec)
    _set_priority(store, pod)
    status: Object = {"phase": "Pending", "qosClass": qos_class(spec)}
    if spec.get("schedulingGates"):
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": scalars.at(store.now()),
                "reason": "SchedulingGated",
                "message": _GATED_MESSAGE,
            }
        ]
    pod["status"] = status


def on_update(_: ObjectStorage, pod: Object, old: Object, subresource: str) -> None:
    """Keep the owner references and the QoS class in a status update."""
    if subresource == "status":
        if "ownerReferences" in old["metadata"]:
            pod["metadata"]["ownerReferences"] = old["metadata"]["ownerReferences"]
        else:
            pod["metadata"].pop("ownerReferences", None)
        if "qosClass" in old.get("status", {}):
            pod["status"].setdefault("qosClass", old["status"]["qosClass"])


def check(pod: Object, old: Object | None) -> list[FieldProblem]:
    """What is wrong with a pod, or with the change of one."""
    if old is None:
        return check_spec(pod["spec"], "spec")
    if pod["spec"] == old["spec"]:
        return []
    return _check_change(pod["spec"], old["spec"])


def _check_change(spec: Object, old: Object) -> list[FieldProblem]:
    problems = []
    gates, before = _gates(spec), _gates(old)
    message = "only deletion is allowed, but found new scheduling gate"
    problems += [
        unwanted(f"spec.schedulingGates[{place}].name", f"{message} '{gate}'")
        for place, gate in enumerate(gates)
        if gate not in before
    ]
    for key in ("containers", "initContainers"):
        if len(_list(spec, key)) != len(_list(old, key)):
            return [*problems, unwanted(f"spec.{key}", "pod updates may not add or remove containers")]
    same = _with_old(spec, old, bool(before))
    if before and not old.get("nodeSelector", {}).items() <= spec.get("nodeSelector", {}).items():
        problems.append(wrong("spec.nodeSelector", spec.get("nodeSelector"), _ONLY_MORE))
    if same != old:
        problems.append(unwanted("spec", _MUTABLE))
    return problems


def _with_old(spec: Object, old: Object, gated: bool) -> Object:
    """A specification in which everything that may change is as it was."""
    same = dict(spec)
    for key in ("activeDeadlineSeconds", "schedulingGates", *(("nodeSelector",) if gated else ())):
        _as_before(same, old, key)
    if old.get("tolerations", []) == spec.get("tolerations", [])[: len(old.get("tolerations", []))]:
        _as_before(same, old, "tolerations")
    for key in ("containers", "initContainers"):
        if key in spec:
            pairs = zip(_list(spec, key), _list(old, key), strict=True)
            same[key] = [{**new, "image": was.get("image", "")} for new, was in pairs]
    if gated:
        affinity = dict(spec.get("affinity", {}))
        _as_before(affinity, old.get("affinity", {}), "nodeAffinity")
        if affinity or "affinity" in old:
            same["affinity"] = affinity
        else:
            same.pop("affinity", None)
    return same


def _gates(spec: Object) -> list[str]:
    return [gate["name"] for gate in spec.get("schedulingGates", ())]


def _list(spec: Object, key: str) -> list[Object]:
    return spec.get(key) or []


def _as_before(same: Object, old: Object, key: str) -> None:
    if key in old:
        same[key] = old[key]
    else:
        same.pop(key, None)


_OTHER_PRIORITY = (
    "the integer value of priority ({given}) must not be provided in pod spec; "
    "priority admission controller computed {found} from the given PriorityClass name"
)


def _set_priority(store: ObjectStorage, pod: Object) -> None:
    """The number behind the priority class, as the admission plugin sets it."""
    found = set_priority(store, store.resources.find("", "v1", "pods"), pod, _OTHER_PRIORITY)
    pod["spec"].setdefault("preemptionPolicy", found.policy)


BEHAVIOURS = {"Pod": KindHooks(default_pod, on_create, on_update, check)}
