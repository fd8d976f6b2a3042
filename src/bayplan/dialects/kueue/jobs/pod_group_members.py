"""Which pods of a group count for its Workload: by role, those too many and those replaced by others."""

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
    """The pods of a group, sorted out."""

    kept: tuple[Object, ...]
    excess: tuple[Object, ...]  # more than their role has
    replaced: tuple[Object, ...]  # over, with another in their place
    absent: bool  # somebody has to make more
    fits: bool  # the Workload has room for those that are kept


def members(pods: Sequence[Object], workload: Object, fast: bool) -> PodGroupMembers:
    """Sort out pods by the pod sets of their Workload."""
    kept: list[Object] = []
    excess: list[Object] = []
    replaced: list[Object] = []
    absent = 0
    sets = workload["spec"].get("podSets") or ()
    for pod_set in sets:
        mine = [pod for pod in pods if role_of(pod) == pod_set["name"]]
        count = int(pod_set.get("count", 1))
        there = sorted((pod for pod in mine if runnable(pod)), key=_worth)
        lost = sorted((pod for pod in mine if not runnable(pod)), key=_worth)
        absent += (not there and count > 0) if fast else max(0, count - len(there))
        kept += there[:count]
        excess += there[count:]
        spare = min(len(lost), max(0, len(lost) + len(there) - count))
        kept += lost[: len(lost) - spare]
        replaced += lost[len(lost) - spare :]
    names = {pod_set["name"] for pod_set in sets}
    strangers = {role_of(pod) for pod in pods if runnable(pod)} - names
    fits = is_true(workload, FINISHED) or not strangers
    return PodGroupMembers(tuple(kept), tuple(excess), tuple(replaced), absent > 0, fits)


def role_of(pod: Object) -> str:
    """Pods of one role can take each other's place."""
    return notes_of(pod).get(ROLE_HASH) or role_hash(pod.get("spec") or {})


def runnable(pod: Object) -> bool:
    """Whether a pod may run yet, runs, or has succeeded."""
    leaving = pod["metadata"].get("deletionTimestamp") and not pod["spec"].get("nodeName")
    return not leaving and phase(pod) != "Failed"


def gated(pod: Object) -> bool:
    """Whether a pod waits to be admitted."""
    return any(one.get("name") == SCHEDULING_GATE for one in pod["spec"].get("schedulingGates") or ())


def is_over(pod: Object) -> bool:
    """Whether a pod has run."""
    return phase(pod) in ("Succeeded", "Failed")


def phase(pod: Object) -> str:
    """How far a pod is."""
    return str((pod.get("status") or {}).get("phase") or "")


def notes_of(obj: Object) -> dict[str, str]:
    """Annotations, if any."""
    return obj["metadata"].get("annotations") or {}


def labels_of(obj: Object) -> dict[str, str]:
    """Labels, if any."""
    return obj["metadata"].get("labels") or {}


def _worth(pod: Object) -> tuple[bool, bool, str, str]:
    """Pods that are held on to, run and are old come first."""
    meta = pod["metadata"]
    finalized = MANAGED not in (meta.get("finalizers") or ())
    return finalized, gated(pod), str(meta.get("creationTimestamp") or ""), str(meta["name"])
