"""Folds the entries of a journal and decides again, with the roles as they were configured."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from bayplan.cli.config.settings import Settings
from bayplan.model.admission_rejection import Token
from bayplan.model.change import Change
from bayplan.model.gang import Ref
from bayplan.model.plan import Action, Decline, Plan, Refuse
from bayplan.model.scheduling_rejection import Hindrance
from bayplan.runtime.controllers.admission.controller import AdmissionRole
from bayplan.runtime.controllers.jobs.controller import JobsRole
from bayplan.runtime.controllers.node_health.controller import NodeHealthRole
from bayplan.runtime.controllers.pod_grouper.controller import GrouperRole
from bayplan.runtime.controllers.provisioning.controller import ProvisioningRole
from bayplan.runtime.controllers.scheduler.controller import SchedulerRole
from bayplan.runtime.controllers.ungating import UngatingRole
from bayplan.runtime.core.containment import Containment
from bayplan.runtime.core.controller import Role, Settled
from bayplan.runtime.core.deciding import Deciding, Failure
from bayplan.runtime.core.journal import Damaged, Entry, Kind

_INTERNAL = (Hindrance.INTERNAL, Token.INTERNAL)
_OUT_OF_TIME = (Hindrance.OUT_OF_TIME, Token.OUT_OF_TIME)


@dataclass(slots=True)
class Failures:
    """Takes the place of a journal while something is decided again: keeps only what failed."""

    found: list[Failure] = field(default_factory=list)

    def record(self, now: float, what: str, body: object, role: str = "") -> None:
        if isinstance(body, Failure):
            self.found.append(body)


@dataclass(slots=True)
class Verdict:
    """What came of all entries so far."""

    different: int = 0  # plans that come out otherwise
    cut_short: int = 0  # plans for which time ran out: here no time passes, so they are not compared
    not_again: int = 0  # errors that do not come out again
    unfolded: int = 0  # changes that could not be folded in, as when they were recorded


class Replaying:
    """All roles, as far as the journal was folded in."""

    def __init__(self, settings: Settings) -> None:
        played: tuple[Role, ...] = (
            SchedulerRole(profiles=settings.profiles, zone_care=settings.zone_care),
            AdmissionRole(settings.profile, zone_care=settings.zone_care),
            ProvisioningRole(),
            UngatingRole(),
            JobsRole(),
            NodeHealthRole(),
            GrouperRole(settings.profiles, settings.grouper),
        )
        self.roles = {role.name: role for role in played}
        self.verdict = Verdict()

    def fold(self, entry: Entry) -> None:
        """Fold an entry in; a plan is decided again first, and compared."""
        role = self.role_of(entry)
        match entry.kind:
            case Kind.CHANGE:
                self._change(role, body_of(entry, Change))
            case Kind.OUTCOME:
                role.settle(body_of(entry, Settled), entry.now)
            case Kind.ASSUMED:
                role.assume(body_of(entry, Plan), entry.now)
            case Kind.PLAN:
                recorded: Plan = body_of(entry, Plan)
                self._compare(role, recorded, entry.now)
                role.assume(recorded, entry.now)

    def role_of(self, entry: Entry) -> Role:
        name = entry.role or SchedulerRole.name
        if name not in self.roles:
            known = ", ".join(sorted(self.roles))
            raise Damaged(f'entry {entry.sequence} is of the role "{name}"; this version has {known}')
        return self.roles[name]

    def decide(self, entry: Entry) -> tuple[Plan, list[Failure]]:
        """What is decided at the moment of an entry, and what fails on the way."""
        role = self.role_of(entry)
        view = role.look(entry.now)
        return (Plan(), []) if view is None else self._decide(role, view, entry.now)

    def _decide(self, role: Role, view: Any, now: float) -> tuple[Plan, list[Failure]]:
        failures = Failures()
        deciding = Deciding(failures, Containment(), lambda: lambda: 0.0)
        return deciding.plan(role, view, now), failures.found

    def _change(self, role: Role, change: Change) -> None:
        try:
            role.fold([change])
        except Exception:  # it was so when it was recorded: the state is built anew by the entries after it
            self.verdict.unfolded += 1

    def _compare(self, role: Role, recorded: Plan, now: float) -> None:
        view = role.look(now)
        again = Plan() if view is None else self._decide(role, view, now)[0]
        if again == recorded:
            return
        if recorded.left or any(_fault(action) in _OUT_OF_TIME for action in recorded.actions):
            self.verdict.cut_short += 1
            return
        failed = {action.gang for action in recorded.actions if _fault(action) in _INTERNAL}
        if failed and view is not None and self._is_same_without(role, view, recorded, failed, now):
            self.verdict.not_again += len(failed)
        else:
            self.verdict.different += 1

    def _is_same_without(self, role: Role, view: Any, recorded: Plan, failed: set[Ref], now: float) -> bool:
        """Whether all others come out the same, though what failed then does not fail now."""
        others = [gang for gang in role.asking(view) if gang not in failed]
        plan, _ = self._decide(role, role.only(view, others), now)
        kept = tuple(action for action in recorded.actions if action.gang not in failed)
        return plan == replace(recorded, actions=kept)


def body_of(entry: Entry, shape: Any) -> Any:
    """The body of an entry as a value; what this version does not know is damage."""
    try:
        return entry.body_as(shape)
    except Exception as trouble:
        what = f"entry {entry.sequence}, a {entry.kind} of the role {entry.role or SchedulerRole.name}"
        raise Damaged(f"{what}, is not one that this version of bayplan writes ({trouble!r})") from None


def _fault(action: Action) -> Hindrance | Token | None:
    match action:
        case Refuse():
            return action.why.hindrance
        case Decline():
            return action.refusal.token
    return None
