"""Proves a plan: every step is made in an overlay with all filters of the scheduler, in its order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bayplan.model.gang import Ref
from bayplan.model.profile import Profile
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.room_counts import RoomCounts
from bayplan.scheduling.attempt.gang import attempt, request_for
from bayplan.scheduling.defragment.problem import DefragmentPlan, MovableGang, Move, NoPlan, RoomRequest
from bayplan.scheduling.defragment.search import SearchLimits, find_plan, hold_nominations
from bayplan.state.scheduling.snapshot import SchedulingCandidate, SchedulingSnapshot

SEARCHES_MAX = 4


def find_proven_plan(
    snapshot: SchedulingSnapshot,
    profile: Profile,
    request: RoomRequest,
    movers: Sequence[MovableGang],
    limits: SearchLimits | None = None,
) -> DefragmentPlan | NoPlan:
    """The cheapest plan that holds step by step. A gang whose move does not hold stays in the next search."""
    left = list(movers)
    for _ in range(SEARCHES_MAX):
        found = find_plan(snapshot, profile, request, left, limits)
        if isinstance(found, NoPlan):
            return found if len(left) == len(movers) else replace(found, searched_all=False)
        failed = first_failure(snapshot, profile, request, found)
        if failed is None:
            return found if len(left) == len(movers) else replace(found, cheapest=False)
        if failed == request.spec.source and not found.moves:
            break
        blamed = failed if failed != request.spec.source else found.moves[-1].gang.ref
        left = [one for one in left if one.ref != blamed]
    return NoPlan(False, found.tries)


def first_failure(
    snapshot: SchedulingSnapshot, profile: Profile, request: RoomRequest, plan: DefragmentPlan
) -> Ref | None:
    """The first gang that does not fit where the plan puts it at its turn; None if the plan holds.

    A gang gets its new place before it leaves its old one.
    """
    filter_input = snapshot.filter_input
    if filter_input.zones is not None:
        filter_input = replace(filter_input, zones=replace(filter_input.zones, rules=profile.zones))
    with NodeOverlay(filter_input) as overlay:
        hold_nominations(snapshot, overlay, request)
        for move in plan.moves:
            if not _fits(snapshot, profile, overlay, move.gang.request, move.nodes):
                return move.gang.ref
            overlay.remove_pods(pod.key for pod in move.gang.pods)
        if not _fits(snapshot, profile, overlay, request, plan.nodes):
            return request.spec.source
    return None


def slots_after(snapshot: SchedulingSnapshot, request: RoomRequest, moves: Sequence[Move]) -> tuple[int, int]:
    """How many gangs like the request fit by counts, each in one domain: now, and after the moves."""
    with NodeOverlay(snapshot.filter_input) as overlay:
        hold_nominations(snapshot, overlay, request)
        before = RoomCounts(overlay, request.pods, request.levels).slots()
        for move in moves:
            for pod, node in zip(move.gang.fresh, move.nodes, strict=True):
                overlay.add_pod(pod.key, pod.spec.signature, overlay.row(node))
            overlay.remove_pods(pod.key for pod in move.gang.pods)
        return before, RoomCounts(overlay, request.pods, request.levels).slots()


def _fits(
    snapshot: SchedulingSnapshot,
    profile: Profile,
    overlay: NodeOverlay,
    request: RoomRequest,
    nodes: Sequence[str],
) -> bool:
    """Whether the scheduler places the gang on these nodes; it is there then."""
    candidate = SchedulingCandidate(request.spec, request.pods, topology=request.spec.topology)
    wanted = replace(request_for(candidate), need=len(request.pods), without_reason=True)
    found = attempt(snapshot, overlay, wanted, profile, overlay.mask_of(nodes))
    return len(found.rows) == len(request.pods)
