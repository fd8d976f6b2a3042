"""The devices that claims hold, alone or in shares."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from bayplan.model.devices.claims import AllocatedDevice, DeviceAllocation
from bayplan.model.devices.inventory import Amounts, DeviceKey, PoolKey
from bayplan.placement.devices.pools import NodePool


@dataclass(frozen=True, slots=True)
class DevicesInUse:
    """Devices that one claim has alone, devices that have shares, and what these take of the capacities."""

    alone: frozenset[DeviceKey] = frozenset()
    shared: frozenset[DeviceKey] = frozenset()
    consumed: Mapping[DeviceKey, Mapping[str, int]] = field(default_factory=dict)

    def holds(self, key: DeviceKey) -> bool:
        """Whether a device is in use at all, so that its counters are drawn on."""
        return key in self.alone or self.has_shares(key)

    def has_shares(self, key: DeviceKey) -> bool:
        return key in self.shared or key in self.consumed

    def plus(self, devices: Iterable[AllocatedDevice]) -> DevicesInUse:
        """The same with further devices; admin access holds nothing."""
        alone, shared = set(self.alone), set(self.shared)
        consumed = dict(self.consumed)
        for device in devices:
            if device.admin:
                continue
            if device.share is None:
                alone.add(device.key)
                continue
            shared.add(device.key)
            if device.consumed:
                total = dict(consumed.get(device.key, {}))
                add_amounts(total, device.consumed)
                consumed[device.key] = total
        return DevicesInUse(frozenset(alone), frozenset(shared), consumed)

    def devices(self) -> list[DeviceKey]:
        """The devices in use, sorted."""
        return sorted({*self.alone, *self.shared, *self.consumed})

    def without(self, keys: Iterable[DeviceKey]) -> DevicesInUse:
        """The same without some devices that one claim has alone."""
        return replace(self, alone=self.alone.difference(keys))

    def only(self, keys: Collection[DeviceKey]) -> DevicesInUse:
        """What is in use of some devices."""
        consumed = {key: self.consumed[key] for key in keys if key in self.consumed}
        return DevicesInUse(self.alone.intersection(keys), self.shared.intersection(keys), consumed)


NOTHING_IN_USE = DevicesInUse()
UsageOf = Callable[[PoolKey], DevicesInUse | None]
"""What is in use of a pool; None if nothing is."""


def devices_in_use(allocations: Iterable[DeviceAllocation], *, shares: bool = True) -> DevicesInUse:
    """What the allocations hold. `shares`: whether devices can be shared; if not, each holds them alone."""
    devices = (device for allocation in allocations for device in allocation.devices)
    return NOTHING_IN_USE.plus(device if shares else replace(device, share=None) for device in devices)


def add_amounts(total: dict[str, int], amounts: Amounts, sign: int = 1) -> None:
    """Add amounts to a sum, or subtract them."""
    for name, amount in amounts:
        total[name] = total.get(name, 0) + sign * amount


def by_pool(in_use: DevicesInUse) -> dict[PoolKey, DevicesInUse]:
    """The same for each pool that has devices in use."""
    keys: dict[PoolKey, list[DeviceKey]] = {}
    for key in in_use.devices():
        keys.setdefault(PoolKey(key.driver, key.pool), []).append(key)
    return {pool: in_use.only(devices) for pool, devices in keys.items()}


def merged(usage: UsageOf, pools: Iterable[NodePool]) -> DevicesInUse:
    """What is in use of several pools together."""
    found = [used for pool in pools if (used := usage(pool.key)) is not None]
    if len(found) <= 1:
        return found[0] if found else NOTHING_IN_USE
    return DevicesInUse(
        frozenset().union(*(used.alone for used in found)),
        frozenset().union(*(used.shared for used in found)),
        {key: amounts for used in found for key, amounts in used.consumed.items()},
    )
