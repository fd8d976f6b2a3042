"""What is injected into the pod template of an admitted pod set: labels, selectors, tolerations, gates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayplan.dialects.jobs.starting import Injected, InjectionConflict
from bayplan.dialects.kube.fields.name_rules import label_value_problems
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.assignment_decode import decode_assignment
from bayplan.dialects.kueue.names.annotations import (
    CLUSTER_QUEUE,
    LOCAL_QUEUE,
    POD_SET,
    SLICE_NAME,
    TOPOLOGY_GATE,
    UNCONSTRAINED,
    WORKLOAD_NAME,
    is_elastic,
)
from bayplan.dialects.kueue.names.feature_switches import RULES, FeatureSwitches

__all__ = ["Injected", "injection_for", "injections"]

Object = dict[str, Any]


def injections(
    workload: Object, flavors: Mapping[str, Object], rules: FeatureSwitches = RULES
) -> list[Injected]:
    """The injection for each pod set of an admitted Workload. KeyError if a flavor is not known."""
    field = Field(workload)
    assignments = field.at("status", "admission", "podSetAssignments").items()
    pairs = zip(assignments, field.at("spec", "podSets").items(), strict=False)
    return [_with_names(field, injection_for(one, pod_set, flavors, rules), rules) for one, pod_set in pairs]


def injection_for(
    assignment: Field, pod_set: Field, flavors: Mapping[str, Object], rules: FeatureSwitches = RULES
) -> Injected:
    """The injection that the assignment of a pod set requires; `flavors` are ResourceFlavors by name."""
    annotations: dict[str, str] = {}
    gates: tuple[str, ...] = ()
    selector: dict[str, str] = {}
    if rules.topology and assignment.at("topologyAssignment").present:
        request = pod_set.at("topologyRequest")
        selector = _one_domain(assignment.at("topologyAssignment")) if rules.selector_without_gate else {}
        gates = () if selector else (TOPOLOGY_GATE,)
        if not any(request.at(key).present for key in ("required", "preferred", "unconstrained")):
            annotations[UNCONSTRAINED] = "true"
    tolerations: list[Object] = []
    for name in dict.fromkeys(assignment.at("flavors").texts().values()):
        spec = flavors[name].get("spec") or {}
        selector |= spec.get("nodeLabels") or {}
        tolerations += spec.get("tolerations") or ()
    return Injected(
        name=assignment.at("name").text(),
        count=assignment.at("count").integer(default=pod_set.at("count").integer()),
        annotations=annotations,
        node_selector=selector,
        tolerations=tuple(tolerations),
        gates=gates,
    )


def _one_domain(assigned: Field) -> dict[str, str]:
    """The labels of the domain of all pods; empty if there are several domains."""
    assignment = decode_assignment(assigned)
    if assignment is None or len({share.values for share in assignment.shares}) != 1:
        return {}
    return dict(zip(assignment.levels, assignment.shares[0].values, strict=True))


def _with_names(workload: Field, injection: Injected, rules: FeatureSwitches) -> Injected:
    """The injection with the names of Workload, pod set and queues, and with the updates of the checks."""
    name = workload.at("metadata", "name").text()
    queue = workload.at("status", "admission", "clusterQueue").text()
    labels = {POD_SET: injection.name, LOCAL_QUEUE: workload.at("spec", "queueName").text()}
    if not label_value_problems(queue) and "." not in queue:
        labels[CLUSTER_QUEUE] = queue
    annotations = {WORKLOAD_NAME: name} if rules.topology else {}
    if rules.elastic and is_elastic(workload):
        annotations[SLICE_NAME] = workload.at("metadata", "annotations", SLICE_NAME).text() or name
    named = Injected("", 0, labels=labels, annotations=annotations)
    injection = injection.merged_with(named)
    for check in workload.at("status", "admissionChecks").items():
        for update in check.at("podSetUpdates").items():
            if update.at("name").text() == injection.name:
                try:
                    injection = injection.merged_with(_update(update))
                except InjectionConflict as wrong:
                    raise InjectionConflict(
                        f'in admission check "{check.at("name").text()}": {wrong}'
                    ) from None
                break
    return injection


def _update(update: Field) -> Injected:
    tolerations = [one.value for one in update.at("tolerations").items()]
    return Injected(
        "",
        0,
        labels=update.at("labels").texts(),
        annotations=update.at("annotations").texts(),
        node_selector=update.at("nodeSelector").texts(),
        tolerations=tuple(one for one in tolerations if isinstance(one, dict)),
    )
