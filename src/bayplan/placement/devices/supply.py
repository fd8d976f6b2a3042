"""The devices that claims can get, at one moment or on trial: every step of a trial can be undone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bayplan.model.devices.claims import (
    AllocatedDevice,
    DeviceAllocation,
    DeviceClaim,
    DeviceClaimKey,
    PodDevices,
)
from bayplan.model.devices.inventory import PoolKey
from bayplan.model.node import Node
from bayplan.model.node_rules import NodeSelectorTerm
from bayplan.model.pod import PodKey
from bayplan.placement.cluster.node_index import NodeIndex, terms_mask
from bayplan.placement.cluster.node_table import ABSENT
from bayplan.placement.cluster.topology_tree import Bools, Ints, Objects
from bayplan.placement.devices.allocate import NodeAllocation
from bayplan.placement.devices.copies import CopyCounter
from bayplan.placement.devices.in_use import NOTHING_IN_USE, DevicesInUse

COPIES_MAX = 512
"""More pods than that do not fit on a node for other reasons."""
COPIES_FIRST = 16
"""Counting goes as far at first, since most nodes have fewer devices."""
TOUCHED_MAX = 100_000
COUNTED_MAX = 64


@dataclass(frozen=True, slots=True, eq=False)
class DeviceHoldings:
    """Which devices are in use, by which claims, for which pods. Shared with the state that updates it."""

    usage: Mapping[PoolKey, DevicesInUse] = field(default_factory=dict)
    allocations: Mapping[DeviceClaimKey, DeviceAllocation] = field(default_factory=dict)
    by_pool: Mapping[PoolKey, Mapping[DeviceClaimKey, None]] = field(default_factory=dict)
    pods: Mapping[DeviceClaimKey, frozenset[PodKey]] = field(default_factory=dict)  # a claim's users
    claims: Mapping[PodKey, frozenset[DeviceClaimKey]] = field(default_factory=dict)  # a pod's claims
    # of claims that do not show their devices yet
    assumed: Mapping[DeviceClaimKey, DeviceAllocation] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Counted:
    node_index: NodeIndex
    counts: Ints
    reasons: list[str]  # by number
    reason: Ints  # number of the reason for each row
    most: int
    seen: int  # length of the log of touched pools

    def answers(self, most: int) -> bool:
        """Whether the counts are right for so many pods."""
        return self.most >= most or int(self.counts.max(initial=0)) < self.most


class DeviceSupply:
    """Counts and allocates devices. A trial has a layer of its own above the holdings, and a log of steps."""

    def __init__(
        self, counter: CopyCounter, holdings: DeviceHoldings, base: DeviceSupply | None = None
    ) -> None:
        self.counter, self.holdings, self.base = counter, holdings, base
        self.version = 0  # of the holdings
        self.inventory = 0  # how often slices or classes changed
        self.changed: dict[PoolKey, DevicesInUse] = {}
        self.allocated: dict[DeviceClaimKey, DeviceAllocation] = {}  # claims that several pods use
        self.users: dict[DeviceClaimKey, frozenset[PodKey]] = {}  # added pods that use these claims
        self.uses: dict[PodKey, tuple[DeviceClaimKey, ...]] = {}  # the same by pod
        self.given: dict[PodKey, tuple[tuple[int, DeviceAllocation], ...]] = {}  # by position of the claim
        self.lacking: dict[PodKey, str] = {}  # pods that got none, with the reason
        self.gone: dict[PodKey, int] = {}  # pods that were removed, with their row
        self.freed: dict[DeviceClaimKey, bool] = {}
        self.touched: list[PoolKey] = []  # never shortened by a trial
        self._counted: dict[PodDevices, _Counted] = {}
        self._undo: list[list[Callable[[], object]]] = []

    def with_promises(
        self, node_index: NodeIndex, promises: Mapping[tuple[str, PodDevices], int]
    ) -> DeviceSupply:
        """The same less the devices that are promised: how many pods with such claims each node is to get."""
        layer = self.trial()
        nodes = node_index.table.nodes
        for number, ((node, devices), count) in enumerate(promises.items()):
            keys = [PodKey("", f"promised/{number}/{at}") for at in range(count)]  # no pod has a slash
            rows = np.full(count, node_index.row(node), dtype=np.int64)
            layer.step(devices, keys, rows, nodes, added=True)
        return layer

    def trial(self) -> DeviceSupply:
        """A supply in which pods can be added and removed."""
        return DeviceSupply(self.counter, self.holdings, self)

    def holdings_changed(self, pools: Iterable[PoolKey]) -> None:
        """Claims got or lost devices of these pools."""
        self.version += 1
        self.touched.extend(pools)
        if len(self.touched) > TOUCHED_MAX:
            self.inventory_changed()

    def inventory_changed(self) -> None:
        """Slices, classes or nodes changed."""
        self.version += 1
        self.inventory += 1
        self._counted.clear()
        self.touched.clear()

    def usage(self, pool: PoolKey) -> DevicesInUse | None:
        """What is in use of a pool."""
        found = self.changed.get(pool)
        if found is not None:
            return found
        return self.holdings.usage.get(pool) if self.base is None else self.base.usage(pool)

    # ── questions ──────────────────────────────────────────────────────────────────────────────────

    def unreachable(self, node_index: NodeIndex, devices: PodDevices) -> Bools:
        """The nodes that cannot use the devices which claims of the pod have already."""
        reachable = np.ones(len(node_index), dtype=bool)
        for terms in (*devices.reach, *self._reach_of_shared(devices)):
            reachable &= terms_mask(node_index, terms)
        return ~reachable

    def counts(self, node_index: NodeIndex, devices: PodDevices, most: int) -> Ints:
        """By row: how many such pods the devices suffice for, at most `most`."""
        return np.minimum(self._count(node_index, devices, most).counts, most)

    def shortages(self, node_index: NodeIndex, devices: PodDevices) -> dict[str, Bools]:
        """The nodes without devices for one pod, by reason."""
        counted = self._count(node_index, devices, 1)
        short = counted.counts < 1
        numbers = np.unique(counted.reason[short]).tolist()
        return {counted.reasons[number]: short & (counted.reason == number) for number in numbers}

    def preferences(self, node_index: NodeIndex, devices: PodDevices, where: Bools) -> Ints:
        """By row: how far up in their lists of alternatives the requests of one pod are served."""
        found = np.zeros(len(node_index), dtype=np.int64)
        claims = self._open(devices)
        for row in np.flatnonzero(where).tolist() if claims else ():
            found[row] = self.allocate(node_index.table.nodes[row], claims).preference
        return found

    def is_missing(self, keys: Iterable[PodKey]) -> bool:
        """Whether one of these pods was added without getting its devices."""
        return bool(self.lacking) and any(key in self.lacking for key in keys)

    def _reach_of_shared(self, devices: PodDevices) -> list[tuple[NodeSelectorTerm, ...]]:
        found = (self._allocation(key) for key in devices.shared)
        return [one.terms for one in found if one is not None and one.terms is not None]

    def _allocation(self, key: DeviceClaimKey) -> DeviceAllocation | None:
        """The devices of a claim that several pods use, if it has any."""
        return self._given_to(key) or self.holdings.assumed.get(key)

    def _given_to(self, key: DeviceClaimKey) -> DeviceAllocation | None:
        """The devices that such a claim gets in this layer or in one below, where they may be promised."""
        found = self.allocated.get(key)
        return self.base._given_to(key) if found is None and self.base is not None else found

    def _open(self, devices: PodDevices) -> tuple[DeviceClaim, ...]:
        """The claims of a pod that still need devices."""
        if not devices.shared:
            return devices.claims
        return tuple(
            claim
            for claim in devices.claims
            if claim.key not in devices.shared or self._allocation(claim.key) is None
        )

    def _count(self, node_index: NodeIndex, devices: PodDevices, most: int) -> _Counted:
        most = min(most, COPIES_MAX)
        key = devices if not devices.shared else PodDevices(self._open(devices), devices.shared)
        known = self._counted.get(key)
        if known is None or known.node_index is not node_index or not known.answers(most):
            known = self._first_count(node_index, key, max(most, COPIES_FIRST))
            while len(self._counted) >= COUNTED_MAX:
                del self._counted[next(iter(self._counted))]
            self._counted[key] = known
        rows = self._touched_rows(node_index, known.seen)
        if len(rows):
            self._count_rows(key, known, rows)
        known.seen = len(self.touched)
        return known

    def _first_count(self, node_index: NodeIndex, devices: PodDevices, most: int) -> _Counted:
        if self.base is not None:
            one = self.base._count(node_index, devices, most)
            return _Counted(node_index, one.counts.copy(), list(one.reasons), one.reason.copy(), one.most, 0)
        size = len(node_index)
        nothing = np.zeros(size, np.int64)
        known = _Counted(node_index, nothing, [""], nothing.copy(), most, len(self.touched))
        self._count_rows(devices, known, np.arange(size))
        return known

    def _count_rows(self, devices: PodDevices, known: _Counted, rows: Ints) -> None:
        if not devices.claims:
            known.counts[rows] = known.most
            return
        nodes: list[Node] = known.node_index.table.nodes[rows].tolist()
        found = self.counter.count(nodes, devices.claims, self.usage, known.most, devices.shared)
        known.counts[rows], known.reason[rows] = found.counts, 0
        for reason, at in found.reasons.items():
            if reason not in known.reasons:
                known.reasons.append(reason)
            known.reason[rows[list(at)]] = known.reasons.index(reason)

    def _touched_rows(self, node_index: NodeIndex, seen: int) -> Ints:
        """The rows whose devices changed since."""
        rows: set[int] = set()
        by_pool = self.counter.allocator.index.by_pool
        for pool in set(self.touched[seen:]):
            for part in by_pool.get(pool, ()):
                if not part.reach.node:
                    return np.arange(len(node_index))
                rows.add(node_index.row(part.reach.node))
        rows.discard(ABSENT)
        return np.array(sorted(rows), dtype=np.int64)

    # ── steps of a trial ───────────────────────────────────────────────────────────────────────────

    def step(
        self, devices: PodDevices | None, keys: Sequence[PodKey], rows: Ints, nodes: Objects, *,
        added: bool,
    ) -> None:  # fmt: skip
        """Pods were added to rows or removed from them; `undo` takes the last step back."""
        self._undo.append([])
        for key, row in zip(keys, rows.tolist(), strict=True):
            if not added:
                self._remove(key, row)
            elif self.gone.get(key) == row:
                self._return(key)
            elif devices is not None and row != ABSENT:
                self._give(key, devices, nodes[row])

    def undo(self) -> None:
        """Take the last step back."""
        for restore in reversed(self._undo.pop()):
            restore()

    def _give(self, key: PodKey, devices: PodDevices, node: Node) -> None:
        claims = self._open(devices)
        found = self.allocate(node, claims) if claims else NodeAllocation()
        if not found.fits:
            self._set(self.lacking, key, found.reason)
            return
        given = []
        for claim, allocation in zip(claims, found.allocations, strict=True):
            self._hold(allocation)
            if claim.key in devices.shared:
                self._set(self.allocated, claim.key, allocation)
            else:
                given.append((devices.claims.index(claim), allocation))
        self._set(self.given, key, tuple(given))
        shared = tuple(one for one in devices.shared if one in self.allocated)
        if shared:
            self._set(self.uses, key, shared)
        for one in shared:
            self._set(self.users, one, self.users.get(one, frozenset()) | {key})

    def allocations(self, key: PodKey, devices: PodDevices) -> tuple[tuple[int, DeviceAllocation], ...]:
        """What an added pod got, by the position of the claim.

        Of shared claims it is what the first pod got, or what is promised to the pods of a gang.
        """
        found = dict(self.given.get(key, ()))
        for at, claim in enumerate(devices.claims):
            allocation = self._given_to(claim.key) if claim.key in devices.shared else None
            if allocation is not None:
                found[at] = allocation
        return tuple(sorted(found.items(), key=lambda pair: pair[0]))

    def allocate(self, node: Node, claims: tuple[DeviceClaim, ...]) -> NodeAllocation:
        """Devices of a node for some claims."""
        return self.counter.allocate(node, claims, self.usage)

    def _remove(self, key: PodKey, row: int) -> None:
        given = self.given.get(key)
        if given is not None:
            self._take_back(key, given)
            return
        self._set(self.lacking, key, None)
        held = self.holdings.claims.get(key)
        if not held:
            return
        self._set(self.gone, key, row)
        for claim in held:
            if claim not in self.freed and all(pod in self.gone for pod in self.holdings.pods[claim]):
                self._set(self.freed, claim, True)
                self._release(self.holdings.allocations[claim].devices)

    def _take_back(self, key: PodKey, given: tuple[tuple[int, DeviceAllocation], ...]) -> None:
        self._set(self.given, key, None)
        released = [allocation for _, allocation in given]
        for claim in self.uses.get(key, ()):
            left = self.users[claim] - {key}
            self._set(self.users, claim, left or None)
            if not left:
                released.append(self.allocated[claim])
                self._set(self.allocated, claim, None)
        self._set(self.uses, key, None)
        for allocation in released:
            self._release(allocation.devices)

    def _return(self, key: PodKey) -> None:
        self._set(self.gone, key, None)
        for claim in self.holdings.claims.get(key, ()):
            if claim in self.freed:
                self._set(self.freed, claim, None)
                self._hold(self.holdings.allocations[claim])

    def _hold(self, allocation: DeviceAllocation) -> None:
        for pool, devices in devices_by_pool(allocation.devices).items():
            self._touch(pool, (self.usage(pool) or NOTHING_IN_USE).plus(devices))

    def _release(self, devices: Iterable[AllocatedDevice]) -> None:
        for pool, released in devices_by_pool(devices).items():
            used = self.usage(pool)
            if used is None:
                continue
            if any(device.share is not None for device in released):
                self._touch(pool, self._recounted(pool))
            else:
                self._touch(pool, used.without(device.key for device in released if not device.admin))

    def _recounted(self, pool: PoolKey) -> DevicesInUse:
        """What is in use of a pool with shares, counted anew."""
        claims = (claim for claim in self.holdings.by_pool.get(pool, ()) if claim not in self.freed)
        allocations = [self.holdings.allocations[claim] for claim in claims]
        layer: DeviceSupply | None = self
        while layer is not None:
            allocations += [one for given in layer.given.values() for _, one in given]
            allocations += layer.allocated.values()
            layer = layer.base
        found = NOTHING_IN_USE
        for allocation in allocations:
            found = found.plus(devices_by_pool(allocation.devices).get(pool, ()))
        return found

    def _touch(self, pool: PoolKey, used: DevicesInUse) -> None:
        self._set(self.changed, pool, used)
        self.touched.append(pool)
        self._undo[-1].append(lambda: self.touched.append(pool))

    def _set(self, items: MutableMapping[Any, Any], key: object, value: object) -> None:
        """Set an entry, or remove it if the value is None, and note how it was."""
        before = items.get(key)
        if value is None:
            items.pop(key, None)
        else:
            items[key] = value
        self._undo[-1].append(lambda: _restore(items, key, before))


def _restore(items: MutableMapping[Any, Any], key: object, before: object) -> None:
    if before is None:
        items.pop(key, None)
    else:
        items[key] = before


def devices_by_pool(devices: Iterable[AllocatedDevice]) -> dict[PoolKey, list[AllocatedDevice]]:
    """Allocated devices by pool."""
    found: dict[PoolKey, list[AllocatedDevice]] = {}
    for device in devices:
        found.setdefault(PoolKey(device.key.driver, device.key.pool), []).append(device)
    return found
