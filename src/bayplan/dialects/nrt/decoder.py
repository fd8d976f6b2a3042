"""Watch events of NodeResourceTopology objects as changes. Of two served versions, the newer one is used."""

from __future__ import annotations

from collections.abc import Iterator

from bayplan.dialects.api import Event, Happened, Kind, Write
from bayplan.dialects.dialect import Reader
from bayplan.dialects.kube.encode.binding import event_write
from bayplan.dialects.kube.fields.times import timestamp
from bayplan.dialects.nrt.topologies import new_problems, node_zones
from bayplan.dialects.nrt.wire import GROUP, OLDER_TOPOLOGIES, TOPOLOGIES
from bayplan.model.change import Change, NumaReportLost, NumaReportSeen
from bayplan.model.numa import NodeZones

KINDS = (TOPOLOGIES, OLDER_TOPOLOGIES)
NOT_UNDERSTOOD = "ZonesNotUnderstood"
About = dict[str, str]
"""An object reference of an event."""


class NumaReportDecoder(Reader):
    """The reports of nodes, and the invalid parts of them for which an event is due."""

    kinds: tuple[Kind, ...] = KINDS

    def __init__(self) -> None:
        self.reports: dict[str, dict[str, NodeZones]] = {}  # by node and version
        self.reported: dict[str, tuple[str, ...]] = {}  # problems already reported, by node
        self.problems: list[tuple[About, str]] = []

    def decode(self, event: Event) -> Iterator[Change]:
        """The changes that an event means."""
        if event.happened is Happened.SYNCED:
            return
        node, version = event.object.metadata.name, event.kind.version
        versions = self.reports.setdefault(node, {})
        before = self._newest(node)
        if event.happened is Happened.GONE:
            versions.pop(version, None)
        else:
            versions[version], problems = event.once(node_zones)
            if versions[version] is self._newest(node):
                self._note(event, node, problems)
        now = self._newest(node)
        if now is None:
            del self.reports[node]
            self.reported.pop(node, None)
            if before is not None:
                yield NumaReportLost(node)
        elif now != before:
            yield NumaReportSeen(now)

    def reconcile(self, now: float) -> Iterator[Write]:
        """Events about invalid parts of reports, each once."""
        problems, self.problems = self.problems, []
        for about, message in problems:
            yield event_write(about, NOT_UNDERSTOOD, message, "Warning", timestamp(now))

    def _newest(self, node: str) -> NodeZones | None:
        """The report of a node in its newest version."""
        versions = self.reports.get(node, {})
        return versions.get(TOPOLOGIES.version) or versions.get(OLDER_TOPOLOGIES.version)

    def _note(self, event: Event, node: str, problems: tuple[str, ...]) -> None:
        unreported = new_problems(self.reported, node, problems)
        if unreported:
            about = {
                "apiVersion": f"{GROUP}/{event.kind.version}",
                "kind": event.kind.kind,
                "name": node,
                "uid": event.object.metadata.uid,
            }
            self.problems.append((about, "; ".join(unreported)))
