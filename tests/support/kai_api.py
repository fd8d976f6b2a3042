"""Mistakes in pod groups, queues and topologies that their definitions refuse, wherever they are served."""

from __future__ import annotations

from typing import Any

from bayplan.dialects.api import Kind
from bayplan.dialects.kai.api.names import POD_GROUP, QUEUE, TOPOLOGY

Object = dict[str, Any]

HOSTNAME_FIRST = [{"nodeLabel": "kubernetes.io/hostname"}, {"nodeLabel": "a"}]
BAD: list[tuple[Kind, Object, str]] = [
    (POD_GROUP, {"minMember": 0}, "spec.minMember"),
    (POD_GROUP, {"subGroups": [{"name": "a", "minMember": -1}]}, "subGroups[0].minMember"),
    (POD_GROUP, {"preemptibility": "maybe"}, "Unsupported value"),
    (POD_GROUP, {"schedulingBackoff": 5}, "spec.schedulingBackoff"),
    (POD_GROUP, {"topologyConstraint": {"requiredTopologyLevel": "rack"}}, "a level needs the topology"),
    (QUEUE, {"parentQueue": "x"}, "its own parent"),
    (QUEUE, {"resources": {"gpu": {"quota": -2}}}, "resources.gpu.quota"),
    (TOPOLOGY, {"levels": []}, "spec.levels"),
    (TOPOLOGY, {"levels": [{"nodeLabel": "a"}, {"nodeLabel": "a"}]}, "must be unique"),
    (TOPOLOGY, {"levels": HOSTNAME_FIRST}, "lowest level"),
]


def obj(kind: Kind, spec: Object, name: str = "x") -> Object:
    """An object of a kind, in the default namespace if it has one."""
    meta = {"name": name} | ({"namespace": "default"} if kind.namespaced else {})
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": spec}
