"""The CustomResourceDefinition of NodeResourceTopology, as tests install it, and objects of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bayplan.dialects.nrt.wire import GROUP, TOPOLOGIES

Object = dict[str, Any]
TEXT: Object = {"type": "string"}
AMOUNT: Object = {"x-kubernetes-int-or-string": True}


def _listed(*needed: str, **fields: Object) -> Object:
    inner: Object = {"type": "object", "properties": fields}
    return {"type": "array", "items": inner | ({"required": list(needed)} if needed else {})}


ATTRIBUTES = _listed("name", "value", name=TEXT, value=TEXT)
ZONES = _listed(
    "name", "type",
    name=TEXT, type=TEXT, parent=TEXT,
    costs=_listed("name", "value", name=TEXT, value={"type": "integer", "format": "int64"}),
    attributes=ATTRIBUTES,
    resources=_listed("name", name=TEXT, capacity=AMOUNT, allocatable=AMOUNT, available=AMOUNT),
)  # fmt: skip
OLDER: Object = {"topologyPolicies": {"type": "array", "items": TEXT}, "zones": ZONES}


def definition(*versions: str) -> Object:
    """It serves these versions, and stores the last one; two if none are named."""
    served = versions or ("v1alpha1", "v1alpha2")
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{TOPOLOGIES.plural}.{GROUP}",
            "annotations": {
                "api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/1870"
            },
        },
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {
                "plural": TOPOLOGIES.plural,
                "singular": "noderesourcetopology",
                "kind": TOPOLOGIES.kind,
                "listKind": f"{TOPOLOGIES.kind}List",
                "shortNames": ["node-res-topo"],
            },
            "versions": [_version(name, stored=name == served[-1]) for name in served],
        },
    }


def _version(name: str, *, stored: bool) -> Object:
    fields = OLDER if name == "v1alpha1" else OLDER | {"attributes": ATTRIBUTES}
    schema = {"type": "object", "properties": fields}
    return {"name": name, "served": True, "storage": stored, "schema": {"openAPIV3Schema": schema}}


def topology(
    node: str,
    zones: Sequence[Mapping[str, str | int]],
    *,
    policy: str = "single-numa-node",
    scope: str = "container",
    **attributes: str,
) -> Object:
    """A node whose zones have this much left of what they have in all."""
    told = {"topologyManagerPolicy": policy, "topologyManagerScope": scope, **attributes}
    return {
        "apiVersion": f"{GROUP}/v1alpha2",
        "kind": TOPOLOGIES.kind,
        "metadata": {"name": node},
        "attributes": [{"name": name, "value": value} for name, value in told.items()],
        "zones": [_zone(number, amounts) for number, amounts in enumerate(zones)],
    }


def _zone(number: int, amounts: Mapping[str, str | int]) -> Object:
    resources = [
        {"name": name, "capacity": amount, "allocatable": amount, "available": amount}
        for name, amount in amounts.items()
    ]
    return {"name": f"node-{number}", "type": "Node", "resources": resources}
