"""Pods, nodes and the gang API of Kubernetes as a dialect: PodGroups, CompositePodGroups and Workloads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from bayplan.dialects.api import Event, Kind, Write
from bayplan.dialects.dialect import BoundGang, Dialect, PendingReport
from bayplan.dialects.kube.encode.gang_messages import ERROR, FAULTS, Sentence, message_for
from bayplan.dialects.kube.encode.writes import about_gang, group_reason, group_write, unschedulable_event
from bayplan.dialects.kube.gang.events import KINDS, SchedulingDecoder
from bayplan.dialects.kube.gang.objects import COMPOSITE, DIALECT, POD_GROUP
from bayplan.model.change import Change
from bayplan.model.gang import GangSpec, Ref
from bayplan.model.plan import MarkStarted
from bayplan.model.rejection import Rejection

STARTED = "All pods of the minimum have nodes"


class GangDialect(Dialect):
    """`of_misfit` says why a placement failed."""

    names = ("kube", DIALECT)
    kinds: tuple[Kind, ...] = KINDS

    def __init__(self, decoder: SchedulingDecoder, of_misfit: Sentence) -> None:
        self.decoder, self.of_misfit = decoder, of_misfit

    def decode(self, event: Event) -> Iterator[Change]:
        return self.decoder.decode(event)

    def flush(self) -> Iterator[Change]:
        return self.decoder.flush()

    def explain(self, why: Rejection, gang: Ref, spec: GangSpec | None) -> str:
        return message_for(why, gang, self.of_misfit)

    def pending_writes(self, report: PendingReport, facts: BoundGang, now: float) -> Iterator[Write]:
        """An event; and the condition of each PodGroup that was tried and has not started."""
        action, gang = report.action, report.action.gang
        version = self.decoder.newest(gang)
        about = about_gang(gang, action.uid, version)
        if about is None or not action.uid:
            return
        yield unschedulable_event(about, report.message, now)
        if not action.rejection.reason.was_tried and report.reason not in (ERROR, *FAULTS.values()):
            return
        reason = group_reason(report.reason)
        started = report.starts or (facts.spec is not None and facts.spec.started)
        if gang.kind == POD_GROUP and not started:
            if self.decoder.pending_messages.get(gang) != report.message:
                yield group_write(gang, action.uid, version, reason, report.message, now)
        elif gang.kind == COMPOSITE:
            started_now = {leaf.source for leaf in self._started_groups(gang, facts.bound())}
            without = {pod.pod_set for pod in action.pods}
            for leaf in self.decoder.composites.leaves(gang):
                ref = leaf.source
                told = self.decoder.pending_messages.get(ref) == report.message
                if ref.name in without and not leaf.started and ref not in started_now and not told:
                    version = self.decoder.newest(ref)
                    yield group_write(ref, leaf.uid, version, reason, report.message, now)

    def starts_in_parts(self, gang: Ref) -> bool:
        """Each group of a CompositePodGroup has its own record."""
        return gang.kind == COMPOSITE

    def start_writes(self, start: MarkStarted, facts: BoundGang, now: float) -> Iterator[Write]:
        gang = start.gang
        if gang.kind == COMPOSITE:
            for leaf in self._started_groups(gang, facts.confirmed()):
                version = self.decoder.newest(leaf.source)
                write = group_write(leaf.source, leaf.uid, version, "Scheduled", STARTED, now)
                yield replace(write, tag=start)
            return
        version = self.decoder.newest(gang)
        if facts.spec is not None and facts.spec.started:
            return
        if gang.kind == POD_GROUP and version:
            yield replace(group_write(gang, start.uid, version, "Scheduled", STARTED, now), tag=start)

    def _started_groups(self, gang: Ref, bound: Mapping[str, int]) -> list[GangSpec]:
        """The started groups of a composite gang that have no record yet."""
        return [
            leaf
            for leaf in self.decoder.composites.leaves(gang)
            if not leaf.started and bound.get(leaf.source.name, 0) >= max(leaf.minimum, 1)
        ]
