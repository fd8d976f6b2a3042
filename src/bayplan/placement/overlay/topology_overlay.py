"""What is free under each topology while a decision is made: taken and given back as gangs are tried."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from bayplan.model.assignment import Assignment, Path
from bayplan.model.gang import Ref
from bayplan.model.node import HOSTNAME, ROOM_MAX
from bayplan.model.node_rules import NodeRules
from bayplan.model.numa import NumaRequest
from bayplan.model.quota import Flavor
from bayplan.placement.cluster.capacity import with_slot
from bayplan.placement.cluster.node_table import host_row, labelled, mask
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.cluster.topology_tree import Bools, Ints, Tree, find
from bayplan.placement.numa.columns import NumaColumns
from bayplan.placement.overlay.topology_numa_overlay import PodMove, TopologyNumaOverlay

KNOWN_MAX = 20_000

_Key = tuple[str, int, int]
_Taken = tuple[int, str, Assignment, Mapping[str, int], NumaRequest | None]
"""How many times, and what; kept, so that ids stay."""


@dataclass(frozen=True, slots=True, eq=False)
class UsageDelta:
    """What pods take: so much in so many cells of an array, which are counted through row by row."""

    rows: Ints  # resources
    leaves: Ints
    cells: Ints
    amounts: Ints
    requests: Mapping[str, int]  # kept, so that its id stays its own


@dataclass(slots=True)
class KnownRows:
    """Where assignments stand in the rows of a tree: worked out once as long as the nodes stay the same."""

    trees: dict[str, tuple[Tree, int]] = field(default_factory=dict)
    spots: dict[tuple[str, int], tuple[Assignment, Ints, Ints]] = field(default_factory=dict)
    impacts: dict[tuple[str, int, int], UsageDelta] = field(default_factory=dict)

    def stay_true(self, supplies: Mapping[str, CapacitySnapshot]) -> None:
        """Forget everything if rows or resources are others now, or if it became too much."""
        now = {name: (supply.tree, len(supply.resources)) for name, supply in supplies.items()}
        same = now.keys() == self.trees.keys() and all(
            self.trees[name][0] is tree and self.trees[name][1] == size for name, (tree, size) in now.items()
        )
        if not same or len(self.spots) > KNOWN_MAX:
            self.trees, self.spots, self.impacts = now, {}, {}


class TopologyOverlay:
    """Supplies by topology. Flavors see the nodes that carry their labels; a host is free for all or none."""

    def __init__(
        self, supplies: Mapping[str, CapacitySnapshot], flavors: Mapping[str, Flavor], known: KnownRows | None = None,
        zones: TopologyNumaOverlay | None = None,
    ) -> None:  # fmt: skip
        self.flavors, self.zones = flavors, zones
        self.known = known if known is not None else KnownRows()
        self.known.stay_true(supplies)
        self._begun, self._now = supplies, dict(supplies)
        self._owned: set[str] = set()
        self._active: dict[str, Bools] = {}
        self._seen: dict[str, CapacitySnapshot] = {}
        self._empty: dict[str, CapacitySnapshot] = {}
        self._owed: dict[_Key, _Taken] = {}  # not worked out yet
        self._moved: dict[_Key, _Taken] = {}  # worked out
        self._zoned: dict[str, NumaColumns | None] = {}

    def knows(self, flavor: str) -> bool:
        """Whether gangs can be placed on the flavor's nodes."""
        found = self.flavors.get(flavor)
        return found is not None and found.topology in self._now

    def levels(self, flavor: str) -> tuple[str, ...]:
        return self._now[self.flavors[flavor].topology].tree.levels

    def supply(self, flavor: str, *, empty: bool = False) -> CapacitySnapshot:
        """The flavor's nodes as they are now, or as they would be without any placed gang."""
        if not empty:
            self._settle()
        seen = self._empty if empty else self._seen
        if flavor not in seen:
            what = self.flavors[flavor]
            whole = self._now[what.topology]
            if flavor not in self._active:
                mine = labelled(whole.table, what.labels) if what.labels else True
                self._active[flavor] = whole.active & mine
            if empty and whole.claimed is None:  # what was taken since would count as held, and as free then
                whole = self._begun[what.topology]
            supply = whole.limited(self._active[flavor])
            seen[flavor] = supply.emptied() if empty else supply
        return seen[flavor]

    def take(
        self, flavor: str, place: Assignment, requests: Mapping[str, int], sign: int = 1,
        zones: NumaRequest | None = None,
    ) -> None:  # fmt: skip
        """Pods stand where the assignment says (sign -1: they leave). Nodes that are gone do not matter.

        Most of what is tried is taken back before anybody looks: only what remains is worked out.
        """
        _add(self._owed, (flavor, id(place), id(requests)), (sign, flavor, place, requests, zones))

    def columns(self, flavor: str, *, empty: bool = False) -> NumaColumns | None:
        """The zones of the nodes under the flavor's topology; None if nobody tells of any."""
        topology = self.flavors[flavor].topology
        if self.zones is None:
            return None
        if empty:
            return self.zones.empty(topology)
        self._settle()
        if topology not in self._zoned:
            self._zoned[topology] = self.zones.after(topology, self._moves(topology))
        return self._zoned[topology]

    def _moves(self, topology: str) -> Iterator[PodMove]:
        """What was taken on hosts, or given back; in wider domains nobody knows whose zones it is about."""
        for times, _, place, requests, wants in self._moved.values():
            if wants is not None and place.levels[-1] == HOSTNAME:
                located = self._located(topology, self._now[topology], place)
                yield PodMove(times, (id(place), id(requests)), wants, *located)

    @property
    def untouched(self) -> bool:
        """Whether everything is as it was at the start."""
        return not self._owed and not self._moved

    def _settle(self) -> None:
        """Work out what was taken and not given back since the last look."""
        owed, self._owed = self._owed, {}
        if owed:
            self._zoned.clear()
        touched: set[str] = set()
        for key, taken in owed.items():
            _add(self._moved, key, taken)
            touched.update(self._stand(*taken[:4]))
        for flavor in [name for name in self._seen if self.flavors[name].topology in touched]:
            del self._seen[flavor]

    def _stand(
        self, times: int, flavor: str, place: Assignment, requests: Mapping[str, int]
    ) -> Iterator[str]:
        """Note what pods take; says in which topologies."""
        own = self.flavors[flavor].topology if flavor in self.flavors else ""
        on_host = place.levels[-1] == HOSTNAME
        for topology, supply in self._now.items():
            if not on_host and (topology != (own or topology) or supply.tree.levels != place.levels):
                continue
            impact = self._impact(topology, supply, place, requests)
            if impact.cells.size:
                self._apply(topology, impact, times, on_host)
                yield topology

    def fits(
        self, flavor: str, place: Assignment, requests: Mapping[str, int], zones: NumaRequest | None = None
    ) -> bool:
        """Whether an assignment found earlier still holds."""
        self._settle()
        topology = self.flavors[flavor].topology
        supply = self._now[topology]
        if any(amount and name not in supply.resources for name, amount in with_slot(requests).items()):
            return False
        impact = self._impact(topology, supply, place, requests)
        if supply.claimed is None:
            left = supply.free.take(impact.cells)
        else:
            inside = np.where(supply.active, supply.free[impact.rows], 0)
            sums = np.add.reduceat(inside, supply.tree.starts[supply.tree.lowest], axis=1)
            left = (sums - supply.claimed[impact.rows])[:, impact.leaves].ravel()
        return not (left < impact.amounts).any() and self._aligns(flavor, place, zones)

    def _aligns(self, flavor: str, place: Assignment, wants: NumaRequest | None) -> bool:
        columns = self.columns(flavor) if wants is not None and place.levels[-1] == HOSTNAME else None
        if columns is None or wants is None or self.zones is None:
            return True
        topology = self.flavors[flavor].topology
        return self.zones.fits(columns, wants, *self._located(topology, self._now[topology], place))

    def leaves(self, flavor: str, places: Iterable[Assignment]) -> frozenset[int]:
        """Where the pods of assignments stand."""
        topology = self.flavors[flavor].topology
        supply = self._now[topology]
        found = [self._located(topology, supply, place)[0].tolist() for place in places]
        return frozenset(itertools.chain.from_iterable(found))

    def usable(self, flavor: str, rules: Iterable[NodeRules]) -> frozenset[int] | None:
        """The leaves that any of the rules accept; None if leaves hold several nodes, which differ."""
        supply = self.supply(flavor)
        if not supply.tree.topology.ends_at_host:
            return None
        accepted = [mask(supply.table, each) for each in rules]
        return frozenset(np.flatnonzero(supply.active & np.logical_or.reduce(accepted)).tolist())

    def by_domain(
        self, flavor: str, level: str, places: Mapping[Ref, Iterable[Assignment]]
    ) -> dict[int, set[Ref]]:
        """Who stands in which domain of a level."""
        topology = self.flavors[flavor].topology
        supply = self._now[topology]
        tree, found = supply.tree, dict[int, set[Ref]]()
        for ref, assignments in places.items():
            for place in assignments:
                leaves = self._located(topology, supply, place)[0]
                for domain in np.unique(tree.ancestors(tree.lowest, leaves, tree.levels.index(level))):
                    found.setdefault(int(domain), set()).add(ref)
        return found

    def _located(self, topology: str, supply: CapacitySnapshot, place: Assignment) -> tuple[Ints, Ints]:
        """The leaves of an assignment that are there (rows, for hosts below leaves), and the pods on each."""
        key = (topology, id(place))
        if key not in self.known.spots:
            on_host = place.levels[-1] == HOSTNAME
            spots: dict[int, int] = {}
            for share in place.shares:
                leaf = host_row(supply.table, share.values[-1]) if on_host else _leaf(supply, share.values)
                if leaf is not None:
                    spots[leaf] = spots.get(leaf, 0) + share.count
            found = np.array(list(spots), np.int64), np.array(list(spots.values()), np.int64)
            self.known.spots[key] = (place, *found)  # the assignment is kept, so that its id stays its own
        return self.known.spots[key][1:]

    def _impact(
        self, topology: str, supply: CapacitySnapshot, place: Assignment, requests: Mapping[str, int]
    ) -> UsageDelta:
        key = (topology, id(place), id(requests))
        if key not in self.known.impacts:
            leaves, pods = self._located(topology, supply, place)
            rows, each = _vector(supply, with_slot(requests))
            claims = supply.claimed is not None and place.levels[-1] != HOSTNAME
            width = supply.leaves if claims else supply.tree.rows
            cells = rows[:, None] * width + leaves
            amounts = each * np.minimum(pods, ROOM_MAX // each)  # bounded, and the same when given back
            self.known.impacts[key] = UsageDelta(rows, leaves, cells.ravel(), amounts.ravel(), requests)
        return self.known.impacts[key]

    def _apply(self, topology: str, impact: UsageDelta, times: int, on_host: bool) -> None:
        supply = self._now[topology]
        if topology not in self._owned:
            self._owned.add(topology)
            supply = self._now[topology] = _owned(supply)
        if supply.claimed is not None and not on_host:
            supply.claimed.reshape(-1)[impact.cells] += impact.amounts * times
        else:
            supply.free.reshape(-1)[impact.cells] -= impact.amounts * times


def _add(taken: dict[_Key, _Taken], key: _Key, more: _Taken) -> None:
    """What is taken and given back as often was never taken."""
    times = more[0] + (taken[key][0] if key in taken else 0)
    if times:
        taken[key] = (times, *more[1:])
    else:
        del taken[key]


def _vector(supply: CapacitySnapshot, amounts: Mapping[str, int]) -> tuple[Ints, Ints]:
    """The rows of resources that are asked for, and how much of each, as a column."""
    known = supply.resources
    asked = [
        (known[name], min(value, ROOM_MAX)) for name, value in amounts.items() if value and name in known
    ]
    found = np.array(asked, np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1:]


def without_domain(supply: CapacitySnapshot, domain: Path) -> CapacitySnapshot:
    """The same, with the nodes of a domain out of bounds."""
    low, high = find(supply.tree, domain)
    active = supply.active.copy()
    active[low:high] = False
    return supply.limited(active)


def _owned(supply: CapacitySnapshot) -> CapacitySnapshot:
    """A copy to write on."""
    claimed = None if supply.claimed is None else supply.claimed.copy()
    return replace(supply, free=supply.free.copy(), claimed=claimed, memory={})


def _leaf(supply: CapacitySnapshot, values: tuple[str, ...]) -> int | None:
    tree = supply.tree
    low, high = find(tree, values)
    if low >= high:
        return None
    return int(np.searchsorted(tree.starts[tree.lowest], low, side="right")) - 1
