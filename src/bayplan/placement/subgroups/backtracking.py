"""Domains for everybody who has to stay together, found by a search that takes a step back where it has to.

Knots choose one after the other, each the tightest domain that could hold it. Nobody chooses a domain that
is too full for all who chose it and what lies inside, so for pods that are all alike every choice that comes
to an end is a place. If none does, the search has tried everything, unless it ran out of steps.
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
LOAD_MAX = 2**62  # more than all nodes have of anything


class SearchOutcome(Enum):
    """How a search ended."""

    YES = "yes"
    NO = "no"
    OUT_OF_STEPS = "out of steps"


@dataclass(slots=True, eq=False)
class DomainChoice:
    """A knot that is to choose a domain."""

    constraint: ConstraintNode
    parent: int  # the choice inside whose domain it is, by position; ROOT: none
    load: Ints
    required: list[
        tuple[ConstraintNode, int]
    ]  # those right below that must have a domain of their own, alike ones counted
    twins: int = 0  # how many that are alike follow it at once
    is_twin: bool = False  # it is like the one before


@dataclass(slots=True, eq=False)
class Frame:
    """A choice that is being made."""

    options: Iterator[Area]
    chosen: Area | None = None
    barred: set[Area] = field(default_factory=set)  # those like it before have tried these in vain
    spent: set[Area] = field(default_factory=set)  # and so did it


class DomainSearch:
    """One search. Once it has found something, `assigned` says who sits in which row, `places` what each knot
    (by identity) has chosen, and the terrain is as it is with them."""

    def __init__(
        self,
        capacity: TopologyCapacity,
        root: ConstraintNode,
        profile: Profile,
        steps: StepBudget,
        *,
        preferences: bool = True,
    ) -> None:
        self.capacity, self.root, self.profile, self.steps, self.preferences = (
            capacity,
            root,
            profile,
            steps,
            preferences,
        )
        kinds = len(capacity.needs)
        self.weights = np.eye(kinds, dtype=np.int64)
        if kinds == 1:
            amounts, each, self.leads = capacity.amount(0)[None], capacity.needs[:, capacity.leads], [kinds]
        else:  # pods that differ compete for amounts
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
        self.furthest = 0  # the choice that nobody got beyond
        self.assigned: list[tuple[Pod, int]] = []
        self.places: dict[int, Area] = {}

    # ── whose turn it is ───────────────────────────────────────────────────────────────────────────

    def _order_choices(self, constraint: ConstraintNode, parent: int) -> None:
        """Choices in the order of the tree: outer before inner ones, those with most pods first."""
        below = [child for child in self._constrained(constraint) if child.need.any()]
        below.sort(
            key=lambda one: (
                not one.is_pinned,
                one.strength is LocalityStrength.PREFERRED,
                -int(one.need.sum()),
            )
        )
        for child in below:
            required: dict[object, tuple[ConstraintNode, int]] = {}
            for inner in self._required(child):
                known = required.get(_likeness(inner))
                required[_likeness(inner)] = (inner, 1 if known is None else known[1] + 1)
            made = DomainChoice(child, parent, self._load(child), list(required.values()))
            before = self.order[-1] if self.order else None
            alone = not self._constrained(child) and not child.bound_rows
            if (
                before is not None
                and before.parent == parent
                and alone
                and not self._constrained(before.constraint)
            ):
                made.is_twin = not before.constraint.bound_rows and _likeness(before.constraint) == _likeness(
                    child
                )
            self.order.append(made)
            self._order_choices(child, len(self.order) - 1)
        run = 0
        for choice in reversed(self.order if parent == ROOT else ()):
            choice.twins = run
            run = run + 1 if choice.is_twin else 0

    def _constrained(self, constraint: ConstraintNode) -> list[ConstraintNode]:
        """The nearest below that stay together."""
        found: list[ConstraintNode] = []
        for child in constraint.children:
            found += [child] if child.strength is not LocalityStrength.NONE else self._constrained(child)
        return found

    def _required(self, constraint: ConstraintNode) -> list[ConstraintNode]:
        """The nearest below that must have a domain, and nobody says yet which."""
        found: list[ConstraintNode] = []
        for child in constraint.children:
            if child.strength is LocalityStrength.REQUIRED and child.need.any():
                found += [] if child.bound_rows else [child]
            else:
                found += self._required(child)
        return found

    def _load(self, constraint: ConstraintNode) -> Ints:
        if int(constraint.need.sum()) * self.heaviest < LOAD_MAX:
            load: Ints = constraint.need @ self.weights
            return load
        columns = self.weights.T.tolist()  # amounts that no node has: exact, and bounded only then
        sums = [min(sum(map(mul, constraint.need.tolist(), column)), LOAD_MAX) for column in columns]
        return np.array(sums, np.int64)

    # ── searching ──────────────────────────────────────────────────────────────────────────────────

    def run(self) -> SearchOutcome:
        """Choose for everybody."""
        if not self._fits_at_all():
            return SearchOutcome.NO
        self._order_choices(self.root, ROOT)
        self.deepest = max((choice.constraint.level for choice in self.order), default=-1)
        while True:
            if len(self.frames) == len(self.order):
                if self._packed():
                    return SearchOutcome.YES
            else:
                self._open()
            if self.steps.left < 0:
                return SearchOutcome.OUT_OF_STEPS
            while self.frames and not self._next():
                self.frames.pop()
            if self.steps.left < 0:
                return SearchOutcome.OUT_OF_STEPS
            if not self.frames:
                return SearchOutcome.NO

    def area(self, at: int) -> Area:
        """What a choice has chosen."""
        return EVERYWHERE if at == ROOT else self.frames[at].chosen or EVERYWHERE

    def _open(self) -> None:
        at = len(self.frames)
        self.furthest = max(self.furthest, at)
        barred: set[Area] = set()
        if self.order[at].is_twin:
            before = self.frames[at - 1]
            barred = before.barred | before.spent
        self.frames.append(Frame(self._options(at, barred), barred=barred))

    def _next(self) -> bool:
        """Go on to the next option of the last choice, if there is one."""
        frame, at = self.frames[-1], len(self.frames) - 1
        if frame.chosen is not None:
            self._count(at, frame.chosen, 1)
            frame.spent.add(frame.chosen)
            frame.chosen = None
        found = next(frame.options, None)
        if found is None:
            return False
        self.steps.left -= 1
        frame.chosen = found
        self._count(at, found, -1)
        return True

    def _count(self, at: int, area: Area, sign: int) -> None:
        """A choice takes room in its domain, and in those around it up to its parent's."""
        choice = self.order[at]
        level, domain = area
        outer = self.area(choice.parent)[0]
        for above in range(outer + 1, level + 1):
            here = int(self.capacity.above(level, np.array([domain]), above)[0]) if above < level else domain
            self.slack[above][:, here] += sign * choice.load

    # ── options ────────────────────────────────────────────────────────────────────────────────────

    def _options(self, at: int, barred: set[Area]) -> Iterator[Area]:
        choice, outer = self.order[at], self.area(self.order[at].parent)
        constraint = choice.constraint
        if constraint.strength is LocalityStrength.REQUIRED:
            yield from (
                self._at_level(choice, constraint.level, outer, barred)
                if constraint.level > outer[0]
                else [outer]
            )
            return
        if constraint.strength is LocalityStrength.AUTO or self.preferences:
            for level in range(constraint.level, outer[0], -1):
                yield from self._at_level(choice, level, outer, barred)
        if constraint.strength is LocalityStrength.PREFERRED or outer[0] >= 0:
            yield outer

    def _at_level(self, choice: DomainChoice, level: int, outer: Area, barred: set[Area]) -> Iterator[Area]:
        first, last = self.capacity.domains(level, outer)
        if choice.constraint.bound_rows:
            pin = common_domain(self.capacity, level, choice.constraint.bound_rows)
            if pin is None or not first <= pin < last:
                return
            first, last = pin, pin + 1
        fits = self._fitting(choice.constraint, choice.load, choice.required, level, outer, (first, last))
        for tried, domain in barred:
            if tried == level and first <= domain < last:
                fits[domain - first] = False
        if choice.twins and choice.constraint.strength is LocalityStrength.REQUIRED:
            units = self._units(choice.load, level, slice(first, last))
            if int(units[fits].sum()) <= choice.twins:
                return
        found = self._in_order(choice.constraint, np.flatnonzero(fits) + first, level, outer)
        if len(self.weights) == 1 and level >= self.deepest:
            found = self._unlike(found, level)
        for domain in found.tolist():
            yield level, domain

    def _in_order(self, constraint: ConstraintNode, domains: Ints, level: int, outer: Area) -> Ints:
        """The tightest first, seen from the top: what is wide open stays so for those who need it.

        Of a segment whose pods come one by one the first should not be where the last has no room. Before all
        come domains in which those who would rather be nearer to each other can be.
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
            rooms.append(-self._could_grant(preference, level)[domains])
        return domains[np.lexsort(rooms)]

    def _could_grant(self, preference: ConstraintNode, level: int) -> Ints:
        """By domain of a level, 1 if one inside it holds all of a knot that would rather be together."""
        fits: Bools = np.logical_and.reduce(
            self.slack[preference.level] >= self._load(preference)[:, None], axis=0
        )
        return np.minimum(self.capacity.gathered(fits.astype(np.int64), preference.level, level), 1)

    def _unlike(self, domains: Ints, level: int) -> Ints:
        """One of each sort: what differs in nothing but its name need not be tried twice."""
        room = self.slack[level][0, domains]
        around = self.capacity.above(level, domains, level - 1) if level > 0 else np.zeros_like(domains)
        _, firsts = np.unique(np.stack((room, around)), axis=1, return_index=True)
        return domains[np.sort(firsts)]

    def _fitting(
        self, constraint: ConstraintNode, load: Ints, required: list[tuple[ConstraintNode, int]], level: int,
        outer: Area, run: tuple[int, int],
    ) -> Bools:  # fmt: skip
        """Which of a run of domains may hold a knot: all of it by count, and each of those inside."""
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
        """How often a load goes into each domain."""
        asked = np.flatnonzero(load)
        slack = self.slack[level][asked, part]
        units: Ints = np.maximum(slack // load[asked][:, None], 0).min(axis=0)
        return units

    def _units_below(self, inner: ConstraintNode, level: int) -> Ints:
        """By domain of a level: how many knots like this one the domains inside hold, each by itself."""
        units = self._units(self._load(inner), inner.level)
        return self.capacity.gathered(units, inner.level, level)

    def _fits_at_all(self) -> bool:
        """Whether the whole gang may fit by a plain count, and each that must have a domain has one."""
        if (self.slack[-1][:, 0] < self._load(self.root)).any():
            return False
        counted: dict[object, tuple[ConstraintNode, int]] = {}
        for inner in self._required(self.root):
            known = counted.get(_likeness(inner))
            counted[_likeness(inner)] = (inner, 1 if known is None else known[1] + 1)
        return all(
            int(self._units(self._load(inner), inner.level).sum()) >= count
            for inner, count in counted.values()
        )

    # ── an end ─────────────────────────────────────────────────────────────────────────────────────

    def _packed(self) -> bool:
        """Put the pods on rows; those that are alike always find some."""
        places = self._sorted_places()
        jobs: list[PackingJob] = []
        _collect(self.root, EVERYWHERE, places, jobs)
        found = pack(self.capacity, jobs, self.steps, self.profile)
        if found is None:
            return False
        self.assigned, self.places = found, places
        return True

    def _sorted_places(self) -> dict[int, Area]:
        """What was chosen, by knot; those who are alike stand in the order of the topology."""
        places: dict[int, Area] = {}
        at = 0
        while at < len(self.order):
            stop = at + self.order[at].twins + 1
            chosen = sorted(self.area(one) for one in range(at, stop))
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
    """The leaves below with their areas, each with the narrowest wish around it that was not granted."""
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


def _likeness(constraint: ConstraintNode) -> object:
    """What those have in common that can change places."""
    return constraint.strength, constraint.level, constraint.need.tobytes()
