"""What each pod would give back to the zones of its node, kept by node as long as nothing changes there."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bayplan.model.pod import PodKey
from bayplan.model.zone import ZoneWants
from bayplan.placement.zone_evictions import freed
from bayplan.placement.zone_reports import RunningPod

if TYPE_CHECKING:
    from bayplan.placement.zone_ground import ZoneGround

SILENT = -1
"""A pod that may leave without anybody thinking of zones: its node does not say who sits where."""

KINDS_MAX = 65536


class Share(NamedTuple):
    """What one zone gets back of one resource, and the most that it can have of it."""

    resource: str
    place: int
    amount: int
    most: int


class Gift(NamedTuple):
    """What a pod gives back. One that had nothing to itself, as far as known, gives nothing."""

    shares: tuple[Share, ...] = ()
    something: bool = False  # even if no zone of the report lists it


class Gifts:
    """Equal gifts have one number. Whoever keeps this from one decision to the next says what changed."""

    def __init__(self) -> None:
        self.numbers: dict[Gift, int] = {}
        self.by_node: dict[str, dict[PodKey, int]] = {}

    def forget(self, node: str) -> None:
        """Something happened on a node."""
        self.by_node.pop(node, None)

    def tidy(self) -> None:
        """Between two decisions: what nobody gives any more does not stay for ever."""
        if len(self.numbers) > KINDS_MAX:
            self.numbers, self.by_node = {}, {}

    def number(self, ground: ZoneGround, node: str, key: PodKey, wants: ZoneWants) -> int:
        """The number of the gift of a pod that runs on a node; SILENT if nobody can say anything there."""
        here = self.by_node.get(node)
        known = None if here is None else here.get(key)
        if known is None:
            known = self.by_node.setdefault(node, {})[key] = self._learn(ground, node, key, wants)
        return known

    def _learn(self, ground: ZoneGround, node: str, key: PodKey, wants: ZoneWants) -> int:
        report = ground.believed.get(node)
        seats = None if report is None else ground.seats(node)
        if report is None or seats is None:
            return SILENT
        found = freed(report, (RunningPod((key.namespace, key.name), wants),), seats)
        shares = tuple(
            Share(resource, place, amount, zone.allocatable.get(resource, 0))
            for place, zone in enumerate(report.zones)
            for resource, amount in found.get(zone.number, {}).items()
            if resource in zone.available
        )
        return self.numbers.setdefault(Gift(shares, bool(found)), len(self.numbers))
