"""One attempt to assign nodes to the pending pods of a gang, in the way its spec asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bayplan.model.assignment import Code, Misfit
from bayplan.model.filter_failure import FilterFailure, FilterReason
from bayplan.model.gang import AUTO, Group, PodSet
from bayplan.model.gang_minimum import all_of, fewest_more
from bayplan.model.pod import Pod, PodKey
from bayplan.model.profile import Profile
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.cluster.topology_tree import Bools
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.assign import seat_all
from bayplan.placement.pods.batches import NodeAssignment, parties_of
from bayplan.placement.pods.one_domain import Domain, domains, seat_in_domain
from bayplan.placement.subgroups.minimums import GangWithMinimums, lacking_in, minima_seats
from bayplan.placement.subgroups.quorum import quorum_seats
from bayplan.placement.subgroups.whole_gang import tree_seats
from bayplan.state.scheduling.snapshot import SchedulingCandidate, SchedulingSnapshot

NOWHERE = -1


@dataclass(frozen=True, slots=True)
class AttemptRequest:
    """The pods to assign, and what counts as success."""

    candidate: SchedulingCandidate
    waiting: tuple[Pod, ...]  # the pending pods of the gang that are tried
    standing: int  # number of its bound pods
    need: int  # number of further assignments that make the attempt a success; at least one
    extra: int | None = None  # of a tree: pods to place beyond the minimums; None: as many as fit
    brief: bool = False  # the reason for a failure is not needed

    @property
    def lone(self) -> bool:
        """Whether this is a single pod, not a gang."""
        return is_lone(self.candidate)


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """The row of every assigned pod, and the reason for every other pod."""

    seats: Mapping[PodKey, int] = field(default_factory=dict)
    left: Mapping[PodKey, FilterFailure] = field(default_factory=dict)
    misfit: Misfit | None = None
    unsure: bool = False
    part: str = ""  # the pod set or group that lacks capacity
    minimum: int = 0  # the minimum of that part
    fit: int = 0  # how many of the unassigned pods would have fitted


def is_lone(candidate: SchedulingCandidate) -> bool:
    """Whether the candidate is a single pod, not a gang."""
    pods = candidate.waiting or candidate.standing
    return len(pods) == 1 and pods[0].gang is None


def asked_of(candidate: SchedulingCandidate) -> AttemptRequest:
    """A request for all pending pods that succeeds with as many as the minimum lacks."""
    standing, charter = len(candidate.standing), candidate.charter
    lack = charter.minimum - standing
    if charter.has_minima and charter.tree is not None:
        lack = lacking_in(charter.tree, candidate.waiting, candidate.standing)
        if charter.quorum:
            lack = fewest_more(charter.tree, Counter(pod.pod_set for pod in candidate.standing)) or 0
    return AttemptRequest(candidate, candidate.waiting, standing, max(lack, 1))


def rest_of(asked: AttemptRequest, seats: Mapping[PodKey, int], floor: NodeOverlay) -> AttemptRequest:
    """A request for the remaining pods once the others are assigned: each of them counts by itself."""
    left = tuple(pod for pod in asked.waiting if pod.key not in seats)
    candidate = asked.candidate
    if candidate.charter.has_minima:
        seated = (pod for pod in asked.waiting if pod.key in seats)
        stands = tuple(replace(pod, node=floor.node(seats[pod.key])) for pod in seated)
        candidate = replace(candidate, waiting=left, standing=candidate.standing + stands)
    return AttemptRequest(candidate, left, asked.standing + len(seats), 1)


def narrowed(asked: AttemptRequest, seats: Mapping[PodKey, int]) -> AttemptRequest:
    """The request reduced to the pods of a chosen quorum, which from now on are all needed."""
    candidate, tree = asked.candidate, asked.candidate.charter.tree
    if not candidate.charter.quorum or tree is None:
        return asked
    waiting = tuple(pod for pod in asked.waiting if pod.key in seats)
    counts = Counter(pod.pod_set for pod in (*waiting, *candidate.standing))
    charter = replace(candidate.charter, tree=all_of(tree, counts))
    candidate = replace(candidate, charter=charter, waiting=waiting)
    return replace(asked, candidate=candidate, waiting=waiting, need=max(len(waiting), 1), brief=True)


def attempt(
    look: SchedulingSnapshot,
    floor: NodeOverlay,
    asked: AttemptRequest,
    profile: Profile,
    within: Bools | None = None,
    beside: Sequence[int] = (),
    *,
    single: bool = False,
) -> AttemptResult:
    """Assign as many pods as possible in the overlay.

    `beside`: rows of pods of the gang assigned just before. `single`: `within` is a single domain already.
    """
    charter = asked.candidate.charter
    if charter.tree is not None:
        return _as_tree(look, floor, asked, charter.tree, profile, within)
    parties = parties_of(floor, asked.waiting)
    key = charter.locality.required or charter.locality.preferred
    if key is not None and not single:
        rows = rows_it_holds(floor, asked.candidate, key)
        if rows is None:
            return AttemptResult(misfit=Misfit(Code.STALE_ASSIGNMENT, (), level=key, asked=asked.need))
        rows += beside
        found = seat_in_domain(floor, parties, key, rows, need=asked.need, profile=profile, within=within)
        seated = found.seated
        enough = len(seated.seats) >= asked.need
        if enough or charter.locality.required:
            return AttemptResult(seated.seats, seated.left, None if enough else found.misfit, seated.unsure)
        floor.lift_many(seated.seats)
    seated = seat_all(floor, parties, need=asked.need, profile=profile, within=within, lone=asked.lone)
    return AttemptResult(seated.seats, seated.left, None, seated.unsure)


def domains_for(
    floor: NodeOverlay,
    asked: AttemptRequest,
    profile: Profile,
    within: Bools | None,
    beside: Sequence[int],
    most: int,
) -> tuple[list[Domain], str]:
    """The domains that could hold the gang, at most `most` of them, and the name of the best one."""
    key = asked.candidate.charter.locality.required
    assert key is not None
    rows = rows_it_holds(floor, asked.candidate, key)
    if rows is None:
        return [], ""
    rows += beside
    parties = parties_of(floor, asked.waiting)
    areas = domains(floor, parties, key, rows, need=asked.need, within=within)
    if len(areas) < 2:
        return areas, ""
    mark = floor.mark()
    found = seat_in_domain(floor, parties, key, rows, need=asked.need, profile=profile, within=within)
    floor.undo(mark)
    return areas[:most], found.domain


def rows_it_holds(floor: NodeOverlay, candidate: SchedulingCandidate, key: str) -> list[int] | None:
    """The rows of its bound pods; None if they are not all in one domain."""
    rows = [floor.row(pod.node) for pod in candidate.standing if pod.node]
    values = {_label(floor, row, key) if row != NOWHERE else None for row in rows}
    return rows if len(values) < 2 and None not in values else None


def _label(floor: NodeOverlay, row: int, key: str) -> str | None:
    labels: Mapping[str, str] = floor.scene.ground.land.table.nodes[row].labels
    return labels.get(key)


def _as_tree(
    look: SchedulingSnapshot,
    floor: NodeOverlay,
    asked: AttemptRequest,
    tree: Group,
    profile: Profile,
    within: Bools | None,
) -> AttemptResult:
    candidate = asked.candidate
    if candidate.charter.has_minima:
        return _by_minima(look, floor, asked, tree, profile, within)
    supply = supply_of(look, candidate, tree)
    found = tree_seats(floor, supply, tree, asked.waiting, candidate.standing, profile=profile, within=within)
    if not isinstance(found, Misfit):
        return AttemptResult(found.seats, found.left, None, found.unsure)
    left = {pod.key: floor.judge(pod.wants.shape).why for pod in asked.waiting[:1] if floor.zones is not None}
    return AttemptResult(left=left, misfit=found, unsure=found.code is Code.NOT_DECIDED)


def _by_minima(
    look: SchedulingSnapshot,
    floor: NodeOverlay,
    asked: AttemptRequest,
    tree: Group,
    profile: Profile,
    within: Bools | None,
) -> AttemptResult:
    supply = supply_of(look, asked.candidate, tree)
    wanted = GangWithMinimums(tree, asked.waiting, asked.candidate.standing, asked.extra, asked.brief)
    seats = quorum_seats if asked.candidate.charter.quorum else minima_seats
    found = seats(floor, supply, wanted, profile=profile, within=within)
    if isinstance(found, NodeAssignment):
        return AttemptResult(found.seats, found.left, None, found.unsure)
    left = {} if found.pod is None else {found.pod.key: _why(floor, found.pod, found.resource)}
    return AttemptResult({}, left, found.misfit, found.unsure, found.part, found.minimum, found.fit)


def _why(floor: NodeOverlay, pod: Pod, resource: str) -> FilterFailure:
    """Why a pod does not fit; nodes that would fit it alone are full with other pods of its gang."""
    verdict = floor.judge(pod.wants.shape)
    room, why = int(verdict.fits.sum()), verdict.why
    if not room or not resource:
        return why
    lack = (FilterReason.LACKING, resource)
    return replace(why, counts={**why.counts, lack: why.counts.get(lack, 0) + room})


def supply_of(look: SchedulingSnapshot, candidate: SchedulingCandidate, tree: Group) -> CapacitySnapshot:
    """The capacity snapshot of the topology whose levels the gang names."""
    return look.supplies.get(candidate.topology) or supply_for(look, tree)


def supply_for(look: SchedulingSnapshot, tree: Group) -> CapacitySnapshot:
    """The first topology by name that has all levels the gang names; all nodes if there is none."""
    wanted = set(levels_of(tree)) - {AUTO}
    for name in sorted(look.supplies):
        if wanted <= set(look.supplies[name].tree.levels):
            return look.supplies[name]
    return look.supplies[min(look.supplies)] if look.supplies else look.supply


def levels_of(member: Group | PodSet) -> list[str]:
    """All levels that the member or its parts name."""
    found = [level for level in (member.locality.required, member.locality.preferred) if level]
    if isinstance(member, PodSet):
        return found + [segment.level for segment in member.segments]
    return found + [level for inner in member.members for level in levels_of(inner)]
