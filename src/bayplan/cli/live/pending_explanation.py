"""The story of a gang that waits: what was tried, what is short, where it nearly fits, what would help."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from bayplan.cli.inputs.levels import named_levels
from bayplan.cli.live.forecast import ForecastResult, pods_by_set, with_fewer_pods
from bayplan.cli.live.state import Live
from bayplan.cli.render.placements import drawn_misfit, tolerating
from bayplan.cli.render.tables import table
from bayplan.explanation.misfit import Explanation, explain, wish
from bayplan.explanation.reasons import amount, attempts, first_misfit, lacks_quota, victim_text
from bayplan.explanation.text import amount_text, counted, importance
from bayplan.model.admission_rejection import (
    AdmissionReason,
    AdmissionRejection,
    Obstacle,
    ObstacleKind,
    PodSetAttempts,
)
from bayplan.model.assignment import Misfit
from bayplan.model.gang import Gang
from bayplan.model.node import HOSTNAME, Topology
from bayplan.model.plan import ReportNotAdmitted
from bayplan.model.queued_gang import QueuedGang
from bayplan.model.quota import Cell, Queue, VictimPolicy
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.domains.node_caps import place_aligned
from bayplan.placement.gang.place import place
from bayplan.placement.overlay.topology_numa_overlay import TopologyNumaOverlay
from bayplan.placement.overlay.topology_overlay import TopologyOverlay
from bayplan.state.reports.queries import Holder, holders, other_pods, users

HOLDERS_MAX = 8
NO_TOPOLOGY = Topology("none", (HOSTNAME,))

Sections = dict[str, list[str]]
"""Title → lines, in the order they are told."""


@dataclass(frozen=True, slots=True)
class PlacementMiss:
    """A gang that has quota and no place: on which flavor, in which room, and what that means."""

    gang: Gang
    misfit: Misfit
    supply: CapacitySnapshot
    told: Explanation
    empty: bool = False  # the room is what it would be without any placed gang


def wishes(live: Live, demand: QueuedGang) -> list[str]:
    """What is asked for, pod set by pod set."""
    known = [supply.tree.topology for supply in live.state.holdings.supplies().values()]
    named = set(named_levels(demand.gang))
    fitting = (topology for topology in known if named <= set(topology.levels))
    topology = next(fitting, known[0] if known else NO_TOPOLOGY)
    return [f"{pod_set.name}: {wish(pod_set, topology)}" for pod_set in demand.gang.root.pod_sets()]


def waiting_sections(live: Live, demand: QueuedGang, queue: str, fate: ForecastResult | None) -> Sections:
    """Everything about a gang that was declined; of one that nobody looked at, only what its queue has."""
    found: Sections = {}
    rules = live.state.rules.queues.get(queue)
    if rules is None:
        return found
    refusal = fate.action.refusal if fate is not None and isinstance(fate.action, ReportNotAdmitted) else None
    if refusal is not None:
        found |= _tried(refusal)
    found[f"quota of {queue}"] = quota_lines(live, demand, queue)
    if refusal is None:
        return found
    if used := list(_users(live, queue, refusal)):
        found["used by"] = used
    miss = _miss(live, demand, refusal)
    if miss is not None:
        found["nearest place"] = list(_nearest(live, miss))
    if changes := list(_changes(live, demand, queue, refusal, miss)):
        found["to get it admitted"] = changes
    victims = fate.victims if fate is not None else ()
    if victims:
        found["displaces"] = [victim_text(eviction) for eviction in victims]
    elif refusal.tried:
        found["displaces nobody"] = [_policy(live, demand, rules, refusal)]
    return found


def quota_lines(live: Live, demand: QueuedGang, queue: str) -> list[str]:
    """What the gang asks for beside what its queue has, for each flavor that could give it."""
    account = live.state.holdings.books().queues.get(queue)
    rules = live.state.rules.queues.get(queue)
    if account is None or rules is None:
        return []
    asked = _asked(demand)
    rows: list[list[object]] = []
    for flavor in dict.fromkeys(rules.flavors()):
        for resource in sorted(asked, key=importance):
            cell: Cell = (flavor, resource)
            if cell not in account.node.quotas:
                continue
            used, nominal = account.usage.get(cell, 0), account.quota(cell).nominal
            numbers = (asked[resource], used, nominal, max(0, used - nominal), account.available(cell))
            rows.append([flavor, resource, *(amount_text(resource, number) for number in numbers)])
    heads = ("FLAVOR", "RESOURCE", "ASKED", "USED", "NOMINAL", "BORROWED", "CAN HAVE")
    return table(heads, rows, heads[2:]) if rows else ["none for what it asks for"]


def _asked(demand: QueuedGang) -> dict[str, int]:
    """The sum over all pods, by resource."""
    asked: dict[str, int] = {}
    for ask in demand.asks:
        for resource, each in ask.each.items():
            asked[resource] = asked.get(resource, 0) + each * ask.count
    return asked


def _tried(refusal: AdmissionRejection) -> Sections:
    several = len(refusal.tried) > 1
    lines = [
        f"{part.pod_set}: {line}" if several else line for part in refusal.tried for line in attempts(part)
    ]
    return {"tried": lines} if lines else {}


def _miss(live: Live, demand: QueuedGang, refusal: AdmissionRejection) -> PlacementMiss | None:
    """Why there was no place. Without quota only an empty cluster was looked at: then that one is told."""
    found = first_misfit(refusal)
    if found is None and (refusal.token is not AdmissionReason.NO_PLACE or not refusal.tried):
        return None
    part, misfit = found or (refusal.tried[0], None)
    flavor, rules = _flavor(live, part, misfit), live.state.rules.flavors
    if not flavor:
        return None
    profile, supplies, empty = live.settings.profile, live.state.holdings.supplies(), found is None
    rooms = TopologyOverlay(
        supplies, rules, zones=TopologyNumaOverlay(live.state.zones.stocks(supplies), profile.zones)
    )
    supply, columns = rooms.supply(flavor, empty=empty), rooms.columns(flavor, empty=empty)
    gang = tolerating(demand.gang, rules[flavor].tolerations)
    asked = place_aligned(supply, gang, columns, profile.zones, partial(place, profile=profile))
    misfit = misfit or asked.placement.misfit
    if misfit is None:
        return None
    told = explain(asked.gang, misfit, asked.supply, profile, {})
    return PlacementMiss(asked.gang, misfit, asked.supply, told, empty)


def _flavor(live: Live, part: PodSetAttempts, misfit: Misfit | None) -> str:
    """The flavor on which a place was looked for."""
    known, topologies = live.state.rules.flavors, live.state.holdings.clusters
    wanted = {misfit.topology} if misfit is not None else set(topologies)
    tried = [attempt.flavor for attempt in part.attempts] or list(known)
    return next((name for name in tried if name in known and known[name].topology in wanted), "")


def _users(live: Live, queue: str, refusal: AdmissionRejection) -> Iterator[str]:
    """Who has the quota that is short."""
    for obstacle in lacks_quota(refusal):
        found = users(live.state, queue, (obstacle.flavor, obstacle.resource))
        for ref, other, used in found[:HOLDERS_MAX]:
            where = "" if other == queue else f" of {other}"
            yield f"{ref.namespace}/{ref.name}{where}: {amount(obstacle.resource, used)} of {obstacle.flavor}"
        if len(found) > HOLDERS_MAX:
            yield counted(len(found) - HOLDERS_MAX, "more gang")


def _nearest(live: Live, miss: PlacementMiss) -> Iterator[str]:
    yield from miss.told.found
    near = miss.misfit.nearest
    if miss.empty:
        yield "so it would be even if no other gang were there"
    elif near is not None:
        there = [f"{h.gang.namespace}/{h.gang.name} ({counted(h.pods, 'pod')})" for h in _held(live, miss)]
        others = other_pods(live.state, miss.supply, near.domain)
        shown = there[:HOLDERS_MAX]
        shown += [f"{counted(len(there) - HOLDERS_MAX, 'more gang')}"] if len(there) > HOLDERS_MAX else []
        shown += [counted(others, "pod") + " of no gang"] if others else []
        yield f"held there by {', '.join(shown)}" if shown else "nobody holds anything there"
    yield from drawn_misfit(miss.gang, miss.misfit, miss.supply)


def _held(live: Live, miss: PlacementMiss) -> list[Holder]:
    assert miss.misfit.nearest is not None
    return holders(live.state, miss.supply, miss.misfit.nearest.domain)


def _changes(
    live: Live, demand: QueuedGang, queue: str, refusal: AdmissionRejection, miss: PlacementMiss | None
) -> Iterator[str]:
    """The least that would do; what can be tried out has been."""
    profile = live.settings.profile
    fewer = with_fewer_pods(live.state, profile, demand, queue, live.now) if refusal.tried else None
    if fewer is not None:
        counts = pods_by_set(fewer)
        asked = {pod_set.name: pod_set.count for pod_set in demand.gang.root.pod_sets()}
        less = [f"{counts[n]} instead of {counted(asked[n], 'pod')}" for n in asked if counts[n] < asked[n]]
        if less:
            yield f"ask for {' and '.join(less)}: that fits now"
    for advice in miss.told.advice if miss is not None else ():
        if not (fewer is not None and advice.startswith("ask for")):
            yield advice
    seen = set()
    besides = "besides, " if miss is not None else ""
    for part in refusal.tried:
        for obstacle in part.obstacles:
            text = _quota_change(live, obstacle, queue) if isinstance(obstacle, Obstacle) else ""
            if text and text not in seen:
                seen.add(text)
                yield besides + text


def _quota_change(live: Live, obstacle: Obstacle, queue: str) -> str:
    account = live.state.holdings.books().queues.get(queue)
    owners = f"{queue} or its cohort" if account is not None and account.parent is not None else queue
    match obstacle.what:
        case ObstacleKind.SHORT:
            more = amount(obstacle.resource, obstacle.amounts[0])
            return f"free or add {more} of quota for {obstacle.flavor} in {owners}"
        case ObstacleKind.TOO_MUCH:
            before, asked, most = obstacle.amounts
            more = amount(obstacle.resource, before + asked - most)
            return f"raise what {queue} may use of {obstacle.flavor} by {more}"
        case ObstacleKind.NOT_COVERED:
            return f"give {queue} a quota for {obstacle.resource}"
        case ObstacleKind.TAINT:
            return f"tolerate the taint {obstacle.taint}"
    return ""


def _policy(live: Live, demand: QueuedGang, queue: Queue, refusal: AdmissionRejection) -> str:
    rules, account = queue.preemption, live.state.holdings.books().queues[queue.name]
    if rules.within is VictimPolicy.NEVER and rules.reclaim is VictimPolicy.NEVER:
        return f"the preemption of {queue.name} is switched off"
    if not rules.while_borrowing:
        asked = _asked(demand)
        short = [(obstacle.flavor, obstacle.resource) for obstacle in lacks_quota(refusal)]
        if any(asked.get(cell[1], 0) > account.quota(cell).nominal for cell in short):
            return f"it asks for more than {queue.name} owns, and may not displace others in order to borrow"
    return "those that it may displace do not hold enough"
