"""Objects of the dra cases as values: gates, slices, classes, claims, devices in use, and allocations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from bayplan.dialects.kube.devices.decode import claim_of, class_of, exact_amount, slice_of
from bayplan.dialects.kube.devices.selectors import DeviceSelectors
from bayplan.dialects.kube.devices.wire import DeviceClassWire, ResourceClaimWire, ResourceSliceWire
from bayplan.model.devices.claims import DeviceAllocation, DeviceClaim, DeviceFeatures
from bayplan.model.devices.inventory import DeviceKey, DeviceSlice
from bayplan.model.node_rules import NodeSelectorTerm
from bayplan.placement.devices.allocate import DeviceAllocator
from bayplan.placement.devices.in_use import DevicesInUse
from bayplan.placement.devices.pools import NodeIdentity

Object = dict[str, Any]
STEPS = 10_000_000
PARTS = ("devices", "nodes", "config")
SELECTORS = DeviceSelectors()


def features_of(gates: Iterable[str]) -> DeviceFeatures:
    known = set(gates)
    return DeviceFeatures(
        admin_access="DRAAdminAccess" in known,
        alternatives="DRAPrioritizedList" in known,
        taints="DRADeviceTaints" in known,
        counters="DRAPartitionableDevices" in known,
        shares="DRAConsumableCapacity" in known,
        binding_conditions=any("DRADeviceBindingConditions" in gate for gate in known),
        fractions="DRAFractionalCapacityRange" in known,
        lists="DRAListTypeAttributes" in known,
    )


def slice_from(wire: Object) -> DeviceSlice:
    return slice_of(msgspec.convert(wire, ResourceSliceWire, strict=False))


def claim_from(wire: Object) -> DeviceClaim:
    return claim_of(msgspec.convert(wire, ResourceClaimWire, strict=False))


def allocator_of(case: Object) -> DeviceAllocator:
    classes = [class_of(msgspec.convert(one, DeviceClassWire, strict=False)) for one in case["classes"]]
    return DeviceAllocator(
        [slice_from(one) for one in case["slices"]],
        {one.name: one for one in classes},
        SELECTORS.select,
        features_of(case["features"]),
        STEPS,
    )


def node_from(wire: Object) -> NodeIdentity:
    return NodeIdentity(wire["metadata"]["name"], wire["metadata"].get("labels") or {})


def in_use_from(wire: Object) -> DevicesInUse:
    """The devices in use as the tables list them."""

    def key(one: Object) -> DeviceKey:
        return DeviceKey(one["driver"], one["pool"], one["device"])

    return DevicesInUse(
        frozenset(key(one) for one in wire.get("devices") or ()),
        frozenset(key(one) for one in wire.get("sharedDeviceIDs") or ()),
        {
            key(one): {name: exact_amount(value) for name, value in (one["consumedCapacity"] or {}).items()}
            for one in wire.get("aggregatedCapacity") or ()
        },
    )


def allocation_from(wire: Object) -> DeviceAllocation:
    found = claim_from({"metadata": {"name": "c"}, "status": {"allocation": wire}}).allocation
    assert found is not None
    return found


def differences(want: DeviceAllocation, got: DeviceAllocation, parts: Iterable[str] = PARTS) -> list[str]:
    """Devices as a set, each with its share; nodes as sets of requirements; parameters in their order."""
    found = []
    for name in parts:
        read = {"devices": _devices, "nodes": _nodes, "config": _config}[name]
        wanted, given = read(want), read(got)
        if wanted != given:
            found.append(f"{name}: want {wanted}, got {given}")
    return found


def _devices(allocation: DeviceAllocation) -> list[tuple[object, ...]]:
    return sorted(
        (
            one.request, *one.key, one.admin, one.share is not None, one.consumed,
            one.tolerations, one.binding_conditions, one.binding_failure_conditions,
        )
        for one in allocation.devices
    )  # fmt: skip


def _nodes(allocation: DeviceAllocation) -> object:
    def term(one: NodeSelectorTerm) -> object:
        return sorted((r.key, r.operator, sorted(r.values), r.field) for r in one.requirements)

    return None if allocation.terms is None else [term(one) for one in allocation.terms]


def _config(allocation: DeviceAllocation) -> object:
    return [(one.parameters, one.requests, one.from_class) for one in allocation.config]
