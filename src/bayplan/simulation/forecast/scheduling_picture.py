"""Pending and running gangs of the scheduler as the picture that is run forward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bayplan.model.gang import AUTO, GangSpec, Group, PodSet, Ref
from bayplan.model.pod import Pod
from bayplan.placement.cluster import node_table
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.scheduling.fair_share.accounts import amounts_of
from bayplan.scheduling.fair_share.order import turn_of
from bayplan.simulation.forecast.fair_picture import FairPicture
from bayplan.simulation.forecast.forward_run import (
    NEVER,
    Ints,
    QueuePicture,
    RunningGang,
    StartOption,
    WaitingGang,
)
from bayplan.simulation.forecast.node_room import ANYWHERE, Bools, Measure, NodeCapacity, NodeShare
from bayplan.state.scheduling.queue import EntryState
from bayplan.state.scheduling.single_pod import single_pod_ref
from bayplan.state.scheduling.snapshot import SchedulingCandidate
from bayplan.state.scheduling.state import SchedulingState


@dataclass(frozen=True, slots=True, eq=False)
class ScheduledPicture:
    """The picture, and the gangs in its order."""

    picture: QueuePicture
    running: tuple[tuple[Ref, tuple[Pod, ...]], ...]
    waiting: tuple[tuple[Ref, tuple[Pod, ...]], ...]


def scheduled_picture(
    state: SchedulingState, keep_after: float, named: Callable[[Ref], str]
) -> ScheduledPicture:
    """Everything that waits for the scheduler, and everything that it runs; pods of others do not end."""
    complete = (entry for entry in state.entries() if entry.state is not EntryState.INCOMPLETE)
    entries = sorted(complete, key=lambda entry: entry.rank)
    fair = FairPicture(state.store.fair.view())
    pending = fair.in_turn(
        [
            SchedulingCandidate(
                state.spec_of(entry.ref) or GangSpec(entry.ref),
                pods,
                tuple(state.bound(entry.ref)),
                since=entry.since,
            )
            for entry in entries
            if (pods := state.pending(entry.ref))
        ]
    )
    supply, _ = state.store.nodes.flat.view()
    shapes = _Shapes(supply, [pod for one in pending for pod in one.pending])
    by_gang: dict[Ref, list[Pod]] = {}
    for pod in state.store.placed.values():
        ref = pod.gang or single_pod_ref(pod.key)
        if pod.ours and pod.uses_capacity:
            by_gang.setdefault(ref, []).append(pod)
    waiting = [_waiting(one, shapes, fair, named) for one in pending]
    running = [_running(state.spec_of(ref), ref, pods, shapes, fair, named) for ref, pods in by_gang.items()]
    picture = QueuePicture(
        shapes.capacity(running),
        fair.limits(),
        tuple(running),
        tuple(waiting),
        keep_after=keep_after or NEVER,
    )
    placed = tuple((ref, tuple(pods)) for ref, pods in by_gang.items())
    return ScheduledPicture(picture, placed, tuple((one.spec.source, one.pending) for one in pending))


def _waiting(
    one: SchedulingCandidate, shapes: _Shapes, fair: FairPicture, named: Callable[[Ref], str]
) -> WaitingGang:
    needed = _needed(one)
    asks = tuple(shapes.asks(one.spec, needed))
    options = (StartOption(asks, fair.quota(one.spec, amounts_of(needed))),) if asks else ()
    return WaitingGang(named(one.spec.source), options, fair.queue(one.spec), one.since)


def _running(
    spec: GangSpec | None,
    ref: Ref,
    pods: Sequence[Pod],
    shapes: _Shapes,
    fair: FairPicture,
    named: Callable[[Ref], str],
) -> RunningGang:
    quota = fair.quota(spec, amounts_of(pods))
    return RunningGang(named(ref), shapes.share(pods), fair.queue(spec), quota)


def _needed(one: SchedulingCandidate) -> tuple[Pod, ...]:
    """The pods that a gang needs to start: its minimum, that of each pod set, or all if it has none."""
    if one.spec.queue or one.spec.has_minima:
        return turn_of(one, 0).pods
    minimum = one.spec.minimum if one.spec.is_gang else len(one.pending) + len(one.bound)
    return one.pending[: max(minimum - len(one.bound), 1)]


class _Shapes:
    """Pods with equal requests and node rules, the nodes that they may use, and domains by node label."""

    def __init__(self, supply: CapacitySnapshot, pods: Iterable[Pod]) -> None:
        self.supply = supply
        self.resources = sorted({name for pod in pods for name in pod.amounts})
        self.rows = {node.name: row for row, node in enumerate(supply.tree.nodes)}
        self.free: Ints = np.zeros((len(self.rows), len(self.resources)), np.int64)
        for column, name in enumerate(self.resources):
            if name in supply.resources:
                self.free[:, column] = supply.free[supply.resources[name]]
        nodes = supply.tree.nodes
        self.uncordoned: Bools = np.fromiter((node.schedulable for node in nodes), bool, len(nodes))
        self.known: dict[object, int] = {}
        self.requests: list[Ints] = []
        self.allowed: list[Bools] = []
        self.levels: dict[str, int] = {}
        self.domains: list[Ints] = []
        self.measures: dict[Measure, int] = {}

    def asks(self, spec: GangSpec, pods: Sequence[Pod]) -> Iterator[tuple[int, int]]:
        """What these pods of a gang ask of nodes."""
        kept = _kept_together(spec)
        parts = (kept.get(pod.pod_set) or kept[""] for pod in pods)
        counts = Counter((self._shape(pod), *part) for pod, part in zip(pods, parts, strict=True))
        for (shape, level, _), count in counts.items():
            measure = Measure(shape, self._level(level))
            yield self.measures.setdefault(measure, len(self.measures)), count

    def share(self, pods: Iterable[Pod]) -> NodeShare:
        """What running pods use of nodes."""
        found: dict[int, Ints] = {}
        for pod in pods:
            row = self.rows.get(pod.node)
            if row is not None:
                amounts: Ints = np.array([pod.amounts.get(name, 0) for name in self.resources], np.int64)
                found[row] = found[row] + amounts if row in found else amounts
        rows = sorted(found)
        amounts = np.array([found[row] for row in rows], np.int64).reshape(len(rows), len(self.resources))
        return NodeShare(np.array(rows, np.int64), amounts)

    def capacity(self, running: Iterable[RunningGang]) -> NodeCapacity:
        """The nodes without the running gangs."""
        free = self.free.copy()
        for gang in running:
            np.add.at(free, gang.share.rows, gang.share.amounts)
        size = (len(self.requests), len(self.resources))
        return NodeCapacity(
            free,
            np.array(self.requests, np.int64).reshape(size),
            np.array(self.allowed, bool).reshape(len(self.allowed), len(free)),
            tuple(self.domains),
            tuple(self.measures),
        )

    def _shape(self, pod: Pod) -> int:
        rules = pod.spec.signature.rules
        key = (tuple(sorted(pod.amounts.items())), rules)
        if key not in self.known:
            self.known[key] = len(self.known)
            self.requests.append(np.array([pod.amounts.get(name, 0) for name in self.resources], np.int64))
            self.allowed.append(node_table.mask(self.supply.table, rules) & self.uncordoned)
        return self.known[key]

    def _level(self, label: str) -> int:
        """The number of a level; domains are those of the node label."""
        if not label or label == AUTO:
            return ANYWHERE
        if label not in self.levels:
            values = [node.labels.get(label, "") for node in self.supply.tree.nodes]
            numbers = {value: at for at, value in enumerate(dict.fromkeys(values))}
            self.levels[label] = len(self.domains)
            self.domains.append(np.array([numbers[value] for value in values], np.int64))
        return self.levels[label]


def _kept_together(spec: GangSpec) -> Mapping[str, tuple[str, str]]:
    """By pod set: the level within one domain of which it has to stay, and the part that has to stay there.

    That is the pod set or a group around it; the entry without a name is for pods of no pod set. Pods of
    several shapes in one part may be in domains of their own.
    """
    whole = (spec.locality.required or "", "")
    found = {"": whole}
    if spec.tree is None:
        return found

    def walk(member: Group | PodSet, above: tuple[str, str], path: str) -> None:
        path = f"{path}/{member.name}"
        level = member.locality.required
        part = (level, path) if level and level != AUTO else above
        if isinstance(member, PodSet):
            found[member.name] = part
        else:
            for one in member.members:
                walk(one, part, path)

    walk(spec.tree, whole, "")
    if len(found) == 2:  # the only pod set has all pods
        found[""] = found[next(name for name in found if name)]
    return found
