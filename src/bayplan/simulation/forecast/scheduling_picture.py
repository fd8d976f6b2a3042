"""Pending and running gangs of the scheduler as the picture that is run forward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bayplan.model.gang import AUTO, GangSpec, Ref
from bayplan.model.pod import Pod
from bayplan.placement.cluster import node_table
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.simulation.forecast.forward_run import (
    NEVER,
    Ints,
    QueuePicture,
    RunningGang,
    StartOption,
    WaitingGang,
)
from bayplan.simulation.forecast.node_room import ANYWHERE, Bools, Measure, NodeCapacity, NodeShare
from bayplan.simulation.forecast.quota_room import NO_QUOTA
from bayplan.state.scheduling.queue import EntryState
from bayplan.state.scheduling.single_pod import single_pod_ref
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
    pending = [(entry.ref, pods, entry.since) for entry in entries if (pods := state.pending(entry.ref))]
    supply, _ = state.store.nodes.flat.view()
    shapes = _Shapes(supply, [pod for _, pods, _ in pending for pod in pods])
    by_gang: dict[Ref, list[Pod]] = {}
    for pod in state.store.placed.values():
        ref = pod.gang or single_pod_ref(pod.key)
        if pod.ours and pod.uses_capacity:
            by_gang.setdefault(ref, []).append(pod)
    waiting, chosen = [], []
    for ref, pods, since in pending:
        asks = tuple(shapes.asks(state.spec_of(ref), pods, len(state.bound(ref))))
        waiting.append(WaitingGang(named(ref), (StartOption(asks),) if asks else (), since=since))
        chosen.append((ref, pods))
    running = [RunningGang(named(ref), shapes.share(pods)) for ref, pods in by_gang.items()]
    picture = QueuePicture(
        shapes.capacity(running), NO_QUOTA, tuple(running), tuple(waiting), keep_after=keep_after or NEVER
    )
    placed = tuple((ref, tuple(pods)) for ref, pods in by_gang.items())
    return ScheduledPicture(picture, placed, tuple(chosen))


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

    def asks(self, spec: GangSpec | None, pods: Sequence[Pod], bound: int) -> Iterator[tuple[int, int]]:
        """What a gang needs to start: its minimum, or each of its pods if it has none."""
        minimum = spec.minimum if spec is not None and spec.is_gang else len(pods) + bound
        needed = pods[: max(minimum - bound, 1)]
        level = self._level(spec)
        for shape, count in Counter(map(self._shape, needed)).items():
            measure = Measure(shape, level)
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

    def _level(self, spec: GangSpec | None) -> int:
        """The level within one domain of which the whole gang has to stay."""
        if spec is None:
            return ANYWHERE
        label = spec.locality.required
        if spec.tree is not None:
            sets = [*spec.tree.pod_sets()]
            inner = sets[0].locality.required if len(sets) == 1 else None
            label = spec.tree.locality.required or inner or label
        if not label or label == AUTO:
            return ANYWHERE
        if label not in self.levels:
            values = [node.labels.get(label, "") for node in self.supply.tree.nodes]
            numbers = {value: at for at, value in enumerate(dict.fromkeys(values))}
            self.levels[label] = len(self.domains)
            self.domains.append(np.array([numbers[value] for value in values], np.int64))
        return self.levels[label]
