"""Makes the plan for one snapshot; rejects a gang whose decision fails or takes too long.

The failing gang is removed from the snapshot, and the decision is repeated without it. If it is unknown which
gang failed, it is found by bisection. A gang whose actions could not be encoded is muted for a growing time:
otherwise pods might be preempted for it again and again.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bayplan.model.gang import Ref
from bayplan.model.plan import Action, Plan
from bayplan.model.watchdog import OutOfTime, Watchdog
from bayplan.runtime.core.backoff import Backoff
from bayplan.runtime.core.containment import Containment
from bayplan.runtime.core.controller import Controller, DecisionFault, Recorder

TRACEBACK_MAX = 20_000  # characters
MUTED_SECONDS, MUTED_SECONDS_MAX = 5.0, 3600.0  # after actions of a gang could not be encoded
MUTED_MAX = 1000  # gangs


@dataclass(frozen=True, slots=True)
class Failure:
    """A journal entry: a gang on which no decision could be made, and how that ended."""

    id: str
    gang: Ref
    error: str
    traceback: str


class Deciding:
    """Makes plans and contains failures of single gangs."""

    def __init__(
        self,
        journal: Recorder,
        containment: Containment,
        stopwatch: Callable[[], Callable[[], float]],
        watched: Callable[[Watchdog, float], None] = lambda watchdog, seconds: None,
    ) -> None:
        self.journal, self.containment, self.stopwatch, self.watched = (
            journal,
            containment,
            stopwatch,
            watched,
        )
        # by controller and gang: until when, and the error id
        self.muted: dict[tuple[str, Ref], tuple[float, str]] = {}
        self.backoff: Backoff[tuple[str, Ref]] = Backoff(MUTED_SECONDS, MUTED_SECONDS_MAX)

    def written(self, controller: Controller, plan: Plan, unwritten: Sequence[Action], now: float) -> None:
        """Note that a plan was encoded, except for these actions; mute their gangs."""
        failed = {action.gang for action in unwritten}
        for gang in failed:
            key = controller.name, gang
            self.muted[key] = self.backoff.failed(key, now), self.containment.last
            if len(self.muted) > MUTED_MAX:
                self.backoff.succeeded(oldest := next(iter(self.muted)))
                del self.muted[oldest]
        if self.muted:
            for gang in {action.gang for action in plan.actions} - failed:
                key = controller.name, gang
                if key in self.muted and self.muted[key][0] <= now:
                    del self.muted[key]
                    self.backoff.succeeded(key)

    def plan(self, controller: Controller, view: Any, now: float) -> Plan:
        """The plan of the controller, with a rejection for each gang it could not decide on."""
        every = controller.candidates(view)
        asking, refusals = list(every), list[Action]()
        for gang in [gang for gang in every if self.muted.get((controller.name, gang), (now, ""))[0] > now]:
            refusals += controller.rejection(view, gang, DecisionFault(self.muted[controller.name, gang][1]))
            asking.remove(gang)
        if every and not asking:
            return Plan(tuple(refusals))
        while True:
            seen = view if len(asking) == len(every) else controller.restricted_to(view, asking)
            watchdog = self._watchdog(controller, view)
            try:
                plan = controller.decide(seen, now, watchdog)
            except OutOfTime:
                assert watchdog.gang is not None
                return self._too_slow(controller, view, watchdog, refusals, asking)
            except Exception as error:
                culprit = watchdog.gang
                if culprit is None or culprit not in asking:
                    culprit, asking, error = self._bisect(controller, view, asking, now, error)
                if culprit is not None:
                    refusals += self._refused(controller, view, culprit, error, now)
                    asking.remove(culprit)
                if not controller.is_intact() or not asking:
                    return Plan(tuple(refusals), undecided=tuple(asking))
            else:
                return _merged(plan, refusals, [gang for gang in every if gang not in asking])
            finally:
                watchdog.end_turn()
                self.watched(watchdog, watchdog.elapsed())

    def _watchdog(self, controller: Controller, view: Any) -> Watchdog:
        return Watchdog(self.stopwatch(), controller.budget(view))

    def _refused(
        self, controller: Controller, view: Any, gang: Ref, error: Exception, now: float
    ) -> tuple[Action, ...]:
        name = f"{gang.namespace}/{gang.name}"
        identity = self.containment.failed(error, "decide", gang.kind, name)
        text = "".join(traceback.format_exception(error))[-TRACEBACK_MAX:]
        failure = Failure(identity, gang, f"{type(error).__name__}: {error}"[:TRACEBACK_MAX], text)
        self.journal.record(now, "failure", failure, controller.name)
        return controller.rejection(view, gang, DecisionFault(identity))

    def _too_slow(
        self, controller: Controller, view: Any, watchdog: Watchdog, refusals: list[Action], asking: list[Ref]
    ) -> Plan:
        """Reject the gang with the result so far. All other gangs are left for the next cycle."""
        gang = watchdog.gang
        assert gang is not None
        so_far = None if watchdog.so_far is None else watchdog.so_far()
        refusal = controller.rejection(view, gang, DecisionFault(seconds=watchdog.budget, so_far=so_far))
        left = tuple(one for one in asking if one != gang)
        return Plan((*refusals, *refusal), undecided=left)

    def _bisect(
        self, controller: Controller, view: Any, asking: list[Ref], now: float, error: Exception
    ) -> tuple[Ref | None, list[Ref], Exception]:
        """The gang that fails by itself; None if it only fails together with gangs before it.

        `asking` is then reduced to those gangs.
        """
        low, high = 0, len(asking)  # the first `low` gangs do not fail, the first `high` do
        while high - low > 1:
            middle = (low + high) // 2
            found = self._error(controller, view, asking[:middle], now)
            if found is None:
                low = middle
            else:
                high, error = middle, found
            if not controller.is_intact():
                break
        if not asking:
            raise error
        culprit = asking[high - 1]
        alone = self._error(controller, view, [culprit], now) if controller.is_intact() else error
        if alone is None:  # it only fails together with gangs before it: they are decided on first
            return None, asking[: high - 1], error
        return culprit, asking, alone

    def _error(self, controller: Controller, view: Any, gangs: list[Ref], now: float) -> Exception | None:
        try:
            controller.decide(controller.restricted_to(view, gangs), now, self._watchdog(controller, view))
        except Exception as error:
            return error
        return None


def _merged(plan: Plan, refusals: list[Action], others: Sequence[Ref]) -> Plan:
    if not refusals and not others:
        return plan
    refused = {action.gang for action in refusals}
    left = tuple(gang for gang in others if gang not in refused)
    return replace(plan, actions=(*plan.actions, *refusals), undecided=(*plan.undecided, *left))
