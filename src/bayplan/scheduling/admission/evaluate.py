"""What a queue can offer one gang now: flavors, a placement and, if needed, the gangs to preempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bayplan.model.assignment import Misfit, Path
from bayplan.model.queued_gang import QueuedGang
from bayplan.model.quota import Queue, VictimPolicy
from bayplan.model.rejection import FlavorMode, RejectionReason
from bayplan.scheduling.admission.candidates import PreemptionRequest, Victim
from bayplan.scheduling.admission.flavors import FlavorQuery, quota_offer
from bayplan.scheduling.admission.offer import Mode, Offer, settle_reason
from bayplan.scheduling.admission.places import (
    PlacementNeed,
    find_places,
    has_places,
    placement_needs,
    set_places,
)
from bayplan.scheduling.admission.preemption import find_victims
from bayplan.scheduling.admission.simulation import AdmissionSimulation
from bayplan.state.admission.usage import PlacedPods, placed_pods


@dataclass(slots=True)
class Assessment:
    """An offer, and the gangs to preempt for it."""

    offer: Offer
    victims: list[Victim] = field(default_factory=list)


def evaluate(
    simulation: AdmissionSimulation,
    queued_gang: QueuedGang,
    queue: str,
    progress: Sequence[Mapping[str, int]] = (),
    pinned: Mapping[str, Mapping[str, str]] | None = None,
    *,
    preempts: bool = True,
) -> Assessment:
    """The best offer for a gang without preemption, or else the best one with preemption."""
    before = simulation.admitted.get(queue, {}).get(
        replace(queued_gang.gang.source, name=queued_gang.replaces)
    )
    query = FlavorQuery(simulation, queued_gang, simulation.queues[queue], {}, pinned or {}, progress, before)
    query, offer, needs = _usable_offer(query)
    if offer.mode is Mode.FIT or (offer.mode is Mode.PREEMPT and not preempts):
        return Assessment(offer)
    simulation.watchdog.so_far = offer.tried
    if offer.mode is Mode.PREEMPT:
        victims = _victims(query, offer, needs)
        if victims:
            return _placed(query, Assessment(offer, victims))
    fewer = _with_fewer_pods(query)
    return _placed(query, fewer or Assessment(offer))


def _usable_offer(query: FlavorQuery) -> tuple[FlavorQuery, Offer, list[PlacementNeed]]:
    """An offer of flavors whose nodes could hold the gang; other flavors are skipped in the same cycle.

    If they were only skipped in the next cycle, other gangs would take the capacity that the victims freed.
    """
    first = offer, needs = _offer(query)
    for _ in query.queue.flavors():  # bounded: pod sets could alternate between flavors for ever
        left = any(index >= 0 for part in offer.progress() for index in part.values())
        if offer.reason is not RejectionReason.NO_PLACE or not left:
            break
        query = replace(query, progress=offer.progress())
        offer, needs = _offer(query)
    if offer.mode is not Mode.NO_FIT:
        return query, offer, needs
    for part in first[0].parts:
        for choice in part.choices.values():
            choice.tried = -1  # no flavor is left to try
    return query, *first


def _offer(query: FlavorQuery) -> tuple[Offer, list[PlacementNeed]]:
    """Flavors by quota, then by whether they have a placement; and the placements that were searched."""
    offer = quota_offer(query)
    if offer.mode is Mode.NO_FIT:
        return offer, []
    needs = placement_needs(query, offer)
    if offer.mode is Mode.FIT:
        _try_places(query, offer, needs)
    if offer.mode is Mode.PREEMPT and not query.queued_gang.failed_nodes:
        _try_empty(query, offer, needs)
    settle_reason(offer, query.queue)
    return offer, needs


def _try_places(query: FlavorQuery, offer: Offer, needs: list[PlacementNeed]) -> None:
    assessment = find_places(query.simulation, query.queued_gang, needs)
    if isinstance(assessment, dict):
        set_places(offer, assessment)
        return
    _, misfit = assessment
    offer.part(misfit.pod_sets[0]).obstacles.append(misfit)
    offer.downgrade(misfit.pod_sets[0], Mode.PREEMPT)


def _try_empty(query: FlavorQuery, offer: Offer, needs: list[PlacementNeed]) -> None:
    """Whether a placement exists with all placed gangs removed."""
    assessment = find_places(query.simulation, query.queued_gang, needs, empty=True)
    if isinstance(assessment, dict):
        for placement_need in needs:
            for pod_set in placement_need.gang.root.pod_sets():
                offer.downgrade(pod_set.name, Mode.PREEMPT)
        return
    flavor, misfit = assessment
    part = offer.part(misfit.pod_sets[0])
    part.attempts = tuple(
        replace(a, mode=FlavorMode.NONE, reason=RejectionReason.NO_PLACE) if a.flavor == flavor else a
        for a in part.attempts
    )
    offer.downgrade(part.name, Mode.NO_FIT)


def _victims(query: FlavorQuery, offer: Offer, needs: list[PlacementNeed]) -> list[Victim]:
    cells = frozenset(
        (choice.flavor, resource)
        for part in offer.parts
        for resource, choice in part.choices.items()
        if choice.mode is Mode.PREEMPT
    )

    shapes = {pod_set.name: pod_set for pod_set in query.queued_gang.gang.root.pod_sets()}
    flavors = {
        p.name: placement_need.flavor for placement_need in needs for p in placement_need.gang.root.pod_sets()
    }

    def find() -> list[PlacedPods] | None:
        places = find_places(query.simulation, query.queued_gang, needs, brief=True)
        if not isinstance(places, dict):
            return None
        ref = query.queued_gang.gang.source
        return [placed_pods(flavors[name], place, shapes[name], ref) for name, place in places.items()]

    quota = {cell: amount for cell, amount in offer.quota.items() if amount}
    # pods anywhere may be in the way of affinity or spread
    local = not query.simulation.is_filtered(query.queued_gang)
    request = PreemptionRequest(
        query.queued_gang, query.queue, cells, quota, find,
        lambda: has_places(query.simulation, query.queued_gang, needs),
        _one_level(query.simulation, needs) if local else None,
        _leaf_domains(query.simulation, needs) if local else None,
    )  # fmt: skip
    return find_victims(query.simulation, request)


def _leaf_domains(
    simulation: AdmissionSimulation, needs: list[PlacementNeed]
) -> tuple[str, frozenset[int]] | None:
    """The only leaf domains that the pods may use; None if they cannot be listed cheaply."""
    if len(needs) != 1 or not simulation.profile.rules_below_leaf:
        return None
    [placement_need] = needs
    usable = simulation.overlay.usable(
        placement_need.flavor, (pod_set.rules for pod_set in placement_need.gang.root.pod_sets())
    )
    return None if usable is None else (placement_need.flavor, usable)


def _one_level(simulation: AdmissionSimulation, needs: list[PlacementNeed]) -> tuple[str, str] | None:
    """The level at which one domain must hold all pods, if there is one."""
    if len(needs) != 1:
        return None
    levels = {pod_set.locality.required for pod_set in needs[0].gang.root.pod_sets()}
    level = levels.pop() if len(levels) == 1 else None
    return (needs[0].flavor, level) if level in simulation.overlay.levels(needs[0].flavor) else None


def _with_fewer_pods(query: FlavorQuery) -> Assessment | None:
    """Offer the largest number of pods between the minimum and the full count that fits."""
    pod_sets = list(query.queued_gang.gang.root.pod_sets())
    slack = [pod_set.count - pod_set.minimum for pod_set in pod_sets]
    total = sum(slack)
    if not total or query.queued_gang.admission is not None:
        return None
    best: Assessment | None = None
    low, high = 0, total + 1
    while low < high:
        middle = (low + high) // 2
        counts = {p.name: p.count - more * middle // total for p, more in zip(pod_sets, slack, strict=True)}
        assessment = _fewer(replace(query, counts=counts))
        if assessment is not None:
            best, high = assessment, middle
        else:
            low = middle + 1
    return best


def _fewer(query: FlavorQuery) -> Assessment | None:
    offer, needs = _offer(query)
    if offer.mode is Mode.FIT:
        return Assessment(offer)
    victims = _victims(query, offer, needs) if offer.mode is Mode.PREEMPT else []
    return Assessment(offer, victims) if victims else None


def _placed(query: FlavorQuery, assessment: Assessment) -> Assessment:
    """Find the placement of the gang once its victims have left.

    Without victims it is placed in an empty cluster, so that no gang of lower priority takes the capacity
    meanwhile.
    """
    offer, queued_gang, simulation = assessment.offer, query.queued_gang, query.simulation
    explicit = any(ask.topology for ask in queued_gang.requests)
    if offer.mode is not Mode.PREEMPT or not (explicit or simulation.topology_only(query.queue)):
        return assessment
    if queued_gang.failed_nodes or not (assessment.victims or may_set_aside(query.queue)):
        return assessment
    needs = placement_needs(query, offer)
    leaving = [victim.queued_gang for victim in assessment.victims]
    with simulation.tentative():
        simulation.remove(leaving)
        places = find_places(simulation, queued_gang, needs, empty=not leaving)
    if isinstance(places, dict):
        set_places(offer, places)
    return assessment


def may_set_aside(queue: Queue) -> bool:
    """Whether a gang without victims sets quota aside: not if its queue can always reclaim that quota."""
    return queue.preemption.reclaim is not VictimPolicy.ANY


def domains_to_reserve(
    simulation: AdmissionSimulation, queued_gang: QueuedGang, queue: str, offer: Offer
) -> tuple[str, tuple[Path, ...]]:
    """A topology, and domains that hold the gang once others have ended there; none if it needs none.

    The domains reserved already, if they still suffice; otherwise the one that came closest, or the hosts of
    a placement in the empty cluster.
    """
    query = FlavorQuery(simulation, queued_gang, simulation.queues[queue], {}, {}, (), None)
    unplaced = replace(offer, parts=[replace(part, place=None) for part in offer.parts])
    needs = placement_needs(query, unplaced)
    if not needs:
        return "", ()
    topology, tried = simulation.flavors[needs[0].flavor].topology, list[tuple[Path, ...]]()
    known = simulation.reserved.get(topology)
    if known is not None and known.owner == queued_gang.gang.source:
        tried.append(known.domains)
    misfits = [o for part in offer.parts for o in part.obstacles if isinstance(o, Misfit)]
    tried += [(o.nearest.domain,) for o in misfits if o.nearest is not None and o.nearest.domain]
    for domains in tried:
        if isinstance(find_places(simulation, queued_gang, needs, empty=True, within=domains), dict):
            return topology, domains
    places = find_places(simulation, queued_gang, needs, empty=True)
    if not isinstance(places, dict):
        return "", ()
    overlay, flavor = simulation.overlay, needs[0].flavor
    found = {overlay.path(flavor, share.values) for place in places.values() for share in place.shares}
    return topology, tuple(sorted(found))
