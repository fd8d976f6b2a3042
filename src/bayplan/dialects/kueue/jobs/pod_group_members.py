"""Which pods of a group count for its Workload, by role: kept, in excess, or replaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bayplan.dialects.kueue.fields.job_rules import SCHEDULING_GATE
from bayplan.dialects.kueue.fields.role_hash import role_hash
from bayplan.dialects.kueue.names.annotations import MANAGED, ROLE_HASH
from bayplan.dialects.kueue.status.conditions import FINISHED, is_true

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PodGroupMembers:
    """The pods of a group, sorted."""

    kept: tuple[Object, ...]
    excess: tuple[Object, ...]  # beyond the count of their role
    replaced: tuple[Object, ...]  # failed or deleted, with a replacement
    missing: bool  # pods have to be created by the user
    fits: bool  # every pod has a role of the Workload


def sort_members(pods: Sequence[Object], workload: Object, fast: bool) -> PodGroupMembers:
    """Sort pods by the pod sets of their Workload."""
    kept: list[Object] = []
    excess: list[Object] = []
    replaced: list[Object] = []
    missing = 0
    sets = workload["spec"].get("podSets") or ()
    for pod_set in sets:
        of_role = [pod for pod in pods if role_of(pod) == pod_set["name"]]
        count = int(pod_set.get("count", 1))
        running = sorted((pod for pod in of_role if is_runnable(pod)), key=_keep_order)
        terminated = sorted((pod for pod in of_role if not is_runnable(pod)), key=_keep_order)
        missing += (not running and count > 0) if fast else max(0, count - len(running))
        kept += running[:count]
        excess += running[count:]
        spare = min(len(terminated), max(0, len(terminated) + len(running) - count))
        kept += terminated[: len(terminated) - spare]
        replaced += terminated[len(terminated) - spare :]
    names = {pod_set["name"] for pod_set in sets}
    unknown_roles = {role_of(pod) for pod in pods if is_runnable(pod)} - names
    fits = is_true(workload, FINISHED) or not unknown_roles
    return PodGroupMembers(tuple(kept), tuple(excess), tuple(replaced), missing > 0, fits)


def role_of(pod: Object) -> str:
    """The role of a pod; pods of one role are interchangeable."""
    return annotations_of(pod).get(ROLE_HASH) or role_hash(pod.get("spec") or {})


def is_runnable(pod: Object) -> bool:
    """Whether a pod is pending, running or succeeded."""
    terminating_unbound = pod["metadata"].get("deletionTimestamp") and not pod["spec"].get("nodeName")
    return not terminating_unbound and phase(pod) != "Failed"


def is_gated(pod: Object) -> bool:
    """Whether a pod has the admission gate."""
    return any(one.get("name") == SCHEDULING_GATE for one in pod["spec"].get("schedulingGates") or ())


def is_finished(pod: Object) -> bool:
    """Whether a pod succeeded or failed."""
    return phase(pod) in ("Succeeded", "Failed")


def phase(pod: Object) -> str:
    """The phase of a pod."""
    return str((pod.get("status") or {}).get("phase") or "")


def annotations_of(obj: Object) -> dict[str, str]:
    """The annotations of an object."""
    return obj["metadata"].get("annotations") or {}


def labels_of(obj: Object) -> dict[str, str]:
    """The labels of an object."""
    return obj["metadata"].get("labels") or {}


def _keep_order(pod: Object) -> tuple[bool, bool, str, str]:
    """Sort key: pods with the finalizer, ungated and older ones come first."""
    meta = pod["metadata"]
    finalized = MANAGED not in (meta.get("finalizers") or ())
    return finalized, is_gated(pod), str(meta.get("creationTimestamp") or ""), str(meta["name"])
