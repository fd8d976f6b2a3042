"""Whether another job made an object, so that its queue is asked for there: an owner that is really there.

Anyone who may create a pod may write an ownerReference into it. A reference counts only if it names a
controller of a kind that is queued itself, or that such a kind makes its pods through, and if that owner
exists, has the uid of the reference and, where it selects its pods by labels, selects this one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bayplan.dialects.jobs.kinds import KINDS

Object = dict[str, Any]
FindController = Callable[[str, str, str, str], Object | None]
"""An owner by group, kind, namespace and name; None if there is none. Unknown if that cannot be told."""

QUEUED = frozenset((kind.group, name) for name, kind in KINDS.items() if name != "Pod")
"""Group and kind of jobs that are given a queue themselves."""
THROUGH = frozenset({("apps", "ReplicaSet"), ("", "Pod")})
"""Kinds that others make their pods through: a Deployment, or the driver of a SparkApplication."""
NEVER_QUEUED = frozenset({("apps", "DaemonSet")})
"""Kinds whose pods are left alone: a node needs them whatever the queue is like."""
CONTROLLERS = QUEUED | THROUGH | NEVER_QUEUED
DEPTH_MAX = 4


class OwnerUnknown(Exception):
    """It cannot be told now whether an owner exists."""


def nothing_known(group: str, kind: str, namespace: str, name: str) -> Object | None:
    """Cannot look anything up."""
    raise OwnerUnknown


def is_part(obj: Object, find: FindController = nothing_known) -> bool:
    """Whether another job made an object. Where that cannot be looked up, the reference is believed."""
    for _ in range(DEPTH_MAX):
        reference = controller(obj)
        if reference is None:
            return False
        group = str(reference.get("apiVersion", "")).rpartition("/")[0]
        kind = str(reference.get("kind", ""))
        if (group, kind) not in CONTROLLERS:
            return False
        try:
            found = find(group, kind, _text(obj, "namespace"), str(reference.get("name")))
        except OwnerUnknown:
            return True
        if found is None or _text(found, "uid") != reference.get("uid") or not _selects(found, obj):
            return False
        if (group, kind) not in THROUGH:
            return True
        obj = {**found, "metadata": {**found["metadata"], "namespace": _text(obj, "namespace")}}
    return False


def controller(obj: Object) -> Object | None:
    """The reference of an object to what controls it."""
    listed = _metadata(obj).get("ownerReferences")
    references = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return next((one for one in references if one.get("controller") is True), None)


def _selects(owner: Object, obj: Object) -> bool:
    """Whether an owner counts an object among its own; one that it does not select it lets go of again."""
    spec = owner.get("spec")
    selector = spec.get("selector") if isinstance(spec, dict) else None
    wanted = selector.get("matchLabels") if isinstance(selector, dict) else None
    labels = _metadata(obj).get("labels") or {}
    return not isinstance(wanted, dict) or all(labels.get(key) == value for key, value in wanted.items())


def _metadata(obj: Object) -> Object:
    found = obj.get("metadata")
    return found if isinstance(found, dict) else {}


def _text(obj: Object, key: str) -> str:
    return str(_metadata(obj).get(key) or "")
