"""What an object says when its author left it out: the defaults of the definitions, and those of its pods.

The API server fills in the former by itself. They are here as well for whoever reads a manifest from a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Object = dict[str, Any]

_QUEUE = {"stopPolicy": "None"}
_CLUSTER_QUEUE = {
    **_QUEUE,
    "queueingStrategy": "BestEffortFIFO",
    "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
    "preemption": {
        "reclaimWithinCohort": "Never",
        "withinClusterQueue": "Never",
        "borrowWithinCohort": {"policy": "Never"},
    },
}
_RETRY = {"backoffLimitCount": 3, "backoffBaseSeconds": 60, "backoffMaxSeconds": 1800}
_POD_SET = {"name": "main", "count": 1}
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")

DEFAULTED = ("clusterqueues", "workloads")
"""Resources about which the API server asks."""


def default(new: Object, _: Object | None = None) -> Object:
    """The object with all that goes without saying; what its author said stays. Unknown kinds stay too."""
    fill = _FILLED.get(str(new.get("kind")))
    spec = new.get("spec")
    return new if fill is None or not isinstance(spec, dict) else {**new, "spec": fill(spec)}


def _cluster_queue(spec: Object) -> Object:
    return _weighed(_filled(spec, _CLUSTER_QUEUE))


def _local_queue(spec: Object) -> Object:
    return _weighed(_filled(spec, _QUEUE))


def _weighed(spec: Object) -> Object:
    sharing = spec.get("fairSharing")
    return {**spec, "fairSharing": _filled(sharing, {"weight": 1})} if isinstance(sharing, dict) else spec


def _provisioning(spec: Object) -> Object:
    return _filled(spec, {"retryStrategy": _RETRY})


def _workload(spec: Object) -> Object:
    return _filled({**spec, "podSets": _each(spec.get("podSets"), _pod_set)}, {"active": True})


def _pod_set(pod_set: Object) -> Object:
    filled = _filled(pod_set, _POD_SET)
    template = filled.get("template")
    pod = template.get("spec") if isinstance(template, dict) else None
    if not isinstance(template, dict) or not isinstance(pod, dict):
        return filled
    containers = {key: _each(pod[key], _container) for key in _CONTAINERS if key in pod}
    return {**filled, "template": {**template, "spec": {**pod, **containers}}}


def _container(container: Object) -> Object:
    if "ports" not in container:
        return container
    return {**container, "ports": _each(container["ports"], lambda port: _filled(port, {"protocol": "TCP"}))}


def _each(items: Any, fill: Callable[[Object], Object]) -> Any:
    if not isinstance(items, list):
        return items
    return [fill(item) if isinstance(item, dict) else item for item in items]


def _filled(given: Object, defaults: Mapping[str, Any]) -> Object:
    """The fields given, and the defaults of those that are not; below a field that is given, too."""
    filled = dict(given)
    for key, value in defaults.items():
        if filled.get(key) is None:
            filled[key] = _filled({}, value) if isinstance(value, Mapping) else value
        elif isinstance(value, Mapping) and isinstance(filled[key], dict):
            filled[key] = _filled(filled[key], value)
    return filled


_FILLED: dict[str, Callable[[Object], Object]] = {
    "ClusterQueue": _cluster_queue,
    "Cohort": _weighed,
    "LocalQueue": _local_queue,
    "ProvisioningRequestConfig": _provisioning,
    "Workload": _workload,
}
