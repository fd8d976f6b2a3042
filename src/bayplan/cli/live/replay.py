"""Replays the entries of a journal and decides again, with the controllers as configured."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from bayplan.configuration.settings import Settings
from bayplan.model.change import Change
from bayplan.model.gang import Ref
from bayplan.model.plan import Action, Plan, ReportNotAdmitted, ReportUnschedulable
from bayplan.model.rejection import RejectionReason
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.controllers.jobs.controller import JobsController
from bayplan.runtime.controllers.node_health.controller import NodeHealthController
from bayplan.runtime.controllers.pod_grouper.controller import PodGrouperController
from bayplan.runtime.controllers.provisioning.controller import ProvisioningController
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.controllers.ungating import UngatingController
from bayplan.runtime.core.containment import Containment
from bayplan.runtime.core.controller import Controller, Look, Settled
from bayplan.runtime.core.deciding import Deciding, Failure
from bayplan.runtime.core.journal import Damaged, EntryKind, JournalEntry


@dataclass(slots=True)
class Failures:
    """Replaces the journal while a cycle is decided again: records failures only."""

    found: list[Failure] = field(default_factory=list)

    def record(self, now: float, what: str, body: object, role: str = "") -> None:
        if isinstance(body, Failure):
            self.found.append(body)


@dataclass(slots=True)
class ReplayResult:
    """The differences found so far."""

    different: int = 0  # plans that differ
    cut_short: int = 0  # plans that ran out of time; not compared, because no time passes in a replay
    not_reproduced: int = 0  # errors that do not occur again
    not_applied: int = 0  # changes that could not be applied, as when they were recorded


class Replaying:
    """All controllers, with the state after the entries replayed so far."""

    def __init__(self, settings: Settings) -> None:
        controllers: tuple[Controller, ...] = (
            SchedulerController(profiles=settings.profiles, numa_policy=settings.numa_staleness),
            AdmissionController(settings.profile, numa_policy=settings.numa_staleness),
            ProvisioningController(),
            UngatingController(),
            JobsController(),
            NodeHealthController(),
            PodGrouperController(settings.profiles, settings.grouper),
        )
        self.controllers = {one.name: one for one in controllers}
        self.result = ReplayResult()

    def apply(self, entry: JournalEntry) -> None:
        """Apply an entry; a plan is decided again first, and compared."""
        if entry.kind is EntryKind.PLAN:
            self._compare(self.controller_of(entry), body_of(entry, Plan), entry.now)
        self.follow(entry)

    def follow(self, entry: JournalEntry) -> None:
        """Apply an entry as it was recorded."""
        controller = self.controller_of(entry)
        match entry.kind:
            case EntryKind.CHANGE:
                self._change(controller, body_of(entry, Change))
            case EntryKind.OUTCOME:
                controller.settle(body_of(entry, Settled), entry.now)
            case EntryKind.ASSUMED | EntryKind.PLAN:
                controller.assume(body_of(entry, Plan), entry.now)
            case EntryKind.LOOK:
                look: Look = body_of(entry, Look)
                (controller.snapshot if look is Look.HEADS else controller.next_due)(entry.now)

    def controller_of(self, entry: JournalEntry) -> Controller:
        name = entry.role or SchedulerController.name
        if name not in self.controllers:
            known = ", ".join(sorted(self.controllers))
            raise Damaged(f'entry {entry.sequence} is of the role "{name}"; this version has {known}')
        return self.controllers[name]

    def decide(self, entry: JournalEntry) -> tuple[Plan, list[Failure]]:
        """The plan decided at the time of an entry, and the failures."""
        controller = self.controller_of(entry)
        view = controller.snapshot(entry.now)
        return (Plan(), []) if view is None else self._decide(controller, view, entry.now)

    def _decide(self, controller: Controller, view: Any, now: float) -> tuple[Plan, list[Failure]]:
        failures = Failures()
        deciding = Deciding(failures, Containment(), lambda: lambda: 0.0)
        return deciding.plan(controller, view, now), failures.found

    def _change(self, controller: Controller, change: Change) -> None:
        try:
            controller.apply([change])
        except Exception:  # as when it was recorded: later entries rebuild the state
            self.result.not_applied += 1

    def _compare(self, controller: Controller, recorded: Plan, now: float) -> None:
        view = controller.snapshot(now)
        again = Plan() if view is None else self._decide(controller, view, now)[0]
        if again == recorded:
            return
        if recorded.undecided or any(
            _reason(action) is RejectionReason.OUT_OF_TIME for action in recorded.actions
        ):
            self.result.cut_short += 1
            return
        failed = {action.gang for action in recorded.actions if _reason(action) is RejectionReason.INTERNAL}
        if failed and view is not None and self._is_same_without(controller, view, recorded, failed, now):
            self.result.not_reproduced += len(failed)
        else:
            self.result.different += 1

    def _is_same_without(
        self, controller: Controller, view: Any, recorded: Plan, failed: set[Ref], now: float
    ) -> bool:
        """Whether the plan is the same without the gangs that failed then and do not fail now."""
        gangs = [gang for gang in controller.candidates(view) if gang not in failed]
        plan, _ = self._decide(controller, controller.restricted_to(view, gangs), now)
        actions = tuple(action for action in recorded.actions if action.gang not in failed)
        return plan == replace(recorded, actions=actions)


def body_of(entry: JournalEntry, shape: Any) -> Any:
    """The body of an entry, decoded. Raises Damaged if this version does not know its format."""
    try:
        return entry.body_as(shape)
    except Exception as error:
        what = f"entry {entry.sequence}, a {entry.kind} of the role {entry.role or SchedulerController.name}"
        raise Damaged(f"{what}, is not one that this version of bayplan writes ({error!r})") from None


def _reason(action: Action) -> RejectionReason | None:
    match action:
        case ReportUnschedulable() | ReportNotAdmitted():
            return action.rejection.reason
    return None
