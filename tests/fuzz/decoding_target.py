"""Decoders alone: each object is told to every role that watches its kind, believed, and taken back."""

from __future__ import annotations

from random import Random

from bayplan.cli.running.role_controllers import controllers_for
from bayplan.dialects.api import Event, Happened, InvalidInUse
from bayplan.model.change import Change
from bayplan.runtime.core.controller import Controller
from tests.fuzz.lax_api import LaxApi
from tests.fuzz.mutator import copied
from tests.fuzz.roles_target import Drawn
from tests.fuzz.sizes import kept_by
from tests.fuzz.target import Case

LATER = 2e9
NAMES = frozenset({"admission", "scheduler", "grouper"})


class DecodingTarget:
    """A case is one object."""

    name = "decoding"

    def __init__(self) -> None:
        self.drawn = Drawn()
        self.reset()

    def reset(self) -> None:
        """Roles that know nothing."""
        self.api, self.now = LaxApi(), LATER
        self.roles = controllers_for(NAMES)
        self.watching = {
            kind: [role for role in self.roles if kind in role.kinds]
            for kind in {kind for role in self.roles for kind in role.kinds}
        }
        self.api.watch(list(self.watching))
        self._tell(list(self.api.events()))

    def draw(self, rng: Random) -> Case:
        return self.drawn.object(rng, typed=rng.random() < 0.4)

    def run(self, case: Case) -> int:
        """Tell the roles of the object, and that it is gone."""
        key = self.api.put(copied(case))
        self._tell(list(self.api.events()))
        self.api.drop(key)
        self._tell(list(self.api.events()))
        return 1

    def sizes(self) -> dict[str, int]:
        for _ in range(3):  # what was put off is done, and roles forget what is gone when they look
            self.now += 1000.0
            for role in self.roles:
                role.snapshot(self.now)
                list(role.reconcile(self.now))
                role.next_due(self.now)
        return kept_by({role.name: role for role in self.roles})

    def _tell(self, events: list[Event]) -> None:
        for event in events:
            for role in self.watching[event.kind]:
                changes = _decode(role, event)
                if event.happened is not Happened.SYNCED:
                    changes += role.flush()
                role.apply(changes)


def _decode(role: Controller, event: Event) -> list[Change]:
    """The changes as the intake gets them: an invalid Workload that holds quota counts with its usage."""
    try:
        return list(role.decode(event))
    except InvalidInUse:
        return list(role.decode_usage(event))
