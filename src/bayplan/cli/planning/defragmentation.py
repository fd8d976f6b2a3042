"""The cheapest moves in a live cluster as it was read, and whether a plan from before still holds in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import click

from bayplan.cli.live.scheduled_state import Scheduled, read_scheduled
from bayplan.cli.live.state import Live
from bayplan.cli.planning.movable_gangs import MoveLimits, RunningGangs, gang_name, gangs_that_run
from bayplan.cli.planning.room_request import WantedRoom, room_for, room_in
from bayplan.cli.render.placements import tolerating
from bayplan.dialects.kube.encode.move_marks import PLAN
from bayplan.model.gang import Gang, GangSpec
from bayplan.model.node_rules import Toleration
from bayplan.model.pod import Pod
from bayplan.scheduling.defragment.cost import DEFAULT_COSTS, CostRules
from bayplan.scheduling.defragment.problem import DefragmentPlan, Move, NoPlan
from bayplan.scheduling.defragment.proof import find_proven_plan, first_failure, slots_after
from bayplan.scheduling.defragment.running import snapshot_for_moves
from bayplan.state.scheduling.snapshot import SchedulingSnapshot


@dataclass(frozen=True, slots=True)
class RoomOptions:
    """What the command was asked for."""

    wanted: str = ""  # as in --for
    level: str = ""
    costs: CostRules = DEFAULT_COSTS
    least_run: float = 0.0  # gangs that run for fewer seconds stay


@dataclass(frozen=True, slots=True, eq=False)
class FragmentedCluster:
    """A cluster as it was read once: the room that is asked for, and every running gang."""

    live: Live
    scheduled: Scheduled
    snapshot: SchedulingSnapshot
    room: WantedRoom
    gangs: RunningGangs


@dataclass(frozen=True, slots=True, eq=False)
class Defragmentation:
    """What was asked for, what was found, and the cluster it was found in."""

    cluster: FragmentedCluster
    found: DefragmentPlan | NoPlan
    slots_before: int
    slots_after: int


def read_fragmented(live: Live, options: RoomOptions) -> FragmentedCluster:
    """Read everything that a plan depends on. Nodes that an unfinished plan has freed count as free."""
    return fragmented(live, read_scheduled(live), options)


def fragmented(live: Live, scheduled: Scheduled, options: RoomOptions) -> FragmentedCluster:
    """The same of a cluster that was read."""
    room = room_for(live, scheduled, options.wanted) if options.wanted else room_in(scheduled, options.level)
    snapshot = snapshot_for_moves(scheduled.controller.state, live.now)
    limits = MoveLimits(room.priority, options.costs, options.least_run)
    gangs = gangs_that_run(live, scheduled, snapshot, limits)
    spec, pods = _behind_fence(room.request.spec, room.request.pods)
    room = replace(room, request=replace(room.request, spec=spec, pods=pods))
    return FragmentedCluster(live, scheduled, snapshot, room, gangs)


def defragmentation(cluster: FragmentedCluster) -> Defragmentation:
    """The cheapest moves."""
    live, request = cluster.live, cluster.room.request
    with live.progress.stage("searching for moves"):
        found = find_proven_plan(cluster.snapshot, live.settings.profile, request, cluster.gangs.movable)
    moves = found.moves if isinstance(found, DefragmentPlan) else ()
    return Defragmentation(cluster, found, *slots_after(cluster.snapshot, request, moves))


def renewed(cluster: FragmentedCluster, plan: DefragmentPlan, moves: Sequence[Move]) -> DefragmentPlan | str:
    """The rest of a plan with the gangs as they are now; or why it does not hold any more.

    Nodes that are kept free until a later gang takes them count as free for it.
    """
    movable = {gang.ref: gang for gang in cluster.gangs.movable}
    staying = {one.ref: one.why for one in cluster.gangs.staying}
    found = []
    for move in moves:
        ref, now = move.gang.ref, movable.get(move.gang.ref)
        if now is None:
            return f"{ref.kind} {gang_name(ref)} cannot move any more: {staying.get(ref, 'it is gone')}"
        if {pod.uid: pod.node for pod in now.pods} != {pod.uid: pod.node for pod in move.gang.pods}:
            return f"{ref.kind} {gang_name(ref)} does not run where it did when the plan was made"
        spec, fresh = _behind_fence(now.spec, now.fresh)
        found.append(Move(replace(now, spec=spec, fresh=fresh), move.nodes))
    rest = replace(plan, moves=tuple(found))
    failed = first_failure(cluster.snapshot, cluster.live.settings.profile, cluster.room.request, rest)
    if failed is None:
        return rest
    if failed == cluster.room.request.spec.source:
        return f"{cluster.room.title} would not fit in {cluster.scheduled.where(plan.nodes)} any more"
    nodes = next(move.nodes for move in found if move.gang.ref == failed)
    return f"{failed.kind} {gang_name(failed)} has no room in {cluster.scheduled.where(nodes)} any more"


def _behind_fence(spec: GangSpec, pods: Sequence[Pod]) -> tuple[GangSpec, tuple[Pod, ...]]:
    """A gang that may use nodes which are kept free by a plan."""
    allowed = Toleration(PLAN, "Exists")
    found = []
    for pod in pods:
        shape = pod.spec.signature
        rules = replace(shape.rules, tolerations=(*shape.rules.tolerations, allowed))
        found.append(replace(pod, spec=replace(pod.spec, signature=replace(shape, rules=rules))))
    if spec.tree is not None:
        spec = replace(spec, tree=tolerating(Gang(spec.source, spec.tree), (allowed,)).root)
    return spec, tuple(found)


def require_room(options: RoomOptions) -> None:
    """Raise an error unless exactly one kind of room is asked for."""
    if bool(options.wanted) == bool(options.level):
        raise click.UsageError("give either --for or --level")
