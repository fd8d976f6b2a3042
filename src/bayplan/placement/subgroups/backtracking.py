"""Chooses a domain for every node of the constraint tree, by a backtracking search.

Constraints choose one after the other, each the tightest domain that may hold it. A domain is never chosen
beyond its capacity, counted with all choices made inside it, so for identical pods a complete set of choices
is always a placement. If there is none, the search has tried every choice, unless it ran out of steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from operator import mul

import numpy as np

from bayplan.model.pod import Pod
from bayplan.model.profile import Profile, Strategy
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.subgroups.capacity import EVERYWHERE, Area, TopologyCapacity, common_domain
from bayplan.placement.subgroups.constraint_tree import ConstraintNode, LocalityStrength
from bayplan.placement.subgroups.packing import PackingJob, StepBudget, pack

ROOT = -1
LOAD_MAX = 2**62  # more than all nodes have of any resource


class SearchOutcome(Enum):
    """How a search ended."""

    FOUND = "found"
    NOT_FOUND = "not found"  # proven: every choice was tried
    OUT_OF_STEPS = "out of steps"


@dataclass(slots=True, eq=False)
class DomainChoice:
    """A constraint for which a domain is chosen."""

    constraint: ConstraintNode
    parent: int  # position of the choice whose domain contains this one; ROOT: none
    load: Ints
    required: list[tuple[ConstraintNode, int]]  # the nearest below; identical ones once, with their number
    twins: int = 0  # how many identical constraints follow directly
    is_twin: bool = False  # it is identical to the one before


@dataclass(slots=True, eq=False)
class Frame:
    """A choice in progress: its remaining options."""

    options: Iterator[Area]
    chosen: Area | None = None
    excluded: set[Area] = field(default_factory=set)  # areas that failed for the identical choices before
    failed: set[Area] = field(default_factory=set)  # areas that failed for this choice


class DomainSearch:
    """One search. After success, `assigned` has the row of each pod and `places` the area of each constraint
    (by identity), and the capacity has these pods subtracted."""

    def __init__(
        self,
        capacity: TopologyCapacity,
        root: ConstraintNode,
        profile: Profile,
        steps: StepBudget,
        *,
        preferences: bool = True,
    ) -> None:
        self.capacity, self.root, self.profile = capacity, root, profile
        self.steps, self.preferences = steps, preferences
        kinds = len(capacity.needs)
        self.weights = np.eye(kinds, dtype=np.int64)
        if kinds == 1:
            amounts, each, self.leads = capacity.amount(0)[None], capacity.needs[:, capacity.leads], [kinds]
        else:  # different pods compete for amounts
            used = (capacity.caps > 0).any(axis=0)
            amounts, each = np.where(used, np.maximum(capacity.free, 0), 0), capacity.needs
            self.leads = [kinds + lead for lead in capacity.leads]
        self.weights = np.concatenate((self.weights, each), axis=1)
        self.heaviest = int(self.weights.max(initial=0))
        base = np.concatenate((capacity.caps, amounts))
        levels = range(-1, capacity.rows_level)
        self.slack: dict[int, Ints] = {level: capacity.summed(base, level) for level in levels}
        self.order: list[DomainChoice] = []
        self.deepest = -1
        self.frames: list[Frame] = []
        self.furthest = 0  # the last choice that the search reached
        self.assigned: list[tuple[Pod, int]] = []
        self.places: dict[int, Area] = {}

    # ── order of choices ───────────────────────────────────────────────────────────────────────────

    def _order_choices(self, constraint: ConstraintNode, parent: int) -> None:
        """Order the choices: outer before inner, pinned ones first, preferred ones last, most pods first."""
        below = [child for child in self._constrained(constraint) if child.need.any()]
        below.sort(
            key=lambda child: (
                not child.is_pinned,
                child.strength is LocalityStrength.PREFERRED,
                -int(child.need.sum()),
            )
        )
        for child in below:
            required: dict[object, tuple[ConstraintNode, int]] = {}
            for inner in self._required(child):
                counted = required.get(_equivalence(inner))
                required[_equivalence(inner)] = (inner, 1 if counted is None else counted[1] + 1)
            choice = DomainChoice(child, parent, self._load(child), list(required.values()))
            before = self.order[-1] if self.order else None
            alone = not self._constrained(child) and not child.bound_rows
            if before is not None and before.parent == parent and alone:
                last = before.constraint
                if not self._constrained(last) and not last.bound_rows:
                    choice.is_twin = _equivalence(last) == _equivalence(child)
            self.order.append(choice)
            self._order_choices(child, len(self.order) - 1)
        run = 0
        for choice in reversed(self.order if parent == ROOT else ()):
            choice.twins = run
            run = run + 1 if choice.is_twin else 0

    def _constrained(self, constraint: ConstraintNode) -> list[ConstraintNode]:
        """The nearest constraints below that name a locality."""
        nearest: list[ConstraintNode] = []
        for child in constraint.children:
            nearest += [child] if child.strength is not LocalityStrength.NONE else self._constrained(child)
        return nearest

    def _required(self, constraint: ConstraintNode) -> list[ConstraintNode]:
        """The nearest required constraints below whose domain is not fixed by bound pods."""
        nearest: list[ConstraintNode] = []
        for child in constraint.children:
            if child.strength is LocalityStrength.REQUIRED and child.need.any():
                nearest += [] if child.bound_rows else [child]
            else:
                nearest += self._required(child)
        return nearest

    def _load(self, constraint: ConstraintNode) -> Ints:
        if int(constraint.need.sum()) * self.heaviest < LOAD_MAX:
            load: Ints = constraint.need @ self.weights
            return load
        columns = self.weights.T.tolist()  # amounts beyond any node: computed exactly, then capped
        sums = [min(sum(map(mul, constraint.need.tolist(), column)), LOAD_MAX) for column in columns]
        return np.array(sums, np.int64)

    # ── searching ──────────────────────────────────────────────────────────────────────────────────

    def run(self) -> SearchOutcome:
        """Choose a domain for every constraint and a row for every pod."""
        if not self._may_fit():
            return SearchOutcome.NOT_FOUND
        self._order_choices(self.root, ROOT)
        self.deepest = max((choice.constraint.level for choice in self.order), default=-1)
        while True:
            if len(self.frames) == len(self.order):
                if self._pack():
                    return SearchOutcome.FOUND
            else:
                self._open()
            if self.steps.left < 0:
                return SearchOutcome.OUT_OF_STEPS
            while self.frames and not self._next():
                self.frames.pop()
            if self.steps.left < 0:
                return SearchOutcome.OUT_OF_STEPS
            if not self.frames:
                return SearchOutcome.NOT_FOUND

    def area(self, at: int) -> Area:
        """The area of a choice."""
        return EVERYWHERE if at == ROOT else self.frames[at].chosen or EVERYWHERE

    def _open(self) -> None:
        at = len(self.frames)
        self.furthest = max(self.furthest, at)
        excluded: set[Area] = set()
        if self.order[at].is_twin:
            before = self.frames[at - 1]
            excluded = before.excluded | before.failed
        self.frames.append(Frame(self._options(at, excluded), excluded=excluded))

    def _next(self) -> bool:
        """Advance the last choice to its next option, if there is one."""
        frame, at = self.frames[-1], len(self.frames) - 1
        if frame.chosen is not None:
            self._count(at, frame.chosen, 1)
            frame.failed.add(frame.chosen)
            frame.chosen = None
        option = next(frame.options, None)
        if option is None:
            return False
        self.steps.left -= 1
        frame.chosen = option
        self._count(at, option, -1)
        return True

    def _count(self, at: int, area: Area, sign: int) -> None:
        """Subtract (or add back) a choice in its domain and in the domains above, up to its parent's."""
        choice = self.order[at]
        level, domain = area
        outer = self.area(choice.parent)[0]
        for above in range(outer + 1, level + 1):
            here = int(self.capacity.above(level, np.array([domain]), above)[0]) if above < level else domain
            self.slack[above][:, here] += sign * choice.load

    # ── options ────────────────────────────────────────────────────────────────────────────────────

    def _options(self, at: int, excluded: set[Area]) -> Iterator[Area]:
        choice, outer = self.order[at], self.area(self.order[at].parent)
        constraint = choice.constraint
        if constraint.strength is LocalityStrength.REQUIRED:
            yield from (
                self._at_level(choice, constraint.level, outer, excluded)
                if constraint.level > outer[0]
                else [outer]
            )
            return
        if constraint.strength is LocalityStrength.AUTO or self.preferences:
            for level in range(constraint.level, outer[0], -1):
                yield from self._at_level(choice, level, outer, excluded)
        if constraint.strength is LocalityStrength.PREFERRED or outer[0] >= 0:
            yield outer

    def _at_level(self, choice: DomainChoice, level: int, outer: Area, excluded: set[Area]) -> Iterator[Area]:
        first, last = self.capacity.domains(level, outer)
        if choice.constraint.bound_rows:
            pin = common_domain(self.capacity, level, choice.constraint.bound_rows)
            if pin is None or not first <= pin < last:
                return
            first, last = pin, pin + 1
        fits = self._fitting(choice.constraint, choice.load, choice.required, level, outer, (first, last))
        for barred_level, domain in excluded:
            if barred_level == level and first <= domain < last:
                fits[domain - first] = False
        if choice.twins and choice.constraint.strength is LocalityStrength.REQUIRED:
            units = self._units(choice.load, level, slice(first, last))
            if int(units[fits].sum()) <= choice.twins:
                return
        ordered = self._in_order(choice.constraint, np.flatnonzero(fits) + first, level, outer)
        if len(self.weights) == 1 and level >= self.deepest:
            ordered = self._distinct(ordered, level)
        for domain in ordered.tolist():
            yield level, domain

    def _in_order(self, constraint: ConstraintNode, domains: Ints, level: int, outer: Area) -> Ints:
        """Order domains tightest first, compared from the top level down, to keep large domains free.

        For an elastic segment, domains with room for all of its pods come before the others. Before all come
        domains in which the preferred locality inside can be satisfied.
        """
        kind = int(np.argmax(constraint.need))
        rooms: list[Ints] = []
        for above in range(level, outer[0], -1):
            here = self.capacity.above(level, domains, above) if above < level else domains
            rooms += [self.slack[above][kind, here], self.slack[above][self.leads[kind], here]]
        if self.profile.required is Strategy.MOST_FREE:
            rooms = [-room for room in rooms]
        if constraint.size and not constraint.bound_rows:
            rooms.append(self.slack[level][kind, domains] < constraint.size)
        preference = constraint.children[0] if len(constraint.children) == 1 else constraint
        if (
            self.preferences
            and preference.strength is LocalityStrength.PREFERRED
            and preference.level > level
            and not preference.bound_rows
        ):
            rooms.append(-self._can_satisfy(preference, level)[domains])
        return domains[np.lexsort(rooms)]

    def _can_satisfy(self, preference: ConstraintNode, level: int) -> Ints:
        """By domain of a level: 1 if a domain inside it holds all pods of a preferred constraint."""
        fits: Bools = np.logical_and.reduce(
            self.slack[preference.level] >= self._load(preference)[:, None], axis=0
        )
        return np.minimum(self.capacity.gathered(fits.astype(np.int64), preference.level, level), 1)

    def _distinct(self, domains: Ints, level: int) -> Ints:
        """One domain of each kind: domains that differ only in name need not be tried twice."""
        room = self.slack[level][0, domains]
        around = self.capacity.above(level, domains, level - 1) if level > 0 else np.zeros_like(domains)
        _, firsts = np.unique(np.stack((room, around)), axis=1, return_index=True)
        return domains[np.sort(firsts)]

    def _fitting(
        self, constraint: ConstraintNode, load: Ints, required: list[tuple[ConstraintNode, int]], level: int,
        outer: Area, run: tuple[int, int],
    ) -> Bools:  # fmt: skip
        """Which of a range of domains may hold a constraint: its pods by count, and each constraint in it."""
        part = slice(*run)
        fits: Bools = np.logical_and.reduce(self.slack[level][:, part] >= load[:, None], axis=0)
        for above in range(outer[0] + 1, level):
            around = self.capacity.above(level, np.arange(*run), above)
            fits &= np.logical_and.reduce(self.slack[above][:, around] >= load[:, None], axis=0)
        for inner, count in required:
            if inner.level > level and fits.any():
                units = self._units_below(inner, level)[part]
                fits &= units >= count
        return fits

    def _units(self, load: Ints, level: int, part: slice = slice(None)) -> Ints:
        """How many times a load fits into each domain."""
        asked = np.flatnonzero(load)
        slack = self.slack[level][asked, part]
        units: Ints = np.maximum(slack // load[asked][:, None], 0).min(axis=0)
        return units

    def _units_below(self, inner: ConstraintNode, level: int) -> Ints:
        """By domain of a level: how many constraints identical to this one fit into the domains inside."""
        units = self._units(self._load(inner), inner.level)
        return self.capacity.gathered(units, inner.level, level)

    def _may_fit(self) -> bool:
        """Whether the gang may fit by count, and every required constraint has a domain that may hold it."""
        if (self.slack[-1][:, 0] < self._load(self.root)).any():
            return False
        counted: dict[object, tuple[ConstraintNode, int]] = {}
        for inner in self._required(self.root):
            before = counted.get(_equivalence(inner))
            counted[_equivalence(inner)] = (inner, 1 if before is None else before[1] + 1)
        return all(
            int(self._units(self._load(inner), inner.level).sum()) >= count
            for inner, count in counted.values()
        )

    # ── packing ────────────────────────────────────────────────────────────────────────────────────

    def _pack(self) -> bool:
        """Assign the pods to rows; identical pods always fit."""
        places = self._sorted_places()
        jobs: list[PackingJob] = []
        _collect(self.root, EVERYWHERE, places, jobs)
        rows = pack(self.capacity, jobs, self.steps, self.profile)
        if rows is None:
            return False
        self.assigned, self.places = rows, places
        return True

    def _sorted_places(self) -> dict[int, Area]:
        """The chosen areas by constraint; identical constraints get theirs in topology order."""
        places: dict[int, Area] = {}
        at = 0
        while at < len(self.order):
            stop = at + self.order[at].twins + 1
            chosen = sorted(self.area(position) for position in range(at, stop))
            places |= {
                id(choice.constraint): area for choice, area in zip(self.order[at:stop], chosen, strict=True)
            }
            at = stop
        return places


def _collect(
    constraint: ConstraintNode,
    area: Area,
    places: dict[int, Area],
    jobs: list[PackingJob],
    preference: ConstraintNode | None = None,
) -> None:
    """Collect the leaves with their areas, each with the narrowest preference not satisfied around it."""
    area = places.get(id(constraint), area)
    if constraint.strength is LocalityStrength.PREFERRED and (
        preference is None or constraint.level >= preference.level
    ):
        preference = constraint
    if constraint.pods:
        jobs.append(
            PackingJob(
                constraint,
                area,
                preference if preference is not None and preference.level > area[0] else None,
            )
        )
    for child in constraint.children:
        _collect(child, area, places, jobs, preference)


def _equivalence(constraint: ConstraintNode) -> object:
    """A key that is equal for interchangeable constraints."""
    return constraint.strength, constraint.level, constraint.need.tobytes()
