"""Flavor assignment: for each resource of a gang the first flavor that fits, or the cheapest to make fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bayplan.model.gang import AUTO, Group, PodSet
from bayplan.model.node import PODS
from bayplan.model.node_rules import NodeRules, Requirement
from bayplan.model.queued_gang import PodSetAdmission, QueuedGang, QuotaRequest
from bayplan.model.quota import (
    Cell,
    Flavor,
    FlavorPreference,
    FlavorSearchPolicy,
    Fungibility,
    Queue,
    ResourceGroup,
    VictimPolicy,
)
from bayplan.model.rejection import (
    FlavorAttempt,
    FlavorMode,
    Obstacle,
    ObstacleKind,
    RejectionDetail,
    RejectionReason,
)
from bayplan.placement.cluster.node_table import first_repelling
from bayplan.scheduling.admission.candidates import lowest_fit
from bayplan.scheduling.admission.offer import (
    CHANCES,
    FlavorChoice,
    Mode,
    Offer,
    PodSetOffer,
    add_part,
    mode_of,
    more_severe,
    settle_reason,
)
from bayplan.scheduling.admission.preemption import preemption_prospect
from bayplan.scheduling.admission.simulation import AdmissionSimulation
from bayplan.state.admission.quota_tree import QuotaAccount

NOWHERE_BORROW = 1 << 30


@dataclass(frozen=True, slots=True, eq=False)
class FlavorQuery:
    """One gang that requests quota from one queue, with the limits of the search."""

    simulation: AdmissionSimulation
    queued_gang: QueuedGang
    queue: Queue
    counts: Mapping[str, int]  # pods per pod set, if partial admission is tried
    pinned: Mapping[str, Mapping[str, str]]  # flavors that an earlier search in this cycle chose
    progress: Sequence[Mapping[str, int]]  # where the last flavor search of this gang ended
    before: QueuedGang | None = None  # an earlier version of the gang, which this one replaces

    @property
    def account(self) -> QuotaAccount:
        return self.simulation.account(self.queue.name)

    def admission_of(self, pod_set: str) -> PodSetAdmission | None:
        """The admission that a pod set already has."""
        return self.queued_gang.admission.pod_set(pod_set) if self.queued_gang.admission is not None else None

    def previous_admission_of(self, pod_set: str) -> PodSetAdmission | None:
        """The admission of the same pod set in the earlier version of the gang."""
        return self.before.admission.pod_set(pod_set) if self.before and self.before.admission else None


def quota_offer(query: FlavorQuery) -> Offer:
    """The best flavors by quota alone, before any placement."""
    offer = Offer()
    asks = {ask.name: (index, ask) for index, ask in enumerate(query.queued_gang.requests)}
    for members in _flavor_groups(query.queued_gang):
        group = [_Member(*asks[p.name], p, _part(query, asks[p.name][1])) for p in members]
        _choose(query, offer, group)
        for member in group:
            had = query.previous_admission_of(member.part.name)
            add_part(offer, member.part, had.usage if had else {})
        if any(_failed(member.part) for member in group):
            break
    settle_reason(offer, query.queue)
    return offer


@dataclass(slots=True)
class _Member:
    index: int
    ask: QuotaRequest
    pod_set: PodSet
    part: PodSetOffer


def _failed(part: PodSetOffer) -> bool:
    return part.fatal is not None or bool(part.requests and not part.choices)


def _flavor_groups(queued_gang: QueuedGang) -> Iterator[list[PodSet]]:
    """Groups of pod sets that must use the same flavors; every other pod set by itself."""
    for member in queued_gang.gang.root.members:
        yield list(member.pod_sets()) if isinstance(member, Group) else [member]


def _part(query: FlavorQuery, ask: QuotaRequest) -> PodSetOffer:
    given = query.admission_of(ask.name)
    if given is not None:
        choices = {resource: FlavorChoice(flavor, Mode.FIT) for resource, flavor in given.flavors.items()}
        part = PodSetOffer(
            ask.name, given.count, dict(given.usage), choices, delayed=given.delayed, place=given.assignment
        )
    else:
        count = query.counts.get(ask.name, ask.count)
        part = PodSetOffer(ask.name, count, {name: each * count for name, each in ask.per_pod.items()})
    if query.queue.group_of(PODS) is not None:
        part.requests[PODS] = part.count
    return part


def _choose(query: FlavorQuery, offer: Offer, group: list[_Member]) -> None:
    """Flavors for all resources that a group of pod sets requests."""
    asked: dict[str, int] = {}
    for member in group:
        for name, amount in member.part.requests.items():
            asked[name] = asked.get(name, 0) + amount
    chosen: dict[str, FlavorChoice] = {}
    for member in group:
        chosen |= member.part.choices
    obstacles: list[RejectionDetail] = []
    attempts: dict[str, FlavorAttempt] = {}
    failed = False
    for resource in sorted(asked):
        covering = query.queue.group_of(resource)
        ignored = not asked[resource] or query.simulation.profile.ignore_uncovered
        if resource in chosen or (covering is None and ignored):
            continue
        if covering is None:
            obstacles, failed = [Obstacle(ObstacleKind.NOT_COVERED, resource=resource)], True
            break
        search = _Search(query, group, covering, resource, asked, offer.quota)
        found, hindered = search.run()
        _merge(attempts, search.attempts, covering, resource)
        if not found:
            obstacles, failed = hindered, True
            break
        chosen |= found
        obstacles += hindered
    tried = tuple(attempts[name] for name in sorted(attempts))
    for member in group:
        member.part.choices = {} if failed else _part_of_group(query, member, group, chosen)
        member.part.obstacles = list(obstacles)
        member.part.attempts = tried


def _part_of_group(
    query: FlavorQuery, member: _Member, group: list[_Member], chosen: Mapping[str, FlavorChoice]
) -> dict[str, FlavorChoice]:
    """Of the flavors of a group, those of the resources that one pod set requests.

    A pod set that requests nothing still gets the flavor of its group.
    """
    if member.part.requests:
        return {name: replace(chosen[name]) for name in member.part.requests if name in chosen}
    if len(group) == 1:
        return {}
    return {name: replace(c) for name, c in chosen.items() if query.simulation.overlay.has_topology(c.flavor)}


def _merge(
    known: dict[str, FlavorAttempt], more: list[FlavorAttempt], group: ResourceGroup, resource: str
) -> None:
    """Combine the attempts at one flavor for several resources: the worst result counts."""
    for attempt in more:
        old = known.get(attempt.flavor)
        if old is None:
            known[attempt.flavor] = attempt
            continue
        possible = min(
            (c for c in (old.preemption_mode, attempt.preemption_mode) if c), key=CHANCES.index, default=None
        )
        known[attempt.flavor] = FlavorAttempt(
            attempt.flavor,
            min(old.mode, attempt.mode, key=mode_of),
            max(old.borrow, attempt.borrow),
            (*old.obstacles, *(o for o in attempt.obstacles if o not in old.obstacles)),
            more_severe(old.reason, attempt.reason),
            possible,
        )


class _Search:
    """One search through the flavors of a resource group."""

    def __init__(
        self,
        query: FlavorQuery,
        group: list[_Member],
        covering: ResourceGroup,
        resource: str,
        asked: Mapping[str, int],
        used: Mapping[Cell, int],
    ) -> None:
        self.query, self.group, self.covering, self.used = query, group, covering, used
        self.resource = resource
        self.requests = {name: amount for name, amount in sorted(asked.items()) if name in covering.resources}
        self.attempts: list[FlavorAttempt] = []
        self.obstacles: list[RejectionDetail] = []

    def run(self) -> tuple[dict[str, FlavorChoice], list[RejectionDetail]]:
        """The flavor choices, and the obstacles of the flavors that were not chosen."""
        rules, flavors = self.query.queue.fungibility, self.covering.flavors
        best: dict[str, FlavorChoice] = {}
        best_grade = (FlavorMode.NONE, NOWHERE_BORROW)
        last = -1
        for index in range(self._start(), len(flavors)):
            last = index
            if not self._is_pinned(flavors[index]) or not self._suits(flavors[index]):
                continue
            choices, grade = self._price(flavors[index])
            if not _tries_next(grade, rules):
                best, best_grade = choices, grade
                break
            if _is_better(grade, best_grade, rules):
                best, best_grade = choices, grade
        for choice in best.values():
            choice.tried = -1 if last == len(flavors) - 1 else last
        return best, [] if best_grade[0] is FlavorMode.FIT else self.obstacles

    def _start(self) -> int:
        """The flavor after the last one tried, if any is left."""
        index, progress = self.group[0].index, self.query.progress
        return progress[index].get(self.resource, -1) + 1 if index < len(progress) else 0

    def _is_pinned(self, flavor: str) -> bool:
        pinned = self.query.pinned
        if not pinned or any(pinned.get(m.part.name, {}).get(self.resource) == flavor for m in self.group):
            return True
        self.obstacles.append(Obstacle(ObstacleKind.NOT_NOMINATED, flavor, self.resource))
        return False

    def _suits(self, flavor: str) -> bool:
        """Whether the pods could run on nodes of the flavor at all: taints, affinity and topology."""
        for member in self.group:
            detail = _unsuitable(self.query, member, flavor, self.covering)
            if detail is not None:
                self.obstacles.append(detail)
                self.attempts.append(
                    FlavorAttempt(flavor, FlavorMode.NONE, 0, (detail,), RejectionReason.NO_FLAVOR)
                )
                return False
        return True

    def _price(self, flavor: str) -> tuple[dict[str, FlavorChoice], tuple[FlavorMode, int]]:
        """The mode and borrowing height if all resources came from this flavor."""
        rules = self.query.queue.fungibility
        worst: tuple[FlavorMode, int] = (FlavorMode.FIT, 0)
        choices: dict[str, FlavorChoice] = {}
        details: list[RejectionDetail] = []
        reason: RejectionReason | None = None
        limit = 0
        for name, amount in self.requests.items():
            chance, borrow, detail, says = self._fit((flavor, name), amount - self._held(name))
            limit = max(limit, borrow)
            if detail is not None:
                details.append(detail)
                reason = more_severe(reason, says)
            if _is_better(worst, (chance, borrow), rules):
                worst = (chance, borrow)
            if worst[0] is not FlavorMode.NONE:
                choices[name] = FlavorChoice(flavor, mode_of(chance), borrow)
        self.obstacles += details
        possible = (
            worst[0] if worst[0] in (FlavorMode.NO_VICTIMS, FlavorMode.PREEMPT, FlavorMode.RECLAIM) else None
        )
        self.attempts.append(FlavorAttempt(flavor, worst[0], limit, tuple(details), reason, possible))
        return choices, worst

    def _elsewhere_before(self, flavor: str, resource: str) -> Obstacle | None:
        """Whether a gang that grows uses another flavor for this resource already; it has to stay with it."""
        for member in self.group:
            had = self.query.previous_admission_of(member.part.name)
            if had is not None and had.flavors.get(resource, "") != flavor:
                was = had.flavors.get(resource, "")
                return Obstacle(ObstacleKind.OTHER_FLAVOR_BEFORE, flavor, resource, flavors=(was,))
        return None

    def _held(self, resource: str) -> int:
        given = (self.query.previous_admission_of(member.part.name) for member in self.group)
        return sum(had.usage.get(resource, 0) for had in given if had is not None)

    def _fit(
        self, cell: Cell, amount: int
    ) -> tuple[FlavorMode, int, RejectionDetail | None, RejectionReason | None]:
        """Mode in which the amount of a cell is available, borrowing height, obstacle and reason."""
        query, account = self.query, self.query.account
        elsewhere = self._elsewhere_before(*cell)
        if elsewhere is not None:
            return FlavorMode.NONE, 0, elsewhere, RejectionReason.NO_FLAVOR
        before = self.used.get(cell, 0)
        needs = before + amount
        limit = account.maximum(cell)
        if needs > limit:
            facts = (before, amount, limit)
            detail = Obstacle(ObstacleKind.TOO_MUCH, *cell, amounts=facts)
            return FlavorMode.NONE, 0, detail, RejectionReason.NEVER_ENOUGH_QUOTA
        borrow, within = lowest_fit(account, cell, needs)
        available = account.available(cell)
        if needs <= available:
            return FlavorMode.FIT, borrow, None, None
        short = Obstacle(ObstacleKind.SHORT, *cell, amounts=(needs - available,))
        if account.quota(cell).nominal >= needs or within or _borrows_by_force(query.simulation, query.queue):
            chance, borrow = preemption_prospect(
                query.simulation, query.queued_gang, query.queue, cell, needs
            )
            return chance, borrow, short, None
        return FlavorMode.NONE, borrow, short, RejectionReason.NO_QUOTA_NOW


def _borrows_by_force(simulation: AdmissionSimulation, queue: Queue) -> bool:
    fair = simulation.profile.fair_sharing and queue.preemption.reclaim is not VictimPolicy.NEVER
    return queue.preemption.while_borrowing or fair


def _tries_next(grade: tuple[FlavorMode, int], rules: Fungibility) -> bool:
    """Whether the next flavor may be better, by the fungibility rules of the queue."""
    chance, borrow = grade
    if chance in (FlavorMode.NONE, FlavorMode.NO_VICTIMS):
        return True
    if (
        chance in (FlavorMode.PREEMPT, FlavorMode.RECLAIM)
        and rules.when_preempting is FlavorSearchPolicy.CONTINUE
    ):
        return True
    return borrow > 0 and rules.when_borrowing is FlavorSearchPolicy.CONTINUE


def _is_better(one: tuple[FlavorMode, int], other: tuple[FlavorMode, int], rules: Fungibility) -> bool:
    """Whether one flavor is preferred to another. A flavor that does not fit now ranks below all that do."""
    if one[0] is FlavorMode.NONE or other[0] is FlavorMode.NONE:
        return one[0] is not FlavorMode.NONE
    idle = [grade[0] is FlavorMode.NO_VICTIMS for grade in (one, other)]
    if idle[0] != idle[1]:
        return idle[1]
    left, right = ((CHANCES.index(grade[0]), -grade[1]) for grade in (one, other))
    return left[::-1] > right[::-1] if rules.preference is FlavorPreference.PREEMPT else left > right


def _unsuitable(query: FlavorQuery, member: _Member, name: str, covering: ResourceGroup) -> Obstacle | None:
    """Why the pods cannot run on nodes of the flavor."""
    flavor = query.simulation.flavors.get(name)
    if flavor is None:
        return Obstacle(ObstacleKind.FLAVOR_UNKNOWN, name)
    what = _topology_clash(query, member, flavor, covering)
    if what is not None:
        return Obstacle(what, name)
    rules = member.pod_set.rules
    taint = first_repelling(flavor.taints, rules.tolerations + flavor.tolerations)
    if taint is not None:
        return Obstacle(ObstacleKind.TAINT, name, taint=taint)
    return None if _accepts(rules, flavor) else Obstacle(ObstacleKind.AFFINITY, name)


def _topology_clash(
    query: FlavorQuery, member: _Member, flavor: Flavor, covering: ResourceGroup
) -> ObstacleKind | None:
    simulation, rooms = query.simulation, query.simulation.overlay
    if not member.ask.topology:
        if simulation.topology_only(query.queue):
            return None
        return ObstacleKind.ONLY_TOPOLOGY if flavor.topology else None
    if not flavor.topology:
        shared = any(name in covering.resources for name in member.pod_set.requests)
        return ObstacleKind.WITHOUT_TOPOLOGY if shared else None
    if not rooms.has_topology(flavor.name):
        return ObstacleKind.TOPOLOGY_UNKNOWN
    known = set(rooms.levels(flavor.name))
    return None if levels_of(member.pod_set) <= known else ObstacleKind.LEVEL_MISSING


def levels_of(pod_set: PodSet) -> set[str]:
    """The levels that a pod set names, except those that every topology has."""
    named = {pod_set.locality.required, pod_set.locality.preferred} | {s.level for s in pod_set.segments}
    return {level for level in named if level and level != AUTO}


def _accepts(rules: NodeRules, flavor: Flavor) -> bool:
    """Whether nodes of the flavor can satisfy the rules, judged by the labels of the flavor alone."""
    labels = flavor.labels
    if any(labels[key] != value for key, value in rules.selector if key in labels):
        return False
    terms: list[list[Requirement]] = []
    for term in rules.affinity or ():
        known = [r for r in term.requirements if not r.field and r.key in labels]
        if not known:
            return True  # this alternative does not mention labels of the flavor
        terms.append(known)
    return not terms or any(all(r.accepts(labels.get(r.key)) for r in known) for known in terms)
