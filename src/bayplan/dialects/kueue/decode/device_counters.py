"""Quota by counters: what the devices that a request may get consume of a counter of their driver.

As Kueue counts it: of all devices in complete pools that the selectors of source, class and request match,
the largest amount, for each device requested.
"""

from __future__ import annotations

from collections.abc import Iterator

from bayplan.dialects.kube.devices.objects import DeviceObjects
from bayplan.dialects.kueue.fields.counting import CounterSource
from bayplan.model.devices.claims import DeviceAsk
from bayplan.model.devices.inventory import UNIT, Device, DeviceSlice, PoolKey


class CounterCharges:
    """Amounts by source, class and selectors; to be cleared when slices or classes change."""

    def __init__(self, objects: DeviceObjects) -> None:
        self.objects = objects
        self._found: dict[tuple[object, ...], tuple[int, int | None, str]] = {}

    def clear(self) -> None:
        self._found.clear()

    def charge(self, source: CounterSource, ask: DeviceAsk) -> int:
        """The amount for all devices of a request. ValueError says why it is not known."""
        key = source, ask.device_class, ask.selectors
        if key not in self._found:
            self._found[key] = self._find(source, ask)
        matching, most, error = self._found[key]
        if error:
            raise ValueError(error)
        if matching < ask.count:
            raise ValueError(
                f"insufficient matching devices for counter driver: {matching} device(s) match but "
                f"{ask.count} requested"
            )
        if most is None:
            raise ValueError(f'matched devices have no consumesCounters entry for counter "{source.counter}"')
        return max(-(-most // UNIT), 0) * ask.count

    def _find(self, source: CounterSource, ask: DeviceAsk) -> tuple[int, int | None, str]:
        """How many devices match, the largest amount that one of them consumes, and an error."""
        device_class = self.objects.classes.get(ask.device_class)
        selectors = [("deviceSelector", source.selector)]
        selectors += [
            ("DeviceClass selector", one or "") for one in (device_class.selectors if device_class else ())
        ]
        selectors += [("request selector", one or "") for one in ask.selectors]
        matching, most = 0, None
        for part in self._complete(source.driver):
            verdicts = [(where, self.objects.selectors.select(one, part)) for where, one in selectors if one]
            for index, device in enumerate(part.devices):
                for where, verdict in verdicts:
                    if verdict.flaw:
                        return 0, None, f"CEL evaluation error in {where}: {verdict.flaw}"
                    if verdict.matches[index] > 1:
                        error = f"CEL evaluation error in {where} for device {device.name}"
                        return 0, None, f"{error}: {verdict.error(index)}"
                    if not verdict.matches[index]:
                        break
                else:
                    matching += 1
                    amounts = list(_amounts(device, source.counter))
                    most = max(amounts if most is None else [most, *amounts], default=most)
        return matching, most, ""

    def _complete(self, driver: str) -> Iterator[DeviceSlice]:
        """The slices of the newest generation of each pool of a driver that has all of them."""
        pools: dict[PoolKey, list[DeviceSlice]] = {}
        for _, part in sorted(self.objects.slices.items()):
            if part.pool.driver != driver:
                continue
            known = pools.setdefault(part.pool, [])
            if known and part.generation > known[0].generation:
                known.clear()
            if not known or part.generation == known[0].generation:
                known.append(part)
        for parts in pools.values():
            if len(parts) == parts[0].slice_count:
                yield from parts


def _amounts(device: Device, counter: str) -> Iterator[int]:
    for _, amounts in device.consumes:
        yield from (amount for name, amount in amounts if name == counter)
