"""PodGroup objects as values: what a group of pods requires, and each of its sub-groups."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bayplan.dialects.kai.api.names import FLAW, NON_PREEMPTIBLE, POD_GROUP, PREEMPTIBLE, PREEMPTIBLE_BELOW
from bayplan.dialects.kube.fields.reader import Field
from bayplan.model.gang import Ref
from bayplan.model.whole_numbers import whole_number

Object = dict[str, Any]
_UID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Constraint:
    """A topology constraint: one domain at a required level, preferably at a narrower one."""

    topology: str = ""
    required: str = ""
    preferred: str = ""

    @property
    def has_level(self) -> bool:
        """Whether it names a level; a topology alone is no constraint."""
        return bool(self.required or self.preferred)


@dataclass(frozen=True, slots=True)
class SubGroup:
    """A sub-group. One that is the parent of others has no pods of its own."""

    name: str
    minimum: int = 1
    parent: str = ""
    constraint: Constraint | None = None
    pods: tuple[str, ...] = ()  # its known pods; not part of the object


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a PodGroup: the object it was created for, and is deleted with."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""


@dataclass(frozen=True, slots=True)
class PodGroup:
    """A group of pods that are scheduled together."""

    name: str
    namespace: str = ""
    queue: str = ""
    priority_class: str = ""
    preemptibility: str = ""
    minimum: int = 1
    constraint: Constraint | None = None
    sub_groups: tuple[SubGroup, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    owner: Owner = Owner()
    uid: str = ""
    flaw: str = ""  # why it cannot be placed as requested

    @property
    def ref(self) -> Ref:
        return Ref("kai", POD_GROUP.kind, self.namespace, self.name)

    def is_preemptible(self, priority: int) -> bool:
        """Whether the PodGroup may be preempted: by its preemptibility, else by its priority."""
        if self.preemptibility in (PREEMPTIBLE, NON_PREEMPTIBLE):
            return self.preemptibility == PREEMPTIBLE
        return priority < PREEMPTIBLE_BELOW

    def is_for_owner(self, name: str) -> bool:
        """Whether it was created for the object of that name; without an owner, its own name decides.

        An owner's name may be a prefix of another one, as `a` is of `a-b`, so the rest must be a uid.
        """
        if self.owner.name:
            return self.owner.name == name
        rest = self.name.removeprefix(f"pg-{name}-")
        return rest != self.name and ("-" not in rest or bool(_UID.match(rest)))

    def topologies(self) -> tuple[str, ...]:
        """The topologies in which it has constraints, each once."""
        return tuple(dict.fromkeys(c.topology for c in self._constraints() if c.has_level))

    def names(self, topology: str) -> bool:
        """Whether it names a topology anywhere, with or without a constraint."""
        return any(one.topology == topology for one in self._constraints())

    def _constraints(self) -> list[Constraint]:
        constraints = (self.constraint, *(one.constraint for one in self.sub_groups))
        return [one for one in constraints if one is not None]


def read_pod_group(obj: Field) -> PodGroup:
    """A PodGroup object as a value; errors are recorded on its fields."""
    meta, spec = obj.at("metadata"), obj.at("spec")
    annotations = meta.at("annotations").texts()
    return PodGroup(
        name=meta.at("name").text(),
        namespace=meta.at("namespace").text("default"),
        queue=spec.at("queue").text(),
        priority_class=spec.at("priorityClassName").text(),
        preemptibility=spec.at("preemptibility").text(),
        minimum=spec.at("minMember").integer(default=1),
        constraint=read_constraint(spec.at("topologyConstraint")),
        sub_groups=tuple(_sub_group(one) for one in spec.at("subGroups").items()),
        labels=meta.at("labels").texts(),
        annotations=annotations,
        owner=_owner(meta),
        uid=meta.at("uid").text(),
        flaw=annotations.get(FLAW, ""),
    )


def read_constraint(field: Field) -> Constraint | None:
    """A topologyConstraint; None if it is empty."""
    constraint = Constraint(
        field.at("topology").text(),
        field.at("requiredTopologyLevel").text(),
        field.at("preferredTopologyLevel").text(),
    )
    return constraint if constraint != Constraint() else None


def pod_group_object(group: PodGroup) -> Object:
    """The API object of a PodGroup."""
    annotations = dict(group.annotations) | ({FLAW: group.flaw} if group.flaw else {})
    meta: Object = {"name": group.name, "namespace": group.namespace, "labels": dict(group.labels)}
    owner = group.owner
    meta["annotations"] = annotations
    if owner.uid:
        meta["ownerReferences"] = [
            {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
        ]
    spec: Object = {
        "minMember": group.minimum,
        "queue": group.queue,
        "priorityClassName": group.priority_class,
        "preemptibility": group.preemptibility,
        "topologyConstraint": _written_constraint(group.constraint),
        "subGroups": [_written_sub_group(one) for one in group.sub_groups],
    }
    return {
        "apiVersion": POD_GROUP.api_version,
        "kind": POD_GROUP.kind,
        "metadata": {key: value for key, value in meta.items() if value},
        "spec": {key: value for key, value in spec.items() if value not in ("", {}, [])},
    }


def merged(known: PodGroup, generated: PodGroup) -> PodGroup:
    """A PodGroup generated again for another pod: optional sub-groups that earlier pods added stay."""
    generated_names = {one.name for one in generated.sub_groups}
    added = tuple(
        one
        for one in known.sub_groups
        if one.name not in generated_names
        and one.minimum == 0
        and (not one.parent or one.parent in generated_names)
    )
    return replace(generated, sub_groups=_in_order(generated.sub_groups, added)) if added else generated


def _in_order(generated: tuple[SubGroup, ...], added: tuple[SubGroup, ...]) -> tuple[SubGroup, ...]:
    """All sub-groups in an order that does not depend on which pod came first.

    An added sub-group comes after those of the same parent and stem that have a lower number.
    """
    siblings: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for place, one in enumerate(generated):
        stem, number = _numbered(one)
        siblings.setdefault((one.parent, stem), []).append((number, place))
    placed = [(place, -1, "", one) for place, one in enumerate(generated)]
    for one in added:
        stem, number = _numbered(one)
        numbers = siblings.get((one.parent, stem), [(-1, len(generated))])
        after = bisect(numbers, (number,))
        placed.append((numbers[after - 1][1] if after else numbers[0][1] - 1, number + 1, one.name, one))
    return tuple(one for *_, one in sorted(placed, key=lambda entry: entry[:3]))


def _numbered(one: SubGroup) -> tuple[str, int]:
    """The stem and the number of a sub-group's name; -1 if it has no number."""
    stem, dash, text = one.name.rpartition("-")
    number = whole_number(text) if dash else None
    return (one.name, -1) if number is None else (stem, number)


def _sub_group(field: Field) -> SubGroup:
    return SubGroup(
        field.at("name").text(),
        field.at("minMember").integer(default=1),
        field.at("parent").text(),
        read_constraint(field.at("topologyConstraint")),
    )


def _owner(meta: Field) -> Owner:
    for one in meta.at("ownerReferences").items():
        return Owner(*(one.at(key).text() for key in ("apiVersion", "kind", "name", "uid")))
    return Owner()


def _written_sub_group(one: SubGroup) -> Object:
    written: Object = {"name": one.name, "minMember": one.minimum}
    if one.parent:
        written["parent"] = one.parent
    constraint = _written_constraint(one.constraint)
    return written | ({"topologyConstraint": constraint} if constraint else {})


def _written_constraint(one: Constraint | None) -> Object:
    if one is None:
        return {}
    fields = {
        "topology": one.topology,
        "requiredTopologyLevel": one.required,
        "preferredTopologyLevel": one.preferred,
    }
    return {key: value for key, value in fields.items() if value}
