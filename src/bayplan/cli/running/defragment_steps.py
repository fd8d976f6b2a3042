"""Carries out a defragmentation plan step by step; stops and says why as soon as the rest does not hold.

One step: read the cluster again and prove the rest of the plan; keep other pods off the nodes that become
free, by a taint; hold the new place of the gang with pods that are bound to it; evict the whole gang; hand
the place over; wait until the gang runs again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import click

from bayplan.backends.remote.backend import RemoteBackend
from bayplan.cli.live.state import ClusterTarget
from bayplan.cli.planning.defragmentation import (
    FENCE,
    FragmentedCluster,
    RoomOptions,
    read_fragmented,
    renewed,
)
from bayplan.cli.planning.gang_switch import GangSwitch, switch_of
from bayplan.cli.planning.movable_gangs import gang_name
from bayplan.dialects.api import Ended, Verb, Write, WriteOutcome
from bayplan.dialects.errors import ApiError
from bayplan.dialects.kube.decode.wire import NODES, PODS_KIND, PodWire
from bayplan.dialects.kube.encode.holders import holder_pods
from bayplan.explanation.text import counted
from bayplan.model.pod import Pod
from bayplan.scheduling.defragment.problem import DefragmentPlan, MovableGang, Move
from bayplan.scheduling.defragment.running import running_gangs

WRITE_SECONDS = 30.0
POLL_SECONDS = 0.5
Say = Callable[[str], None]


class StepStoppedError(Exception):
    """The plan is not carried out further; the message says why."""


@dataclass(frozen=True, slots=True)
class StepSettings:
    """How a plan is carried out."""

    name: str  # of the plan: the value of the taint, and a label of the pods that hold places
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

    def run(self, plan: DefragmentPlan) -> str:
        """Make all moves; returns why it stopped before the end, or nothing."""
        done = 0
        with self._cleaning_up():
            try:
                self._fence(plan, plan.moves)
                for done, _ in enumerate(plan.moves):
                    self._step(plan, plan.moves[done:], done + 1, len(plan.moves))
                done = len(plan.moves)
                self._check_room(plan)
            except (StepStoppedError, ApiError, click.ClickException) as stopped:
                why = stopped.message if isinstance(stopped, click.ClickException) else str(stopped)
                return f"stopped after {done} of {counted(len(plan.moves), 'move')}: {why}"
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
            self._fence(plan, rest.moves)
            self._hold(backend, cluster, move)
            leaving = _LeavingGang(
                move.gang,
                title,
                _owner(cluster.scheduled.pods.get(move.gang.pods[0].key)),
                frozenset(wire.metadata.uid for wire in cluster.scheduled.pods.values()),
            )
            self._evict(backend, move.gang)
        self.say(f"{number}/{total} {title}: evicted")
        self._wait_gone(leaving)
        self._hand_over()
        nodes = self._wait_running(leaving)
        self.say(f"{number}/{total} {title}: runs again: {nodes}")

    # ── the nodes that become free ─────────────────────────────────────────────────────────────────

    def _fence(self, plan: DefragmentPlan, moves: Sequence[Move]) -> None:
        """Taint the nodes of the gang that asks for room, and those that the next gang leaves."""
        wanted = {*plan.nodes, *(pod.node for pod in moves[0].gang.pods)}
        wanted -= {node for move in moves for node in move.nodes}
        self._set_fence(wanted)

    def _set_fence(self, nodes: set[str]) -> None:
        changed = sorted(nodes ^ self.fenced)
        if not changed:
            return
        with self.target.live(quiet=True) as live:
            known = {one.metadata.name: one for one in live.listed(NODES)}
            writes = []
            for name in changed:
                if name not in known:
                    continue
                others = [
                    {"key": one.key, "value": one.value or "", "effect": one.effect}
                    for one in known[name].spec.taints or ()
                    if one.key != FENCE
                ]
                own = {"key": FENCE, "value": self.settings.name, "effect": "NoSchedule"}
                taints = [*others, own] if name in nodes else others
                version = known[name].metadata.resource_version
                writes.append(
                    Write(
                        Verb.MERGE_PATCH, NODES, "", name, {"spec": {"taints": taints or None}},
                        version=version,
                    )
                )  # fmt: skip
            self.fenced |= nodes
            _require(_written(live.backend, writes), "taint nodes")
        self.fenced = set(nodes)

    # ── the place of the next gang ─────────────────────────────────────────────────────────────────

    def _hold(self, backend: RemoteBackend, cluster: FragmentedCluster, move: Move) -> None:
        """Bind pods of the same size to the new place, so that it cannot be given away."""
        wires = cluster.scheduled.pods
        holders = list(holder_pods(self.settings.name, move.gang.pods, move.nodes, wires))
        self.held += [(one["metadata"]["namespace"], one["metadata"]["name"]) for one in holders]
        writes = [
            Write(Verb.CREATE, PODS_KIND, one["metadata"]["namespace"], one["metadata"]["name"], one)
            for one in holders
        ]
        _require(_written(backend, writes), f"hold the place of {gang_name(move.gang.ref)}")

    def _release(self, backend: RemoteBackend) -> None:
        writes = [
            Write(Verb.DELETE, PODS_KIND, namespace, name, grace_seconds=0) for namespace, name in self.held
        ]
        outcomes = _written(backend, writes)
        _require((one for one in outcomes if one.ended is not Ended.GONE), "remove pods that hold a place")
        self.held = []

    # ── the gang ───────────────────────────────────────────────────────────────────────────────────

    def _evict(self, backend: RemoteBackend, gang: MovableGang) -> None:
        """Evict the whole gang: by one write that stops it, or pod by pod; budgets are asked before."""
        tries = [_eviction(pod, dry=True) for pod in gang.pods]
        _require(_written(backend, tries), f"evict {gang_name(gang.ref)} (dry run: no pod was evicted)")
        switch = switch_of(gang.ref)
        if switch is not None:
            self.stopped = switch
            _require(_written(backend, [switch.write(stop=True)]), f"stop {gang_name(gang.ref)}")
            return
        left = list(gang.pods)
        end = self.target.clock.monotonic() + self.settings.timeout
        while left:
            outcomes = _written(backend, [_eviction(pod) for pod in left])
            refused = [one for one in outcomes if one.ended not in (Ended.DONE, Ended.GONE)]
            left = [pod for pod in left if any(one.write.name == pod.key.name for one in refused)]
            if len(left) == len(gang.pods) or self.target.clock.monotonic() > end:
                _require(refused, f"evict {gang_name(gang.ref)}")
            elif left:  # a budget has changed since the dry run: the gang is down, so its other pods follow
                self.target.clock.sleep(POLL_SECONDS)

    def _wait_gone(self, leaving: _LeavingGang) -> None:
        old = {pod.uid for pod in leaving.gang.pods}

        def gone(cluster: FragmentedCluster) -> bool:
            return not any(wire.metadata.uid in old for wire in cluster.scheduled.pods.values())

        self._until(gone, f"the pods of {leaving.title} are gone")

    def _hand_over(self) -> None:
        """Give the held place to the gang, which is pending now or is started again."""
        with self.target.live(quiet=True) as live:
            self._release(live.backend)
            self._start_again(live.backend)

    def _start_again(self, backend: RemoteBackend) -> None:
        if self.stopped is not None:
            write = self.stopped.write(stop=False)
            _require(_written(backend, [write]), f"start {gang_name(self.stopped.ref)} again")
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
            with self._read() as cluster:
                if holds(cluster):
                    return
            if clock.monotonic() > end:
                raise StepStoppedError(f"waited {self.settings.timeout:.0f} s in vain until {what}")
            clock.sleep(POLL_SECONDS)

    @contextmanager
    def _cleaning_up(self) -> Iterator[None]:
        """Take back taints and held places, whatever happened."""
        try:
            yield
        finally:
            if self.held or self.stopped is not None:
                with self.target.live(quiet=True) as live:
                    self._release(live.backend)
                    self._start_again(live.backend)
            if self.fenced:
                self._set_fence(set())


def _owner(wire: PodWire | None) -> str:
    owners = (wire.metadata.owner_references or ()) if wire is not None else ()
    return next((one.uid for one in owners if one.controller), "")


def _eviction(pod: Pod, *, dry: bool = False) -> Write:
    body: dict[str, Any] = {"deleteOptions": {"dryRun": ["All"]}} if dry else {}
    return Write(Verb.CREATE, PODS_KIND, pod.key.namespace, pod.key.name, body, "eviction", uid=pod.uid)


def _written(backend: RemoteBackend, writes: Sequence[Write]) -> list[WriteOutcome]:
    """Make writes, and wait for all of them."""
    backend.submit(writes)
    found: list[WriteOutcome] = []
    while len(found) < len(writes):
        backend.wait(WRITE_SECONDS)
        found += backend.outcomes()
    return found


def _require(outcomes: Iterable[WriteOutcome], what: str) -> None:
    failed = [one for one in outcomes if one.ended is not Ended.DONE]
    if failed:
        first = failed[0]
        raise StepStoppedError(f"could not {what}: {first.write.name}: {first.message or first.ended.value}")
