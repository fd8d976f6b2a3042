"""Explains a pending gang: the flavors tried, insufficient quota, the closest domain, what would help."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from bayplan.cli.inputs.levels import named_levels
from bayplan.cli.live.forecast import ForecastResult, pods_by_set, with_fewer_pods
from bayplan.cli.live.state import Live
from bayplan.cli.render.placements import drawn_misfit, tolerating
from bayplan.cli.render.tables import table
from bayplan.explanation.misfit import Explanation, explain, request_text
from bayplan.explanation.reasons import amount, attempts, first_misfit, lacks_quota, victim_text
from bayplan.explanation.text import amount_text, counted, importance
from bayplan.model.assignment import Misfit
from bayplan.model.gang import Gang
from bayplan.model.node import HOSTNAME, Topology
from bayplan.model.plan import ReportNotAdmitted
from bayplan.model.queued_gang import QueuedGang
from bayplan.model.quota import Cell, Queue, VictimPolicy
from bayplan.model.rejection import (
    Obstacle,
    ObstacleKind,
    PodSetAttempts,
    Rejection,
    RejectionReason,
)
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.domains.node_caps import place_aligned
from bayplan.placement.gang.place import place
from bayplan.placement.overlay.topology_numa_overlay import TopologyNumaOverlay
from bayplan.placement.overlay.topology_overlay import TopologyOverlay
from bayplan.placement.pods.host_rooms import HostRooms
from bayplan.state.reports.queries import Holder, holders, other_pods, usage_by_gang

HOLDERS_MAX = 8
NO_TOPOLOGY = Topology("none", (HOSTNAME,))

Sections = dict[str, list[str]]
"""Title → lines, in the order they are printed."""


@dataclass(frozen=True, slots=True)
class PlacementMiss:
    """A gang that has quota but does not fit: the capacity it was tried on, and the explanation."""

    gang: Gang
    misfit: Misfit
    supply: CapacitySnapshot
    explanation: Explanation
    empty: bool = False  # the capacity is that of a cluster without admitted gangs


def request_lines(live: Live, queued_gang: QueuedGang) -> list[str]:
    """What the gang requests, one line for each pod set."""
    known = [supply.tree.topology for supply in live.state.usage.supplies().values()]
    named = set(named_levels(queued_gang.gang))
    fitting = (topology for topology in known if named <= set(topology.levels))
    topology = next(fitting, known[0] if known else NO_TOPOLOGY)
    return [
        f"{pod_set.name}: {request_text(pod_set, topology)}" for pod_set in queued_gang.gang.root.pod_sets()
    ]


def pending_sections(
    live: Live, queued_gang: QueuedGang, queue: str, result: ForecastResult | None
) -> Sections:
    """All sections about a rejected gang; of a gang not evaluated yet, only the quota of its queue."""
    sections: Sections = {}
    rules = live.state.config.queues.get(queue)
    if rules is None:
        return sections
    rejection = (
        result.action.rejection
        if result is not None and isinstance(result.action, ReportNotAdmitted)
        else None
    )
    if rejection is not None:
        sections |= _tried(rejection)
    sections[f"quota of {queue}"] = quota_lines(live, queued_gang, queue)
    if rejection is None:
        return sections
    if used := list(_users(live, queue, rejection)):
        sections["used by"] = used
    miss = _miss(live, queued_gang, rejection)
    if miss is not None:
        sections["closest domain"] = list(_nearest(live, miss))
    if changes := list(_changes(live, queued_gang, queue, rejection, miss)):
        sections["to get it admitted"] = changes
    victims = result.victims if result is not None else ()
    if victims:
        sections["preempts"] = [victim_text(eviction) for eviction in victims]
    elif rejection.tried:
        sections["preempts no gang"] = [_policy(live, queued_gang, rules, rejection)]
    return sections


def quota_lines(live: Live, queued_gang: QueuedGang, queue: str) -> list[str]:
    """What the gang requests and what its queue has, for each flavor that has quota for it."""
    account = live.state.usage.quota_tree().queues.get(queue)
    rules = live.state.config.queues.get(queue)
    if account is None or rules is None:
        return []
    asked = _asked(queued_gang)
    rows: list[list[object]] = []
    for flavor in dict.fromkeys(rules.flavors()):
        for resource in sorted(asked, key=importance):
            cell: Cell = (flavor, resource)
            if cell not in account.node.quotas:
                continue
            used, nominal = account.usage.get(cell, 0), account.quota(cell).nominal
            numbers = (asked[resource], used, nominal, max(0, used - nominal), account.available(cell))
            rows.append([flavor, resource, *(amount_text(resource, number) for number in numbers)])
    heads = ("FLAVOR", "RESOURCE", "REQUESTED", "USED", "NOMINAL", "BORROWED", "AVAILABLE")
    return table(heads, rows, heads[2:]) if rows else ["none for the requested resources"]


def _asked(queued_gang: QueuedGang) -> dict[str, int]:
    """The sum over all pods, by resource."""
    asked: dict[str, int] = {}
    for ask in queued_gang.requests:
        for resource, each in ask.per_pod.items():
            asked[resource] = asked.get(resource, 0) + each * ask.count
    return asked


def _tried(rejection: Rejection) -> Sections:
    several = len(rejection.tried) > 1
    lines = [
        f"{part.pod_set}: {line}" if several else line for part in rejection.tried for line in attempts(part)
    ]
    return {"tried": lines} if lines else {}


def _miss(live: Live, queued_gang: QueuedGang, rejection: Rejection) -> PlacementMiss | None:
    """Why the gang does not fit. Without quota only an empty cluster was tried: then that is explained."""
    first = first_misfit(rejection)
    if first is None and (rejection.reason is not RejectionReason.NO_PLACE or not rejection.tried):
        return None
    part, misfit = first or (rejection.tried[0], None)
    flavor, rules = _flavor(live, part, misfit), live.state.config.flavors
    if not flavor:
        return None
    profile, supplies, empty = live.settings.profile, live.state.usage.supplies(), first is None
    rooms = HostRooms(live.state.taken.domains.all(), rules)
    overlay = TopologyOverlay(
        supplies,
        rules,
        zones=TopologyNumaOverlay(live.state.numa.stocks(supplies), profile.zones),
        beside=rooms.beside_other_topologies if profile.binding_filters else None,
    )
    supply, columns = overlay.supply(flavor, empty=empty), overlay.columns(flavor, empty=empty)
    gang = tolerating(queued_gang.gang, rules[flavor].tolerations)
    asked = place_aligned(supply, gang, columns, profile.zones, partial(place, profile=profile))
    misfit = misfit or asked.placement.misfit
    if misfit is None:
        return None
    explanation = explain(asked.gang, misfit, asked.snapshot, profile, {})
    return PlacementMiss(asked.gang, misfit, asked.snapshot, explanation, empty)


def _flavor(live: Live, part: PodSetAttempts, misfit: Misfit | None) -> str:
    """The flavor whose topology was searched."""
    known, topologies = live.state.config.flavors, live.state.usage.topologies
    wanted = {misfit.topology} if misfit is not None else set(topologies)
    tried = [attempt.flavor for attempt in part.attempts] or list(known)
    return next((name for name in tried if name in known and known[name].topology in wanted), "")


def _users(live: Live, queue: str, rejection: Rejection) -> Iterator[str]:
    """The gangs that use the quota that is insufficient."""
    for obstacle in lacks_quota(rejection):
        usages = usage_by_gang(live.state, queue, (obstacle.flavor, obstacle.resource))
        for ref, other, used in usages[:HOLDERS_MAX]:
            where = "" if other == queue else f" of {other}"
            yield f"{ref.namespace}/{ref.name}{where}: {amount(obstacle.resource, used)} of {obstacle.flavor}"
        if len(usages) > HOLDERS_MAX:
            yield counted(len(usages) - HOLDERS_MAX, "more gang")


def _nearest(live: Live, miss: PlacementMiss) -> Iterator[str]:
    yield from miss.explanation.found
    near = miss.misfit.nearest
    if miss.empty:
        yield "it would not fit in an empty cluster either"
    elif near is not None:
        gangs = [f"{h.gang.namespace}/{h.gang.name} ({counted(h.pods, 'pod')})" for h in _held(live, miss)]
        others = other_pods(live.state, miss.supply, near.domain)
        shown = gangs[:HOLDERS_MAX]
        shown += [f"{counted(len(gangs) - HOLDERS_MAX, 'more gang')}"] if len(gangs) > HOLDERS_MAX else []
        shown += [counted(others, "pod") + " of no gang"] if others else []
        yield f"used there by {', '.join(shown)}" if shown else "no pods run there"
    yield from drawn_misfit(miss.gang, miss.misfit, miss.supply)


def _held(live: Live, miss: PlacementMiss) -> list[Holder]:
    assert miss.misfit.nearest is not None
    return holders(live.state, miss.supply, miss.misfit.nearest.domain)


def _changes(
    live: Live, queued_gang: QueuedGang, queue: str, rejection: Rejection, miss: PlacementMiss | None
) -> Iterator[str]:
    """The smallest changes that would get it admitted; those that can be simulated have been."""
    profile = live.settings.profile
    fewer = with_fewer_pods(live.state, profile, queued_gang, queue, live.now) if rejection.tried else None
    if fewer is not None:
        counts = pods_by_set(fewer)
        asked = {pod_set.name: pod_set.count for pod_set in queued_gang.gang.root.pod_sets()}
        less = [f"{counts[n]} instead of {counted(asked[n], 'pod')}" for n in asked if counts[n] < asked[n]]
        if less:
            yield f"request {' and '.join(less)}: that fits now"
    for advice in miss.explanation.advice if miss is not None else ():
        if not (fewer is not None and advice.startswith("request ")):
            yield advice
    seen = set()
    also = "in addition, " if miss is not None else ""
    for part in rejection.tried:
        for obstacle in part.obstacles:
            text = _quota_change(live, obstacle, queue) if isinstance(obstacle, Obstacle) else ""
            if text and text not in seen:
                seen.add(text)
                yield also + text


def _quota_change(live: Live, obstacle: Obstacle, queue: str) -> str:
    account = live.state.usage.quota_tree().queues.get(queue)
    owners = f"{queue} or its cohort" if account is not None and account.parent is not None else queue
    match obstacle.kind:
        case ObstacleKind.SHORT:
            more = amount(obstacle.resource, obstacle.amounts[0])
            return f"free or add {more} of quota for {obstacle.flavor} in {owners}"
        case ObstacleKind.TOO_MUCH:
            before, requested, limit = obstacle.amounts
            more = amount(obstacle.resource, before + requested - limit)
            return f"raise the maximum of {queue} in {obstacle.flavor} by {more}"
        case ObstacleKind.NOT_COVERED:
            return f"give {queue} a quota for {obstacle.resource}"
        case ObstacleKind.TAINT:
            return f"tolerate the taint {obstacle.taint}"
    return ""


def _policy(live: Live, queued_gang: QueuedGang, queue: Queue, rejection: Rejection) -> str:
    rules, account = queue.preemption, live.state.usage.quota_tree().queues[queue.name]
    if rules.within is VictimPolicy.NEVER and rules.reclaim is VictimPolicy.NEVER:
        return f"preemption is disabled in {queue.name}"
    if not rules.while_borrowing:
        asked = _asked(queued_gang)
        short = [(obstacle.flavor, obstacle.resource) for obstacle in lacks_quota(rejection)]
        if any(asked.get(cell[1], 0) > account.quota(cell).nominal for cell in short):
            return (
                f"it requests more than the nominal quota of {queue.name}, "
                "and may not preempt in order to borrow"
            )
    return "the gangs that it may preempt do not use enough"
