"""What is known of every gang in a cluster: its state, its place in line, and why it waits."""

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
from bayplan.model.admission_rejection import AdmissionReason
from bayplan.model.gang import Ref
from bayplan.model.plan import Admit, EvictGang, ReportNotAdmitted
from bayplan.model.queued_gang import QueuedGang
from bayplan.model.summary import Flaw
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.state.admission.queues import QueueEntry, QueueEntryState
from bayplan.state.reports.queries import QueuePosition, common_domain, turns

INACTIVE, WAITING, PLACING, ADMITTED, EVICTING = "inactive", "waiting", "placing", "admitted", "evicting"


@dataclass(frozen=True, slots=True)
class GangFacts:
    """One gang."""

    standing: QueueEntry
    state: str
    turn: QueuePosition | None
    fate: ForecastResult | None
    token: str  # the machine's word for why; empty if it waits for nothing
    why: str  # the same for people
    where: str
    owner: str  # kind and name of the job it stands for

    @property
    def demand(self) -> QueuedGang:
        return self.standing.demand

    @property
    def pods(self) -> int:
        admission = self.demand.admission
        if admission is not None:
            return sum(given.count for given in admission.given)
        return sum(pod_set.count for pod_set in self.demand.gang.root.pod_sets())


@dataclass(frozen=True, slots=True)
class ClusterOutlook:
    """All gangs, and the cluster as it would be once everyone whose turn it is got what fits now."""

    gangs: list[GangFacts]
    then: Live
    next: list[Ref]  # who would be admitted now

    def find(self, ref: Ref) -> GangFacts | None:
        return next((one for one in self.gangs if one.demand.gang.source == ref), None)


def outlook(live: Live) -> ClusterOutlook:
    """Every gang that is not over, in the order of the lines: those at work first."""
    state, then = live.state, live.imagined()
    positions, supplies = turns(state), state.holdings.supplies()
    with live.progress.stage("working out what admission decides next"):
        fates = forecast(then.state, live.settings.profile, live.now)
    shapes = {
        (standing.queue, standing.shape): fates[ref]
        for ref, standing in then.state.lines.standings.items()
        if ref in fates and isinstance(fates[ref].action, ReportNotAdmitted)
    }
    found = []
    for ref, standing in state.lines.standings.items():
        fate, turn = fates.get(ref), positions.get(ref)
        if (
            fate is None
            and standing.place is QueueEntryState.WAITING
            and not _is_strict(live, standing.queue)
        ):
            fate = shapes.get((standing.queue, standing.shape))  # gangs of one shape get one answer
        token, why = _why(live, standing, turn, fate)
        where, owner = where_is(live, standing.demand, supplies), owner_of(live.workloads.get(ref, {}))
        found.append(GangFacts(standing, _state(standing.demand), turn, fate, token, why, where, owner))
    order = (ADMITTED, EVICTING, PLACING, WAITING, INACTIVE)
    found.sort(key=lambda one: (order.index(one.state), one.standing.queue, one.standing.rank))
    return ClusterOutlook(found, then, [ref for ref, fate in fates.items() if isinstance(fate.action, Admit)])


def _is_strict(live: Live, queue: str) -> bool:
    rules = live.state.rules.queues
    return queue in rules and rules[queue].strict


def _state(demand: QueuedGang) -> str:
    if demand.admission is not None:
        return EVICTING if demand.evicted else ADMITTED if demand.admitted else PLACING
    return WAITING if demand.active else INACTIVE


def _why(
    live: Live, standing: QueueEntry, turn: QueuePosition | None, fate: ForecastResult | None
) -> tuple[str, str]:
    """Token and words."""
    demand = standing.demand
    match _state(demand):
        case "inactive":
            return "Deactivated", "switched off: spec.active is false"
        case "admitted":
            return "", ""
        case "evicting":
            said = condition_of(live.workloads.get(demand.gang.source, {}), EVICTED) or {}
            return str(said.get("reason", "")), f"has to leave: {said.get('reason', 'unknown')}"
        case "placing":
            checks = unready_checks(demand)
            if checks:
                return reason(
                    AdmissionReason.TO_BE_EVALUATED
                ), f"has quota, waits for check {', '.join(checks)}"
    if demand.admission is None and not standing.queue:
        return reason(AdmissionReason.MISCONFIGURED), _no_queue(demand)
    if fate is None:
        return _untried(live, standing, turn)
    match fate.action:
        case Admit():
            return reason(AdmissionReason.TO_BE_EVALUATED), admitted_words(fate.action)
        case ReportNotAdmitted(refusal=refusal):
            closed = closed_words(live, standing.queue) if refusal.token is AdmissionReason.CLOSED else ""
            return reason(refusal.token), closed or few_words(refusal)
        case EvictGang():
            return "NodeFailures", "has to leave: nothing can replace its failed nodes"


def _no_queue(demand: QueuedGang) -> str:
    namespace, name = demand.entrance
    return f"there is no LocalQueue {name} in {namespace}" if name else "names no queue"


def _untried(live: Live, standing: QueueEntry, turn: QueuePosition | None) -> tuple[str, str]:
    if standing.place is QueueEntryState.BACKOFF:
        until = standing.demand.not_before
        if until > LATEST:
            closed = closed_words(live, standing.queue)
            return reason(
                AdmissionReason.ON_HOLD
            ), f"on hold: {closed}" if closed else "on hold until it is released"
        return reason(AdmissionReason.ON_HOLD), f"put off until {moment(until)}"
    if turn is not None and turn.position > 1:
        return reason(
            AdmissionReason.TO_BE_EVALUATED
        ), f"waits behind {turn.first.namespace}/{turn.first.name}"
    if standing.queue and standing.queue not in live.state.rules.queues:
        return reason(AdmissionReason.MISCONFIGURED), f"there is no ClusterQueue {standing.queue}"
    return reason(AdmissionReason.TO_BE_EVALUATED), NOT_TRIED


FLAWS = {
    Flaw.FLAVOR_MISSING: "there is no ResourceFlavor {name}",
    Flaw.TOPOLOGY_MISSING: "ResourceFlavor {name} names a Topology that does not exist",
    Flaw.CHECK_MISSING: "there is no AdmissionCheck {name}",
    Flaw.CHECK_INACTIVE: "AdmissionCheck {name} is not active",
    Flaw.LEAVING: "it is being deleted",
    Flaw.SEVERAL_ELSEWHERE: "more than one of its checks sends gangs to other clusters",
    Flaw.ELSEWHERE_PER_FLAVOR: "a check that sends gangs to other clusters is only for some flavors",
    Flaw.ELSEWHERE_AND_PROVISIONING: "gangs are sent to other clusters, and nodes are made to order here",
    Flaw.OTHER: "something else is wrong with it: {name}",
    Flaw.CYCLE: "cohort {name} is its own ancestor",
    Flaw.STOPPED: "it is stopped (spec.stopPolicy)",
}


def closed_words(live: Live, queue: str) -> str:
    """Why a ClusterQueue admits nobody; empty if it does."""
    found = live.state.rules.queues.get(queue)
    flaws = list(live.state.flaws(found)) if found is not None else []
    told = "; ".join(FLAWS[flaw].format(name=name) for flaw, name in flaws)
    return f"ClusterQueue {queue} is closed: {told}" if told else ""


def where_is(live: Live, demand: QueuedGang, supplies: dict[str, CapacitySnapshot]) -> str:
    """Where an admitted gang stands: the smallest domain that holds it, and on how many hosts."""
    for topology in _topologies(live, demand):
        supply = supplies.get(topology)
        if supply is None:
            continue
        domain, leaves = common_domain(supply, demand)
        if not leaves:
            continue
        names = short_levels(supply.tree.levels)
        on = counted(leaves, names[supply.tree.levels[-1]])
        if not domain or len(domain) == len(supply.tree.levels):
            return f"{names[supply.tree.levels[-1]]} {'/'.join(domain)}" if domain else on
        return f"{names[supply.tree.levels[len(domain) - 1]]} {'/'.join(domain)}, {on}"
    return ""


def _topologies(live: Live, demand: QueuedGang) -> Iterable[str]:
    given = demand.admission.given if demand.admission is not None else ()
    flavors = dict.fromkeys(name for part in given for name in part.flavors.values())
    known = live.state.rules.flavors
    return [known[name].topology for name in flavors if name in known and known[name].topology]


def owner_of(workload: Object) -> str:
    """Kind and name of the job that a Workload stands for."""
    owners: list[Any] = workload.get("metadata", {}).get("ownerReferences") or []
    chosen = next((one for one in owners if one.get("controller")), owners[0] if owners else None)
    return f"{chosen.get('kind', '')}/{chosen.get('name', '')}" if chosen else ""


def named(ref: Ref) -> str:
    """`namespace/name`."""
    return f"{ref.namespace}/{ref.name}"
