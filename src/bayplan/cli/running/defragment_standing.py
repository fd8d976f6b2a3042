"""Defragmentation without a person: moves for gangs that wait long for one domain, within a budget."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import Literal, NoReturn

import click

from bayplan.cli.live.gangs import outlook
from bayplan.cli.live.scheduled_state import Scheduled, read_scheduled
from bayplan.cli.live.state import ClusterTarget, Live
from bayplan.cli.planning.defragment_report import hours
from bayplan.cli.planning.defragmentation import RoomOptions, defragmentation, read_fragmented
from bayplan.cli.planning.movable_gangs import gang_name
from bayplan.cli.running.defragment_leftovers import Leftovers, at_work, find_leftovers, put_right
from bayplan.cli.running.defragment_steps import PlanExecution, StepSettings
from bayplan.configuration.defragment_settings import DefragmentSettings
from bayplan.explanation.text import counted, shown_name
from bayplan.model.gang import GangSpec, Ref
from bayplan.model.plan import ReportNotAdmitted
from bayplan.scheduling.defragment.cost import CostRules, accelerators
from bayplan.scheduling.defragment.policy import HOUR, DefragmentPolicy, MoveBudget
from bayplan.scheduling.defragment.problem import DefragmentPlan, required_level

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class GangWithoutRoom:
    """A pending gang that needs one domain, and since when it waits."""

    ref: Ref
    since: float

    @property
    def query(self) -> str:
        """Its name, so that no other object is meant."""
        return f"{self.ref.namespace}/{self.ref.kind.lower()}/{shown_name(self.ref)}"


@dataclass(frozen=True, slots=True)
class DefragmentSearch:
    """What became of one search for moves."""

    result: Literal["moved", "stopped", "no_moves", "not_worth_it", "over_budget"]
    moved: int = 0
    lost_gpu_hours: float = 0.0


Report = Callable[[DefragmentSearch], None]

ROLE_PREFIX = "role-"
"""Plans of the role begin so. Only the leader runs it: marks of its other plans were left behind."""


class StandingDefragmentation:
    """Rounds of planning and moving. Between rounds nothing is kept but what was spent of the budget."""

    def __init__(
        self,
        target: ClusterTarget,
        policy: DefragmentPolicy,
        costs: CostRules,
        settings: StepSettings,
        say: Say,
        report: Report = lambda search: None,
    ) -> None:
        self.target, self.policy, self.costs, self.settings, self.say = target, policy, costs, settings, say
        self.report = report
        self.budget = MoveBudget(policy)
        self.rounds = 0
        self._waits_for = ""  # the plan of another run, which was told

    def round(self) -> bool:
        """Move gangs for the one that has waited longest, if that is worth it; whether any move was tried.

        Before that, what runs that were killed have left behind is put right.
        """
        self.rounds += 1
        with self.target.live(quiet=True) as live:
            scheduled, now = read_scheduled(live), live.now
            leftovers = find_leftovers(live, scheduled)
            waiting = sorted(waiting_gangs(live, scheduled), key=lambda one: (one.since, str(one.ref)))
        if leftovers:
            self._settle(leftovers, now)
            return False
        self._waits_for = ""
        if not self.budget.has_moves(now):
            return False
        for gang in waiting:
            if self.budget.may_try(gang.query, gang.since, now):
                self.budget.tried(gang.query, now)
                return self._make_room(gang, now)
        return False

    def _settle(self, leftovers: list[Leftovers], now: float) -> None:
        """Put right what no run works on any more; the next round goes on."""
        name = self.settings.name
        own = ROLE_PREFIX if name.startswith(ROLE_PREFIX) else f"{name}-"
        over = [one for one in leftovers if one.until <= now or one.plan.startswith(own)]
        put_right(self.target, over, self.say)
        others = [one for one in leftovers if one not in over]
        if others and others[0].plan != self._waits_for:
            self._waits_for = others[0].plan
            self.say(f"no moves: {at_work(others[0])}")

    def _make_room(self, gang: GangWithoutRoom, now: float) -> bool:
        options = RoomOptions(gang.query, "", self.costs, self.policy.least_run_time)
        name = gang_name(gang.ref)
        try:
            with self.target.live(quiet=True) as live:
                answer = defragmentation(read_fragmented(live, options))
        except click.ClickException as gone:  # it may have started since
            self.say(f"{name}: no moves: {gone.message}")
            self.report(DefragmentSearch("no_moves"))
            return False
        plan = answer.found
        if not isinstance(plan, DefragmentPlan) or not plan.moves:
            self.say(
                f"{name}: no moves make room for it"
                if not isinstance(plan, DefragmentPlan)
                else f"{name}: fits"
            )
            self.report(DefragmentSearch("no_moves"))
            return False
        gpus = sum(accelerators(pod.amounts) for pod in answer.cluster.room.request.pods)
        worth = self.policy.cost_below(gpus, now - gang.since)
        what = f"{counted(len(plan.moves), 'move')}, {hours(plan.lost)} GPU-hours done again"
        if plan.lost >= worth:
            self.say(f"{name}: {what}: not worth it before it has waited longer")
            self.report(DefragmentSearch("not_worth_it"))
            return False
        if not self.budget.spend(len(plan.moves), plan.lost, now):
            self.say(f"{name}: {what}: more than the budget has left")
            self.report(DefragmentSearch("over_budget"))
            return False
        self.say(f"{name}: {what}")
        settings = replace(self.settings, name=f"{self.settings.name}-{self.rounds}")
        execution = PlanExecution(self.target, options, settings, self.say)
        stopped = execution.run(plan)
        lost = sum(move.gang.lost for move in plan.moves[: execution.moved]) / HOUR
        self.report(DefragmentSearch("stopped" if stopped else "moved", execution.moved, lost))
        self.say(f"{name}: {stopped or 'there is room now'}")
        return True


def waiting_gangs(live: Live, scheduled: Scheduled) -> Iterator[GangWithoutRoom]:
    """Pending gangs that need one domain and lack room there, not quota."""
    if not live.no_queues:
        for facts in outlook(live).gangs:
            queued, result = facts.queued_gang, facts.forecast
            level = required_level(GangSpec(queued.gang.source, tree=queued.gang.root))
            if queued.admission is not None or not queued.active or not level or result is None:
                continue
            action = result.action
            if isinstance(action, ReportNotAdmitted) and action.rejection.misfit is not None:
                yield GangWithoutRoom(queued.gang.source, queued.queued or queued.created)
    yield from _scheduled(scheduled)


def _scheduled(scheduled: Scheduled) -> Iterator[GangWithoutRoom]:
    state = scheduled.controller.state
    for entry in list(state.entries()):
        spec, pending = state.spec_of(entry.ref), state.pending(entry.ref)
        if spec is not None and pending and not state.bound(entry.ref) and required_level(spec):
            yield GangWithoutRoom(entry.ref, spec.created or min(pod.created for pod in pending))


def standing_defragmentation(
    target: ClusterTarget,
    limits: DefragmentSettings,
    name: str,
    say: Say,
    report: Report = lambda search: None,
) -> StandingDefragmentation:
    """Rounds that keep to the limits of the configuration; `name` is the first part of the names of plans."""
    policy = DefragmentPolicy(
        limits.wait_seconds,
        limits.again_seconds,
        limits.moves_per_hour,
        limits.gpu_hours_per_day,
        limits.gain_ratio,
        limits.least_run_seconds,
    )
    costs = CostRules(assumed_checkpoint=int(limits.checkpoint_seconds))
    return StandingDefragmentation(
        target, policy, costs, StepSettings(name, limits.timeout_seconds), say, report
    )


def stand(standing: StandingDefragmentation, every: float) -> NoReturn:
    """Rounds until the process is ended; what cannot be read or written now is tried again."""
    while True:
        try:
            standing.round()
        except click.ClickException as error:
            standing.say(error.message)
        standing.target.clock.sleep(every)


@contextmanager
def ended_by_signal() -> Iterator[None]:
    """SIGTERM ends the command as Ctrl-C does: it takes back what it has written."""

    def heard(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # taking back is not interrupted
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, heard)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
