"""What-if overlay of nodes and pods: pods are added and removed for trial, and every step can be undone."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import numpy as np

from bayplan.model.devices.claims import PodDevices
from bayplan.model.pod import PodKey
from bayplan.model.pod_spec import PodSignature
from bayplan.model.watchdog import Watchdog
from bayplan.placement.cluster.node_table import ABSENT
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.devices.supply import DeviceSupply
from bayplan.placement.filters.pipeline import FilterInput, FilterResult, run_filters
from bayplan.placement.overlay.numa_overlay import NumaOverlay
from bayplan.placement.overlay.undo_log import UndoLog


@dataclass(frozen=True, slots=True)
class ClaimShift:
    """Capacity of a row that is held for so many more pods of a claim, or for fewer."""

    claim: Hashable
    row: int
    count: int
    amounts: Mapping[str, int]  # of one pod


@dataclass(frozen=True, slots=True, eq=False)
class OverlayStep:
    """Pods of equal signature added to rows or removed from them. ABSENT is the row of an unknown node."""

    added: bool
    shape: PodSignature
    leaving: bool
    keys: tuple[PodKey, ...]
    slots: tuple[int, ...]
    rows: Ints
    own: tuple[PodSignature, ...] = ()  # by key, if they differ in labels that no term selects by
    version: int = 0  # of the pod index, before the step
    claimed: bool = False  # pending pods to which the zones of their nodes are promised
    nominated: bool = False  # pending pods that may still get another node
    departed: bool = False  # the pods are gone, and only devices are taken from them
    shifts: tuple[ClaimShift, ...] = ()  # no pods, but claims that are held on other rows


class NodeOverlay:
    """A what-if copy of the free amounts of nodes, with a log of steps to undo.

    The pod index of the filter input is changed in place, so the caller must close the overlay:
    `with NodeOverlay(filter_input) as overlay:` does. The free amounts are the overlay's own copy.
    """

    def __init__(self, filter_input: FilterInput, watchdog: Watchdog | None = None) -> None:
        self.watchdog = watchdog or Watchdog()  # checked before each step, since every search takes steps
        self.before = filter_input.node_snapshot.free
        self.zones = (
            None if filter_input.zones is None else NumaOverlay(filter_input.zones, _node_names(filter_input))
        )
        self.devices = None if filter_input.devices is None else filter_input.devices.trial()
        self.filter_input = replace(
            filter_input,
            devices=self.devices,
            node_snapshot=replace(filter_input.node_snapshot, free=self.before.copy(), memory={}),
            zones=None if self.zones is None else self.zones.seen_snapshot(),
        )
        self.log = UndoLog(self._apply)
        self.touched: list[Ints] = []  # rows changed by each step, in order; never shortened
        self.cache: dict[Hashable, Any] = {}  # cache of the node choice

    def __enter__(self) -> NodeOverlay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __len__(self) -> int:
        """The number of nodes."""
        return len(self.filter_input.node_snapshot.node_index)

    # ── names and rows ─────────────────────────────────────────────────────────────────────────────

    def row(self, node: str) -> int:
        """The row of a node; ABSENT (-1) if it does not exist."""
        return self.filter_input.node_snapshot.node_index.row(node)

    def node(self, row: int) -> str:
        """The name of the node in a row."""
        name: str = self.filter_input.node_snapshot.node_index.table.nodes[row].name
        return name

    def mask_of(self, nodes: Iterable[str]) -> Bools:
        """These nodes, as a mask."""
        return self.filter_input.node_snapshot.node_index.named(nodes)

    def mask_without(self, nodes: Iterable[str]) -> Bools:
        """All other nodes, as a mask."""
        return ~self.mask_of(nodes)

    def row_of(self, key: PodKey) -> int:
        """The row of a pod's node; ABSENT if it has none."""
        running = self.filter_input.index.pods.get(key)
        if running is None:
            return ABSENT
        return int(self._rows_of(np.array([running.node]))[0])

    # ── filters and steps ──────────────────────────────────────────────────────────────────────────

    def run_filters(self, shape: PodSignature) -> FilterResult:
        """Run the filters of a pod on all nodes in their present state."""
        self.watchdog.check()
        return run_filters(self.filter_input, shape)

    def add_pod(
        self, key: PodKey, shape: PodSignature, row: int, *, claimed: bool = False, nominated: bool = False
    ) -> None:
        """Add a pod without a node to a row, whether it fits or not.

        `claimed`: a slot there is promised to it. `nominated`: it may still get another node.
        """
        self.add_pods(shape, (key,), (row,), claimed=claimed, nominated=nominated)

    def add_pods(
        self,
        shape: PodSignature,
        keys: Sequence[PodKey],
        rows: Sequence[int] | Ints,
        own: Sequence[PodSignature] = (),
        *,
        claimed: bool = False,
        nominated: bool = False,
    ) -> None:
        """Add pods of equal signature, one per row; a row may occur several times.

        `own` are their signatures, if they differ in labels.
        """
        if not len(keys):
            return
        row_array = np.asarray(rows, dtype=np.int64)
        slots = tuple(self.filter_input.node_snapshot.node_index.slots[row_array].tolist())
        step = OverlayStep(True, shape, False, tuple(keys), slots, row_array, tuple(own))
        self._push(replace(step, claimed=claimed, nominated=nominated))

    def remove_pod(self, key: PodKey) -> None:
        """Remove a pod, whether it ran or was added here; no effect if it has no node."""
        self.remove_pods((key,))

    def remove_pods(self, keys: Iterable[PodKey]) -> None:
        """Remove pods."""
        pods, nominated_pods = self.filter_input.index.pods, self.filter_input.index.nominated
        claimed_pods: Collection[PodKey] = self.zones.claimed if self.zones is not None else ()
        by_signature: dict[tuple[PodSignature, bool, bool, bool], list[PodKey]] = {}
        departed: list[PodKey] = []
        for key in dict.fromkeys(keys):
            running = pods.get(key)
            if running is None:
                departed.append(key)
            else:
                alike = (running.shape, running.leaving, key in claimed_pods, key in nominated_pods)
                by_signature.setdefault(alike, []).append(key)
        for (shape, leaving, claimed, nominated), pod_keys in by_signature.items():
            slots = tuple(pods[key].node for key in pod_keys)
            rows = self._rows_of(np.array(slots))
            step = OverlayStep(False, shape, leaving, tuple(pod_keys), slots, rows)
            self._push(replace(step, claimed=claimed, nominated=nominated))
        held = () if self.devices is None else self.devices.holdings.claims.keys() & set(departed)
        if held:
            self._push_departed(tuple(sorted(held, key=str)))

    def restore_pods(self, keys: Iterable[PodKey]) -> None:
        """Add removed pods (not undone since) where they were before. Other pods are ignored."""
        missing = {key for key in keys if key not in self.filter_input.index.pods}
        for step in self.log.steps[::-1] if missing else ():
            taken = not step.added and not step.departed
            positions = [at for at, key in enumerate(step.keys) if key in missing] if taken else []
            if positions:
                missing.difference_update(step.keys)
                step_keys, slots = (
                    tuple(step.keys[at] for at in positions),
                    tuple(step.slots[at] for at in positions),
                )
                own = tuple(step.own[at] for at in positions) if step.own else ()
                rows = step.rows[positions]
                self._push(replace(step, added=True, keys=step_keys, slots=slots, rows=rows, own=own))

    def shift_claims(self, shifts: Iterable[ClaimShift]) -> None:
        """Hold the capacity of claims on other rows."""
        found = tuple(shifts)
        if found:
            rows = np.array([shift.row for shift in found], dtype=np.int64)
            self._push(OverlayStep(True, PodSignature(), False, (), (), rows, shifts=found))

    def shifted_claims(self) -> Iterator[ClaimShift]:
        """All shifts of claims that are not undone."""
        return (shift for step in self.log.steps for shift in step.shifts)

    def checkpoint(self) -> int:
        """A checkpoint for `rollback`."""
        return self.log.checkpoint()

    def rollback(self, mark: int) -> None:
        """Roll back all steps since the checkpoint. After a step that failed halfway, `close` does it."""
        self.log.rollback(mark)

    def tentative(self) -> AbstractContextManager[None]:
        """Roll back at the end what happens inside."""
        return self.log.tentative()

    def close(self) -> None:
        """Undo everything. If a step failed halfway, the pod index is built anew with the pods it had."""
        try:
            self.rollback(0)
        finally:
            if self.log.steps:
                self._rebuild_index()

    def _rebuild_index(self) -> None:
        index = self.filter_input.index
        pods = {key: (pod.node, pod.shape, pod.leaving) for key, pod in index.pods.items()}
        for step in reversed(self.log.steps):
            for at, key in enumerate(() if step.departed else step.keys):
                if step.added:
                    pods.pop(key, None)
                else:
                    pods[key] = step.slots[at], step.own[at] if step.own else step.shape, step.leaving
        index.rebuild(pods)
        index.version, index.damaged = self.log.steps[0].version, False
        self.log = UndoLog(self._apply)

    @contextmanager
    def in_order(self) -> Iterator[None]:
        """Assume that pods get zones in the order in which they were added: less safe than any order."""
        if self.zones is None:
            yield
            return
        self._set_in_order(self.zones, in_order=True)
        try:
            yield
        finally:
            self._set_in_order(self.zones, in_order=False)

    def _set_in_order(self, zones: NumaOverlay, *, in_order: bool) -> None:
        """Switch the assumed order; cached results become invalid."""
        self.filter_input.node_snapshot.memory.clear()
        self.cache.clear()
        zones.set_in_order(in_order)

    def _push(self, step: OverlayStep) -> None:
        self.watchdog.check()
        index = self.filter_input.index
        assert not step.added or index.pods.keys().isdisjoint(step.keys), step.keys
        self.log.push(replace(step, version=index.version))

    def _push_departed(self, keys: tuple[PodKey, ...]) -> None:
        rows = np.full(len(keys), ABSENT, dtype=np.int64)
        version = self.filter_input.index.version
        self.log.push(
            OverlayStep(False, PodSignature(), False, keys, (), rows, version=version, departed=True)
        )

    def _apply(self, step: OverlayStep, undone: bool) -> None:
        index, node_snapshot = self.filter_input.index, self.filter_input.node_snapshot
        if step.departed:
            self._apply_departed(step, undone)
            return
        if step.shifts:
            self._apply_shifts(step, undone)
            return
        added = step.added != undone
        index.damaged = True
        if added:
            index.add_many(step.keys, step.slots, step.shape, step.own, leaving=step.leaving)
        else:
            index.remove_many(step.keys, alike=not step.own)
        if step.nominated:
            index.set_nominated(step.keys, nominated=added)
        known_rows = step.rows if step.rows.min() > ABSENT else step.rows[step.rows != ABSENT]
        for resource, amount in step.shape.amounts:
            resource_row = node_snapshot.resources.get(resource)
            if resource_row is not None and amount:
                delta = -amount if added else amount
                if len(known_rows) == 1:
                    node_snapshot.free[resource_row, known_rows[0]] += delta
                else:
                    np.add.at(node_snapshot.free[resource_row], known_rows, delta)
        if self.zones is not None:
            self.zones.step(step.shape, step.keys, step.rows, added=added, claimed=step.claimed)
        if self.devices is not None:
            self._step_devices(self.devices, step, undone)
        self.touched.append(known_rows)
        index.damaged = False
        if undone:
            index.version = step.version  # so that results cached then are valid again

    def _apply_shifts(self, step: OverlayStep, undone: bool) -> None:
        node_snapshot, index = self.filter_input.node_snapshot, self.filter_input.index
        for shift in step.shifts:
            for resource, amount in shift.amounts.items():
                resource_row = node_snapshot.resources.get(resource)
                if resource_row is not None:
                    more = amount * (-shift.count if undone else shift.count)
                    node_snapshot.free[resource_row, shift.row] -= more
        index.changes += 1
        index.version = step.version if undone else index.changes
        self.touched.append(step.rows)

    def _apply_departed(self, step: OverlayStep, undone: bool) -> None:
        index = self.filter_input.index
        index.changes += 1
        index.version = step.version if undone else index.changes
        if self.devices is not None:
            self._step_devices(self.devices, step, undone)
        self.touched.append(step.rows[:0])

    def _step_devices(self, devices: DeviceSupply, step: OverlayStep, undone: bool) -> None:
        if undone:
            devices.undo()
            return
        nodes = self.filter_input.node_snapshot.node_index.table.nodes
        devices.step(step.shape.devices, step.keys, step.rows, nodes, added=step.added)

    def promise_devices(self, devices: PodDevices, keys: Sequence[PodKey], rows: Sequence[int]) -> None:
        """Pods that are on their nodes already get devices there, before any other step; not undone."""
        assert not self.log.steps or not keys, "devices are promised first"
        if self.devices is not None and keys:
            nodes = self.filter_input.node_snapshot.node_index.table.nodes
            self.devices.step(devices, keys, np.asarray(rows, dtype=np.int64), nodes, added=True)

    def lacks_devices(self, keys: Iterable[PodKey]) -> bool:
        """Whether one of these pods was added to a node that has not enough devices for its claims."""
        return self.devices is not None and self.devices.is_missing(keys)

    def _rows_of(self, slots: Ints) -> Ints:
        node_index = self.filter_input.node_snapshot.node_index
        rows = node_index.rows()
        inside = slots < len(rows)
        return np.where(inside, rows[np.where(inside, slots, 0)], ABSENT) if len(rows) else slots * 0 + ABSENT


def _node_names(filter_input: FilterInput) -> list[str]:
    """The node names by row."""
    node_index = filter_input.node_snapshot.node_index
    return node_index.remember("names", lambda: [node.name for node in node_index.table.nodes])
