"""The log of decisions: one event for each gang and decision, with its queue, reason and ids.

The same decision about the same gang is logged again only after a while, with how often it was made since:
a gang that does not fit is refused in many cycles, and in shadow mode every decision is made again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

from bayplan.model.gang import Ref
from bayplan.model.plan import (
    Admit,
    Bind,
    EvictGang,
    Nominate,
    Plan,
    PreemptPod,
    ReportNotAdmitted,
    ReportUnschedulable,
)
from bayplan.model.queued_gang import QueuedGang
from bayplan.model.rejection import Rejection, RejectionReason

REPEAT_SECONDS = 600.0
KNOWN_MAX = 10_000
"""Decisions whose repetition is known; older ones are logged as new."""
NAMES_MAX = 16
"""Nodes and victims named in one event; their number is always given."""


@dataclass(frozen=True, slots=True)
class GangIdentity:
    """What is known of a gang apart from the decision."""

    queue: str = ""
    uid: str = ""


@dataclass(frozen=True, slots=True)
class DecisionEvent:
    """One decision about one gang. Equal `key`s are repetitions."""

    decision: str
    gang: Ref
    key: Hashable
    queue: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Known:
    logged: float
    repeated: int = 0


class PacedDecisionLog:
    """Writes an event for each decision of a plan."""

    def __init__(
        self,
        write: Callable[..., None],
        identity: Callable[[Ref], GangIdentity] = lambda gang: GangIdentity(),
        words: Callable[[Rejection], str] = lambda rejection: "",
        entry: Callable[[], int] = lambda: 0,
    ) -> None:
        self.write, self.identity, self.words, self.entry = write, identity, words, entry
        self.known: OrderedDict[tuple[str, Ref, Hashable], _Known] = OrderedDict()

    def planned(self, role: str, plan: Plan, now: float) -> None:
        """Log the decisions of a plan that was just recorded in the journal."""
        for event in decision_events(plan, self.words):
            repeated = self._due(event, now)
            if repeated is not None:
                self._log(event, role, repeated)

    def _due(self, event: DecisionEvent, now: float) -> int | None:
        """How often the decision was made since it was last logged; None if it is not due yet."""
        key = event.decision, event.gang, event.key
        known = self.known.get(key)
        if known is not None and now - known.logged < REPEAT_SECONDS:
            known.repeated += 1
            self.known.move_to_end(key)
            return None
        self.known[key] = _Known(now)
        self.known.move_to_end(key)
        if len(self.known) > KNOWN_MAX:
            self.known.popitem(last=False)
        return known.repeated if known is not None else 0

    def _log(self, event: DecisionEvent, role: str, repeated: int) -> None:
        gang, identity, entry = event.gang, self.identity(event.gang), self.entry()
        facts = {
            "role": role,
            "kind": gang.kind,
            "gang": f"{gang.namespace}/{gang.name}",
            "uid": identity.uid,
            "queue": event.queue or identity.queue,
            **event.facts,
            "entry": entry,
            "repeated": repeated,
        }
        self.write(event.decision, **{name: value for name, value in facts.items() if value not in ("", 0)})


def decision_events(plan: Plan, words: Callable[[Rejection], str]) -> Iterator[DecisionEvent]:
    """The decisions of a plan, in the order of its actions; those about many pods of a gang are one."""
    pods: dict[tuple[str, Ref], list[Bind | Nominate | PreemptPod]] = {}
    for action in plan.actions:
        match action:
            case Bind() | Nominate() if action.node:
                pods.setdefault((type(action).__name__.lower(), action.gang), []).append(action)
            case PreemptPod():
                pods.setdefault(("preempt", action.gang), []).append(action)
            case Admit(queued, admission):
                count = sum(one.count for one in admission.pod_sets)
                facts = {"pods": count, "checks": ", ".join(action.checks)}
                yield DecisionEvent("admit", action.gang, admission.queue, _queue(queued), facts)
            case EvictGang(queued, why, by):
                cause = by.gang.source if by is not None else None
                facts = {"reason": str(why), "for_gang": f"{cause.namespace}/{cause.name}" if cause else ""}
                yield DecisionEvent("evict", action.gang, (why, cause), _queue(queued), facts)
            case ReportNotAdmitted(queued, rejection):
                yield _refusal(action.gang, rejection, _queue(queued), words(rejection))
            case ReportUnschedulable(gang, rejection):
                yield _refusal(gang, rejection, "", _fit(rejection))
    for (decision, gang), actions in pods.items():
        yield _of_pods(decision, gang, actions)


def _of_pods(decision: str, gang: Ref, actions: list[Bind | Nominate | PreemptPod]) -> DecisionEvent:
    facts: dict[str, Any] = {"pods": len(actions)}
    nodes = sorted(
        {action.node if not isinstance(action, PreemptPod) else action.pod.node for action in actions}
    )
    if decision == "preempt":
        facts["victims"] = _named(sorted(str(action.pod.key) for action in actions))
        facts["reason"] = "undone" if any(getattr(action, "undoes", False) for action in actions) else ""
    facts |= {"nodes": len(nodes), "on": _named(nodes)}
    return DecisionEvent(decision, gang, frozenset(action.pod.uid for action in actions), facts=facts)


def _refusal(gang: Ref, rejection: Rejection, queue: str, detail: str) -> DecisionEvent:
    reason = str(rejection.misfit.code if rejection.misfit is not None else rejection.reason)
    facts = {"reason": reason, "detail": detail, "victims": rejection.victims}
    if rejection.reason is RejectionReason.INTERNAL:
        facts["id"] = rejection.about
    return DecisionEvent("refuse", gang, reason, queue, facts)


def _fit(rejection: Rejection) -> str:
    misfit = rejection.misfit
    fit, asked = (misfit.fit, misfit.asked) if misfit is not None else (rejection.fit, rejection.minimum)
    return f"{fit} of {asked} pods fit" if asked else rejection.about


def _queue(queued: QueuedGang) -> str:
    return queued.namespace_queue[1]


def _named(names: list[str]) -> str:
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return ", ".join(names[:NAMES_MAX]) + more
