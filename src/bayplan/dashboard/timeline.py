"""What a journal says of the past: decisions, the history of each gang, and the state at an entry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from bayplan.dashboard.host_map import AMOUNT_MAX, GangKey
from bayplan.dashboard.snapshot import DashboardSnapshot, Totals
from bayplan.dashboard.views import HIDDEN, UserView
from bayplan.state.cluster.node_state import FLAT
from bayplan.state.reports.queries import CPU, main_resource
from bayplan.state.scheduling.state import SchedulingState


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """What happened to a gang at an entry of the journal."""

    sequence: int
    now: float
    key: GangKey
    text: str
    nodes: tuple[str, ...] = ()
    other: GangKey | None = None  # the gang that it happened for
    joint: str = " on "  # between text and nodes

    def shown(self, view: UserView) -> dict[str, Any]:
        """The line for a user, without names that the view does not include."""
        text = self.text
        if self.nodes and view.nodes:
            text += self.joint + ", ".join(self.nodes)
        if self.other is not None:
            seen = view.sees(self.other.namespace)
            text += f" for {f'{self.other.namespace}/{self.other.name}' if seen else HIDDEN}"
        return {"sequence": self.sequence, "now": self.now, **self.key._asdict(), "text": text}


@dataclass(frozen=True, slots=True)
class Decision:
    """A plan of the journal that decided anything."""

    sequence: int
    now: float
    lines: tuple[HistoryLine, ...]

    def shown(self, view: UserView) -> dict[str, Any]:
        lines = [line.shown(view) for line in self.lines if view.sees(line.key.namespace)]
        return {"sequence": self.sequence, "now": self.now, "lines": lines}


@dataclass(frozen=True, slots=True)
class Overview:
    """The entries that can be looked at, and the curves over them."""

    first: int  # 0: nothing is read yet
    last: int
    points: tuple[tuple[int, Totals], ...] = ()  # by sequence
    note: str = ""  # what is wrong with the journal, as a sentence
    is_read: bool = True  # the journal has been read to its end


class Timeline(Protocol):
    """Called from several threads."""

    def overview(self) -> Overview:
        """What there is."""

    def history(self, key: GangKey) -> Sequence[HistoryLine]:
        """What happened to a gang, oldest first."""

    def decisions(self, after: int, before: int, limit: int) -> Sequence[Decision]:
        """Decisions between two entries, oldest first: the first ones after `after`, or the last before
        `before` if `after` is negative."""

    def namespaces(self) -> frozenset[str]:
        """Every namespace that had a gang or a pod in the journal."""

    def at(self, sequence: int) -> DashboardSnapshot | None:
        """The state after an entry; None if the journal does not have it. Blocks while it is replayed."""


def totals_at(state: SchedulingState, now: float, pending: int) -> Totals:
    """The point on the curves, as `DashboardSnapshot.totals` has it, without drawing maps."""
    clusters = state.store.nodes.topologies
    resource = main_resource(clusters[FLAT.name].snapshot())
    named = sorted(name for name in clusters if name != FLAT.name)
    supply = clusters[named[0] if named else FLAT.name].snapshot()
    tree, unit = supply.tree, 1000 if resource == CPU else 1
    if not tree.rows:
        return Totals(now, 0, 0, 0.0, pending)
    amounts = (node.allocatable.get(resource, 0) for node in tree.nodes)
    totals = np.clip(np.fromiter(amounts, np.int64, tree.rows) // unit, 0, AMOUNT_MAX)
    row = supply.resources.get(resource)
    free = np.zeros(tree.rows, np.int64) if row is None else np.clip(supply.free[row] // unit, 0, AMOUNT_MAX)
    left, total = int(free.sum()), int(totals.sum())
    wide = [starts for starts in tree.starts[: tree.lowest] if len(starts) > 1]
    best = int(np.add.reduceat(free, wide[0]).max()) if wide else int(free.max())
    return Totals(now, total, total - left, round(1.0 - best / left, 4) if left else 0.0, pending)
