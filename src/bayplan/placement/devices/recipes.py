"""Allocations by position, so that what was found for one node is found at once for others of its shape."""

from __future__ import annotations

from dataclasses import dataclass

from bayplan.model.devices.claims import AllocatedDevice, DeviceAllocation
from bayplan.model.devices.inventory import DeviceConfig, DeviceKey
from bayplan.model.node import Node
from bayplan.model.node_rules import NodeSelectorTerm, Requirement
from bayplan.placement.devices.allocate import NodeAllocation
from bayplan.placement.devices.pools import NodePool

Position = tuple[int, int]
"""The number of the pool of a node, and of the device in it."""


@dataclass(frozen=True, slots=True)
class AllocationRecipe:
    """For each claim its devices, by position, and its parameters; all devices are the node's own."""

    claims: tuple[tuple[tuple[tuple[Position, AllocatedDevice], ...], tuple[DeviceConfig, ...]], ...]
    preference: int = 0

    def on(self, node: Node, pools: tuple[NodePool, ...]) -> NodeAllocation:
        """The same on another node."""
        keys = [[part.key(device) for part in pool.slices for device in part.devices] for pool in pools]
        terms = (NodeSelectorTerm((Requirement("metadata.name", "In", (node.name,), True),)),)
        allocations = tuple(
            DeviceAllocation(
                tuple(_moved(device, keys[pool][at]) for (pool, at), device in devices), terms, config
            )
            for devices, config in self.claims
        )
        return NodeAllocation(allocations, preference=self.preference)


def _moved(device: AllocatedDevice, key: DeviceKey) -> AllocatedDevice:
    """Written out, because `replace` takes several times as long."""
    return AllocatedDevice(
        device.request, key, device.admin, device.share, device.consumed, device.tolerations,
        device.binding_conditions, device.binding_failure_conditions,
    )  # fmt: skip


def recipe_of(found: NodeAllocation, pools: tuple[NodePool, ...]) -> AllocationRecipe | None:
    """How an allocation is made; None if there is none, or if it has devices that other nodes can use."""
    if not found.fits:
        return None
    places: dict[DeviceKey, Position] = {}
    for number, pool in enumerate(pools):
        devices = [(part, device) for part in pool.slices for device in part.devices]
        for at, (part, device) in enumerate(devices):
            if part.reach.node:
                places[part.key(device)] = number, at
    claims = []
    for allocation in found.allocations:
        if not allocation.devices or any(device.key not in places for device in allocation.devices):
            return None
        taken = tuple((places[device.key], device) for device in allocation.devices)
        claims.append((taken, allocation.config))
    return AllocationRecipe(tuple(claims), found.preference)
