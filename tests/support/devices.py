"""Devices for tests: slices of a node, claims, and selectors without CEL."""

from __future__ import annotations

from typing import Any

from bayplan.model.devices.claims import DeviceAsk, DeviceClaim, DeviceClaimKey, DeviceRequest
from bayplan.model.devices.inventory import (
    AttributeValue,
    Device,
    DeviceClass,
    DeviceSlice,
    NodeReach,
    PoolKey,
    SelectorVerdicts,
)

DRIVER = "gpu.example.com"
CLASSES = {"gpu": DeviceClass("gpu"), "fast": DeviceClass("fast", ("tier=fast",))}


def device(name: str, more: dict[str, Any] | None = None, **attributes: str | int) -> Device:
    """A device with these attributes; `more` are its other fields."""
    values = tuple(
        (key, AttributeValue("int" if isinstance(value, int) else "string", value))
        for key, value in sorted(attributes.items())
    )
    return Device(name, values, **(more or {}))


def slice_on(node: str, *devices: Device, pool: str = "", **more: Any) -> DeviceSlice:
    """A pool of one slice, all devices of which are on one node."""
    name = pool or node
    return DeviceSlice(f"{name}-slice", PoolKey(DRIVER, name), reach=NodeReach(node), devices=devices, **more)


def select(expression: str, part: DeviceSlice) -> SelectorVerdicts:
    """Selects devices by one attribute: `name=value`."""
    name, _, value = expression.partition("=")
    found = (one.attribute(DRIVER, f"{DRIVER}/{name}") for one in part.devices)
    return SelectorVerdicts(bytes(one is not None and one.value == value for one in found))


def claim_for(*requests: DeviceRequest, name: str = "c", **more: Any) -> DeviceClaim:
    """A claim with these requests."""
    return DeviceClaim(DeviceClaimKey("ns", name), requests=requests, **more)


def exactly(name: str, count: int = 1, device_class: str = "gpu", **more: Any) -> DeviceRequest:
    """A request for a number of devices."""
    return DeviceRequest(name, (DeviceAsk(name, device_class, count=count, **more),))
