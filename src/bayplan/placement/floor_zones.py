"""Room in zones while a decision is made: what is tried on a floor is followed here, and can be undone.

Equal pods that are seated on one node get the zones that the node would give them, in whatever order they
come. As soon as others join them nobody knows who comes first: then each takes its share of every zone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bayplan.model.pod import PodKey
from bayplan.model.wants import Shape
from bayplan.model.zone import NodeZones, ZoneWants
from bayplan.placement.nodes import ABSENT
from bayplan.placement.tree import Ints
from bayplan.placement.zone_counts import aligned_counts, with_copies
from bayplan.placement.zone_evictions import imagined
from bayplan.placement.zone_ground import ZoneGround, minds
from bayplan.placement.zone_reports import RunningPod
from bayplan.placement.zone_resources import whole_pod
from bayplan.placement.zones import ZoneColumns, narrowed, taken_everywhere, with_zones


class FloorZones:
    """What zones hold follows from who was seated on a node and who left it, so that undoing is exact."""

    def __init__(self, ground: ZoneGround) -> None:
        self.before = ground.columns
        columns = replace(self.before, available=self.before.available.copy(), fresh=self.before.fresh.copy())
        self.ground = replace(ground, columns=columns)
        self.seated: set[PodKey] = set()  # who came while the decision was made
        self.tenants: dict[int, Counter[ZoneWants]] = {}  # what they ask for, by row
        self.left: dict[int, dict[PodKey, ZoneWants]] = {}  # who ran there and was made to go

    def step(
        self, shape: Shape, keys: Sequence[PodKey], rows: Ints, nodes: Sequence[str], *, comes: bool
    ) -> None:
        """Pods came to rows, or left them; said the other way round it is undone."""
        wants = minds(self.ground, shape)
        if wants is None:
            return
        for key, row in zip(keys, rows.tolist(), strict=True):
            if row == ABSENT:
                continue
            if comes:
                self._come(key, row, wants)
            else:
                self._leave(key, row, wants)
        self._work_out(np.unique(rows[rows != ABSENT]), nodes)

    def _come(self, key: PodKey, row: int, wants: ZoneWants) -> None:
        gone = self.left.get(row, {})
        if key in gone:
            del gone[key]
            return
        self.seated.add(key)
        self.tenants.setdefault(row, Counter())[wants] += 1

    def _leave(self, key: PodKey, row: int, wants: ZoneWants) -> None:
        if key not in self.seated:
            self.left.setdefault(row, {})[key] = wants
            return
        self.seated.discard(key)
        tenants = self.tenants[row]
        tenants[wants] -= 1
        if not tenants[wants]:
            del tenants[wants]

    def _work_out(self, rows: Ints, nodes: Sequence[str]) -> None:
        """What these rows hold now, beginning with what they held before anything was tried."""
        if not len(rows):
            return
        part = narrowed(self.before, rows)
        part = self._without_those_who_left(part, rows, nodes)
        alike: dict[ZoneWants, list[tuple[int, int]]] = {}
        mixed: list[tuple[int, Counter[ZoneWants]]] = []
        for at, row in enumerate(rows.tolist()):
            tenants = self.tenants.get(row)
            if tenants and len(tenants) == 1:
                alike.setdefault(next(iter(tenants)), []).append((at, tenants.total()))
            elif tenants:
                mixed.append((at, tenants))
        for wants, found in alike.items():
            part = self._with_equals(part, wants, np.array(found, dtype=np.int64))
        for at, tenants in mixed:
            for wants, count in tenants.items():
                part = _pessimistic(part, np.array([at]), np.array([count]), wants)
        columns = self.ground.columns
        columns.available[:, :, rows], columns.fresh[rows] = part.available, part.fresh

    def _with_equals(self, part: ZoneColumns, wants: ZoneWants, found: Ints) -> ZoneColumns:
        """Whoever was put there although there is no zone for it counts in all of them."""
        rules, (at, counts) = self.ground.rules, found.T
        room = aligned_counts(narrowed(part, at), wants, rules, int(counts.max()))
        fits = room >= counts
        part = with_copies(part, at[fits], counts[fits], wants, rules)
        return _pessimistic(part, at[~fits], counts[~fits], wants) if not fits.all() else part

    def _without_those_who_left(self, part: ZoneColumns, rows: Ints, nodes: Sequence[str]) -> ZoneColumns:
        """They give back what they had to themselves, as far as anybody knows where that was."""
        ground = self.ground
        if not self.left or not ground.care.thinks_ahead:
            return part
        for at, row in enumerate(rows.tolist()):
            name = nodes[row]
            gone, report = self.left.get(row), ground.believed.get(name)
            if not gone or report is None:
                continue
            victims = [RunningPod((key.namespace, key.name), wants) for key, wants in gone.items()]
            found = imagined(report, victims, ground.seats(name), ground.care)
            if isinstance(found, NodeZones):
                part = with_zones(part, at, found)
            else:
                part.fresh[at] = False  # nobody can say what would be there
        return part


def _pessimistic(part: ZoneColumns, at: Ints, counts: Ints, wants: ZoneWants) -> ZoneColumns:
    return taken_everywhere(part, at, dict(whole_pod(wants, sidecars_stay=True)), counts)
