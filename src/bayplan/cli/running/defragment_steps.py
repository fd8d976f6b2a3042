"""Carries out a defragmentation plan step by step; stops and says why as soon as the rest does not hold.

One step: read the cluster again and prove the rest of the plan; keep other pods off the nodes that become
free, by a taint; hold the new place of the gang with pods that are bound to it; evict the whole gang; hand
the place over; wait until the gang runs again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import click

from bayplan.backends.remote.backend import RemoteBackend
from bayplan.cli.live.state import ClusterTarget
from bayplan.cli.planning.defragmentation import (
    FragmentedCluster,
    RoomOptions,
    read_fragmented,
    renewed,
)
from bayplan.cli.planning.gang_switch import GangSwitch, switch_of
from bayplan.cli.planning.movable_gangs import gang_name
from bayplan.cli.running.defragment_writes import (
    StepStoppedError,
    deletions,
    eviction,
    put_up_fence,
    require,
    take_down_fence,
    written,
)
from bayplan.dialects.api import Ended, Verb, Write
from bayplan.dialects.errors import ApiError
from bayplan.dialects.kube.decode.wire import PODS_KIND, OwnerReference, PodWire
from bayplan.dialects.kube.encode.binding import event_write
from bayplan.dialects.kube.encode.holders import holder_pods
from bayplan.dialects.kube.encode.move_marks import PlanMark
from bayplan.dialects.kube.fields.times import timestamp
from bayplan.explanation.text import counted
from bayplan.model.pod import Pod
from bayplan.scheduling.defragment.problem import DefragmentPlan, MovableGang, Move
from bayplan.scheduling.defragment.running import running_gangs

POLL_SECONDS = 0.5
POLL_RATIO, POLL_SECONDS_MAX = 4.0, 15.0
"""Between two looks at a cluster, so many times as long as a look takes."""
WAITS_PER_STEP, MARGIN_SECONDS = 3, 60.0
"""A step waits that often for at most the timeout: to evict, until the gang is gone, and until it runs."""
EVENT_REASON = "Defragmented"
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class StepSettings:
    """How a plan is carried out."""

    name: str  # of the plan: the value of its marks
    timeout: float = 300.0  # seconds until a gang has left, and until it runs again


@dataclass(frozen=True, slots=True)
class _LeavingGang:
    """A gang whose pods are replaced by others: of the same gang, or of the same owner."""

    gang: MovableGang
    title: str
    owner: str  # uid of the owner of its first pod
    before: frozenset[str]  # uids of all pods before its eviction

    def pods_in(self, cluster: FragmentedCluster) -> list[Pod]:
        """Its new pods that have a node."""
        running = running_gangs(cluster.snapshot)
        first = self.gang.pods[0]
        if first.gang is not None or first.slot is not None:
            pods = running.get(self.gang.ref, ())
        else:
            pods = tuple(
                pod
                for some in running.values()
                for pod in some
                if pod.gang is None and _owner(cluster.scheduled.pods.get(pod.key)) == self.owner
            )
        return [pod for pod in pods if pod.uid not in self.before]


@dataclass(slots=True)
class PlanExecution:
    """One plan being carried out. What it has written beside evictions is taken back at its end."""

    target: ClusterTarget
    options: RoomOptions
    settings: StepSettings
    say: Say
    fenced: set[str] = field(default_factory=set)
    held: list[tuple[str, str]] = field(default_factory=list)  # namespace and name of pods that hold places
    stopped: GangSwitch | None = None  # the gang that has to be started again
    moved: int = 0  # gangs that were evicted

    def run(self, plan: DefragmentPlan) -> str:
        """Make all moves; returns why it stopped before the end, or nothing."""
        try:
            stopped = self._carry_out(plan)
        except BaseException:  # an interrupt, most likely
            self.say(self._take_back() or "interrupted: taints and held places were taken back")
            raise
        return "; ".join(filter(None, (stopped, self._take_back())))

    def _carry_out(self, plan: DefragmentPlan) -> str:
        done = 0
        try:
            self._fence(plan, plan.moves)
            for done, _ in enumerate(plan.moves):
                self._step(plan, plan.moves[done:], done + 1, len(plan.moves))
            done = len(plan.moves)
            self._check_room(plan)
        except (StepStoppedError, ApiError, click.ClickException) as stopped:
            return f"stopped after {done} of {counted(len(plan.moves), 'move')}: {_message(stopped)}"
        return ""

    def _step(self, plan: DefragmentPlan, moves: Sequence[Move], number: int, total: int) -> None:
        with self._read() as cluster:
            rest = renewed(cluster, plan, moves)
            if isinstance(rest, str):
                raise StepStoppedError(rest)
            move, backend = rest.moves[0], cluster.live.backend
            title = f"{move.gang.ref.kind} {gang_name(move.gang.ref)}"
            where = cluster.scheduled.where(move.nodes)
            self.say(f"{number}/{total} {title}: the rest of the plan holds; its place is held: {where}")
            self._hold(backend, cluster, move)
            if number > 1:  # the first time it was done before the cluster was read
                self._fence(plan, rest.moves)
            leaving = _LeavingGang(
                move.gang,
                title,
                _owner(cluster.scheduled.pods.get(move.gang.pods[0].key)),
                frozenset(wire.metadata.uid for wire in cluster.scheduled.pods.values()),
            )
            self._evict(backend, move.gang)
            self.moved += 1
            written(backend, list(self._events(cluster, move.gang, where)))  # not needed for the plan
        self.say(f"{number}/{total} {title}: evicted")
        self._wait_gone(leaving)
        self._hand_over()
        nodes = self._wait_running(leaving)
        self.say(f"{number}/{total} {title}: runs again: {nodes}")

    # ── the nodes that become free ─────────────────────────────────────────────────────────────────

    def _fence(self, plan: DefragmentPlan, moves: Sequence[Move]) -> None:
        """Taint the nodes of the gang that asks for room, and those that the next gang leaves.

        A node that a later gang takes stays tainted until that one moves.
        """
        later = {node for move in moves[1:] for node in move.nodes}
        wanted = {*plan.nodes, *(pod.node for pod in moves[0].gang.pods), *(self.fenced & later)}
        wanted -= set(moves[0].nodes)
        self._set_fence(wanted)

    def _set_fence(self, nodes: set[str]) -> None:
        """Nodes that are tainted already get the new time of the mark."""
        over, self.fenced = self.fenced - nodes, self.fenced | nodes
        with self.target.connected() as backend:
            put_up_fence(backend, nodes, self._mark())
            take_down_fence(backend, over, self.settings.name)
        self.fenced = set(nodes)

    def _mark(self) -> PlanMark:
        """What this step writes is over, or written again, when a gang has had time to leave and to run."""
        seconds = WAITS_PER_STEP * self.settings.timeout + MARGIN_SECONDS
        return PlanMark(self.settings.name, self.target.clock.wall() + seconds)

    # ── the place of the next gang ─────────────────────────────────────────────────────────────────

    def _hold(self, backend: RemoteBackend, cluster: FragmentedCluster, move: Move) -> None:
        """Bind pods of the same size to the new place, so that it cannot be given away."""
        wires = cluster.scheduled.pods
        holders = list(holder_pods(self._mark(), move.gang.pods, move.nodes, wires))
        self.held += [(one["metadata"]["namespace"], one["metadata"]["name"]) for one in holders]
        writes = [
            Write(Verb.CREATE, PODS_KIND, one["metadata"]["namespace"], one["metadata"]["name"], one)
            for one in holders
        ]
        require(written(backend, writes), f"hold the place of {gang_name(move.gang.ref)}")

    def _release(self, backend: RemoteBackend) -> None:
        outcomes = written(backend, deletions(self.held))
        require((one for one in outcomes if one.ended is not Ended.GONE), "remove pods that hold a place")
        self.held = []

    # ── the gang ───────────────────────────────────────────────────────────────────────────────────

    def _evict(self, backend: RemoteBackend, gang: MovableGang) -> None:
        """Evict the whole gang: by one write that stops it, or pod by pod; budgets are asked before."""
        tries = [eviction(pod, dry=True) for pod in gang.pods]
        require(written(backend, tries), f"evict {gang_name(gang.ref)} (dry run: no pod was evicted)")
        switch = switch_of(gang.ref)
        if switch is not None:
            self.stopped = switch
            require(written(backend, [switch.stop(self._mark())]), f"stop {gang_name(gang.ref)}")
            return
        left = list(gang.pods)
        end = self.target.clock.monotonic() + self.settings.timeout
        while left:
            outcomes = written(backend, [eviction(pod) for pod in left])
            refused = [one for one in outcomes if one.ended not in (Ended.DONE, Ended.GONE)]
            left = [pod for pod in left if any(one.write.name == pod.key.name for one in refused)]
            if len(left) == len(gang.pods) or self.target.clock.monotonic() > end:
                require(refused, f"evict {gang_name(gang.ref)}")
            elif left:  # a budget has changed since the dry run: the gang is down, so its other pods follow
                self.target.clock.sleep(POLL_SECONDS)

    def _events(self, cluster: FragmentedCluster, gang: MovableGang, where: str) -> Iterator[Write]:
        """An Event for each owner of pods of the gang, or for a pod without one."""
        room = self.options.wanted or f"a gang of the size of one {self.options.level}"
        message = (
            f"All pods of the gang were evicted to make room for {room}."
            f" They start again on: {where} (defragmentation plan {self.settings.name})."
        )
        when = timestamp(self.target.clock.wall())
        wires = (cluster.scheduled.pods.get(pod.key) for pod in gang.pods)
        about = {one["uid"]: one for one in map(_involved, filter(None, wires))}
        for one in about.values():
            yield event_write(one, EVENT_REASON, message, "Normal", when)

    def _wait_gone(self, leaving: _LeavingGang) -> None:
        old = {pod.uid for pod in leaving.gang.pods}

        def gone(cluster: FragmentedCluster) -> bool:
            return not any(wire.metadata.uid in old for wire in cluster.scheduled.pods.values())

        self._until(gone, f"the pods of {leaving.title} are gone")

    def _hand_over(self) -> None:
        """Give the held place to the gang, which is pending now or is started again."""
        with self.target.connected() as backend:
            self._release(backend)
            self._start_again(backend)

    def _start_again(self, backend: RemoteBackend) -> None:
        if self.stopped is not None:
            outcomes = written(backend, [self.stopped.start()])
            gone = (one for one in outcomes if one.ended is not Ended.GONE)
            require(gone, f"start {gang_name(self.stopped.ref)} again")
            self.stopped = None

    def _wait_running(self, leaving: _LeavingGang) -> str:
        """Wait until all its pods run again; returns where."""
        found: list[str] = []

        def runs(cluster: FragmentedCluster) -> bool:
            pods = [pod for pod in leaving.pods_in(cluster) if pod.started and not pod.terminating]
            found[:] = [cluster.scheduled.where(pod.node for pod in pods)]
            return len(pods) >= len(leaving.gang.pods)

        self._until(runs, f"{leaving.title} runs again")
        return found[0]

    # ── the cluster ────────────────────────────────────────────────────────────────────────────────

    def _check_room(self, plan: DefragmentPlan) -> None:
        with self._read() as cluster:
            rest = renewed(cluster, plan, ())
            if isinstance(rest, str):
                raise StepStoppedError(rest)

    @contextmanager
    def _read(self) -> Iterator[FragmentedCluster]:
        with self.target.live(quiet=True) as live:
            yield read_fragmented(live, self.options)

    def _until(self, holds: Callable[[FragmentedCluster], bool], what: str) -> None:
        clock = self.target.clock
        end = clock.monotonic() + self.settings.timeout
        while True:
            began = clock.monotonic()
            with self._read() as cluster:
                if holds(cluster):
                    return
            now = clock.monotonic()
            if now > end:
                raise StepStoppedError(f"waited {self.settings.timeout:.0f} s in vain until {what}")
            clock.sleep(min(max(POLL_SECONDS, POLL_RATIO * (now - began)), POLL_SECONDS_MAX))

    def _take_back(self) -> str:
        """Take back taints and held places, and start a stopped gang; returns why that failed, or nothing."""
        try:
            if self.held or self.stopped is not None:
                with self.target.connected() as backend:
                    self._release(backend)
                    self._start_again(backend)
            if self.fenced:
                self._set_fence(set())
        except (StepStoppedError, ApiError, click.ClickException) as failed:
            return f"{_message(failed)}; take back what was written with: bayplan defragment --undo"
        return ""


def _message(error: Exception) -> str:
    return error.message if isinstance(error, click.ClickException) else str(error)


def _involved(wire: PodWire) -> dict[str, Any]:
    """The object that people look at to see why a pod ended: its controller, or else the pod."""
    meta, owner = wire.metadata, _controller(wire)
    version, kind = ("v1", "Pod") if owner is None else (owner.api_version, owner.kind)
    named = meta if owner is None else owner
    about = {"apiVersion": version, "kind": kind, "name": named.name, "uid": named.uid}
    return {**about, "namespace": meta.namespace}


def _owner(wire: PodWire | None) -> str:
    owner = _controller(wire) if wire is not None else None
    return owner.uid if owner is not None else ""


def _controller(wire: PodWire) -> OwnerReference | None:
    return next((one for one in wire.metadata.owner_references or () if one.controller), None)
