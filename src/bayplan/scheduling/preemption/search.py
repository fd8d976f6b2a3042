"""The preemption search for a gang or a single pod: as few victims of as low a priority as possible."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf

from bayplan.model.pod import Pod, PodKey
from bayplan.model.scheduling_rejection import PreemptionSearchOutcome
from bayplan.placement.cluster.topology_tree import Bools
from bayplan.scheduling.attempt.gang import AttemptRequest, attempt, domains_for, supply_of
from bayplan.scheduling.preemption.context import PreemptionContext
from bayplan.scheduling.preemption.self_preemption import fewest_go, spare_pods
from bayplan.scheduling.preemption.single_pod import VictimsByNode
from bayplan.scheduling.preemption.trial import PreemptionTrial
from bayplan.scheduling.preemption.victim_units import VictimUnit, units_of
from bayplan.state.scheduling.snapshot import SchedulingCandidate

DOMAINS_MAX = 16


@dataclass(frozen=True, slots=True)
class PreemptionResult:
    """The outcome of the search, the victims, and the rows of the pods once the victims are gone."""

    sought: PreemptionSearchOutcome
    victims: tuple[VictimUnit, ...] = ()
    seats: Mapping[PodKey, int] = field(default_factory=dict)

    @property
    def pods(self) -> list[tuple[Pod, bool]]:
        """All pods to preempt, and whether each leaves with its whole gang."""
        return [(pod, unit.whole) for unit in self.victims for pod in unit.pods]


class PreemptionSearch:
    """The preemption searches of one cycle; victims count as removed for later searches."""

    def __init__(self, context: PreemptionContext) -> None:
        self.context = context
        self.look, self.profile, self.floor = context.look, context.profile, context.floor
        self.nodes: VictimsByNode | None = None
        self.limit = 0  # `nodes` holds all units below this priority

    def find(
        self, asked: AttemptRequest, priority: int, within: Bools | None = None, beside: Sequence[int] = ()
    ) -> PreemptionResult:
        """Search for victims; those found count as removed from now on."""
        if not self.profile.displace or not _may(asked):
            return PreemptionResult(PreemptionSearchOutcome.NEVER)
        waits = self.room_of_those_going(asked, within, beside)
        if waits is not None:
            return waits
        nodes = self._nodes(priority)
        if asked.lone:
            if not nodes.units or nodes.units[-1].priority >= priority:
                return PreemptionResult(PreemptionSearchOutcome.NOBODY)
            found = nodes.room_for(asked.waiting[0], priority, within)
            room = (
                PreemptionResult(PreemptionSearchOutcome.NO_HELP)
                if found is None
                else PreemptionResult(PreemptionSearchOutcome.FOUND, found[1], found[0])
            )
        else:
            units = self.below(priority, asked.candidate)
            if not units:
                return PreemptionResult(PreemptionSearchOutcome.NOBODY)
            room = self._room_for_gang(asked, units, within, beside)
        if room.victims:
            nodes.sent.update(map(id, room.victims))
            self.context.leaving.add(pod.key for pod, _ in room.pods)
            self.context.budgets.spend(pod for pod, _ in room.pods)
        return room

    def of_its_own(self, asked: AttemptRequest, within: Bools | None) -> PreemptionResult | None:
        """Preempt surplus pods of the gang itself for those that its minimum lacks."""
        candidate = asked.candidate
        spare, tree = spare_pods(candidate, self.context.leaving.keys), candidate.charter.tree
        if not spare or tree is None or not self.profile.displace:
            return None
        lacking, supply = replace(asked, extra=0), supply_of(self.look, candidate, tree)

        def sought(pods: Sequence[Pod]) -> PreemptionResult | None:
            units = [
                VictimUnit((pod,), pod.wants.priority, True, pod.started or inf) for pod in reversed(pods)
            ]
            room, _ = self._room_within(lacking, units, within)
            return room if room.sought is PreemptionSearchOutcome.FOUND else None

        room = fewest_go(supply, tree, spare, sought)
        if room is not None:
            self.context.leaving.add(pod.key for pod, _ in room.pods)
            self.context.budgets.spend(pod for pod, _ in room.pods)
            self.nodes = None  # the rest of the gang forms other victim units
        return room

    def below(
        self, priority: int, candidate: SchedulingCandidate, *, or_equal: bool = False
    ) -> list[VictimUnit]:
        """Units of lower priority, highest first, without pods of the gang itself."""
        nodes = self._nodes(priority + 1 if or_equal else priority)
        limit = -priority - 1 if or_equal else -priority
        start = bisect_right(nodes.units, limit, key=lambda unit: -unit.priority)
        units, sent = list(nodes.units[start:]), nodes.sent
        if sent:
            units = [unit for unit in units if id(unit) not in sent]
        gang = candidate.charter.source
        if self.look.members.get(gang):
            units = [unit for unit in units if unit.pods[0].gang != gang]
        return units

    def _nodes(self, priority: int) -> VictimsByNode:
        if self.nodes is None or priority > self.limit:
            gone = self.context.leaving.keys
            pods = (pod for key, pod in self.look.pods.items() if key not in gone)
            units = units_of(pods if gone else self.look.pods.values(), self.look.charters, priority)
            self.limit = priority
            self.nodes = VictimsByNode(self.floor, self.context.budgets, units, self.context.leaving)
        return self.nodes

    def still_promised(self, candidate: SchedulingCandidate) -> dict[PodKey, int]:
        """Of the nominated rows, those that fit once all terminating pods are gone."""
        floor = self.floor
        found: dict[PodKey, int] = {}
        with self._undone():
            floor.lift_many(self.context.leaving.keys)
            for pod in candidate.waiting:
                row = floor.row(candidate.nominated.get(pod.key, ""))
                if row >= 0 and floor.judge(pod.wants.shape).fits[row]:
                    floor.seat(pod.key, pod.wants.shape, row)
                    found[pod.key] = row
        return found

    def room_of_those_going(
        self, asked: AttemptRequest, within: Bools | None, beside: Sequence[int]
    ) -> PreemptionResult | None:
        """The gang's rows if the pods that terminate anyway free enough capacity; None otherwise."""
        if not self.context.leaving.keys:
            return None
        trial = PreemptionTrial(self.context, asked, (), within)
        if trial.plain and trial.shape and self.context.leaving.makes_room(trial.shape, within) < asked.need:
            return None
        with trial.emptied() as floor:
            found = attempt(self.look, floor, asked, self.profile, within, beside)
        return (
            PreemptionResult(PreemptionSearchOutcome.FOUND, (), found.seats)
            if len(found.seats) >= asked.need
            else None
        )

    def _room_for_gang(
        self, asked: AttemptRequest, units: Sequence[VictimUnit], within: Bools | None, beside: Sequence[int]
    ) -> PreemptionResult:
        if asked.candidate.charter.locality.required is None or asked.candidate.charter.tree is not None:
            return self._room_within(asked, self._in_turn(units), within)[0]
        best: tuple[tuple[object, ...], PreemptionResult] | None = None
        trial = PreemptionTrial(self.context, asked, units, within)
        with trial.emptied() as floor:
            areas, first = domains_for(floor, asked, self.profile, within, beside, DOMAINS_MAX)
        turns: dict[int, int] = {}
        if self.context.budgets.budgets and not trial.plain:
            turns = {id(unit): turn for turn, unit in enumerate(self._in_turn(units))}
        for area in areas:
            near = trial.near(area.nodes)
            near = sorted(near, key=lambda unit: turns[id(unit)]) if turns else self._in_turn(near)
            room, worth = self._room_within(asked, near, area.nodes, among=trial)
            order = (*worth, area.value != first, area.value)
            if room.sought is PreemptionSearchOutcome.FOUND and (best is None or order < best[0]):
                best = order, room
        return best[1] if best is not None else PreemptionResult(PreemptionSearchOutcome.NO_HELP)

    def _room_within(
        self,
        asked: AttemptRequest,
        units: Sequence[VictimUnit],
        within: Bools | None,
        *,
        among: PreemptionTrial | None = None,
    ) -> tuple[PreemptionResult, tuple[object, ...]]:
        """The result within the allowed nodes, and its cost.

        The cost is: assigned pods, violated budgets, highest priority of a victim, number of victims.
        `among`: a trial with all units, of which these units are those of a single domain.
        """
        trial = PreemptionTrial(self.context, asked, units, within, single=among is not None, among=among)
        with trial:
            seats = trial.let_stay()
            go = trial.who_goes() if seats is not None else []
        if seats is None:
            return PreemptionResult(PreemptionSearchOutcome.NO_HELP), ()
        highest = max((unit.priority for unit in go), default=-(2**31))
        broken, size = self.context.budgets.broken(go), sum(len(unit.pods) for unit in go)
        return PreemptionResult(PreemptionSearchOutcome.FOUND, tuple(go), seats), (
            -len(seats),
            broken,
            highest,
            size,
        )

    def _in_turn(self, units: Sequence[VictimUnit]) -> list[VictimUnit]:
        """The order of reprieve: units that would violate a budget first."""
        breaking, others = self.context.budgets.split(units)
        return [*breaking, *others]

    @contextmanager
    def _undone(self) -> Iterator[None]:
        mark = self.floor.mark()
        try:
            yield
        finally:
            self.floor.undo(mark)


def _may(asked: AttemptRequest) -> bool:
    """Whether the gang may preempt: as its spec says, or else if all of its pods may."""
    said = asked.candidate.charter.preempts
    return said if said is not None else all(pod.wants.preempts for pod in asked.waiting)
