"""Injected exceptions in the work on one gang: in decoding, deciding, encoding or reconciling its objects.

The name of every arrival has a number; the seed picks one, and all objects with that number belong to the
victim. Either the errors end with the faulty phase, and then every gang must end as in a run without errors;
or they never end, and then all other gangs must.
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
NUMBERED = re.compile(r"(?:basic|gang|job|lone|pods|tree|work)-(\d+)")
VICTIMS = 6  # the numbers that one is picked from
CHANCE = 0.5

Names = Callable[[tuple[Any, ...]], str]
_GANG: Names = lambda arguments: arguments[0].gang.name  # noqa: E731
_KEY: Names = lambda arguments: str(arguments[0][-1])  # noqa: E731

SEAMS: dict[type[Any], tuple[tuple[str, str, Names], ...]] = {
    AdmissionController: ((ENCODE, "_show", _GANG), (RECONCILE, "_reconcile", _KEY)),
    PodGrouperController: ((RECONCILE, "_evaluate", lambda arguments: str(arguments[0].name)),),
    JobsController: ((RECONCILE, "_reconcile", _KEY),),
    NodeHealthController: ((RECONCILE, "_list", _KEY),),
    ProvisioningController: ((RECONCILE, "_writes", _KEY),),
    SchedulerController: ((ENCODE, "_encoded", _GANG), (RECONCILE, "_start_writes", _GANG)),
    UngatingController: ((RECONCILE, "_round", _KEY),),
}
"""By controller: the methods that begin one unit of work, and the name of the object it is about."""


class Thrown(Exception):
    """An injected exception."""


class ErrorInjection:
    """Which errors are injected, for which victim, and for how long."""

    def __init__(self, rng: Random, injected: Counter[str]) -> None:
        self.rng, self.injected = rng, injected
        self.victim = str(rng.randrange(VICTIMS))
        self.permanent = rng.random() < 0.4
        points = [DECODE, DECIDE, ENCODE, RECONCILE]
        if self.permanent:
            points.remove(DECODE)  # what was read before an error and what is read after a start would differ
        self.points = set(rng.sample(points, rng.randint(1, len(points))))
        self.chance = 1.0 if self.permanent else CHANCE
        self.ended = False

    def calm(self) -> None:
        """End the faulty phase."""
        self.ended = not self.permanent

    def is_victim(self, name: str) -> bool:
        match = NUMBERED.search(name)
        return match is not None and match[1] == self.victim

    def expects(self, sentence: str) -> bool:
        """Whether a violation is about the victim, and its errors never end."""
        return self.permanent and any(number == self.victim for number in NUMBERED.findall(sentence))

    def decide(self, controller: Controller, view: Any, now: float) -> Plan:
        """The plan of a controller without injected errors; if errors never end, the victim is rejected."""
        victims = [
            gang for gang in controller.candidates(view) if self.permanent and self.is_victim(gang.name)
        ]
        others = [gang for gang in controller.candidates(view) if gang not in victims]
        plan = controller.decide(controller.restricted_to(view, others) if victims else view, now)
        rejections = [
            action for gang in victims for action in controller.rejection(view, gang, DecisionFault("thrown"))
        ]
        return Plan((*plan.actions, *rejections))

    def occurs(self, where: str, name: str) -> bool:
        if self.ended or where not in self.points or not self.is_victim(name):
            return False
        if self.chance < 1.0 and self.rng.random() >= self.chance:
            return False
        self.injected[f"thrown_{where}"] += 1
        return True

    def throw(self, where: str, name: str) -> None:
        if self.occurs(where, name):
            raise Thrown(f"{where} of {name}")

    def inject_into(self, controllers: Iterable[Controller]) -> None:
        """Inject errors into the work of these controllers."""
        for controller in controllers:
            self._decoding(controller)
            self._deciding(controller)
            for where, method, name in SEAMS[type(controller)]:
                self._unit(controller, where, method, name)

    def _decoding(self, controller: Controller) -> None:
        decode = controller.decode

        def raising(event: Any) -> Any:
            self.throw(DECODE, title(event.object))
            return decode(event)

        setattr(controller, "decode", raising)  # noqa: B010 - replaces a method of one controller only

    def _deciding(self, controller: Controller) -> None:
        decide = controller.decide

        def raising(view: Any, now: float, watchdog: Watchdog | None = None) -> Any:
            for gang in controller.candidates(view):
                if self.occurs(DECIDE, gang.name):
                    if watchdog is not None and self.rng.random() < 0.5:
                        watchdog.turn(gang)  # so that the error is attributed to this gang
                    raise Thrown(f"deciding on {gang.name}")
            return decide(view, now, watchdog)

        setattr(controller, "decide", raising)  # noqa: B010

    def _unit(self, controller: Controller, where: str, method: str, name: Names) -> None:
        work = getattr(controller, method)

        def raising(*arguments: Any) -> Any:
            self.throw(where, name(arguments))
            yield from work(*arguments) or ()

        setattr(controller, method, raising)
