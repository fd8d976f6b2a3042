"""Decode Workloads (v1beta1 and v1beta2) into gangs."""

from __future__ import annotations

from bayplan.dialects.kube.fields.reader import INT32_MAX, Field
from bayplan.dialects.kueue.fields.annotation_rules import check_level
from bayplan.dialects.kueue.fields.pod_sets import PodSetMember, make_pod_set, make_root, source
from bayplan.dialects.kueue.fields.topology_request import decode_request
from bayplan.model.gang import Gang

KIND = "Workload"
_LEVELS = ("required", "preferred", "podSetSliceRequiredTopology")


def workload_gang(workload: Field) -> Gang:
    """The gang of a Workload."""
    spec = workload.at("spec")
    pod_sets = spec.at("podSets")
    if not pod_sets.items():
        pod_sets.error("must hold at least one pod set")
    return Gang(
        source=source(workload, KIND),
        root=make_root([_member(field) for field in pod_sets.items()]),
        queue=spec.at("queueName").text(),
        priority=spec.at("priority").integer(minimum=-INT32_MAX - 1),
    )


def needs_no_placement(workload: Field) -> bool:
    """Whether a Workload needs no placement: it is admitted or finished."""
    conditions = workload.at("status", "conditions").items()
    finished = any(
        condition.at("type").text() == "Finished" and condition.at("status").text() == "True"
        for condition in conditions
    )
    return finished or workload.at("status", "admission").present


def _member(field: Field) -> PodSetMember:
    name, request = field.at("name"), field.at("topologyRequest")
    if not name.text():
        name.error("must be set")
    for key in _LEVELS:
        if request.at(key).present:
            check_level(request.at(key))
    count = field.at("count").integer(default=1)
    decoded = decode_request(request)
    pod_set = make_pod_set(
        name=name.text(),
        count=count,
        minimum=field.at("minCount").integer(default=count, maximum=count),
        template=field.at("template"),
        request=decoded,
    )
    return PodSetMember(pod_set, decoded.group, name, request.at("podSetGroupName"))
