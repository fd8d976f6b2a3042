"""Placement of the pods of an offer by the placement engine, flavor by flavor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from bayplan.model.assignment import Assignment, Misfit, Path, Placement
from bayplan.model.gang import Gang, Group, PodSet
from bayplan.model.queued_gang import CheckState, Delayed, QueuedGang
from bayplan.model.quota import CheckKind, Flavor
from bayplan.model.rejection import Obstacle, ObstacleKind
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.domains.greedy import pod_sets_of
from bayplan.placement.domains.node_caps import place_aligned
from bayplan.placement.gang.place import gang_fits, place
from bayplan.placement.gang.replace import replace_nodes
from bayplan.placement.gang.resize import resize
from bayplan.placement.overlay.topology_overlay import in_domains
from bayplan.placement.pods.bindable import place_bindable
from bayplan.scheduling.admission.flavors import FlavorQuery
from bayplan.scheduling.admission.offer import Offer, PodSetOffer, topology_flavor
from bayplan.scheduling.admission.simulation import AdmissionSimulation
from bayplan.state.admission.usage import PlacedPods, placed_pods


@dataclass(frozen=True, slots=True, eq=False)
class PlacementNeed:
    """Pod sets of one gang that need a placement on the nodes of one flavor."""

    flavor: str
    gang: Gang
    current: dict[str, Assignment]  # where their pods run already, if nodes failed or the gang grows
    grows: bool = False


def placement_needs(query: FlavorQuery, offer: Offer) -> list[PlacementNeed]:
    """The placements an offer needs. A request that can never be met is noted as an obstacle."""
    simulation, queued_gang = query.simulation, query.queued_gang
    implied = simulation.topology_only(query.queue)
    asks = {ask.name: ask for ask in queued_gang.requests}
    by_flavor: dict[str, dict[str, PodSet]] = {}
    held: dict[str, Assignment] = {}
    parts = {part.name: part for part in offer.parts}
    open_names = _open_names(queued_gang, parts)
    for pod_set in queued_gang.gang.root.pod_sets():
        part = parts.get(pod_set.name)
        if part is None or not (asks[pod_set.name].topology or implied) or part.name not in open_names:
            continue
        flavor = _flavor(query, part, pod_set)
        if isinstance(flavor, Obstacle):
            part.fatal, offer.explicit_mode = flavor, None
            continue
        if _is_delayed(query, flavor):
            part.delayed = Delayed.PENDING
            continue
        if part.count != pod_set.count:
            pod_set = replace(pod_set, count=part.count, minimum=min(pod_set.minimum, part.count))
        by_flavor.setdefault(flavor, {})[part.name] = _with_updates(
            pod_set, queued_gang, simulation.flavors[flavor]
        )
        had = query.previous_admission_of(part.name)
        before = part.place if part.place is not None else had.assignment if had is not None else None
        if before is not None:
            held[part.name] = before
    return [
        PlacementNeed(name, _only(queued_gang.gang, pod_sets), held, grows=query.before is not None)
        for name, pod_sets in sorted(by_flavor.items())
    ]


def find_places(
    simulation: AdmissionSimulation,
    queued_gang: QueuedGang,
    needs: Iterable[PlacementNeed],
    *,
    empty: bool = False,
    brief: bool = False,
    within: tuple[Path, ...] = (),
) -> dict[str, Assignment] | tuple[str, Misfit]:
    """A placement for every pod set, or the flavor on which one has none and the misfit.

    `within`: only in these domains of the empty cluster.
    """
    simulation.watchdog.check()
    needs = list(needs)
    if not queued_gang.shape or not (empty or _is_fresh(simulation, queued_gang, needs)):
        return _find(simulation, queued_gang, needs, empty=empty, brief=brief, within=within)
    key = (
        queued_gang.shape,
        *map(repr, queued_gang.check_statuses),  # pod-set updates of checks are not hashable
        *((w.flavor, tuple(p.count for p in w.gang.root.pod_sets())) for w in needs),
        None if empty else tuple(simulation.reserved_domains(queued_gang, w.flavor) for w in needs),
        brief,
        within,
    )
    if key not in simulation.placement_cache:
        simulation.placement_cache[key] = _find(
            simulation, queued_gang, needs, empty=empty, brief=brief, within=within
        )
    answer: dict[str, Assignment] | tuple[str, Misfit] = simulation.placement_cache[key]
    return answer


def has_places(
    simulation: AdmissionSimulation, queued_gang: QueuedGang, needs: Sequence[PlacementNeed]
) -> bool:
    """Whether every pod set has a placement, without computing it."""
    simulation.watchdog.check()
    if len(needs) == 1 and not needs[0].grows and not queued_gang.failed_nodes:
        [placement_need] = needs
        supply, columns = (
            _capacity(simulation, queued_gang, placement_need.flavor),
            simulation.overlay.columns(placement_need.flavor),
        )
        on_hosts = simulation.rooms_of(placement_need.flavor) is None
        if columns is None and on_hosts and not simulation.is_filtered(queued_gang):
            return gang_fits(supply, placement_need.gang, simulation.profile, simulation.watchdog.check)
    return isinstance(find_places(simulation, queued_gang, needs, brief=True), dict)


def _capacity(
    simulation: AdmissionSimulation,
    queued_gang: QueuedGang,
    flavor: str,
    *,
    empty: bool = False,
    within: tuple[Path, ...] = (),
) -> CapacitySnapshot:
    """The capacity snapshot of the nodes that a gang may use."""
    supply = simulation.overlay.supply(flavor, empty=empty)
    if within:
        return in_domains(supply, within)
    kept = () if empty else simulation.reserved_domains(queued_gang, flavor)
    return in_domains(supply, kept, inverted=True) if kept else supply


def _is_fresh(
    simulation: AdmissionSimulation, queued_gang: QueuedGang, needs: Iterable[PlacementNeed]
) -> bool:
    """Whether the answer for gangs of the same shape can be reused: no usage changed and no pod runs yet."""
    return (
        simulation.overlay.unchanged
        and not queued_gang.failed_nodes
        and not any(placement_need.current for placement_need in needs)
    )


def _find(
    simulation: AdmissionSimulation,
    queued_gang: QueuedGang,
    needs: Iterable[PlacementNeed],
    *,
    empty: bool,
    brief: bool = False,
    within: tuple[Path, ...] = (),
) -> dict[str, Assignment] | tuple[str, Misfit]:
    found: dict[str, Assignment] = {}
    taken: list[PlacedPods] = []
    failure: tuple[str, Misfit] | None = None
    for placement_need in needs:
        if placement_need.grows and not empty:
            _free_current(simulation, placement_need, -1)
        answer = _place(simulation, queued_gang, placement_need, empty=empty, brief=brief, within=within)
        if placement_need.grows and not empty:
            _free_current(simulation, placement_need, 1)
        if answer.misfit is not None:
            failure = placement_need.flavor, answer.misfit
            break
        found |= answer.assignments
        for pod_set in placement_need.gang.root.pod_sets():
            if pod_set.name in answer.assignments and not empty:
                place_found, ref = answer.assignments[pod_set.name], queued_gang.gang.source
                taken.append(placed_pods(placement_need.flavor, place_found, pod_set, ref))
                simulation.use(taken[-1])
    for pods in taken:
        simulation.use(pods, -1)
    return failure or found


def _place(
    simulation: AdmissionSimulation,
    queued_gang: QueuedGang,
    placement_need: PlacementNeed,
    *,
    empty: bool,
    brief: bool,
    within: tuple[Path, ...] = (),
) -> Placement:
    """Place the pod sets of one flavor: in domains with capacity, zones that align, and nodes that bind."""
    columns = simulation.overlay.columns(placement_need.flavor, empty=empty)
    supply = _capacity(simulation, queued_gang, placement_need.flavor, empty=empty, within=within)
    answer = partial(_answer, simulation, queued_gang, placement_need, brief)
    lifted, held = placement_need.grows and not queued_gang.failed_nodes, placement_need.current
    rooms = None if held else simulation.rooms_of(placement_need.flavor)

    def align(snapshot: CapacitySnapshot, gang: Gang) -> Placement:
        zone_rules = simulation.profile.zones
        return place_aligned(snapshot, gang, columns, zone_rules, answer, held, lifted=lifted).placement

    def find(snapshot: CapacitySnapshot, gang: Gang) -> Placement:
        return align(snapshot, gang) if rooms is None else rooms.place(snapshot, gang, align, empty=empty)

    source, pod_sets = placement_need.gang.source, placement_need.gang.root.pod_sets()
    trials = simulation.trials
    if trials is None or not trials.concern(source.namespace, pod_sets):
        return find(supply, placement_need.gang)
    failed = queued_gang.failed_nodes
    with trials.trial(source, placement_need.flavor, empty=empty, failed=failed) as trial:
        return place_bindable(supply, placement_need.gang, trial, find, held, lifted=lifted)


def _answer(
    simulation: AdmissionSimulation,
    queued_gang: QueuedGang,
    placement_need: PlacementNeed,
    brief: bool,
    supply: CapacitySnapshot,
    gang: Gang,
) -> Placement:
    """The answer of the placement engine for a new gang, one that lost nodes, or one that grows."""
    profile = simulation.profile
    if queued_gang.failed_nodes:
        return replace_nodes(supply, gang, placement_need.current, queued_gang.failed_nodes, profile)
    if placement_need.grows:
        return resize(supply, gang, placement_need.current, profile)
    return place(supply, gang, profile, brief=brief, check=simulation.watchdog.check)


def _free_current(simulation: AdmissionSimulation, placement_need: PlacementNeed, sign: int) -> None:
    """Free the capacity that a growing gang already uses, so that it can be assigned again (sign 1: undo)."""
    for pod_set in placement_need.gang.root.pod_sets():
        if pod_set.name in placement_need.current:
            simulation.overlay.add_usage(
                placement_need.flavor,
                placement_need.current[pod_set.name],
                pod_set.requests,
                sign,
                pod_set.zones,
            )


def set_places(offer: Offer, found: dict[str, Assignment]) -> None:
    """Write the placements into the offer."""
    for name, assignment in found.items():
        part = offer.part(name)
        part.place = assignment
        if part.delayed is not None:
            part.delayed = Delayed.READY


def _open_names(queued_gang: QueuedGang, parts: Mapping[str, PodSetOffer]) -> set[str]:
    """Pod sets to place. With one on failed nodes, the others of its group: they limit where it may go."""
    found = {name for name, part in parts.items() if _is_open(part, queued_gang)}
    for member in queued_gang.gang.root.members if queued_gang.failed_nodes else ():
        names = {pod_set.name for pod_set in pod_sets_of(member)} & parts.keys()
        if names & found:
            found |= {name for name in names if parts[name].place is not None}
    return found


def _is_open(part: PodSetOffer, queued_gang: QueuedGang) -> bool:
    """Whether a pod set has no placement, or one on failed nodes."""
    if part.fatal is not None or not part.count:
        return False
    if part.place is None:
        return True
    return any(share.values[-1] in queued_gang.failed_nodes for share in part.place.shares)


def _flavor(query: FlavorQuery, part: PodSetOffer, pod_set: PodSet) -> str | Obstacle:
    if query.queued_gang.elastic:
        if pod_set.locality.required:
            return Obstacle(ObstacleKind.GROWS_AND_REQUIRES)
        if pod_set.locality.preferred:
            return Obstacle(ObstacleKind.GROWS_AND_PREFERS)
    if not any(query.simulation.overlay.has_topology(name) for name in query.queue.flavors()):
        return Obstacle(ObstacleKind.NO_TOPOLOGY_AT_ALL)
    return topology_flavor(part, query.simulation)


def _is_delayed(query: FlavorQuery, flavor: str) -> bool:
    """Whether the placement is decided later, after a check, or by another cluster."""
    simulation, queue = query.simulation, query.queue
    if any(simulation.checks_of(queue, name, CheckKind.MULTI_CLUSTER) for name in queue.flavors()):
        return True
    fresh = query.queued_gang.admission is None
    return fresh and simulation.checks_of(queue, flavor, CheckKind.PROVISIONING)


def _with_updates(pod_set: PodSet, queued_gang: QueuedGang, flavor: Flavor) -> PodSet:
    """The pod set with the tolerations of the flavor and the updates of the checks."""
    tweaks = [
        tweak
        for verdict in queued_gang.check_statuses
        for tweak in (verdict.updates if verdict.state is CheckState.READY else ())
        if tweak.pod_set == pod_set.name
    ]
    if not tweaks and not flavor.tolerations:
        return pod_set
    rules = pod_set.rules
    selector, tolerations = dict(rules.selector), rules.tolerations + flavor.tolerations
    for tweak in tweaks:
        selector |= tweak.selector
        tolerations += tweak.tolerations
    changed = replace(rules, selector=tuple(sorted(selector.items())), tolerations=tolerations)
    return replace(pod_set, rules=changed)


def _only(gang: Gang, pod_sets: dict[str, PodSet]) -> Gang:
    """The gang reduced to these pod sets."""
    if all(pod_sets.get(pod_set.name) is pod_set for pod_set in gang.root.pod_sets()):
        return gang
    members: list[Group | PodSet] = []
    for member in gang.root.members:
        if isinstance(member, PodSet):
            members += [pod_sets[member.name]] if member.name in pod_sets else []
            continue
        inner = tuple(pod_sets[p.name] for p in member.pod_sets() if p.name in pod_sets)
        if len(inner) == 1:
            members.append(inner[0])
        elif inner:
            members.append(replace(member, members=inner, minimum=min(member.minimum, len(inner))))
    return replace(gang, root=replace(gang.root, members=tuple(members), minimum=len(members)))
