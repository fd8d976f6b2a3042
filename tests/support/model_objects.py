"""Values of the model, each built in one place: nodes, pods and gangs as the core decides about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayplan.model.gang import Gang, Group, Locality, PodSet, Ref
from bayplan.model.node import HOSTNAME, PODS, Node
from bayplan.model.node_rules import Taint
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import PodSignature, PodSpec


def node(
    name: str,
    labels: Mapping[str, str] | None = None,
    *,
    pods: int = 110,
    taints: tuple[Taint, ...] = (),
    ready: bool = True,
    schedulable: bool = True,
    **amounts: int,
) -> Node:
    """A node labelled with its own name; `amounts` are allocatable."""
    known = {HOSTNAME: name, **(labels or {})}
    return Node(name, known, {**amounts, PODS: pods}, taints, ready, schedulable)


def pod(
    name: str, signature: PodSignature, on: str = "", priority: int = 0, *, preempts: bool = True, **more: Any
) -> Pod:
    """A pod in the namespace `ns` that uses what its signature asks for; `more` are fields of Pod."""
    known: dict[str, Any] = {
        "uid": f"uid-{name}",
        "spec": PodSpec(signature, priority, preempts),
        "ours": True,
    } | more
    return Pod(PodKey("ns", name), amounts=dict(signature.amounts), node=on, **known)


def gang(*members: Group | PodSet, name: str = "g", locality: Locality | None = None) -> Gang:
    """A gang that needs all its members."""
    return Gang(Ref("test", "Gang", "", name), Group("", members, len(members), locality or Locality()))
