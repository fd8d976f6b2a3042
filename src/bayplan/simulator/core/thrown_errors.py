"""Errors thrown at the work on one gang: in decoding, deciding, encoding or reconciling what belongs to it.

Everything that people bring has a number in its name; the seed picks one, and all objects with that number
belong to the victim. Either the errors end with the storm, and then all has to come out as if there had been
none; or they never end, and then all others have to come out so.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from bayplan.model.plan import Plan
from bayplan.model.watchdog import Watchdog
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.controllers.jobs.controller import JobsController
from bayplan.runtime.controllers.node_health.controller import NodeHealthController
from bayplan.runtime.controllers.pod_grouper.controller import PodGrouperController
from bayplan.runtime.controllers.provisioning.controller import ProvisioningController
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.controllers.ungating import UngatingController
from bayplan.runtime.core.controller import Controller, DecisionFault
from bayplan.runtime.core.quarantine import title

DECODE, DECIDE, ENCODE, RECONCILE = "decode", "decide", "encode", "reconcile"
NUMBERED = re.compile(r"(?:basic|gang|job|lone|tree|work)-(\d+)")
VICTIMS = 6  # the numbers that one is picked from
CHANCE = 0.5

Names = Callable[[tuple[Any, ...]], str]
_GANG: Names = lambda given: given[0].gang.name  # noqa: E731
_KEY: Names = lambda given: str(given[0][-1])  # noqa: E731

SEAMS: dict[type[Any], tuple[tuple[str, str, Names], ...]] = {
    AdmissionController: ((ENCODE, "_shown", _GANG), (RECONCILE, "_looked_after", _KEY)),
    PodGrouperController: ((RECONCILE, "_looked_at", lambda given: str(given[0].name)),),
    JobsController: ((RECONCILE, "_kept", _KEY),),
    NodeHealthController: ((RECONCILE, "_list", _KEY),),
    ProvisioningController: ((RECONCILE, "_writes", _KEY),),
    SchedulerController: ((ENCODE, "_encoded", _GANG), (RECONCILE, "_begin", _GANG)),
    UngatingController: ((RECONCILE, "_round", _KEY),),
}
"""By role: where one unit of work begins, and the name of what it is about."""


class Thrown(Exception):
    """An error that nobody could foresee."""


class ErrorInjection:
    """What is thrown, at whom, and for how long."""

    def __init__(self, rng: Random, injected: Counter[str]) -> None:
        self.rng, self.injected = rng, injected
        self.victim = str(rng.randrange(VICTIMS))
        self.lasts = rng.random() < 0.4
        points = [DECODE, DECIDE, ENCODE, RECONCILE]
        if self.lasts:
            points.remove(DECODE)  # what was read before an error and what is read after a start would differ
        self.points = set(rng.sample(points, rng.randint(1, len(points))))
        self.chance = 1.0 if self.lasts else CHANCE
        self.over = False

    def calm(self) -> None:
        """The storm is over."""
        self.over = not self.lasts

    def is_victim(self, name: str) -> bool:
        found = NUMBERED.search(name)
        return found is not None and found[1] == self.victim

    def excuses(self, sentence: str) -> bool:
        """Whether a sentence is about the victim, whose errors never end."""
        return self.lasts and any(number == self.victim for number in NUMBERED.findall(sentence))

    def decide(self, role: Controller, view: Any, now: float) -> Plan:
        """What a role decides that nothing is thrown at; if errors never end, as if the victim failed."""
        victims = [gang for gang in role.asking(view) if self.lasts and self.is_victim(gang.name)]
        others = [gang for gang in role.asking(view) if gang not in victims]
        plan = role.decide(role.only(view, others) if victims else view, now)
        refused = [action for gang in victims for action in role.refusal(view, gang, DecisionFault("thrown"))]
        return Plan((*plan.actions, *refused))

    def strikes(self, where: str, name: str) -> bool:
        if self.over or where not in self.points or not self.is_victim(name):
            return False
        if self.chance < 1.0 and self.rng.random() >= self.chance:
            return False
        self.injected[f"thrown_{where}"] += 1
        return True

    def throw(self, where: str, name: str) -> None:
        if self.strikes(where, name):
            raise Thrown(f"{where} of {name}")

    def work_on(self, roles: Iterable[Controller]) -> None:
        """Put errors into the work of these roles."""
        for role in roles:
            self._decoding(role)
            self._deciding(role)
            for where, method, name in SEAMS[type(role)]:
                self._unit(role, where, method, name)

    def _decoding(self, role: Controller) -> None:
        decode = role.decode

        def thrown(event: Any) -> Any:
            self.throw(DECODE, title(event.object))
            return decode(event)

        setattr(role, "decode", thrown)  # noqa: B010 - a method, which nobody else replaces

    def _deciding(self, role: Controller) -> None:
        decide = role.decide

        def thrown(view: Any, now: float, watchdog: Watchdog | None = None) -> Any:
            for gang in role.asking(view):
                if self.strikes(DECIDE, gang.name):
                    if watchdog is not None and self.rng.random() < 0.5:
                        watchdog.turn(gang)  # else nobody knows whose turn it was
                    raise Thrown(f"deciding on {gang.name}")
            return decide(view, now, watchdog)

        setattr(role, "decide", thrown)  # noqa: B010

    def _unit(self, role: Controller, where: str, method: str, name: Names) -> None:
        work = getattr(role, method)

        def thrown(*given: Any) -> Any:
            self.throw(where, name(given))
            yield from work(*given) or ()

        setattr(role, method, thrown)
