"""What a queue can offer one gang now: flavors, a placement and, if needed, the gangs to preempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bayplan.model.admission_rejection import AdmissionReason, FlavorMode
from bayplan.model.queued_gang import QueuedGang
from bayplan.model.quota import Queue, VictimPolicy
from bayplan.scheduling.admission.candidates import PreemptionRequest, Victim
from bayplan.scheduling.admission.flavors import FlavorQuery, quota_offer
from bayplan.scheduling.admission.offer import Mode, Offer, settle_token
from bayplan.scheduling.admission.places import PlacementNeed, find_places, has_places, put_in, wanted_places
from bayplan.scheduling.admission.preemption import find_victims
from bayplan.scheduling.admission.simulation import AdmissionSimulation
from bayplan.state.admission.usage import PlacedPods


@dataclass(slots=True)
class Assessment:
    """An offer, and the gangs to preempt for it."""

    offer: Offer
    victims: list[Victim] = field(default_factory=list)


def assess(
    round_: AdmissionSimulation,
    demand: QueuedGang,
    queue: str,
    progress: Sequence[Mapping[str, int]] = (),
    pinned: Mapping[str, Mapping[str, str]] | None = None,
) -> Assessment:
    """The best offer for a gang without preemption, or else the best one with preemption."""
    before = round_.admitted.get(queue, {}).get(replace(demand.gang.source, name=demand.replaces))
    inquiry = FlavorQuery(round_, demand, round_.queues[queue], {}, pinned or {}, progress, before)
    inquiry, offer, wanted = _usable_offer(inquiry)
    if offer.mode is Mode.FIT:
        return Assessment(offer)
    round_.watchdog.so_far = offer.tried
    if offer.mode is Mode.PREEMPT:
        victims = _victims(inquiry, offer, wanted)
        if victims:
            return _placed(inquiry, Assessment(offer, victims))
    fewer = _with_fewer_pods(inquiry)
    return _placed(inquiry, fewer or Assessment(offer))


def _usable_offer(inquiry: FlavorQuery) -> tuple[FlavorQuery, Offer, list[PlacementNeed]]:
    """An offer of flavors whose nodes could hold the gang; other flavors are skipped in the same cycle.

    If they were only skipped in the next cycle, other gangs would take the capacity that the victims freed.
    """
    first = offer, wanted = _offer(inquiry)
    for _ in inquiry.queue.flavors():  # bounded: pod sets could alternate between flavors for ever
        left = any(index >= 0 for part in offer.progress() for index in part.values())
        if offer.token is not AdmissionReason.NO_PLACE or not left:
            break
        inquiry = replace(inquiry, progress=offer.progress())
        offer, wanted = _offer(inquiry)
    if offer.mode is not Mode.NO_FIT:
        return inquiry, offer, wanted
    for part in first[0].parts:
        for choice in part.choices.values():
            choice.tried = -1  # no flavor is left to try
    return inquiry, *first


def _offer(inquiry: FlavorQuery) -> tuple[Offer, list[PlacementNeed]]:
    """Flavors by quota, then by whether they have a placement; and the placements that were searched."""
    offer = quota_offer(inquiry)
    if offer.mode is Mode.NO_FIT:
        return offer, []
    wanted = wanted_places(inquiry, offer)
    if offer.mode is Mode.FIT:
        _try_places(inquiry, offer, wanted)
    if offer.mode is Mode.PREEMPT and not inquiry.demand.failed_nodes:
        _try_empty(inquiry, offer, wanted)
    settle_token(offer, inquiry.queue)
    return offer, wanted


def _try_places(inquiry: FlavorQuery, offer: Offer, wanted: list[PlacementNeed]) -> None:
    found = find_places(inquiry.round, inquiry.demand, wanted)
    if isinstance(found, dict):
        put_in(offer, found)
        return
    _, misfit = found
    offer.part(misfit.pod_sets[0]).obstacles.append(misfit)
    offer.downgrade(misfit.pod_sets[0], Mode.PREEMPT)


def _try_empty(inquiry: FlavorQuery, offer: Offer, wanted: list[PlacementNeed]) -> None:
    """Whether a placement exists with all placed gangs removed."""
    found = find_places(inquiry.round, inquiry.demand, wanted, empty=True)
    if isinstance(found, dict):
        for want in wanted:
            for pod_set in want.gang.root.pod_sets():
                offer.downgrade(pod_set.name, Mode.PREEMPT)
        return
    flavor, misfit = found
    part = offer.part(misfit.pod_sets[0])
    part.attempts = tuple(
        replace(a, chance=FlavorMode.NONE, token=AdmissionReason.NO_PLACE) if a.flavor == flavor else a
        for a in part.attempts
    )
    offer.downgrade(part.name, Mode.NO_FIT)


def _victims(inquiry: FlavorQuery, offer: Offer, wanted: list[PlacementNeed]) -> list[Victim]:
    cells = frozenset(
        (choice.flavor, resource)
        for part in offer.parts
        for resource, choice in part.choices.items()
        if choice.mode is Mode.PREEMPT
    )

    shapes = {pod_set.name: pod_set for pod_set in inquiry.demand.gang.root.pod_sets()}
    flavors = {p.name: want.flavor for want in wanted for p in want.gang.root.pod_sets()}

    def find() -> list[PlacedPods] | None:
        places = find_places(inquiry.round, inquiry.demand, wanted, brief=True)
        if not isinstance(places, dict):
            return None
        return [
            PlacedPods(flavors[name], place, shapes[name].requests, shapes[name].zones)
            for name, place in places.items()
        ]

    quota = {cell: amount for cell, amount in offer.quota.items() if amount}
    need = PreemptionRequest(
        inquiry.demand, inquiry.queue, cells, quota, find,
        lambda: has_places(inquiry.round, inquiry.demand, wanted), _one_level(inquiry.round, wanted),
        _ground(inquiry.round, wanted),
    )  # fmt: skip
    return find_victims(inquiry.round, need)


def _ground(round_: AdmissionSimulation, wanted: list[PlacementNeed]) -> tuple[str, frozenset[int]] | None:
    """The only leaf domains that the pods may use; None if they cannot be listed cheaply."""
    if len(wanted) != 1 or not round_.profile.rules_below_leaf:
        return None
    [want] = wanted
    usable = round_.rooms.usable(want.flavor, (pod_set.rules for pod_set in want.gang.root.pod_sets()))
    return None if usable is None else (want.flavor, usable)


def _one_level(round_: AdmissionSimulation, wanted: list[PlacementNeed]) -> tuple[str, str] | None:
    """The level at which one domain must hold all pods, if there is one."""
    if len(wanted) != 1:
        return None
    levels = {pod_set.locality.required for pod_set in wanted[0].gang.root.pod_sets()}
    level = levels.pop() if len(levels) == 1 else None
    return (wanted[0].flavor, level) if level in round_.rooms.levels(wanted[0].flavor) else None


def _with_fewer_pods(inquiry: FlavorQuery) -> Assessment | None:
    """Offer the largest number of pods between the minimum and the full count that fits."""
    pod_sets = list(inquiry.demand.gang.root.pod_sets())
    slack = [pod_set.count - pod_set.minimum for pod_set in pod_sets]
    total = sum(slack)
    if not total or inquiry.demand.admission is not None:
        return None
    best: Assessment | None = None
    low, high = 0, total + 1
    while low < high:
        middle = (low + high) // 2
        counts = {p.name: p.count - more * middle // total for p, more in zip(pod_sets, slack, strict=True)}
        found = _fewer(replace(inquiry, counts=counts))
        if found is not None:
            best, high = found, middle
        else:
            low = middle + 1
    return best


def _fewer(inquiry: FlavorQuery) -> Assessment | None:
    offer, wanted = _offer(inquiry)
    if offer.mode is Mode.FIT:
        return Assessment(offer)
    victims = _victims(inquiry, offer, wanted) if offer.mode is Mode.PREEMPT else []
    return Assessment(offer, victims) if victims else None


def _placed(inquiry: FlavorQuery, found: Assessment) -> Assessment:
    """Find the placement of the gang once its victims have left.

    Without victims it is placed in an empty cluster, so that no gang of lower priority takes the capacity
    meanwhile.
    """
    offer, demand, round_ = found.offer, inquiry.demand, inquiry.round
    explicit = any(ask.topology for ask in demand.asks)
    if offer.mode is not Mode.PREEMPT or not (explicit or round_.topology_only(inquiry.queue)):
        return found
    if demand.failed_nodes or not (found.victims or may_set_aside(inquiry.queue)):
        return found
    wanted = wanted_places(inquiry, offer)
    leaving = [victim.demand for victim in found.victims]
    round_.remove(leaving)
    places = find_places(round_, demand, wanted, empty=not leaving)
    round_.restore(leaving)
    if isinstance(places, dict):
        put_in(offer, places)
    return found


def may_set_aside(queue: Queue) -> bool:
    """Whether a gang without victims sets quota aside: not if its queue can always reclaim that quota."""
    return queue.preemption.reclaim is not VictimPolicy.ANY
