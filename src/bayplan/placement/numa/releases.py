"""What each pod would release in the zones of its node, cached by node until the node changes."""

from __future__ import annotations

from typing import NamedTuple

from bayplan.model.numa import NodeZones, NumaRequest
from bayplan.model.pod import PodKey
from bayplan.placement.numa.evictions import ContainerZones, freed
from bayplan.placement.numa.reports import RunningPod

UNKNOWN_ZONES = -1
"""Number of a pod whose release is unknown: its node does not report the zones of containers."""

RELEASES_MAX = 65536


class ReleasedAmount(NamedTuple):
    """The amount of one resource that one zone gets back, and the allocatable limit of the zone."""

    resource: str
    place: int
    amount: int
    limit: int


class NumaRelease(NamedTuple):
    """What a pod releases: nothing if it has no exclusive resources in known zones."""

    amounts: tuple[ReleasedAmount, ...] = ()
    releases_any: bool = False  # it releases something, even if no zone of the report lists it


class NumaReleases:
    """Cache of releases across decisions. Equal releases share a number; the owner reports changed nodes."""

    def __init__(self) -> None:
        self.numbers: dict[NumaRelease, int] = {}
        self.by_node: dict[str, dict[PodKey, int]] = {}

    def forget(self, node: str) -> None:
        """Drop the entries of a changed node."""
        self.by_node.pop(node, None)

    def tidy(self) -> None:
        """Between two decisions: clear the cache if it has grown too large."""
        if len(self.numbers) > RELEASES_MAX:
            self.numbers, self.by_node = {}, {}

    def known(self, node: str, key: PodKey) -> int | None:
        """The cached number of a pod's release on a node; None if it is not cached."""
        numbers = self.by_node.get(node)
        return None if numbers is None else numbers.get(key)

    def number(
        self,
        node: str,
        key: PodKey,
        request: NumaRequest,
        report: NodeZones | None,
        container_zones: ContainerZones | None,
    ) -> int:
        """The number of what a pod releases by the report of its node; UNKNOWN_ZONES if that is unknown."""
        number = UNKNOWN_ZONES
        if report is not None and container_zones is not None:
            released = freed(report, (RunningPod((key.namespace, key.name), request),), container_zones)
            shares = tuple(
                ReleasedAmount(resource, place, amount, zone.allocatable.get(resource, 0))
                for place, zone in enumerate(report.zones)
                for resource, amount in released.get(zone.number, {}).items()
                if resource in zone.available
            )
            number = self.numbers.setdefault(NumaRelease(shares, bool(released)), len(self.numbers))
        self.by_node.setdefault(node, {})[key] = number
        return number
