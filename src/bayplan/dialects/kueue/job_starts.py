"""What an admitted pod set is given when its job starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bayplan.dialects.kube.fields import Field
from bayplan.dialects.kueue.annotations import UNCONSTRAINED
from bayplan.dialects.kueue.job_defaults import TOPOLOGY_GATE
from bayplan.dialects.kueue.rulebook import RULES, Rulebook

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Injected:
    """Additions to the pods of one pod set, and how many of them start."""

    name: str
    count: int
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Object, ...] = ()
    gates: tuple[str, ...] = ()


def injected(
    assignment: Field, pod_set: Field, flavors: Mapping[str, Object], rules: Rulebook = RULES
) -> Injected:
    """What the assignment of a pod set means for its pods; `flavors` are ResourceFlavors by name."""
    notes: dict[str, str] = {}
    gates: tuple[str, ...] = ()
    if rules.topology and assignment.at("topologyAssignment").present:
        request, gates = pod_set.at("topologyRequest"), (TOPOLOGY_GATE,)
        if not any(request.at(key).present for key in ("required", "preferred", "unconstrained")):
            notes[UNCONSTRAINED] = "true"
    selector: dict[str, str] = {}
    tolerations: list[Object] = []
    for name in dict.fromkeys(assignment.at("flavors").texts().values()):
        spec = flavors[name].get("spec") or {}
        selector |= spec.get("nodeLabels") or {}
        tolerations += spec.get("tolerations") or ()
    return Injected(
        name=assignment.at("name").text(),
        count=assignment.at("count").integer(default=pod_set.at("count").integer()),
        annotations=notes,
        node_selector=selector,
        tolerations=tuple(tolerations),
        gates=gates,
    )
