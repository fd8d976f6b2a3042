"""The initial namespaces of a cluster, and the deletion of a namespace with its objects."""

from __future__ import annotations

from typing import Any

from bayplan.backends.embedded.api.options import Deletion, WriteTarget
from bayplan.backends.embedded.api.resource import Resource
from bayplan.backends.embedded.storage.interface import ObjectStorage
from bayplan.backends.embedded.storage.watch_log import DELETED, StoreChange

Object = dict[str, Any]

FIRST = ("default", "kube-node-lease", "kube-public", "kube-system")
PRIORITIES = (("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000))


def begin(store: ObjectStorage) -> None:
    """Make the namespaces and priority classes that every cluster has."""
    kind = store.resources.find("", "v1", "namespaces")
    for name in FIRST:
        store.create(kind, {"metadata": {"name": name}})
    priorities = store.resources.find("scheduling.k8s.io", "v1", "priorityclasses")
    for name, value in PRIORITIES:
        store.create(priorities, {"metadata": {"name": name}, "value": value})


def react(store: ObjectStorage, storage: str, change: StoreChange) -> None:
    """Delete the objects of a terminating namespace; remove it when it is empty."""
    if storage == "namespaces":
        if change.type != DELETED and change.object["metadata"].get("deletionTimestamp"):
            _empty(store, change.object["metadata"]["name"])
    elif change.type == DELETED:
        namespace = change.object["metadata"].get("namespace")
        if namespace:
            kind = store.resources.find("", "v1", "namespaces")
            found = store.collection_of(kind).objects.get(namespace)
            if found is not None and found["metadata"].get("deletionTimestamp"):
                _finish(store, kind, namespace)


def _empty(store: ObjectStorage, namespace: str) -> None:
    for resource in _namespaced(store):
        collection_of = store.collection_of(resource)
        for item in collection_of.select(f"{namespace}/"):
            if not item["metadata"].get("deletionTimestamp"):
                target = WriteTarget(resource, namespace, item["metadata"]["name"])
                store.delete_target(target, Deletion(propagation="Background"))
    _finish(store, store.resources.find("", "v1", "namespaces"), namespace)


def _finish(store: ObjectStorage, kind: Resource, namespace: str) -> None:
    found = store.collection_of(kind).objects.get(namespace)
    if found is None or any(store.collection_of(one).select(f"{namespace}/") for one in _namespaced(store)):
        return
    rest = [one for one in found["spec"].get("finalizers", ()) if one != "kubernetes"]
    if rest != found["spec"].get("finalizers"):
        spec = {**found["spec"], "finalizers": rest} if rest else {}
        found = store.put(kind, namespace, {**found, "metadata": dict(found["metadata"]), "spec": spec})
    if not rest and not found["metadata"].get("finalizers"):
        store.drop(kind, namespace)


def _namespaced(store: ObjectStorage) -> list[Resource]:
    found = {one.storage: one for one in store.resources.by_place.values() if one.namespaced}
    return [store.resources.storage_of(storage) for storage in sorted(found)]
