"""Why a gang with minima has no place: the part that lacks one, and the domain that came closest."""

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
    """The facts. A part that is the whole gang has no name."""

    misfit: Misfit | None = None
    part: str = ""
    minimum: int = 0  # of the part
    fit: int = 0  # pods that would have a place
    pod: Pod | None = None  # the first of the part
    resource: str = ""  # what runs out first, if nobody asked for a domain
    unsure: bool = False


def explain_misfit(
    capacity: TopologyCapacity, snapshot: CapacitySnapshot, tree: Group, search: DomainSearch, *,
    unsure: bool = False, among_extras: bool = False,
) -> TreeMisfit:  # fmt: skip
    """Who is to blame: the first part that has no place even by itself, else the one nobody got beyond."""
    root = search.root
    names = {one.name: one.minimum for one in tree.pod_sets()}
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
    below = tuple(one for one in names if one in _parts(constraint))
    whole = constraint is root or set(below) == set(names)
    misfit = _misfit(capacity, snapshot, constraint, below, near, (fit, asked))
    return TreeMisfit(
        misfit,
        "" if whole else constraint.part,
        0 if whole else sum(names[one] for one in below),
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
    """In words of domains; None if nobody asked for one."""
    cut = next((child for child in constraint.children if child.segment), None)
    constrained = (
        constraint if constraint.strength in (LocalityStrength.REQUIRED, LocalityStrength.AUTO) else cut
    )
    if constrained is None:
        return None
    tree, (fit, asked) = snapshot.tree, held
    if not tree.rows:
        level = tree.levels[constrained.level]
        return Misfit(Code.NO_DOMAINS, names, topology=tree.topology.name, level=level, asked=asked)
    unit = int(cut.need.sum()) if cut is not None and not cut.children and cut.need.any() else 1
    near, holds, lacking = None, tuple[DomainFit, ...](), tuple[tuple[str, int], ...]()
    if constrained is constraint and area[0] >= 0:
        holds, lacking = _by_domain(capacity, snapshot, constraint, area[0])
        near = _near(capacity, snapshot, constraint, area, held)
    elif cut is not None and cut.need.any() and not fit:  # there is no place for a single segment
        best, most, size = _closest(capacity, cut, area)
        near = _near(capacity, snapshot, cut, best, (most, size)) if most < size and best[0] >= 0 else None
    return Misfit(
        Code.NO_ROOM,
        names,
        topology=tree.topology.name,
        level=tree.levels[constrained.level],
        fit=fit // unit,
        asked=-(-asked // unit),
        unit=unit,
        nearest=near,
        holds=holds,
        lacking=lacking,
        in_all=int(_held(capacity, constraint, EVERYWHERE[0])[0]),
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
    """What each domain of a level holds of a knot; if they are too many to tell, how many lack what.

    Nothing if one is set.
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
"""What pods ask for together of resources, and what is free of them by domain."""


def _lacks(capacity: TopologyCapacity, constraint: ConstraintNode, level: int) -> Lacks:
    """What weighs most comes first; nothing if all pods ask for the same resources, as they are counted then.

    They all run on processors and in memory, whether they ask for them or not.
    """
    asking = {name: {bool(capacity.needs[kind, row]) for kind in np.flatnonzero(constraint.need).tolist()}
              for row, name in enumerate(capacity.names) if name not in (CPU, MEMORY)}  # fmt: skip
    if not any(len(one) > 1 for one in asking.values()):
        return []
    found = {name: (asked, free) for name, asked, free in _totals(capacity, constraint, level)}
    return [(name, *found[name]) for name in by_weight(found)]


def _lacks_at(lacks: Lacks, domain: int) -> tuple[Lack, ...]:
    return tuple(Lack(name, asked, int(free[domain])) for name, asked, free in lacks if free[domain] < asked)


def _totals(capacity: TopologyCapacity, constraint: ConstraintNode, level: int) -> Lacks:
    """What is free counts only where one of those who ask for it may be."""
    found = []
    for row, name in enumerate(capacity.names):
        asked = sum(map(mul, constraint.need.tolist(), capacity.needs[:, row].tolist()))
        if asked:
            welcome = capacity.allowed[(constraint.need > 0) & (capacity.needs[:, row] > 0)].any(axis=0)
            free = np.where(welcome, np.maximum(capacity.free[row], 0), 0)
            found.append((name, asked, capacity.summed(free, level)))
    return found


def _scarcest(capacity: TopologyCapacity, constraint: ConstraintNode, area: Area) -> tuple[str, int]:
    """The resource that holds the fewest pods of a knot in an area, and how much one of them takes."""
    low, high = capacity.span(area)
    kind = int(np.argmax(constraint.need))
    open_rows = np.flatnonzero(capacity.allowed[kind, low:high]) + low
    found: list[tuple[int, str, int]] = []
    for row, name in enumerate(capacity.names):
        amount = int(capacity.needs[kind, row])
        if amount:
            held = int(np.maximum(capacity.free[row, open_rows] // amount, 0).sum())
            found.append((held, name, amount))
    return min(found)[1:] if found else ("", 0)


def _alone(
    capacity: TopologyCapacity, constraint: ConstraintNode, area: Area
) -> Iterator[tuple[ConstraintNode, Area]]:
    """Every knot that lacks pods, with the area it has to be in by those who stand.

    Who has to be in one domain comes before those inside, any other after them: as long as all of them have
    no place together, it is no help to know of a part.
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
    """The domain that holds most of a knot, how many pods that are, and how many are asked for."""
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
    """By domain of a level: how many pods of a knot it holds, if nobody else comes."""
    cut = [child for child in constraint.children if child.segment and child.need.any()]
    if cut and not cut[0].children and cut[0].level > level:
        size = int(cut[0].need.sum())
        kind = int(np.argmax(cut[0].need))
        room = capacity.summed(capacity.caps[kind], cut[0].level) // size * size
        return np.minimum(capacity.gathered(room, cut[0].level, level), int(constraint.need.sum()))
    total: Ints = np.zeros(1 if level < 0 else len(capacity.starts[level]), np.int64)
    kinds = np.flatnonzero(constraint.need).tolist()
    for kind in kinds:
        total = total + np.minimum(capacity.summed(capacity.caps[kind], level), constraint.need[kind])
    if (
        len(kinds) > 1 and constraint.strength is LocalityStrength.REQUIRED
    ):  # each kind may have room where not all of them have
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
