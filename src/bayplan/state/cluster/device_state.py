"""State of devices: slices, classes and claims, and decided allocations that the claims do not show yet."""

from __future__ import annotations

from collections.abc import Iterable

from bayplan.model.devices.claims import (
    AllocatedDevice,
    DeviceAllocation,
    DeviceClaim,
    DeviceClaimKey,
    DeviceFeatures,
)
from bayplan.model.devices.inventory import (
    DeviceClass,
    DeviceKey,
    DeviceSlice,
    PoolKey,
    SelectDevices,
    SelectorVerdicts,
)
from bayplan.model.pod import PodKey
from bayplan.placement.devices.allocate import DeviceAllocator
from bayplan.placement.devices.copies import CopyCounter
from bayplan.placement.devices.in_use import NOTHING_IN_USE, DevicesInUse
from bayplan.placement.devices.pools import SliceIndex
from bayplan.placement.devices.supply import DeviceHoldings, DeviceSupply, devices_by_pool

PODS = "pods"
AllocatedClaims = Iterable[tuple[DeviceClaimKey, DeviceAllocation]]


def select_nothing(expression: str, part: DeviceSlice) -> SelectorVerdicts:
    """Where no selectors can be evaluated."""
    return SelectorVerdicts(flaw="selectors of devices cannot be evaluated here")


class DeviceState:
    """All objects of devices. As long as there are none, nothing is computed."""

    def __init__(self, select: SelectDevices = select_nothing) -> None:
        self.claims: dict[DeviceClaimKey, DeviceClaim] = {}
        self.classes: dict[str, DeviceClass] = {}
        self.slices: dict[str, DeviceSlice] = {}
        self.signs_of_others = 0  # allocations not decided here, and pods with claims that wait for others
        self.assumed: dict[DeviceClaimKey, DeviceAllocation] = {}
        self._assumed_by: dict[DeviceClaimKey, set[PodKey]] = {}
        self._assumed_of: dict[PodKey, tuple[DeviceClaimKey, ...]] = {}
        self._usage: dict[PoolKey, DevicesInUse] = {}
        self._allocations: dict[DeviceClaimKey, DeviceAllocation] = {}
        self._by_pool: dict[PoolKey, dict[DeviceClaimKey, None]] = {}
        self._pods: dict[DeviceClaimKey, frozenset[PodKey]] = {}
        self._claims_of: dict[PodKey, frozenset[DeviceClaimKey]] = {}
        self.index = SliceIndex((), DeviceFeatures())
        self.counter = CopyCounter(DeviceAllocator(self.index, self.classes, select))
        holdings = DeviceHoldings(
            self._usage, self._allocations, self._by_pool, self._pods, self._claims_of, self.assumed
        )
        self._supply = DeviceSupply(self.counter, holdings)

    @property
    def active(self) -> bool:
        """Whether there are any claims."""
        return bool(self.claims)

    def supply(self, *, always: bool = False) -> DeviceSupply | None:
        """The devices for a decision; None if no pod needs any. `always`: gangs without pods need some."""
        return self._supply if self.active or always else None

    def serves(self, pod: PodKey) -> bool:
        """Whether a pod has devices, or is about to get them."""
        return pod in self._claims_of or pod in self._assumed_of

    def users(self) -> Iterable[PodKey]:
        """The pods that claims are reserved for."""
        return self._claims_of

    def is_contested(self, key: DeviceClaimKey) -> bool:
        """Whether another claim shows a device that this one shows as well, and cannot share."""
        mine = self._exclusive(key)
        return any(
            not mine.isdisjoint(self._exclusive(other))
            for pool in {PoolKey(device.driver, device.pool) for device in mine}
            for other in self._by_pool.get(pool, ())
            if other != key
        )

    def _exclusive(self, key: DeviceClaimKey) -> set[DeviceKey]:
        """The devices that a claim shows and has for itself."""
        claim = self.claims.get(key)
        allocation = None if claim is None else claim.allocation
        if allocation is None:
            return set()
        return {one.key for one in allocation.devices if not one.admin and one.share is None}

    def pods_of(self, key: DeviceClaimKey) -> frozenset[PodKey]:
        """The pods that a claim is reserved for, or is about to be."""
        return self._pods.get(key, frozenset()).union(self._assumed_by.get(key, ()))

    def holders_of(self, pool: PoolKey) -> Iterable[DeviceClaimKey]:
        """The claims that have devices of a pool."""
        return self._by_pool.get(pool, ())

    def devices_in(self, pool: PoolKey, key: DeviceClaimKey) -> Iterable[AllocatedDevice]:
        """The devices of a pool that a claim has."""
        return devices_by_pool(self._allocations[key].devices).get(pool, ())

    def mark(self) -> tuple[int, int]:
        """For `changed_since`."""
        return self._supply.inventory, len(self._supply.touched)

    def changed_since(self, mark: tuple[int, int]) -> set[PoolKey] | None:
        """The pools of which claims got or lost devices since; None: slices or classes changed as well."""
        inventory, seen = mark
        return set(self._supply.touched[seen:]) if inventory == self._supply.inventory else None

    # ── changes ────────────────────────────────────────────────────────────────────────────────────

    def seen(self, item: DeviceClaim | DeviceClass | DeviceSlice) -> bool:
        """Store an object. Returns whether pods may fit now that did not before."""
        match item:
            case DeviceSlice():
                return self._slice_changed(self.slices.get(item.name), item)
            case DeviceClass():
                return self._class_changed(item.name, item)
            case DeviceClaim():
                return self._claim_changed(item.key, item)

    def lost(self, item: DeviceClaim | DeviceClass | DeviceSlice) -> bool:
        """Remove an object. Returns whether pods may fit now that did not before."""
        match item:
            case DeviceSlice():
                return self._slice_changed(self.slices.get(item.name), None)
            case DeviceClass():
                return self._class_changed(item.name, None)
            case DeviceClaim():
                return self._claim_changed(item.key, None)

    def node_changed(self, name: str) -> None:
        """A node was added or deleted, or has other labels."""
        self.counter.node_changed(name)

    def _slice_changed(self, before: DeviceSlice | None, now: DeviceSlice | None) -> bool:
        if before == now:
            return False
        for part in (before, now):
            if part is None:
                continue
            if part is before:
                self.index.remove(part)
                del self.slices[part.name]
            else:
                self.index.add(part)
                self.slices[part.name] = part
            self.counter.slice_changed(part)
        self._supply.inventory_changed()
        return True

    def _class_changed(self, name: str, now: DeviceClass | None) -> bool:
        if self.classes.get(name) == now:
            return False
        if now is None:
            del self.classes[name]
        else:
            self.classes[name] = now
        self.counter.classes_changed()
        self._supply.inventory_changed()
        return True

    def _claim_changed(self, key: DeviceClaimKey, now: DeviceClaim | None) -> bool:
        before = self.claims.get(key)
        if (
            before is not None
            and before.allocation is None
            and now is not None
            and now.allocation is not None
        ):
            self.signs_of_others += key not in self.assumed
        if now is None:
            self.claims.pop(key, None)
        else:
            self.claims[key] = now
        if now is None or now.allocation is not None or (before is not None and before.uid != now.uid):
            self._forget_assumed(key)
        users = () if now is None else now.reserved_for
        self._set_users(
            key,
            frozenset(
                PodKey(key.namespace, one.name) for one in users if one.resource == PODS and not one.group
            ),
        )
        return self._update(key)

    # ── holdings ───────────────────────────────────────────────────────────────────────────────────

    def _update(self, key: DeviceClaimKey) -> bool:
        """Which devices a claim holds may have changed. Returns whether some are free again."""
        claim = self.claims.get(key)
        now = self.assumed.get(key) if claim is None or claim.allocation is None else claim.allocation
        before = self._allocations.get(key)
        if before == now:
            return False
        pools: set[PoolKey] = set()
        for allocation in (before, now):
            if allocation is not None:
                pools.update(devices_by_pool(allocation.devices))
        if now is None:
            del self._allocations[key]
        else:
            self._allocations[key] = now
        for pool in pools:
            self._recount(pool, key, now)
        self._supply.holdings_changed(pools)
        return before is not None

    def _recount(self, pool: PoolKey, key: DeviceClaimKey, now: DeviceAllocation | None) -> None:
        holders = self._by_pool.setdefault(pool, {})
        was_held = holders.pop(key, 0) is None
        mine = () if now is None else devices_by_pool(now.devices).get(pool, ())
        if mine:
            holders[key] = None
        if not holders:
            del self._by_pool[pool]
            self._usage.pop(pool, None)
        elif not was_held:
            self._usage[pool] = self._usage.get(pool, NOTHING_IN_USE).plus(mine)
        else:
            used = NOTHING_IN_USE.plus(
                device
                for holder in holders
                for device in devices_by_pool(self._allocations[holder].devices).get(pool, ())
            )
            self._usage[pool] = used

    def _set_users(self, key: DeviceClaimKey, now: frozenset[PodKey]) -> None:
        before = self._pods.get(key, frozenset())
        if before == now:
            return
        if now:
            self._pods[key] = now
        else:
            self._pods.pop(key, None)
        for pod in before - now:
            left = self._claims_of[pod] - {key}
            if left:
                self._claims_of[pod] = left
            else:
                del self._claims_of[pod]
        for pod in now - before:
            self._claims_of[pod] = self._claims_of.get(pod, frozenset()) | {key}

    # ── what was decided, until the claims show it ─────────────────────────────────────────────────

    def assume(self, pod: PodKey, allocations: AllocatedClaims) -> None:
        """A pod is being bound, for which these claims get devices."""
        mine = []
        for key, allocation in allocations:
            claim = self.claims.get(key)
            if claim is not None and claim.allocation is None:
                mine.append(key)
                self.assumed.setdefault(key, allocation)
                self._assumed_by.setdefault(key, set()).add(pod)
                self._update(key)
        if mine:
            self._assumed_of[pod] = tuple(mine)

    def assumed_for(self, pod: PodKey) -> tuple[tuple[DeviceClaimKey, DeviceAllocation], ...]:
        """What claims get for a pod that is being bound."""
        return tuple((key, self.assumed[key]) for key in self._assumed_of.get(pod, ()))

    def drop(self, pod: PodKey) -> bool:
        """A bind did not happen. Returns whether devices are free again."""
        freed = False
        for key in self._assumed_of.pop(pod, ()):
            pods = self._assumed_by.get(key, set())
            pods.discard(pod)
            if not pods:
                self._forget_assumed(key)
                freed |= self._update(key)
        return freed

    def _forget_assumed(self, key: DeviceClaimKey) -> None:
        self.assumed.pop(key, None)
        for pod in self._assumed_by.pop(key, ()):
            left = tuple(one for one in self._assumed_of.get(pod, ()) if one != key)
            if left:
                self._assumed_of[pod] = left
            else:
                self._assumed_of.pop(pod, None)
