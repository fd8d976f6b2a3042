"""The status of PodDisruptionBudgets: healthy pods and allowed disruptions."""

from __future__ import annotations

from typing import Any

from bayplan.backends.embedded.api import scalars
from bayplan.backends.embedded.api.resource import Resource
from bayplan.backends.embedded.api.selectors import optional_matcher, selects
from bayplan.backends.embedded.storage.interface import ObjectStorage
from bayplan.backends.embedded.storage.watch_log import DELETED, StoreChange

Object = dict[str, Any]

STORAGE = "poddisruptionbudgets.policy"


def react(store: ObjectStorage, storage: str, change: StoreChange) -> None:
    """Update the status of the budgets that a change of a pod or a budget affects."""
    if storage == STORAGE:
        if change.type != DELETED:
            _count(store, change.key, change.object)
    elif storage == "pods":
        collection_of = store.collection_at(STORAGE)
        if collection_of is None or not collection_of.objects:
            return
        labels = change.object["metadata"].get("labels") or {}
        for budget in collection_of.select(f"{change.object['metadata']['namespace']}/"):
            if selects(budget["spec"].get("selector"), labels):
                _count(store, f"{budget['metadata']['namespace']}/{budget['metadata']['name']}", budget)


def _count(store: ObjectStorage, key: str, budget: Object) -> None:
    kind = store.resources.storage_of(STORAGE)
    pods = store.collection_of(store.resources.find("", "v1", "pods")).select(f"{key.partition('/')[0]}/")
    matches = optional_matcher(budget["spec"].get("selector"))
    mine = [pod for pod in pods if matches(pod["metadata"].get("labels") or {})]
    disrupted = _still_disrupted(budget, mine)
    healthy = sum(_healthy(pod) and pod["metadata"]["name"] not in disrupted for pod in mine)
    expected = len(mine)
    spec = budget["spec"]
    if "maxUnavailable" in spec:
        desired = max(expected - _share(spec["maxUnavailable"], expected), 0)
    else:
        desired = _share(spec.get("minAvailable", 1), expected)
    allowed = max(healthy - desired, 0) if expected else 0
    status: Object = {
        "observedGeneration": budget["metadata"].get("generation", 1),
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "conditions": [_condition(store, budget, allowed > 0)],
    }
    if disrupted:
        status["disruptedPods"] = disrupted
    _write_status(store, kind, key, budget, status)


def _write_status(store: ObjectStorage, kind: Resource, key: str, budget: Object, status: Object) -> None:
    now = store.collection_of(kind).objects.get(key)
    if now is not None and now["metadata"]["uid"] == budget["metadata"]["uid"] and now["status"] != status:
        store.put(kind, key, {**now, "metadata": dict(now["metadata"]), "status": status})


def _condition(store: ObjectStorage, budget: Object, allowed: bool) -> Object:
    old: Object = next(iter(budget["status"].get("conditions") or ()), {})
    status = "True" if allowed else "False"
    moment = old["lastTransitionTime"] if old.get("status") == status else scalars.at(store.now())
    return {
        "type": "DisruptionAllowed",
        "status": status,
        "observedGeneration": budget["metadata"].get("generation", 1),
        "lastTransitionTime": moment,
        "reason": "SufficientPods" if allowed else "InsufficientPods",
        "message": "",
    }


def _still_disrupted(budget: Object, pods: list[Object]) -> Object:
    """Pods whose eviction was granted and that are not terminating yet."""
    here = {pod["metadata"]["name"] for pod in pods if not pod["metadata"].get("deletionTimestamp")}
    granted = budget["status"].get("disruptedPods") or {}
    return {name: moment for name, moment in granted.items() if name in here}


def _healthy(pod: Object) -> bool:
    if pod["metadata"].get("deletionTimestamp"):
        return False
    conditions = pod["status"].get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _share(amount: Any, expected: int) -> int:
    """A number of pods, from a number or a percentage, rounded up."""
    if isinstance(amount, int):
        return amount
    percent = int(amount.rstrip("%") or 0)
    return -(-expected * percent // 100)
