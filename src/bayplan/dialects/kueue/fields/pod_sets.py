"""The tree of a gang: pod sets, with those of one pod set group under a common node."""

from __future__ import annotations

from dataclasses import dataclass

from bayplan.dialects.kube.decode.node_rule_fields import node_rules
from bayplan.dialects.kube.decode.numa_request import template_numa_request
from bayplan.dialects.kube.decode.pod_fields import pod_requests
from bayplan.dialects.kube.decode.pod_spec import template_signature
from bayplan.dialects.kube.fields.reader import Field, FieldErrorType
from bayplan.dialects.kueue.fields.topology_request import TopologyRequest
from bayplan.dialects.kueue.names.annotations import PREFERRED, REQUIRED
from bayplan.model.gang import Group, Locality, PodSet, Ref

GROUP_SIZE = 2  # a leader and its workers


@dataclass(frozen=True, slots=True)
class PodSetMember:
    """A pod set, its pod set group (if any), and the fields of both names."""

    pod_set: PodSet
    group: str
    name_field: Field
    group_field: Field
    annotations: Field | None = None  # the annotations of the topology request, if it is made by annotations


def source(obj: Field, kind: str) -> Ref:
    """The reference to the object of a gang."""
    metadata = obj.at("metadata")
    name = metadata.at("name").text() or metadata.at("generateName").text().rstrip("-")
    return Ref("kueue", kind, metadata.at("namespace").text("default"), name)


def make_pod_set(name: str, count: int, minimum: int, template: Field, request: TopologyRequest) -> PodSet:
    """The pod set of one template with its topology request."""
    spec = template.at("spec")
    return PodSet(
        name=name,
        count=count,
        minimum=minimum,
        requests=pod_requests(spec),
        locality=request.locality,
        segments=request.segments,
        rules=node_rules(spec),
        zones=template_numa_request(spec),
        template=template_signature(template.value),
    )


def make_root(members: list[PodSetMember]) -> Group:
    """The root of a gang: pod sets in order, a group at the position of its first pod set."""
    _check_names(members)
    grouped: dict[str, list[PodSetMember]] = {}
    for member in members:
        if member.group:
            grouped.setdefault(member.group, []).append(member)
    tree: list[Group | PodSet] = []
    for member in members:
        if not member.group:
            tree.append(member.pod_set)
        elif grouped[member.group][0] is member:
            tree.append(_group(member.group, grouped[member.group]))
    return Group(name="", members=tuple(tree), minimum=len(tree))


def _group(name: str, members: list[PodSetMember]) -> Group:
    _check_group(name, members)
    return Group(
        name=name,
        members=tuple(member.pod_set for member in members),
        minimum=len(members),
        locality=members[0].pod_set.locality,
    )


def _check_names(members: list[PodSetMember]) -> None:
    seen: set[str] = set()
    for member in members:
        if member.pod_set.name in seen:
            member.name_field.error("must be unique: another pod set has this name")
        seen.add(member.pod_set.name)


def _check_group(name: str, members: list[PodSetMember]) -> None:
    if len(members) != GROUP_SIZE:
        _group_error(
            name, members, f"can only define groups of exactly 2 pod sets, got: {len(members)} pod set(s)"
        )
        return
    counts = [member.pod_set.count for member in members]
    if 1 not in counts:
        why = (
            "can only define groups where at least one pod set has only 1 replica, "
            f"got: {counts[0]} replica(s) and {counts[1]} replica(s) in the group"
        )
        _group_error(name, members, why)
    if members[0].pod_set.locality != members[1].pod_set.locality:
        _topology_error(name, members)
    elif members[0].pod_set.locality == Locality():
        _group_error(name, members, "may not be set without a required or preferred topology")


def _group_error(name: str, members: list[PodSetMember], why: str) -> None:
    for member in members:
        member.group_field.error(why, FieldErrorType.INVALID, name)


def _topology_error(name: str, members: list[PodSetMember]) -> None:
    """Record that both pod sets of a group must request the same topology."""
    for member, other in (members, members[::-1]):
        if member.annotations is None or other.annotations is None:
            member.group_field.error(
                "must request the same topology as the other pod set", FieldErrorType.INVALID, name
            )
            continue
        why = (
            f"must specify '{REQUIRED}' or '{PREFERRED}' topology consistent with "
            f"'{other.annotations.path}' in group '{name}'"
        )
        member.annotations.error(why, FieldErrorType.INVALID, None)
