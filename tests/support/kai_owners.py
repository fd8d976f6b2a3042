"""Pods, what made them and what is around them, for tests of the pod grouper."""

from __future__ import annotations

from typing import Any

from bayplan.dialects.kai.api.pod_group import PodGroup
from bayplan.dialects.kai.grouper.defaults import GrouperSettings
from bayplan.dialects.kai.grouper.dispatch import Grouped, group_pod

Object = dict[str, Any]


def named(api: str, kind: str) -> Object:
    """An owner of which only the name is known."""
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "own", "namespace": "ns", "uid": "u-own"}}


def thing(
    api: str, kind: str, spec: Object | None = None, labels: Object | None = None,
    notes: Object | None = None, name: str = "own", **more: Any,
) -> Object:  # fmt: skip
    meta = {"name": name, "namespace": "ns", "uid": f"u-{name}", "labels": labels or {}, **more}
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": {**meta, "annotations": notes or {}},
        "spec": spec or {},
    }


def owned_pod(
    labels: Object | None = None, notes: Object | None = None, name: str = "pod", **more: Any
) -> Object:
    return thing("v1", "Pod", {}, labels, notes, name, **more)


def made(one: Object, *owners: Object, around: tuple[Object, ...] = (), **settings: Any) -> Grouped:
    """What becomes of a pod, with classes high and low in the cluster and what else is there."""
    classes = tuple(thing("scheduling.k8s.io/v1", "PriorityClass", name=name) for name in ("high", "low"))

    def find(kind: str, namespace: str, name: str) -> object:
        for other in (*classes, *around):
            if (other["kind"], other["metadata"]["name"]) == (kind, name):
                return other
        return None

    def pods(namespace: str, labels: Any) -> list[Object]:
        return [o for o in around if o["kind"] == "Pod" and labels.items() <= o["metadata"]["labels"].items()]

    return group_pod(one, owners, find=find, pods=pods, settings=GrouperSettings(**settings))


def group(one: Object, *owners: Object, around: tuple[Object, ...] = (), **settings: Any) -> PodGroup:
    found = made(one, *owners, around=around, **settings)
    assert found.group is not None and not found.error, found
    return found.group
