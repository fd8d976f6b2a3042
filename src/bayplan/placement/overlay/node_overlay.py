"""Nodes and pods while a decision is made: pods are seated and lifted for trial, and it can all be undone."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import numpy as np

from bayplan.model.pod import PodKey
from bayplan.model.pod_spec import PodSignature
from bayplan.model.watchdog import Watchdog
from bayplan.placement.cluster.node_table import ABSENT
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.filters.pipeline import FilterInput, FilterResult, judge
from bayplan.placement.overlay.numa_overlay import NumaOverlay


@dataclass(frozen=True, slots=True, eq=False)
class OverlayStep:
    """Equal pods that came to rows or left them. A row that is ABSENT: a node that is not known."""

    comes: bool
    shape: PodSignature
    leaving: bool
    keys: tuple[PodKey, ...]
    slots: tuple[int, ...]
    rows: Ints
    own: tuple[PodSignature, ...] = ()  # by key, if they have labels of their own that nobody looks at


class NodeOverlay:
    """The index of the scene is changed in place, so whoever opens a floor closes it.

    `with Floor(scene) as floor:` does. What is free is its own copy, and always as the steps so far left it.
    """

    def __init__(self, scene: FilterInput, watchdog: Watchdog | None = None) -> None:
        self.watchdog = watchdog or Watchdog()  # asked before each step: no search goes on without them
        self.before = scene.ground.free
        self.zones = None if scene.zones is None else NumaOverlay(scene.zones, _names(scene))
        self.scene = replace(
            scene,
            ground=replace(scene.ground, free=self.before.copy(), memory={}),
            zones=None if self.zones is None else self.zones.ground,
        )
        self.steps: list[OverlayStep] = []
        self.versions: list[int] = []  # of the index, before each step
        self.touched: list[Ints] = []  # rows, in the order in which anything happened there; never shortened
        self.remembered: dict[Hashable, Any] = {}  # for those who choose nodes

    def __enter__(self) -> NodeOverlay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __len__(self) -> int:
        """How many nodes there are."""
        return len(self.scene.ground.land)

    # ── names and rows ─────────────────────────────────────────────────────────────────────────────

    def row(self, node: str) -> int:
        """The row of a node; ABSENT (-1) if there is no such node."""
        return self.scene.ground.land.row(node)

    def node(self, row: int) -> str:
        """The name of the node in a row."""
        name: str = self.scene.ground.land.table.nodes[row].name
        return name

    def only(self, nodes: Iterable[str]) -> Bools:
        """These nodes, as a mask."""
        return self.scene.ground.land.named(nodes)

    def all_but(self, nodes: Iterable[str]) -> Bools:
        """All other nodes, as a mask."""
        return ~self.only(nodes)

    def place_of(self, key: PodKey) -> int:
        """The row a pod is in now; ABSENT if it is nowhere."""
        running = self.scene.index.pods.get(key)
        if running is None:
            return ABSENT
        return int(self._rows_of(np.array([running.node]))[0])

    # ── what is tried ──────────────────────────────────────────────────────────────────────────────

    def judge(self, shape: PodSignature) -> FilterResult:
        """Hold a pod against all nodes as they are now."""
        self.watchdog.check()
        return judge(self.scene, shape)

    def seat(self, key: PodKey, shape: PodSignature, row: int) -> None:
        """Put a pod there, whether it fits or not. It is nowhere yet."""
        self.seat_many(shape, (key,), (row,))

    def seat_many(
        self,
        shape: PodSignature,
        keys: Sequence[PodKey],
        rows: Sequence[int] | Ints,
        own: Sequence[PodSignature] = (),
    ) -> None:
        """Put equal pods there, one per row given; a row may be given often.

        `own` are their shapes, if they differ in labels.
        """
        if not len(keys):
            return
        at = np.asarray(rows, dtype=np.int64)
        slots = tuple(self.scene.ground.land.slots[at].tolist())
        self._do(OverlayStep(True, shape, False, tuple(keys), slots, at, tuple(own)))

    def lift(self, key: PodKey) -> None:
        """A pod leaves, whether it ran or was seated here; one that is nowhere already left."""
        self.lift_many((key,))

    def lift_many(self, keys: Iterable[PodKey]) -> None:
        """Pods leave."""
        pods = self.scene.index.pods
        alike: dict[tuple[PodSignature, bool], list[PodKey]] = {}
        for key in dict.fromkeys(keys):
            running = pods.get(key)
            if running is not None:
                alike.setdefault((running.shape, running.leaving), []).append(key)
        for (shape, leaving), same in alike.items():
            slots = tuple(pods[key].node for key in same)
            self._do(OverlayStep(False, shape, leaving, tuple(same), slots, self._rows_of(np.array(slots))))

    def put_back(self, keys: Iterable[PodKey]) -> None:
        """Pods that were lifted (and not undone since) are where they were before. Others are let be."""
        wanted = {key for key in keys if key not in self.scene.index.pods}
        for step in self.steps[::-1] if wanted else ():
            found = [at for at, key in enumerate(step.keys) if key in wanted] if not step.comes else []
            if found:
                wanted.difference_update(step.keys)
                keys_of, slots = tuple(step.keys[at] for at in found), tuple(step.slots[at] for at in found)
                own = tuple(step.own[at] for at in found) if step.own else ()
                self._do(OverlayStep(True, step.shape, step.leaving, keys_of, slots, step.rows[found], own))

    def mark(self) -> int:
        """A moment to come back to."""
        return len(self.steps)

    def undo(self, mark: int) -> None:
        """Everything since the mark is as if it had never been."""
        while len(self.steps) > mark:
            self._apply(self.steps.pop(), undone=True)
            self.scene.index.version = self.versions.pop()  # so that answers known then are known again

    def close(self) -> None:
        """Undo everything. An index that a step left half changed is made anew by those who own it."""
        if not self.scene.index.damaged:
            self.undo(0)

    @contextmanager
    def in_order(self) -> Iterator[None]:
        """Pods get their zones in the order in which they are seated: a little less safe than any order."""
        if self.zones is None:
            yield
            return
        self._take_turns(self.zones, in_order=True)
        try:
            yield
        finally:
            self._take_turns(self.zones, in_order=False)

    def _take_turns(self, zones: NumaOverlay, *, in_order: bool) -> None:
        """What was known of nodes holds no more."""
        self.scene.ground.memory.clear()
        self.remembered.clear()
        zones.take_turns(in_order)

    def _do(self, step: OverlayStep) -> None:
        self.watchdog.check()
        self.versions.append(self.scene.index.version)
        self._apply(step, undone=False)
        self.steps.append(step)

    def _apply(self, step: OverlayStep, *, undone: bool) -> None:
        index, ground = self.scene.index, self.scene.ground
        comes = step.comes != undone
        index.damaged = True  # unless it comes to its end
        if comes:
            index.add_many(step.keys, step.slots, step.shape, step.own, leaving=step.leaving)
        else:
            index.remove_many(step.keys, alike=not step.own)
        known = step.rows if step.rows.min() > ABSENT else step.rows[step.rows != ABSENT]
        for resource, amount in step.shape.amounts:
            at = ground.resources.get(resource)
            if at is not None and amount:
                more = -amount if comes else amount
                if len(known) == 1:
                    ground.free[at, known[0]] += more
                else:
                    np.add.at(ground.free[at], known, more)
        if self.zones is not None:
            self.zones.step(step.shape, step.keys, step.rows, comes=comes)
        self.touched.append(known)
        index.damaged = False

    def _rows_of(self, slots: Ints) -> Ints:
        land = self.scene.ground.land
        rows = land.rows()
        inside = slots < len(rows)
        return np.where(inside, rows[np.where(inside, slots, 0)], ABSENT) if len(rows) else slots * 0 + ABSENT


def _names(scene: FilterInput) -> list[str]:
    """The nodes, row by row."""
    land = scene.ground.land
    return land.remember("names", lambda: [node.name for node in land.table.nodes])
