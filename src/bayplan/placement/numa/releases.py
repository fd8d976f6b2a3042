"""What each pod would give back to the zones of its node, kept by node as long as nothing changes there."""

from __future__ import annotations

from typing import NamedTuple

from bayplan.model.numa import NodeZones, NumaRequest
from bayplan.model.pod import PodKey
from bayplan.placement.numa.evictions import Seats, freed
from bayplan.placement.numa.reports import RunningPod

SILENT = -1
"""A pod that may leave without anybody thinking of zones: its node does not say who sits where."""

KINDS_MAX = 65536


class ReleasedAmount(NamedTuple):
    """What one zone gets back of one resource, and the most that it can have of it."""

    resource: str
    place: int
    amount: int
    most: int


class NumaRelease(NamedTuple):
    """What a pod gives back. One that had nothing to itself, as far as known, gives nothing."""

    shares: tuple[ReleasedAmount, ...] = ()
    something: bool = False  # even if no zone of the report lists it


class NumaReleases:
    """Equal gifts have one number. Whoever keeps this from one decision to the next says what changed."""

    def __init__(self) -> None:
        self.numbers: dict[NumaRelease, int] = {}
        self.by_node: dict[str, dict[PodKey, int]] = {}

    def forget(self, node: str) -> None:
        """Something happened on a node."""
        self.by_node.pop(node, None)

    def tidy(self) -> None:
        """Between two decisions: what nobody gives any more does not stay for ever."""
        if len(self.numbers) > KINDS_MAX:
            self.numbers, self.by_node = {}, {}

    def known(self, node: str, key: PodKey) -> int | None:
        """The number that a pod on a node was given since anything changed there."""
        here = self.by_node.get(node)
        return None if here is None else here.get(key)

    def number(
        self, node: str, key: PodKey, wants: NumaRequest, report: NodeZones | None, seats: Seats | None
    ) -> int:
        """Number what a pod releases by the report of its node; SILENT if its zones are unknown."""
        number = SILENT
        if report is not None and seats is not None:
            released = freed(report, (RunningPod((key.namespace, key.name), wants),), seats)
            shares = tuple(
                ReleasedAmount(resource, place, amount, zone.allocatable.get(resource, 0))
                for place, zone in enumerate(report.zones)
                for resource, amount in released.get(zone.number, {}).items()
                if resource in zone.available
            )
            number = self.numbers.setdefault(NumaRelease(shares, bool(released)), len(self.numbers))
        self.by_node.setdefault(node, {})[key] = number
        return number
