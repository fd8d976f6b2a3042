"""KAI PodGroups as a dialect."""

from __future__ import annotations

from collections.abc import Iterator

from bayplan.dialects.api import Event, Kind, Write
from bayplan.dialects.dialect import BoundGang, Dialect, Membership, PendingReport, StatusReason
from bayplan.dialects.kai.api.names import DIALECT
from bayplan.dialects.kai.decode.events import KINDS, GroupDecoder
from bayplan.dialects.kai.decode.webhooks import reviews
from bayplan.dialects.kai.status.messages import message_for, queue_details, reason
from bayplan.dialects.kai.status.pod_group import about_group
from bayplan.dialects.kube.decode.wire import PodWire
from bayplan.dialects.kube.encode.writes import unschedulable_event
from bayplan.model.change import Change
from bayplan.model.gang import GangSpec, Ref
from bayplan.model.rejection import Rejection


class GroupDialect(Dialect):
    """The status of a group is reconciled as a whole; only events are written here."""

    names = (DIALECT,)
    kinds: tuple[Kind, ...] = KINDS
    reviews = staticmethod(reviews)

    def __init__(self, decoder: GroupDecoder) -> None:
        self.decoder = decoder

    def decode(self, event: Event) -> Iterator[Change]:
        return self.decoder.decode(event)

    def flush(self) -> Iterator[Change]:
        return self.decoder.flush()

    def membership(self, pod: PodWire) -> Membership | None:
        return self.decoder.membership(pod)

    def explain(self, why: Rejection, gang: Ref, spec: GangSpec | None) -> str:
        known = self.decoder.groups.get(gang)
        group = None if known is None else known.group
        return message_for(why, gang, group, None if spec is None else spec.tree, self.decoder.parents)

    def pending_writes(self, report: PendingReport, facts: BoundGang, now: float) -> Iterator[Write]:
        """An event about the group."""
        if report.action.uid:
            yield unschedulable_event(about_group(report.action.gang, report.action.uid), report.message, now)

    def status_reason(self, report: PendingReport) -> StatusReason | None:
        if not report.action.uid:
            return None
        return StatusReason(reason(report.action.rejection), queue_details(report.action.rejection))
