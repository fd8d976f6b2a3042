"""Events of NodeResourceTopology objects → changes. If one is served in two versions, the newer counts."""

from __future__ import annotations

from collections.abc import Iterator

from bayplan.dialects.api import Event, Happened, Write
from bayplan.dialects.kube.encode.binding import event_write
from bayplan.dialects.kube.fields.times import timestamp
from bayplan.dialects.nrt.topologies import news, node_zones
from bayplan.dialects.nrt.wire import GROUP, OLDER_TOPOLOGIES, TOPOLOGIES
from bayplan.model.change import Change, NumaReportLost, NumaReportSeen
from bayplan.model.numa import NodeZones

KINDS = (TOPOLOGIES, OLDER_TOPOLOGIES)
NOT_UNDERSTOOD = "ZonesNotUnderstood"
About = dict[str, str]
"""An object as an event names it."""


class NumaReportDecoder:
    """What nodes report, and what of it made no sense and has not been told yet."""

    def __init__(self) -> None:
        self.reports: dict[str, dict[str, NodeZones]] = {}  # by node and version
        self.told: dict[str, tuple[str, ...]] = {}
        self.problems: list[tuple[About, str]] = []

    def decode(self, event: Event) -> Iterator[Change]:
        """What an event means to us."""
        if event.happened is Happened.SYNCED:
            return
        node, version = event.object.metadata.name, event.kind.version
        versions = self.reports.setdefault(node, {})
        before = self._counts(node)
        if event.happened is Happened.GONE:
            versions.pop(version, None)
        else:
            versions[version], problems = node_zones(event.object)
            if versions[version] is self._counts(node):
                self._note(event, node, problems)
        now = self._counts(node)
        if now is None:
            del self.reports[node]
            self.told.pop(node, None)
            if before is not None:
                yield NumaReportLost(node)
        elif now != before:
            yield NumaReportSeen(now)

    def complaints(self, now: float) -> Iterator[Write]:
        """Events about what made no sense, each once."""
        problems, self.problems = self.problems, []
        for about, words in problems:
            yield event_write(about, NOT_UNDERSTOOD, words, "Warning", timestamp(now))

    def _counts(self, node: str) -> NodeZones | None:
        """The report in the newest version."""
        versions = self.reports.get(node, {})
        return versions.get(TOPOLOGIES.version) or versions.get(OLDER_TOPOLOGIES.version)

    def _note(self, event: Event, node: str, problems: tuple[str, ...]) -> None:
        fresh = news(self.told, node, problems)
        if fresh:
            about = {
                "apiVersion": f"{GROUP}/{event.kind.version}",
                "kind": event.kind.kind,
                "name": node,
                "uid": event.object.metadata.uid,
            }
            self.problems.append((about, "; ".join(fresh)))
