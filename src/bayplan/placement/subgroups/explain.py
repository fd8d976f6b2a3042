"""Explains why a gang with minimums does not fit: the part that does not, and the closest domain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import mul

import numpy as np

from bayplan.model.assignment import Code, DomainFit, Lack, Misfit, NearMiss
from bayplan.model.gang import Group
from bayplan.model.pod import Pod
from bayplan.placement.cluster.resource_fit import CPU, MEMORY, by_weight
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.cluster.topology_tree import Ints
from bayplan.placement.subgroups.backtracking import DomainSearch
from bayplan.placement.subgroups.capacity import EVERYWHERE, Area, TopologyCapacity, common_domain
from bayplan.placement.subgroups.constraint_tree import ConstraintNode, LocalityStrength

DOMAINS_LISTED = 10


@dataclass(frozen=True, slots=True)
class TreeMisfit:
    """Why a gang does not fit. `part` is empty if it is the whole gang."""

    misfit: Misfit | None = None
    part: str = ""
    minimum: int = 0  # of the part
    fit: int = 0  # pods that would fit
    pod: Pod | None = None  # the first pod of the part
    resource: str = ""  # what runs out first, if no locality was requested
    unsure: bool = False


def explain_misfit(
    capacity: TopologyCapacity, snapshot: CapacitySnapshot, tree: Group, search: DomainSearch, *,
    unsure: bool = False, among_extras: bool = False,
) -> TreeMisfit:  # fmt: skip
    """Report the first part that does not fit even alone, else the part where the search got stuck."""
    root = search.root
    names = {pod_set.name: pod_set.minimum for pod_set in tree.pod_sets()}
    if unsure:
        undecided = Misfit(Code.NOT_DECIDED, tuple(names), topology=snapshot.tree.topology.name)
        return TreeMisfit(undecided, pod=_first_pod(root), unsure=True)
    if among_extras:
        return TreeMisfit(pod=_first_extra(root))
    before = 0
    for constraint, area in _alone(capacity, root, EVERYWHERE):
        near, fit, asked = _closest(capacity, constraint, area)
        if fit < asked:
            break
        if not constraint.children:
            before += asked
    else:
        constraint = (
            search.order[min(search.furthest, len(search.order) - 1)].constraint if search.order else root
        )
        near, fit, asked = _closest(capacity, constraint, EVERYWHERE)
        before = int(root.need.sum()) - asked
        fit = min(fit, asked - 1)
    part_names = tuple(name for name in names if name in _parts(constraint))
    is_whole_gang = constraint is root or set(part_names) == set(names)
    misfit = _misfit(capacity, snapshot, constraint, part_names, near, (fit, asked))
    return TreeMisfit(
        misfit,
        "" if is_whole_gang else constraint.part,
        0 if is_whole_gang else sum(names[name] for name in part_names),
        fit if constraint.children else before + fit,
        _first_pod(constraint),
        "" if misfit is not None else _scarcest(capacity, constraint, EVERYWHERE)[0],
    )


def _misfit(
    capacity: TopologyCapacity,
    snapshot: CapacitySnapshot,
    constraint: ConstraintNode,
    names: tuple[str, ...],
    area: Area,
    held: tuple[int, int],
) -> Misfit | None:
    """The misfit in terms of domains; None if no locality was requested."""
    segment = next((child for child in constraint.children if child.segment), None)
    constrained = (
        constraint if constraint.strength in (LocalityStrength.REQUIRED, LocalityStrength.AUTO) else segment
    )
    if constrained is None:
        return None
    tree, (fit, asked) = snapshot.tree, held
    if not tree.rows:
        level = tree.levels[constrained.level]
        return Misfit(Code.NO_DOMAINS, names, topology=tree.topology.name, level=level, asked=asked)
    unit = (
        int(segment.need.sum()) if segment is not None and not segment.children and segment.need.any() else 1
    )
    near, holds, lacking = None, tuple[DomainFit, ...](), tuple[tuple[str, int], ...]()
    if constrained is constraint and area[0] >= 0:
        holds, lacking = _by_domain(capacity, snapshot, constraint, area[0])
        near = _near(capacity, snapshot, constraint, area, held)
    elif segment is not None and segment.need.any() and not fit:  # not even one segment fits
        best, most, size = _closest(capacity, segment, area)
        near = (
            _near(capacity, snapshot, segment, best, (most, size)) if most < size and best[0] >= 0 else None
        )
    return Misfit(
        Code.NO_ROOM,
        names,
        topology=tree.topology.name,
        level=tree.levels[constrained.level],
        fit=fit // unit,
        asked=-(-asked // unit),
        unit=unit,
        nearest=near,
        domains=holds,
        lacking=lacking,
        total_fit=int(_held(capacity, constraint, EVERYWHERE[0])[0]),
    )


def _near(
    capacity: TopologyCapacity,
    snapshot: CapacitySnapshot,
    constraint: ConstraintNode,
    area: Area,
    held: tuple[int, int],
) -> NearMiss:
    resource, amount = _scarcest(capacity, constraint, area)
    short = held[1] - held[0]
    level = snapshot.tree.levels[area[0]]
    lacks = _lacks_at(_lacks(capacity, constraint, area[0]), area[1])
    lacking = short * amount
    if lacks:
        resource, lacking = lacks[0].resource, lacks[0].asked - lacks[0].free
    return NearMiss(snapshot.tree.path(*area), level, held[0], short, resource, lacking, lacks)


def _by_domain(
    capacity: TopologyCapacity, snapshot: CapacitySnapshot, constraint: ConstraintNode, level: int
) -> tuple[tuple[DomainFit, ...], tuple[tuple[str, int], ...]]:
    """What each domain of a level holds of a constraint; for many domains, how many lack each resource.

    Empty if bound pods fix the domain.
    """
    if constraint.bound_rows:
        return (), ()
    held, lacks = _held(capacity, constraint, level).tolist(), _lacks(capacity, constraint, level)
    if len(held) <= DOMAINS_LISTED:
        path = snapshot.tree.path
        return tuple(DomainFit(path(level, at), fit, _lacks_at(lacks, at)) for at, fit in enumerate(held)), ()
    if not lacks or not np.any([free < asked for _, asked, free in lacks], axis=0).all():
        return (), ()
    counts = ((name, int((free < asked).sum())) for name, asked, free in lacks)
    return (), tuple((name, count) for name, count in counts if count)


Lacks = list[tuple[str, int, Ints]]
"""By resource: its name, the total request, and the free amount by domain."""


def _lacks(capacity: TopologyCapacity, constraint: ConstraintNode, level: int) -> Lacks:
    """Requests and free amounts, the most important resource first.

    Empty if all pods request the same resources: a count of pods says it all then. CPU and memory do not
    count as a difference.
    """
    asking = {name: {bool(capacity.needs[kind, row]) for kind in np.flatnonzero(constraint.need).tolist()}
              for row, name in enumerate(capacity.names) if name not in (CPU, MEMORY)}  # fmt: skip
    if not any(len(requested) > 1 for requested in asking.values()):
        return []
    totals = {name: (asked, free) for name, asked, free in _totals(capacity, constraint, level)}
    return [(name, *totals[name]) for name in by_weight(totals)]


def _lacks_at(lacks: Lacks, domain: int) -> tuple[Lack, ...]:
    return tuple(Lack(name, asked, int(free[domain])) for name, asked, free in lacks if free[domain] < asked)


def _totals(capacity: TopologyCapacity, constraint: ConstraintNode, level: int) -> Lacks:
    """Requests and free amounts by resource; only nodes allowed to a requesting pod count as free."""
    totals = []
    for row, name in enumerate(capacity.names):
        asked = sum(map(mul, constraint.need.tolist(), capacity.needs[:, row].tolist()))
        if asked:
            allowed = capacity.allowed[(constraint.need > 0) & (capacity.needs[:, row] > 0)].any(axis=0)
            free = np.where(allowed, np.maximum(capacity.free[row], 0), 0)
            totals.append((name, asked, capacity.summed(free, level)))
    return totals


def _scarcest(capacity: TopologyCapacity, constraint: ConstraintNode, area: Area) -> tuple[str, int]:
    """The resource that limits the pods of a constraint in an area most, and the request of one pod."""
    low, high = capacity.span(area)
    kind = int(np.argmax(constraint.need))
    open_rows = np.flatnonzero(capacity.allowed[kind, low:high]) + low
    by_resource: list[tuple[int, str, int]] = []
    for row, name in enumerate(capacity.names):
        amount = int(capacity.needs[kind, row])
        if amount:
            held = int(np.maximum(capacity.free[row, open_rows] // amount, 0).sum())
            by_resource.append((held, name, amount))
    return min(by_resource)[1:] if by_resource else ("", 0)


def _alone(
    capacity: TopologyCapacity, constraint: ConstraintNode, area: Area
) -> Iterator[tuple[ConstraintNode, Area]]:
    """Every constraint with pods to place, with the area that bound pods fix for it.

    A required constraint comes before those inside it, any other after them: while its pods do not fit
    together, naming a part of it does not help.
    """
    if not constraint.need.any():
        return
    inner = area
    if (
        constraint.bound_rows
        and constraint.strength is LocalityStrength.REQUIRED
        and constraint.level > area[0]
    ):
        domain = common_domain(capacity, constraint.level, constraint.bound_rows)
        inner = area if domain is None else (constraint.level, domain)
    if constraint.strength is LocalityStrength.REQUIRED:
        yield constraint, area
    for child in constraint.children:
        if not child.segment:
            yield from _alone(capacity, child, inner)
    if constraint.strength is not LocalityStrength.REQUIRED:
        yield constraint, area


def _closest(capacity: TopologyCapacity, constraint: ConstraintNode, area: Area) -> tuple[Area, int, int]:
    """The domain that holds most pods of a constraint, how many it holds, and how many are requested."""
    asked = int(constraint.need.sum())
    level = (
        constraint.level
        if constraint.strength is LocalityStrength.REQUIRED and constraint.level > area[0]
        else area[0]
    )
    held = _held(capacity, constraint, level)
    first, last = capacity.domains(level, area) if level > area[0] else (area[1], area[1] + 1)
    if constraint.bound_rows and level > area[0]:
        domain = common_domain(capacity, level, constraint.bound_rows)
        first, last = (0, 0) if domain is None else (domain, domain + 1)
    if first >= last:
        return EVERYWHERE, 0, asked
    best = first + int(np.argmax(held[first:last]))
    return (level, best), int(held[best]), asked


def _held(capacity: TopologyCapacity, constraint: ConstraintNode, level: int) -> Ints:
    """By domain of a level: how many pods of a constraint it holds without any other pods."""
    segments = [child for child in constraint.children if child.segment and child.need.any()]
    if segments and not segments[0].children and segments[0].level > level:
        size = int(segments[0].need.sum())
        kind = int(np.argmax(segments[0].need))
        room = capacity.summed(capacity.caps[kind], segments[0].level) // size * size
        return np.minimum(capacity.gathered(room, segments[0].level, level), int(constraint.need.sum()))
    total: Ints = np.zeros(1 if level < 0 else len(capacity.starts[level]), np.int64)
    kinds = np.flatnonzero(constraint.need).tolist()
    for kind in kinds:
        total = total + np.minimum(capacity.summed(capacity.caps[kind], level), constraint.need[kind])
    if (
        len(kinds) > 1 and constraint.strength is LocalityStrength.REQUIRED
    ):  # each kind may fit alone where all together do not
        for _, asked, free in _totals(capacity, constraint, level):
            total = np.where(free < asked, np.minimum(total, constraint.need.sum() - 1), total)
    return total


def _parts(constraint: ConstraintNode) -> set[str]:
    if not constraint.children:
        return {constraint.part}
    return {name for child in constraint.children for name in _parts(child)}


def _first_pod(constraint: ConstraintNode) -> Pod | None:
    if constraint.pods:
        return constraint.pods[0]
    return next((pod for child in constraint.children if (pod := _first_pod(child)) is not None), None)


def _first_extra(constraint: ConstraintNode) -> Pod | None:
    if constraint.extras:
        return constraint.extras[0]
    return next((pod for child in constraint.children if (pod := _first_extra(child)) is not None), None)
