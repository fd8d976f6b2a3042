"""Jobs whose pods name one of our schedulers, as a dialect."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from bayplan.dialects.api import Event, Kind, Write
from bayplan.dialects.dialect import BoundGang, Dialect, Membership, PendingReport
from bayplan.dialects.kube.decode.wire import PodWire
from bayplan.dialects.kube.encode.gang_messages import message_for
from bayplan.dialects.kube.encode.writes import unschedulable_event
from bayplan.dialects.kueue.decode import scheduled_jobs
from bayplan.dialects.kueue.status.misfit_messages import misfit_message
from bayplan.model.change import Change, GangSpecLost, GangSpecSeen
from bayplan.model.gang import GangSpec, Ref
from bayplan.model.rejection import Rejection


class JobDialect(Dialect):
    """`schedulers` are the scheduler names under which the pods of a job form a gang."""

    names = (scheduled_jobs.DIALECT,)
    kinds: tuple[Kind, ...] = scheduled_jobs.KINDS

    def __init__(self, schedulers: Collection[str]) -> None:
        self.schedulers = schedulers
        self.specs: dict[Ref, GangSpec] = {}  # of placed gangs, as the job itself says
        self.over: dict[Ref, dict[str, int]] = {}  # pods that are over, by gang and job that it owns

    def decode(self, event: Event) -> Iterator[Change]:
        part = scheduled_jobs.part_over(event)
        if part is not None:
            yield from self._part_seen(*part)
        for change in scheduled_jobs.decode(event, self.schedulers):
            match change:
                case GangSpecSeen(spec) if scheduled_jobs.is_placed(spec):
                    self.specs[spec.source] = spec
                    yield GangSpecSeen(self._without_over(spec))
                    continue
                case GangSpecSeen(spec):
                    self.specs.pop(spec.source, None)
                case GangSpecLost(ref):
                    self.specs.pop(ref, None)
            yield change

    def _part_seen(self, ref: Ref, name: str, over: int) -> Iterator[Change]:
        """A job of a job set: its status alone says how many of its pods are over while it goes on."""
        known = self.over.get(ref, {})
        if known.get(name, 0) == over:
            return
        self.over[ref] = {part: count for part, count in {**known, name: over}.items() if count}
        if not self.over[ref]:
            del self.over[ref]
        if ref in self.specs:
            yield GangSpecSeen(self._without_over(self.specs[ref]))

    def _without_over(self, spec: GangSpec) -> GangSpec:
        """The spec without pods that are over: with their node they may be gone, and they do not return."""
        over = sum(self.over.get(spec.source, {}).values())
        return replace(spec, minimum=max(1, spec.minimum - over)) if over else spec

    def membership(self, pod: PodWire) -> Membership | None:
        return scheduled_jobs.membership(pod)

    def explain(self, why: Rejection, gang: Ref, spec: GangSpec | None) -> str:
        return message_for(why, gang, misfit_message)

    def pending_writes(self, report: PendingReport, facts: BoundGang, now: float) -> Iterator[Write]:
        """An event about the job."""
        gang, uid = report.action.gang, report.action.uid
        about = {"apiVersion": scheduled_jobs.JOB_KINDS[gang.kind].api_version, "kind": gang.kind}
        about |= {"namespace": gang.namespace, "name": gang.name}
        about |= {"uid": uid} if uid else {}
        yield unschedulable_event(about, report.message, now)
