"""How the requests of pods are counted in quota: transformed, left out, and devices by their class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from math import ceil

from bayplan.dialects.kube.fields.quantity import CPU


@dataclass(frozen=True, slots=True)
class Transformation:
    """A resource that quota counts as others: output amounts per unit, instead of it or in addition."""

    resource: str
    outputs: Mapping[str, Fraction]  # amount per unit of the input, both in model units
    keep: bool = True
    multiply_by: str = ""  # outputs are multiplied by the request for this resource, if any


class UncountedDevices(StrEnum):
    """What becomes of a gang that asks for devices by claim which quota cannot count."""

    REFUSE = "refuse"  # it is not admitted
    ADMIT = "admit"  # it is admitted, and quota does not count these devices


@dataclass(frozen=True, slots=True)
class CounterSource:
    """A counter that partitions of devices consume; the selector says of which devices."""

    counter: str
    driver: str
    selector: str


@dataclass(frozen=True, slots=True)
class DeviceClassMapping:
    """A resource of quotas, and the classes whose devices, or what they consume, are counted as that."""

    resource: str
    classes: tuple[str, ...]
    counters: tuple[CounterSource, ...] = ()  # none: devices are counted


@dataclass(frozen=True, slots=True, eq=False)
class Counting:
    """How resource requests are counted in quota."""

    transformations: tuple[Transformation, ...] = ()
    ignored: tuple[str, ...] = ()  # prefixes of resources that are neither counted nor transformed
    device_classes: tuple[DeviceClassMapping, ...] = ()
    uncounted_devices: UncountedDevices = UncountedDevices.REFUSE
    by_capacity: tuple[str, ...] = ()  # classes that Kueue counts by capacities

    def resource_of(self, device_class: str) -> str:
        """The resource that devices of a class are counted as; empty if the class is not mapped."""
        found = (one.resource for one in self.device_classes if device_class in one.classes)
        return next(found, "")

    def counters_of(self, device_class: str) -> list[tuple[str, CounterSource]]:
        """The counters that are counted for devices of a class, each with its resource."""
        mappings = (one for one in self.device_classes if device_class in one.classes)
        return [(one.resource, counter) for one in mappings for counter in one.counters]

    @property
    def counts_counters(self) -> bool:
        """Whether any class is counted by counters, which slices publish."""
        return any(one.counters for one in self.device_classes)


NO_TRANSFORMATIONS = Counting()


def counted(requests: Mapping[str, int], counting: Counting) -> dict[str, int]:
    """Requests as quota counts them."""
    if counting is NO_TRANSFORMATIONS:
        return dict(requests)
    wanted = {name: value for name, value in requests.items() if not name.startswith(counting.ignored)}
    counted: dict[str, int] = {}
    outputs: dict[str, int] = {}
    by_resource = {transformation.resource: transformation for transformation in counting.transformations}
    for name, value in wanted.items():
        rule = by_resource.get(name)
        if rule is None or rule.keep:
            counted[name] = value
        multiplier = _multiplier(rule, wanted) if rule is not None else Fraction(1)
        for output, factor in rule.outputs.items() if rule is not None else ():
            outputs[output] = outputs.get(output, 0) + ceil(value * factor * multiplier)
    for name, value in outputs.items():
        counted[name] = counted.get(name, 0) + max(0, value)  # a negative factor only reduces other outputs
    return counted


def _multiplier(rule: Transformation, requests: Mapping[str, int]) -> Fraction:
    """The multiplier of the outputs: the request for the resource `multiply_by`, in whole units."""
    if rule.multiply_by not in requests:
        return Fraction(1)
    return Fraction(requests[rule.multiply_by], 1000 if rule.multiply_by == CPU else 1)
