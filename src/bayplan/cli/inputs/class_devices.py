"""Devices by class: how many each node has, and how many of them are free."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bayplan.dialects.kube.devices.objects import DeviceObjects
from bayplan.model.devices.claims import DeviceClaim
from bayplan.model.devices.inventory import DeviceClass, DeviceKey, DeviceSlice

SELECTED = 1


@dataclass(frozen=True, slots=True)
class ClassDevices:
    """The devices of one class by node, free ones and all; "" stands for devices of no single node."""

    name: str
    free: Mapping[str, int] = field(default_factory=dict)
    total: Mapping[str, int] = field(default_factory=dict)


def devices_by_class(objects: DeviceObjects, claims: Iterable[DeviceClaim]) -> list[ClassDevices]:
    """All classes, less what these claims have."""
    held = {
        device.key
        for claim in claims
        if claim.allocation is not None
        for device in claim.allocation.devices
        if not device.admin
    }
    return [_of_class(objects, one, held) for _, one in sorted(objects.classes.items())]


def _of_class(objects: DeviceObjects, one: DeviceClass, held: set[DeviceKey]) -> ClassDevices:
    free: dict[str, int] = {}
    total: dict[str, int] = {}
    for part in _newest(objects.slices):
        node = part.reach.node
        for index, device in enumerate(part.devices):
            if _is_selected(objects, one, part, index):
                total[node] = total.get(node, 0) + 1
                if part.key(device) not in held:
                    free[node] = free.get(node, 0) + 1
    return ClassDevices(one.name, free, total)


def _newest(slices: Mapping[str, DeviceSlice]) -> Iterator[DeviceSlice]:
    """The slices of the newest generation of each pool."""
    newest: dict[Any, int] = {}
    for part in slices.values():
        newest[part.pool] = max(newest.get(part.pool, part.generation), part.generation)
    return (part for part in slices.values() if part.generation == newest[part.pool])


def _is_selected(objects: DeviceObjects, one: DeviceClass, part: DeviceSlice, index: int) -> bool:
    for expression in one.selectors:
        verdicts = objects.selectors.select(expression, part) if expression is not None else None
        if verdicts is None or verdicts.flaw or verdicts.matches[index] != SELECTED:
            return False
    return True
