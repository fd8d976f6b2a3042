"""Defaults of Kueue objects: those of the CRD schemas, and those of pod templates.

The API server applies the schema defaults itself. They are also needed for manifests read from a file.
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
DEFAULTED_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")

DEFAULTED = ("clusterqueues", "workloads")
"""Resources with a defaulting webhook."""


def default(new: Object, _: Object | None = None) -> Object:
    """The object with defaults for unset fields; unknown kinds are returned unchanged."""
    fill = _DEFAULTS_BY_KIND.get(str(new.get("kind")))
    spec = new.get("spec")
    return new if fill is None or not isinstance(spec, dict) else {**new, "spec": fill(spec)}


def _cluster_queue(spec: Object) -> Object:
    return _with_weight(_with_defaults(spec, _CLUSTER_QUEUE))


def _local_queue(spec: Object) -> Object:
    return _with_weight(_with_defaults(spec, _QUEUE))


def _with_weight(spec: Object) -> Object:
    sharing = spec.get("fairSharing")
    return (
        {**spec, "fairSharing": _with_defaults(sharing, {"weight": 1})} if isinstance(sharing, dict) else spec
    )


def _provisioning(spec: Object) -> Object:
    return _with_defaults(spec, {"retryStrategy": _RETRY})


def _workload(spec: Object) -> Object:
    return _with_defaults({**spec, "podSets": _each(spec.get("podSets"), _pod_set)}, {"active": True})


def _pod_set(pod_set: Object) -> Object:
    filled = _with_defaults(pod_set, _POD_SET)
    template = filled.get("template")
    pod = template.get("spec") if isinstance(template, dict) else None
    if not isinstance(template, dict) or not isinstance(pod, dict):
        return filled
    containers = {key: _each(pod[key], _container) for key in DEFAULTED_CONTAINERS if key in pod}
    return {**filled, "template": {**template, "spec": {**pod, **containers}}}


def _container(container: Object) -> Object:
    if "ports" not in container:
        return container
    return {
        **container,
        "ports": _each(container["ports"], lambda port: _with_defaults(port, {"protocol": "TCP"})),
    }


def _each(items: Any, fill: Callable[[Object], Object]) -> Any:
    if not isinstance(items, list):
        return items
    return [fill(item) if isinstance(item, dict) else item for item in items]


def _with_defaults(fields: Object, defaults: Mapping[str, Any]) -> Object:
    """The fields with defaults for those that are unset, recursively."""
    filled = dict(fields)
    for key, value in defaults.items():
        if filled.get(key) is None:
            filled[key] = _with_defaults({}, value) if isinstance(value, Mapping) else value
        elif isinstance(value, Mapping) and isinstance(filled[key], dict):
            filled[key] = _with_defaults(filled[key], value)
    return filled


_DEFAULTS_BY_KIND: dict[str, Callable[[Object], Object]] = {
    "ClusterQueue": _cluster_queue,
    "Cohort": _with_weight,
    "LocalQueue": _local_queue,
    "ProvisioningRequestConfig": _provisioning,
    "Workload": _workload,
}
