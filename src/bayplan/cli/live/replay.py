"""Folds the entries of a journal and decides again, with the roles as they were configured."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from bayplan.configuration.settings import Settings
from bayplan.model.admission_rejection import AdmissionReason
from bayplan.model.change import Change
from bayplan.model.gang import Ref
from bayplan.model.plan import Action, Plan, ReportNotAdmitted, ReportUnschedulable
from bayplan.model.scheduling_rejection import RejectionReason
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.controllers.jobs.controller import JobsController
from bayplan.runtime.controllers.node_health.controller import NodeHealthController
from bayplan.runtime.controllers.pod_grouper.controller import PodGrouperController
from bayplan.runtime.controllers.provisioning.controller import ProvisioningController
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.controllers.ungating import UngatingController
from bayplan.runtime.core.containment import Containment
from bayplan.runtime.core.controller import Controller, Settled
from bayplan.runtime.core.deciding import Deciding, Failure
from bayplan.runtime.core.journal import Damaged, EntryKind, JournalEntry

_INTERNAL = (RejectionReason.INTERNAL, AdmissionReason.INTERNAL)
_OUT_OF_TIME = (RejectionReason.OUT_OF_TIME, AdmissionReason.OUT_OF_TIME)


@dataclass(slots=True)
class Failures:
    """Takes the place of a journal while something is decided again: keeps only what failed."""

    found: list[Failure] = field(default_factory=list)

    def record(self, now: float, what: str, body: object, role: str = "") -> None:
        if isinstance(body, Failure):
            self.found.append(body)


@dataclass(slots=True)
class ReplayResult:
    """What came of all entries so far."""

    different: int = 0  # plans that come out otherwise
    cut_short: int = 0  # plans for which time ran out: here no time passes, so they are not compared
    not_again: int = 0  # errors that do not come out again
    unfolded: int = 0  # changes that could not be folded in, as when they were recorded


class Replaying:
    """All roles, as far as the journal was folded in."""

    def __init__(self, settings: Settings) -> None:
        played: tuple[Controller, ...] = (
            SchedulerController(profiles=settings.profiles, zone_care=settings.zone_care),
            AdmissionController(settings.profile, zone_care=settings.zone_care),
            ProvisioningController(),
            UngatingController(),
            JobsController(),
            NodeHealthController(),
            PodGrouperController(settings.profiles, settings.grouper),
        )
        self.roles = {role.name: role for role in played}
        self.verdict = ReplayResult()

    def fold(self, entry: JournalEntry) -> None:
        """Fold an entry in; a plan is decided again first, and compared."""
        role = self.role_of(entry)
        match entry.kind:
            case EntryKind.CHANGE:
                self._change(role, body_of(entry, Change))
            case EntryKind.OUTCOME:
                role.settle(body_of(entry, Settled), entry.now)
            case EntryKind.ASSUMED:
                role.assume(body_of(entry, Plan), entry.now)
            case EntryKind.PLAN:
                recorded: Plan = body_of(entry, Plan)
                self._compare(role, recorded, entry.now)
                role.assume(recorded, entry.now)

    def role_of(self, entry: JournalEntry) -> Controller:
        name = entry.role or SchedulerController.name
        if name not in self.roles:
            known = ", ".join(sorted(self.roles))
            raise Damaged(f'entry {entry.sequence} is of the role "{name}"; this version has {known}')
        return self.roles[name]

    def decide(self, entry: JournalEntry) -> tuple[Plan, list[Failure]]:
        """What is decided at the moment of an entry, and what fails on the way."""
        role = self.role_of(entry)
        view = role.look(entry.now)
        return (Plan(), []) if view is None else self._decide(role, view, entry.now)

    def _decide(self, role: Controller, view: Any, now: float) -> tuple[Plan, list[Failure]]:
        failures = Failures()
        deciding = Deciding(failures, Containment(), lambda: lambda: 0.0)
        return deciding.plan(role, view, now), failures.found

    def _change(self, role: Controller, change: Change) -> None:
        try:
            role.fold([change])
        except Exception:  # it was so when it was recorded: the state is built anew by the entries after it
            self.verdict.unfolded += 1

    def _compare(self, role: Controller, recorded: Plan, now: float) -> None:
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

    def _is_same_without(
        self, role: Controller, view: Any, recorded: Plan, failed: set[Ref], now: float
    ) -> bool:
        """Whether all others come out the same, though what failed then does not fail now."""
        others = [gang for gang in role.asking(view) if gang not in failed]
        plan, _ = self._decide(role, role.only(view, others), now)
        kept = tuple(action for action in recorded.actions if action.gang not in failed)
        return plan == replace(recorded, actions=kept)


def body_of(entry: JournalEntry, shape: Any) -> Any:
    """The body of an entry as a value; what this version does not know is damage."""
    try:
        return entry.body_as(shape)
    except Exception as trouble:
        what = f"entry {entry.sequence}, a {entry.kind} of the role {entry.role or SchedulerController.name}"
        raise Damaged(f"{what}, is not one that this version of bayplan writes ({trouble!r})") from None


def _fault(action: Action) -> RejectionReason | AdmissionReason | None:
    match action:
        case ReportUnschedulable():
            return action.why.hindrance
        case ReportNotAdmitted():
            return action.refusal.token
    return None
