"""Taints that DeviceTaintRules add to devices, beside those that their drivers publish."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bayplan.dialects.kube.devices.wire import TaintRuleWire
from bayplan.model.devices.inventory import Device, DeviceSlice
from bayplan.model.node_rules import Taint


@dataclass(frozen=True, slots=True)
class TaintRule:
    """A taint, and the devices it is for; None: any."""

    taint: Taint
    driver: str | None = None
    pool: str | None = None
    device: str | None = None

    def may_concern(self, part: DeviceSlice) -> bool:
        """Whether devices of a slice may be meant."""
        return self.driver in (None, part.pool.driver) and self.pool in (None, part.pool.name)


class TaintRules:
    """Slices as published, and the rules. A rule may be served in several versions; it counts once."""

    def __init__(self) -> None:
        self.slices: dict[str, DeviceSlice] = {}
        self.rules: dict[tuple[str, str], TaintRule] = {}  # by version and name

    def slice_changed(self, part: DeviceSlice, gone: bool) -> DeviceSlice:
        """A slice with the taints of all rules."""
        if gone:
            self.slices.pop(part.name, None)
        else:
            self.slices[part.name] = part
        return self._tainted(part)

    def rule_changed(self, version: str, wire: TaintRuleWire, gone: bool) -> Iterator[DeviceSlice]:
        """The slices that a rule changes."""
        key = version, wire.metadata.name
        before = self.rules.pop(key, None)
        now = None if gone else _rule_of(wire)
        if now is not None:
            self.rules[key] = now
        if before == now:
            return
        for part in list(self.slices.values()):
            if any(rule is not None and rule.may_concern(part) for rule in (before, now)):
                yield self._tainted(part)

    def _tainted(self, part: DeviceSlice) -> DeviceSlice:
        rules = [rule for rule in self.rules.values() if rule.may_concern(part)]
        if not rules:
            return part
        return replace(part, devices=tuple(_with_taints(device, rules) for device in part.devices))


def _with_taints(device: Device, rules: list[TaintRule]) -> Device:
    added = [rule.taint for rule in rules if rule.device in (None, device.name)]
    return replace(device, taints=tuple(dict.fromkeys((*device.taints, *added)))) if added else device


def _rule_of(wire: TaintRuleWire) -> TaintRule | None:
    """None if it has no selector: then it selects nothing."""
    selector, taint = wire.spec.device_selector, wire.spec.taint
    if selector is None:
        return None
    return TaintRule(
        Taint(taint.key, taint.value or "", taint.effect), selector.driver, selector.pool, selector.device
    )
