"""PodGroup objects as values: what is asked for a group of pods, and for each of its sub-groups."""

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
    """Stay within one domain of a topology: it must be of one level, and rather of a narrower one."""

    topology: str = ""
    required: str = ""
    preferred: str = ""

    @property
    def is_placed(self) -> bool:
        """Whether it names a level; a topology alone asks for nothing."""
        return bool(self.required or self.preferred)


@dataclass(frozen=True, slots=True)
class SubGroup:
    """A part of a group. One that is the parent of others has no pods of its own."""

    name: str
    minimum: int = 1
    parent: str = ""
    constraint: Constraint | None = None
    pods: tuple[str, ...] = ()  # those known to belong to it; not written into the object


@dataclass(frozen=True, slots=True)
class Owner:
    """The object that a group is made for, and goes away with."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""


@dataclass(frozen=True, slots=True)
class PodGroup:
    """A group of pods that start together."""

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
    flaw: str = ""  # why it cannot be placed as it is asked for

    @property
    def ref(self) -> Ref:
        return Ref("kai", POD_GROUP.kind, self.namespace, self.name)

    def is_preemptible(self, priority: int) -> bool:
        """Whether it may be made to go: as it says, or by its priority."""
        if self.preemptibility in (PREEMPTIBLE, NON_PREEMPTIBLE):
            return self.preemptibility == PREEMPTIBLE
        return priority < PREEMPTIBLE_BELOW

    def stands_for(self, name: str) -> bool:
        """Whether it was made for the object of that name; a group that names no owner is known by its own.

        The name of an owner may begin with that of another, as `a-b` does with `a`: a uid ends the name.
        """
        if self.owner.name:
            return self.owner.name == name
        rest = self.name.removeprefix(f"pg-{name}-")
        return rest != self.name and ("-" not in rest or bool(_UID.match(rest)))

    def topologies(self) -> tuple[str, ...]:
        """Every topology in which something is asked, each once."""
        return tuple(dict.fromkeys(c.topology for c in self._constraints() if c.is_placed))

    def names(self, topology: str) -> bool:
        """Whether it names a topology anywhere, whether or not it asks for something in it."""
        return any(one.topology == topology for one in self._constraints())

    def _constraints(self) -> list[Constraint]:
        asked = (self.constraint, *(one.constraint for one in self.sub_groups))
        return [one for one in asked if one is not None]


def read_pod_group(obj: Field) -> PodGroup:
    """A PodGroup object; what is wrong with its fields is noted there."""
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
    """A topologyConstraint; an empty one is none."""
    found = Constraint(
        field.at("topology").text(),
        field.at("requiredTopologyLevel").text(),
        field.at("preferredTopologyLevel").text(),
    )
    return found if found != Constraint() else None


def written(group: PodGroup) -> Object:
    """The object of a group."""
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


def merged(known: PodGroup, made: PodGroup) -> PodGroup:
    """A group made again for a further pod: optional sub-groups that earlier pods opened stay."""
    names = {one.name for one in made.sub_groups}
    opened = tuple(
        one
        for one in known.sub_groups
        if one.name not in names and one.minimum == 0 and (not one.parent or one.parent in names)
    )
    return replace(made, sub_groups=_in_order(made.sub_groups, opened)) if opened else made


def _in_order(made: tuple[SubGroup, ...], opened: tuple[SubGroup, ...]) -> tuple[SubGroup, ...]:
    """All of them, each of those opened by its number among its like, whichever pod came first.

    Like each other are those of one parent that are called the same but for the number.
    """
    like: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for at, one in enumerate(made):
        stem, number = _numbered(one)
        like.setdefault((one.parent, stem), []).append((number, at))
    placed = [(at, -1, "", one) for at, one in enumerate(made)]
    for one in opened:
        stem, number = _numbered(one)
        known = like.get((one.parent, stem), [(-1, len(made))])
        after = bisect(known, (number,))
        placed.append((known[after - 1][1] if after else known[0][1] - 1, number + 1, one.name, one))
    return tuple(one for *_, one in sorted(placed, key=lambda found: found[:3]))


def _numbered(one: SubGroup) -> tuple[str, int]:
    """What a sub-group is called before its number, and the number; -1 if it has none."""
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
    found: Object = {"name": one.name, "minMember": one.minimum}
    if one.parent:
        found["parent"] = one.parent
    constraint = _written_constraint(one.constraint)
    return found | ({"topologyConstraint": constraint} if constraint else {})


def _written_constraint(one: Constraint | None) -> Object:
    if one is None:
        return {}
    found = {
        "topology": one.topology,
        "requiredTopologyLevel": one.required,
        "preferredTopologyLevel": one.preferred,
    }
    return {key: value for key, value in found.items() if value}
