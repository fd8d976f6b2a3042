"""The pools of devices that a node can use, each of one generation, complete and valid or not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from bayplan.model.devices.claims import DeviceFeatures
from bayplan.model.devices.inventory import Amounts, Device, DeviceSlice, NodeReach, PoolKey
from bayplan.model.node_rules import NodeSelectorTerm


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """What decides which devices a node can use."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodePool:
    """A pool as one node sees it. A pool that is incomplete or invalid gives no devices.

    `slices` have the devices that the node may be able to use, `elsewhere` those of other nodes only: both
    draw on the counters.
    """

    key: PoolKey
    slices: tuple[DeviceSlice, ...] = ()
    elsewhere: tuple[DeviceSlice, ...] = ()
    counters: Mapping[str, Amounts] = field(default_factory=dict)
    incomplete: bool = False
    invalid: str = ""

    @property
    def is_usable(self) -> bool:
        return not self.incomplete and not self.invalid

    @property
    def binds_late(self) -> bool:
        """Whether a device has conditions that must hold before its pod is bound."""
        return any(device.binding_conditions for one in self.slices for device in one.devices)


class SliceIndex:
    """All slices of a cluster: those of one node by its name, and the others, which may serve any node."""

    def __init__(self, slices: Iterable[DeviceSlice], features: DeviceFeatures) -> None:
        self.features = features
        self.by_node: dict[str, list[DeviceSlice]] = {}
        self.shared: list[DeviceSlice] = []
        self.by_pool: dict[PoolKey, list[DeviceSlice]] = {}
        for one in slices:
            self.add(one)

    def add(self, one: DeviceSlice) -> None:
        """A slice that is new, or a new version of one that was removed before."""
        self.by_pool.setdefault(one.pool, []).append(one)
        self._of_reach(one).append(one)

    def remove(self, one: DeviceSlice) -> None:
        """A slice is gone."""
        of_pool = self.by_pool[one.pool]
        of_pool.remove(one)
        if not of_pool:
            del self.by_pool[one.pool]
        self._of_reach(one).remove(one)
        if one.reach.node and not self.by_node[one.reach.node]:
            del self.by_node[one.reach.node]

    def _of_reach(self, one: DeviceSlice) -> list[DeviceSlice]:
        return self.by_node.setdefault(one.reach.node, []) if one.reach.node else self.shared

    def pools(self, node: NodeIdentity) -> tuple[NodePool, ...]:
        """The pools of a node in the order in which their devices are tried."""
        visible: dict[PoolKey, list[DeviceSlice]] = {}
        for one in (*self.by_node.get(node.name, ()), *self.shared):
            if self._is_relevant(one, node):
                _add_newest(visible, one)
        found = [pool for key, slices in visible.items() if (pool := self._pool(key, slices)) is not None]
        return tuple(sorted(found, key=lambda pool: (pool.is_usable and pool.binds_late, pool.key)))

    def _is_relevant(self, one: DeviceSlice, node: NodeIdentity) -> bool:
        if one.unsupported or (not self.features.counters and (one.by_device or one.counter_sets)):
            return False
        if one.reach.is_known:
            return reaches(one.reach, node)
        return one.by_device and any(reaches(device.reach, node) for device in one.devices)

    def _pool(self, key: PoolKey, slices: list[DeviceSlice]) -> NodePool | None:
        """The pool; None if its driver is replacing it by a newer generation on other nodes."""
        count, generation = slices[0].slice_count, slices[0].generation
        everything = slices
        if len(slices) != count:
            if any(one.generation > generation for one in self.by_pool[key]):
                return None
            everything = [
                one for one in self.by_pool[key] if one.generation == generation and not one.unsupported
            ]
            if len(everything) != count:
                return NodePool(key, incomplete=True)
        return _built(key, slices, everything, self.features)


def reaches(reach: NodeReach, node: NodeIdentity) -> bool:
    """Whether a node is one of those that a slice or device names."""
    if reach.node:
        return reach.node == node.name
    return reach.everywhere or (reach.terms is not None and accepts(reach.terms, node))


def accepts(terms: tuple[NodeSelectorTerm, ...], node: NodeIdentity) -> bool:
    """Whether one of the terms accepts a node."""
    return any(term.requirements and _accepts_all(term, node) for term in terms)


def _accepts_all(term: NodeSelectorTerm, node: NodeIdentity) -> bool:
    return all(
        one.accepts(node.name if one.key == "metadata.name" else None)
        if one.field
        else one.accepts(node.labels.get(one.key))
        for one in term.requirements
    )


def _add_newest(pools: dict[PoolKey, list[DeviceSlice]], one: DeviceSlice) -> None:
    known = pools.setdefault(one.pool, [])
    if known and one.generation < known[0].generation:
        return
    if known and one.generation > known[0].generation:
        known.clear()
    known.append(one)


def _built(
    key: PoolKey, slices: list[DeviceSlice], everything: list[DeviceSlice], features: DeviceFeatures
) -> NodePool:
    ordered = sorted(slices, key=lambda one: one.name)
    names = {one.name for one in slices}
    others = [one for one in everything if one.name not in names] if len(slices) < len(everything) else []
    here = tuple(one for one in ordered if not (features.counters and one.counter_sets))
    invalid = _repeated_name(device.name for one in here for device in one.devices)
    if invalid:
        return NodePool(key, invalid=f"duplicate device name {invalid}")
    if not features.counters:
        return NodePool(key, here)
    counter_sets = [one for part in (*ordered, *others) for one in part.counter_sets]
    repeated = _repeated_name(one.name for one in counter_sets)
    if repeated:
        return NodePool(key, invalid=f"duplicate counter set name {repeated}")
    counters = {one.name: one.counters for one in counter_sets}
    elsewhere = tuple(one for one in others if not one.counter_sets)
    for device in _devices((*here, *elsewhere)):
        missing = _missing_counter(device, counters)
        if missing:
            return NodePool(key, invalid=missing)
    return NodePool(key, here, elsewhere, counters)


def _devices(slices: Iterable[DeviceSlice]) -> Iterator[Device]:
    for one in slices:
        yield from one.devices


def _repeated_name(names: Iterable[str]) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return ""


def _missing_counter(device: Device, counters: Mapping[str, Amounts]) -> str:
    for name, consumed in device.consumes:
        if name not in counters:
            return f"counter set {name} not found"
        known = dict(counters[name])
        for counter, _ in consumed:
            if counter not in known:
                return f"counter {counter} not found in counter set {name}"
    return ""
