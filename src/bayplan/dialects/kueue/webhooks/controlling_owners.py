"""Whether an object is controlled by another queued job, which is then queued in its place.

Anyone who may create a pod may write an ownerReference into it. A reference counts only if it names a
controller of a queued kind, or of an intermediate kind such as ReplicaSet, and if that owner exists, has the
uid of the reference and, where it selects its pods by labels, selects this one.
"""

from __future__ import annotations

from typing import Any

from bayplan.dialects.jobs.kinds import BY_GROUP, KINDS
from bayplan.dialects.reviews import FindOwner, OwnerUnknown, unknown_owner

Object = dict[str, Any]
QUEUED = frozenset((kind.group, name) for name, kind in KINDS.items() if not (kind.is_pod or kind.job_labels))
"""Group and kind of jobs that can be queued."""
INTERMEDIATE = frozenset(key for key, kind in BY_GROUP.items() if kind.between)
"""Intermediate owners of pods: ReplicaSets of a Deployment, the driver pod of a SparkApplication."""
NEVER_QUEUED = frozenset(key for key, kind in BY_GROUP.items() if kind.never_queued)
"""Kinds whose pods are never queued."""
CONTROLLERS = QUEUED | INTERMEDIATE | NEVER_QUEUED
DEPTH_MAX = 4


def is_part(obj: Object, find: FindOwner = unknown_owner) -> bool:
    """Whether an object belongs to another job. If that cannot be looked up, the reference is trusted."""
    for _ in range(DEPTH_MAX):
        reference = controller(obj)
        if reference is None:
            return False
        group = str(reference.get("apiVersion", "")).rpartition("/")[0]
        kind = str(reference.get("kind", ""))
        if (group, kind) not in CONTROLLERS:
            return False
        try:
            owner = find(group, kind, _text(obj, "namespace"), str(reference.get("name")))
        except OwnerUnknown:
            return True
        if owner is None or _text(owner, "uid") != reference.get("uid") or not _selects(owner, obj):
            return False
        if (group, kind) not in INTERMEDIATE:
            return True
        obj = {**owner, "metadata": {**owner["metadata"], "namespace": _text(obj, "namespace")}}
    return False


def controller(obj: Object) -> Object | None:
    """The controlling ownerReference of an object."""
    references_field = _metadata(obj).get("ownerReferences")
    references = (
        [one for one in references_field if isinstance(one, dict)]
        if isinstance(references_field, list)
        else []
    )
    return next((one for one in references if one.get("controller") is True), None)


def _selects(owner: Object, obj: Object) -> bool:
    """Whether the label selector of an owner, if any, selects an object; otherwise it would be orphaned."""
    spec = owner.get("spec")
    selector = spec.get("selector") if isinstance(spec, dict) else None
    wanted = selector.get("matchLabels") if isinstance(selector, dict) else None
    labels = _metadata(obj).get("labels") or {}
    return not isinstance(wanted, dict) or all(labels.get(key) == value for key, value in wanted.items())


def _metadata(obj: Object) -> Object:
    metadata = obj.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _text(obj: Object, key: str) -> str:
    return str(_metadata(obj).get(key) or "")
