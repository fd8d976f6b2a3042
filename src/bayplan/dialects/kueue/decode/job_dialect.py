"""Jobs whose pods name one of our schedulers, as a dialect."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from bayplan.dialects.api import Event, Kind, Write
from bayplan.dialects.dialect import BoundGang, Dialect, Membership, PendingReport
from bayplan.dialects.kube.decode.wire import PodWire
from bayplan.dialects.kube.encode.gang_messages import message_for
from bayplan.dialects.kube.encode.writes import unschedulable_event
from bayplan.dialects.kueue.decode import scheduled_jobs
from bayplan.dialects.kueue.status.misfit_messages import misfit_message
from bayplan.model.change import Change
from bayplan.model.gang import GangSpec, Ref
from bayplan.model.rejection import Rejection


class JobDialect(Dialect):
    """`schedulers` are the scheduler names under which the pods of a job form a gang."""

    names = (scheduled_jobs.DIALECT,)
    kinds: tuple[Kind, ...] = scheduled_jobs.KINDS

    def __init__(self, schedulers: Collection[str]) -> None:
        self.schedulers = schedulers

    def decode(self, event: Event) -> Iterator[Change]:
        return scheduled_jobs.decode(event, self.schedulers)

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
