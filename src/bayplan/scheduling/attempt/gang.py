"""One attempt to assign nodes to the pending pods of a gang, in the way its spec asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bayplan.model.assignment import Code, Misfit
from bayplan.model.filter_failure import FilterFailure, FilterReason
from bayplan.model.gang import AUTO, Group, PodSet, pods_to_minimum, with_minimum
from bayplan.model.pod import Pod, PodKey
from bayplan.model.profile import Profile
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.cluster.topology_tree import Bools
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.assign import assign_pods
from bayplan.placement.pods.batches import NodeAssignment, batch_pods
from bayplan.placement.pods.one_domain import (
    Domain,
    assign_in_domain,
    assign_most_in_domain,
    candidate_domains,
)
from bayplan.placement.subgroups.minimums import GangWithMinimums, assign_minimums, missing_in_gang
from bayplan.placement.subgroups.quorum import assign_quorum
from bayplan.placement.subgroups.whole_gang import assign_whole_gang
from bayplan.scheduling.attempt.moved_claims import assign_beside_moved_claims
from bayplan.state.scheduling.snapshot import SchedulingCandidate, SchedulingSnapshot

NOWHERE = -1


@dataclass(frozen=True, slots=True)
class AttemptRequest:
    """The pods to assign, and what counts as success."""

    candidate: SchedulingCandidate
    pending: tuple[Pod, ...]  # the pending pods of the gang that are tried
    bound: int  # number of its bound pods
    need: int  # number of further assignments that make the attempt a success; at least one
    extra: int | None = None  # of a tree: pods to place beyond the minimums; None: as many as fit
    without_reason: bool = False  # the reason for a failure is not needed
    most: bool = False  # of pods of several sizes, assign the most, not the largest; it takes longer

    @property
    def is_single_pod(self) -> bool:
        """Whether this is a single pod, not a gang."""
        return is_single_pod(self.candidate)


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """The row of every assigned pod, and the reason for every other pod."""

    rows: Mapping[PodKey, int] = field(default_factory=dict)
    unassigned: Mapping[PodKey, FilterFailure] = field(default_factory=dict)
    misfit: Misfit | None = None
    unsure: bool = False
    part: str = ""  # the pod set or group that lacks capacity
    minimum: int = 0  # the minimum of that part
    fit: int = 0  # how many of the unassigned pods would have fitted


def is_single_pod(candidate: SchedulingCandidate) -> bool:
    """Whether the candidate is a single pod, not a gang."""
    pods = candidate.pending or candidate.bound
    return len(pods) == 1 and pods[0].gang is None


def request_for(candidate: SchedulingCandidate) -> AttemptRequest:
    """A request for all pending pods that succeeds with as many as the minimum lacks."""
    bound, spec = len(candidate.bound), candidate.spec
    missing = spec.minimum - bound
    if spec.has_minima and spec.tree is not None:
        missing = missing_in_gang(spec.tree, candidate.pending, candidate.bound)
        if spec.quorum:
            missing = pods_to_minimum(spec.tree, Counter(pod.pod_set for pod in candidate.bound)) or 0
    return AttemptRequest(candidate, candidate.pending, bound, max(missing, 1))


def request_for_rest(
    request: AttemptRequest, rows: Mapping[PodKey, int], overlay: NodeOverlay
) -> AttemptRequest:
    """A request for the remaining pods once the others are assigned: each of them counts by itself."""
    left = tuple(pod for pod in request.pending if pod.key not in rows)
    candidate = request.candidate
    if candidate.spec.has_minima:
        assigned = (pod for pod in request.pending if pod.key in rows)
        placed = tuple(replace(pod, node=overlay.node(rows[pod.key])) for pod in assigned)
        candidate = replace(candidate, pending=left, bound=candidate.bound + placed)
    return AttemptRequest(candidate, left, request.bound + len(rows), 1)


def narrowed_to(request: AttemptRequest, rows: Mapping[PodKey, int]) -> AttemptRequest:
    """The request reduced to the pods of a chosen quorum, which from now on are all needed."""
    candidate, tree = request.candidate, request.candidate.spec.tree
    if not candidate.spec.quorum or tree is None:
        return request
    waiting = tuple(pod for pod in request.pending if pod.key in rows)
    counts = Counter(pod.pod_set for pod in (*waiting, *candidate.bound))
    spec = replace(candidate.spec, tree=with_minimum(tree, counts))
    candidate = replace(candidate, spec=spec, pending=waiting)
    return replace(
        request, candidate=candidate, pending=waiting, need=max(len(waiting), 1), without_reason=True
    )


def attempt(
    snapshot: SchedulingSnapshot,
    overlay: NodeOverlay,
    request: AttemptRequest,
    profile: Profile,
    allowed_nodes: Bools | None = None,
    placed_rows: Sequence[int] = (),
    *,
    single: bool = False,
) -> AttemptResult:
    """Assign as many pods as possible in the overlay.

    `placed_rows`: rows of pods of the gang assigned just before. `single`: `allowed_nodes` is one domain.
    """
    checkpoint = overlay.checkpoint()

    def assign(allowed: Bools | None) -> AttemptResult:
        return _attempt(snapshot, overlay, request, profile, allowed, placed_rows, single=single)

    result = assign(allowed_nodes)
    if len(result.rows) < request.need and snapshot.held_domains:
        overlay.rollback(checkpoint)
        domains = snapshot.held_domains
        moved = assign_beside_moved_claims(overlay, domains, request.need, allowed_nodes, assign)
        result = moved if moved is not None else assign(allowed_nodes)
    if not overlay.lacks_devices(result.rows):
        return result
    # Nodes share devices, and the pods were assigned as if each had its own: none of them may start so.
    overlay.rollback(checkpoint)
    left = {pod.key: overlay.run_filters(pod.spec.signature).why for pod in request.pending}
    return AttemptResult(unassigned=left, misfit=result.misfit, unsure=True)


def _attempt(
    snapshot: SchedulingSnapshot,
    overlay: NodeOverlay,
    request: AttemptRequest,
    profile: Profile,
    allowed_nodes: Bools | None,
    placed_rows: Sequence[int],
    *,
    single: bool,
) -> AttemptResult:
    spec = request.candidate.spec
    if spec.tree is not None:
        return _as_tree(snapshot, overlay, request, spec.tree, profile, allowed_nodes)
    batches = batch_pods(overlay, request.pending)
    key = spec.locality.required or spec.locality.preferred
    if key is not None and not single:
        rows = bound_rows(overlay, request.candidate, key)
        if rows is None:
            return AttemptResult(misfit=Misfit(Code.STALE_ASSIGNMENT, (), level=key, asked=request.need))
        rows += placed_rows
        in_domain = assign_most_in_domain if request.most else assign_in_domain
        found = in_domain(
            overlay, batches, key, rows, need=request.need, profile=profile, allowed_nodes=allowed_nodes
        )
        assigned = found.assignment
        enough = len(assigned.rows) >= request.need
        if enough or spec.locality.required:
            return AttemptResult(
                assigned.rows, assigned.unassigned, None if enough else found.misfit, assigned.unsure
            )
        overlay.remove_pods(assigned.rows)
    assigned = assign_pods(
        overlay,
        batches,
        need=request.need,
        profile=profile,
        allowed_nodes=allowed_nodes,
        lone=request.is_single_pod,
        most=request.most,
    )
    return AttemptResult(assigned.rows, assigned.unassigned, None, assigned.unsure)


def domains_for(
    overlay: NodeOverlay,
    request: AttemptRequest,
    profile: Profile,
    allowed_nodes: Bools | None,
    placed_rows: Sequence[int],
    limit: int,
) -> tuple[list[Domain], str]:
    """The domains that could hold the gang, at most `limit` of them, and the name of the best one."""
    key = request.candidate.spec.locality.required
    assert key is not None
    rows = bound_rows(overlay, request.candidate, key)
    if rows is None:
        return [], ""
    rows += placed_rows
    batches = batch_pods(overlay, request.pending)
    areas = candidate_domains(overlay, batches, key, rows, need=request.need, allowed_nodes=allowed_nodes)
    if len(areas) < 2:
        return areas, ""
    with overlay.tentative():
        found = assign_in_domain(
            overlay, batches, key, rows, need=request.need, profile=profile, allowed_nodes=allowed_nodes
        )
    return areas[:limit], found.domain


def bound_rows(overlay: NodeOverlay, candidate: SchedulingCandidate, key: str) -> list[int] | None:
    """The rows of its bound pods; None if they are not all in one domain."""
    rows = [overlay.row(pod.node) for pod in candidate.bound if pod.node]
    values = {_label(overlay, row, key) if row != NOWHERE else None for row in rows}
    return rows if len(values) < 2 and None not in values else None


def _label(overlay: NodeOverlay, row: int, key: str) -> str | None:
    labels: Mapping[str, str] = overlay.filter_input.node_snapshot.node_index.table.nodes[row].labels
    return labels.get(key)


def _as_tree(
    snapshot: SchedulingSnapshot,
    overlay: NodeOverlay,
    request: AttemptRequest,
    tree: Group,
    profile: Profile,
    allowed_nodes: Bools | None,
) -> AttemptResult:
    candidate = request.candidate
    if candidate.spec.has_minima:
        return _by_minimums(snapshot, overlay, request, tree, profile, allowed_nodes)
    capacity = capacity_of(snapshot, candidate, tree)
    found = assign_whole_gang(
        overlay,
        capacity,
        tree,
        request.pending,
        candidate.bound,
        profile=profile,
        allowed_nodes=allowed_nodes,
    )
    if not isinstance(found, Misfit):
        return AttemptResult(found.rows, found.unassigned, None, found.unsure)
    left = {
        pod.key: overlay.run_filters(pod.spec.signature).why
        for pod in request.pending[:1]
        if overlay.zones is not None or pod.spec.signature.devices is not None
    }
    return AttemptResult(unassigned=left, misfit=found, unsure=found.code is Code.NOT_DECIDED)


def _by_minimums(
    snapshot: SchedulingSnapshot,
    overlay: NodeOverlay,
    request: AttemptRequest,
    tree: Group,
    profile: Profile,
    allowed_nodes: Bools | None,
) -> AttemptResult:
    capacity = capacity_of(snapshot, request.candidate, tree)
    wanted = GangWithMinimums(
        tree, request.pending, request.candidate.bound, request.extra, request.without_reason
    )
    rows = assign_quorum if request.candidate.spec.quorum else assign_minimums
    found = rows(overlay, capacity, wanted, profile=profile, allowed_nodes=allowed_nodes)
    if isinstance(found, NodeAssignment):
        return AttemptResult(found.rows, found.unassigned, None, found.unsure)
    left = {} if found.pod is None else {found.pod.key: _why(overlay, found.pod, found.resource)}
    return AttemptResult({}, left, found.misfit, found.unsure, found.part, found.minimum, found.fit)


def _why(overlay: NodeOverlay, pod: Pod, resource: str) -> FilterFailure:
    """Why a pod does not fit; nodes that would fit it alone are full with other pods of its gang."""
    verdict = overlay.run_filters(pod.spec.signature)
    fitting, why = int(verdict.fits.sum()), verdict.why
    if not fitting or not resource:
        return why
    missing = (FilterReason.INSUFFICIENT, resource)
    return replace(why, counts={**why.counts, missing: why.counts.get(missing, 0) + fitting})


def capacity_of(
    snapshot: SchedulingSnapshot, candidate: SchedulingCandidate, tree: Group
) -> CapacitySnapshot:
    """The capacity snapshot of the topology whose levels the gang names."""
    return snapshot.supplies.get(candidate.topology) or capacity_for(snapshot, tree)


def capacity_for(snapshot: SchedulingSnapshot, tree: Group) -> CapacitySnapshot:
    """The first topology by name that has all levels the gang names; all nodes if there is none."""
    wanted = set(levels_of(tree)) - {AUTO}
    for name in sorted(snapshot.supplies):
        if wanted <= set(snapshot.supplies[name].tree.levels):
            return snapshot.supplies[name]
    return snapshot.supplies[min(snapshot.supplies)] if snapshot.supplies else snapshot.supply


def levels_of(member: Group | PodSet) -> list[str]:
    """All levels that the member or its parts name."""
    found = [level for level in (member.locality.required, member.locality.preferred) if level]
    if isinstance(member, PodSet):
        return found + [segment.level for segment in member.segments]
    return found + [level for inner in member.members for level in levels_of(inner)]
