"""Constraints of a claim on the attributes of its devices, while devices are taken and given back."""

from __future__ import annotations

from dataclasses import dataclass, field

from bayplan.model.devices.claims import DeviceAsk, DeviceConstraint, DeviceRequest
from bayplan.model.devices.inventory import AttributeValue, Device

Elements = frozenset[tuple[str, int | bool | str]]


@dataclass(slots=True)
class ConstraintState:
    """The values of one attribute on the devices taken so far; the last one taken is given back first.

    For a match `values` has what all devices so far have in common, for distinct values those of each device.
    """

    constraint: DeviceConstraint
    lists: bool = False  # attributes may have several values
    values: list[Elements] = field(default_factory=list)

    def take(self, request: DeviceRequest, ask: DeviceAsk, driver: str, device: Device) -> bool:
        """Take a device. Returns whether the constraint still holds; if not, nothing is taken."""
        if not self.constraint.covers(request, ask):
            return True
        value = device.attribute(driver, self.constraint.match or self.constraint.distinct)
        taken = None if value is None else self._with(value)
        if taken is None:
            return False
        self.values.append(taken)
        return True

    def give_back(self, request: DeviceRequest, ask: DeviceAsk) -> None:
        """Give the device back that was taken last."""
        if self.constraint.covers(request, ask):
            self.values.pop()

    def _with(self, value: AttributeValue) -> Elements | None:
        """What is to be remembered of a further value; None if it violates the constraint."""
        elements: Elements = frozenset()
        if self.lists or not isinstance(value.value, tuple):
            elements = value.elements()
        if not self.values:
            return elements if elements or not self.lists else None
        if self.constraint.match:
            return elements & self.values[-1] or None
        return elements if elements and not any(elements & one for one in self.values) else None
