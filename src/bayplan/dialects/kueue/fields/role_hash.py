"""The role of a pod in a pod group: a short hash of the fields that decide where a pod can run."""

from __future__ import annotations

import hashlib
import json
from typing import Any

HASH_LENGTH = 8
_PLAIN = (
    "affinity",
    "nodeSelector",
    "overhead",
    "priority",
    "resourceClaims",
    "runtimeClassName",
    "tolerations",
    "topologySpreadConstraints",
)
_ORDER = {
    name: rank
    for rank, name in enumerate(
        (
            *("name", "hostPort", "containerPort", "protocol", "hostIP"),
            *("nodeAffinity", "podAffinity", "podAntiAffinity"),
            "requiredDuringSchedulingIgnoredDuringExecution",
            "preferredDuringSchedulingIgnoredDuringExecution",
            *("weight", "preference", "podAffinityTerm", "nodeSelectorTerms"),
            *("maxSkew", "topologyKey", "whenUnsatisfiable", "labelSelector"),
            *("matchLabels", "matchExpressions", "matchFields", "key", "operator", "value", "values"),
            *("effect", "tolerationSeconds"),
        )
    )
}
"""Fields of API types in the order of their Go declarations, in which Kueue hashes them."""

Object = dict[str, Any]


def role_hash(spec: Object) -> str:
    """The hash of a pod spec; equal for interchangeable pods."""
    shape: Object = {key: _ordered(spec.get(key)) for key in _PLAIN}
    shape["containers"] = _containers(spec.get("containers"))
    shape["initContainers"] = _containers(spec.get("initContainers"))
    if isinstance(spec.get("resources"), dict):
        shape["resources"] = _sorted(spec["resources"].get("requests"))
    text = json.dumps({"spec": _sorted(shape)}, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_LENGTH]


def _containers(containers: Any) -> list[Object] | None:
    """What counts of containers. Those that are malformed count as empty: validation reports them."""
    if not containers or not isinstance(containers, list):
        return None
    return [_container(one if isinstance(one, dict) else {}) for one in containers]


def _container(container: Object) -> Object:
    resources = container.get("resources")
    requests = resources.get("requests") if isinstance(resources, dict) else None
    return {"ports": _ordered(container.get("ports")), "resources": {"requests": _sorted(requests)}}


def _sorted(value: Any) -> Any:
    return dict(sorted(value.items())) if isinstance(value, dict) else value


def _ordered(value: Any) -> Any:
    """Fields in the order of their declaration; the keys of maps by name."""
    if isinstance(value, dict):
        last = len(_ORDER)
        keys = sorted(value, key=lambda key: (_ORDER.get(key, last), key))
        return {key: _ordered(value[key]) for key in keys}
    return [_ordered(one) for one in value] if isinstance(value, list) else value
