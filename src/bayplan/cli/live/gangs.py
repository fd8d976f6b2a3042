"""Every queued gang of a cluster: its state, its position in the queue, and why it is pending."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bayplan.cli.live.forecast import ForecastResult, forecast
from bayplan.cli.live.state import Live, Object
from bayplan.cli.render.tables import moment
from bayplan.dialects.kube.fields.times import LATEST
from bayplan.dialects.kueue.status.conditions import EVICTED, condition_of
from bayplan.dialects.kueue.status.rejection_messages import reason
from bayplan.explanation.reasons import NOT_TRIED, admitted_words, few_words, unready_checks
from bayplan.explanation.text import counted, short_levels
from bayplan.model.gang import Ref
from bayplan.model.plan import Admit, EvictGang, ReportNotAdmitted
from bayplan.model.queued_gang import QueuedGang
from bayplan.model.quota import QUEUE_DEPTH_MAX
from bayplan.model.rejection import RejectionReason
from bayplan.model.summary import Flaw
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.state.admission.queues import QueueEntry, QueueEntryState
from bayplan.state.reports.queries import QueuePosition, common_domain
from bayplan.state.reports.queries import positions as positions_in

INACTIVE, PENDING, RESERVED, ADMITTED, EVICTING = (
    "inactive",
    "pending",
    "quota reserved",
    "admitted",
    "evicting",
)


@dataclass(frozen=True, slots=True)
class GangFacts:
    """One gang as `list` and `explain` show it."""

    entry: QueueEntry
    state: str
    position: QueuePosition | None
    forecast: ForecastResult | None
    token: str  # the reason as tools know it; empty if the gang is not pending
    why: str  # the reason as text
    where: str
    owner: str  # kind and name of its job

    @property
    def queued_gang(self) -> QueuedGang:
        return self.entry.queued_gang

    @property
    def pods(self) -> int:
        admission = self.queued_gang.admission
        if admission is not None:
            return sum(pod_set.count for pod_set in admission.pod_sets)
        return sum(pod_set.count for pod_set in self.queued_gang.gang.root.pod_sets())


@dataclass(frozen=True, slots=True)
class ClusterOutlook:
    """All gangs, and the cluster as it would be after the gangs that fit now were admitted."""

    gangs: list[GangFacts]
    then: Live
    next: list[Ref]  # the gangs that would be admitted now

    def find(self, ref: Ref) -> GangFacts | None:
        return next((one for one in self.gangs if one.queued_gang.gang.source == ref), None)


def outlook(live: Live) -> ClusterOutlook:
    """Every unfinished gang: admitted ones first, then by queue and position."""
    state, then = live.state, live.copy()
    positions, supplies = positions_in(state), state.usage.supplies()
    with live.progress.stage("simulating the next admissions"):
        results = forecast(then.state, live.settings.profile, live.now)
    shapes = {
        (entry.queue, entry.shape): results[ref]
        for ref, entry in then.state.pending.entries.items()
        if ref in results and isinstance(results[ref].action, ReportNotAdmitted)
    }
    gangs = []
    for ref, entry in state.pending.entries.items():
        result, position = results.get(ref), positions.get(ref)
        if result is None and entry.state is QueueEntryState.PENDING and not _is_strict(live, entry.queue):
            result = shapes.get((entry.queue, entry.shape))  # gangs with equal requests get one answer
        token, why = _why(live, entry, position, result)
        where, owner = where_is(live, entry.queued_gang, supplies), owner_of(live.workloads.get(ref, {}))
        gangs.append(GangFacts(entry, _state(entry.queued_gang), position, result, token, why, where, owner))
    order = (ADMITTED, EVICTING, RESERVED, PENDING, INACTIVE)
    gangs.sort(key=lambda one: (order.index(one.state), one.entry.queue, one.entry.rank))
    return ClusterOutlook(
        gangs, then, [ref for ref, result in results.items() if isinstance(result.action, Admit)]
    )


def _is_strict(live: Live, queue: str) -> bool:
    rules = live.state.config.queues
    return queue in rules and rules[queue].strict


def _state(queued_gang: QueuedGang) -> str:
    if queued_gang.admission is not None:
        return EVICTING if queued_gang.evicted else ADMITTED if queued_gang.admitted else RESERVED
    return PENDING if queued_gang.active else INACTIVE


def _why(
    live: Live, entry: QueueEntry, position: QueuePosition | None, result: ForecastResult | None
) -> tuple[str, str]:
    """The reason as tools know it, and as text."""
    queued_gang = entry.queued_gang
    state = _state(queued_gang)
    if state == INACTIVE:
        return "Deactivated", "deactivated: spec.active is false"
    if state == ADMITTED:
        return "", ""
    if state == EVICTING:
        evicted = condition_of(live.workloads.get(queued_gang.gang.source, {}), EVICTED) or {}
        return str(evicted.get("reason", "")), f"evicted: {evicted.get('reason', 'unknown')}"
    if state == RESERVED and (checks := unready_checks(queued_gang)):
        text = f"quota reserved, waiting for check {', '.join(checks)}"
        return reason(RejectionReason.TO_BE_EVALUATED), text
    if queued_gang.admission is None and not entry.queue:
        return reason(RejectionReason.MISCONFIGURED), _no_queue(queued_gang)
    if result is None:
        return _untried(live, entry, position)
    match result.action:
        case Admit():
            return reason(RejectionReason.TO_BE_EVALUATED), admitted_words(result.action)
        case ReportNotAdmitted(rejection=rejection):
            inactive = inactive_text(live, entry.queue) if rejection.reason is RejectionReason.CLOSED else ""
            return reason(rejection.reason), inactive or few_words(rejection)
        case EvictGang():
            return "NodeFailures", "evicted: no replacement for its failed nodes"


def _no_queue(queued_gang: QueuedGang) -> str:
    namespace, name = queued_gang.namespace_queue
    return f"there is no LocalQueue {name} in {namespace}" if name else "names no queue"


def _untried(live: Live, entry: QueueEntry, position: QueuePosition | None) -> tuple[str, str]:
    if entry.state is QueueEntryState.BACKOFF:
        until = entry.queued_gang.not_before
        if until > LATEST:
            inactive = inactive_text(live, entry.queue)
            return reason(
                RejectionReason.ON_HOLD
            ), f"on hold: {inactive}" if inactive else "on hold until it is released"
        return reason(RejectionReason.ON_HOLD), f"backing off until {moment(until)}"
    if position is not None and position.position > 1:
        return reason(
            RejectionReason.TO_BE_EVALUATED
        ), f"behind {position.first.namespace}/{position.first.name}"
    if entry.queue and entry.queue not in live.state.config.queues:
        return reason(RejectionReason.MISCONFIGURED), f"there is no ClusterQueue {entry.queue}"
    return reason(RejectionReason.TO_BE_EVALUATED), NOT_TRIED


FLAWS = {
    Flaw.FLAVOR_MISSING: "there is no ResourceFlavor {name}",
    Flaw.TOPOLOGY_MISSING: "ResourceFlavor {name} names a Topology that does not exist",
    Flaw.CHECK_MISSING: "there is no AdmissionCheck {name}",
    Flaw.CHECK_INACTIVE: "AdmissionCheck {name} is not active",
    Flaw.TERMINATING: "it is being deleted",
    Flaw.SEVERAL_MULTI_CLUSTER: "more than one of its checks dispatches gangs to other clusters (MultiKueue)",
    Flaw.MULTI_CLUSTER_PER_FLAVOR: "a MultiKueue check applies to some flavors only",
    Flaw.MULTI_CLUSTER_AND_PROVISIONING: "MultiKueue and ProvisioningRequest checks cannot be combined",
    Flaw.OTHER: "something else is wrong with it: {name}",
    Flaw.CYCLE: "cohort {name} is its own ancestor",
    Flaw.TOO_DEEP: f"cohort {{name}} is more than {QUEUE_DEPTH_MAX} levels deep",
    Flaw.STOPPED: "it is stopped (spec.stopPolicy)",
}


def inactive_text(live: Live, queue: str) -> str:
    """Why a ClusterQueue admits no gang; empty if it is active."""
    rules = live.state.config.queues.get(queue)
    flaws = list(live.state.flaws(rules)) if rules is not None else []
    reasons = "; ".join(FLAWS[flaw].format(name=name) for flaw, name in flaws)
    return f"ClusterQueue {queue} is not active: {reasons}" if reasons else ""


def where_is(live: Live, queued_gang: QueuedGang, supplies: dict[str, CapacitySnapshot]) -> str:
    """Where an admitted gang is placed: the smallest domain that holds it, and on how many hosts."""
    for topology in _topologies(live, queued_gang):
        supply = supplies.get(topology)
        if supply is None:
            continue
        domain, leaves = common_domain(supply, queued_gang)
        if not leaves:
            continue
        names = short_levels(supply.tree.levels)
        on = counted(leaves, names[supply.tree.levels[-1]])
        if not domain or len(domain) == len(supply.tree.levels):
            return f"{names[supply.tree.levels[-1]]} {'/'.join(domain)}" if domain else on
        return f"{names[supply.tree.levels[len(domain) - 1]]} {'/'.join(domain)}, {on}"
    return ""


def _topologies(live: Live, queued_gang: QueuedGang) -> Iterable[str]:
    pod_sets = queued_gang.admission.pod_sets if queued_gang.admission is not None else ()
    flavors = dict.fromkeys(name for part in pod_sets for name in part.flavors.values())
    known = live.state.config.flavors
    return [known[name].topology for name in flavors if name in known and known[name].topology]


def owner_of(workload: Object) -> str:
    """Kind and name of the job that owns a Workload."""
    owners: list[Any] = workload.get("metadata", {}).get("ownerReferences") or []
    chosen = next((one for one in owners if one.get("controller")), owners[0] if owners else None)
    return f"{chosen.get('kind', '')}/{chosen.get('name', '')}" if chosen else ""


def named(ref: Ref) -> str:
    """`namespace/name`."""
    return f"{ref.namespace}/{ref.name}"
