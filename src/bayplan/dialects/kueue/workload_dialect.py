"""Workloads and their queues as the admission controller reads and writes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from bayplan.dialects.api import Event, Kind, Verb, Write
from bayplan.dialects.dialect import AdmissionAction, QueueDialect
from bayplan.dialects.kube.decode.pod_spec_cache import PodSpecCache
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.decode import events
from bayplan.dialects.kueue.decode.workload_devices import WorkloadDevices
from bayplan.dialects.kueue.fields.counting import NO_TRANSFORMATIONS, Counting
from bayplan.dialects.kueue.fields.pod_sets import source
from bayplan.dialects.kueue.fields.workload import KIND
from bayplan.dialects.kueue.jobs.writes import status_write
from bayplan.dialects.kueue.names import api_kinds
from bayplan.dialects.kueue.status import decisions, queue_status
from bayplan.dialects.kueue.status import events as notices
from bayplan.dialects.kueue.status.conditions import QUOTA_RESERVED, condition_of, is_true
from bayplan.dialects.kueue.status.default_reasons import with_default_reasons
from bayplan.dialects.kueue.status.queue_path import QueueChanges, status_due
from bayplan.dialects.kueue.status.reconcile import has_owner, released, requeue_at, should_deactivate
from bayplan.dialects.kueue.status.rejection_messages import reason
from bayplan.dialects.kueue.webhooks.reviews import reviews
from bayplan.model.change import Change
from bayplan.model.gang import Ref
from bayplan.model.plan import Admit, EvictGang, ReportNotAdmitted
from bayplan.model.pod import Pod
from bayplan.model.quota import NamespaceQueue, Queue
from bayplan.model.rejection import RejectionReason
from bayplan.model.summary import Summaries

Object = dict[str, Any]
Key = tuple[str, str]

_BEFORE_A_DECISION = {"Deactivated", "Misconfigured", "PendingEvaluation", "Suspended"}


class WorkloadDialect(QueueDialect):
    """With `protects`, ClusterQueues that still lack the finalizer are marked as unprotected.

    With `pod_specs`, pods are read with what the filters of binding ask for. With `devices`, Workloads have
    the devices that their pods claim. Without `detailed_reasons`, conditions and events have the reasons that
    Kueue gives by default.
    """

    kinds: tuple[Kind, ...] = api_kinds.KINDS
    gangs = api_kinds.WORKLOADS
    with_status = (api_kinds.CLUSTER_QUEUES, api_kinds.LOCAL_QUEUES, api_kinds.COHORTS, api_kinds.CHECKS)
    with_finalizer = (api_kinds.CLUSTER_QUEUES, api_kinds.FLAVORS, api_kinds.TOPOLOGIES, api_kinds.CHECKS)
    referred = (api_kinds.CONFIGS,)
    urgent = (api_kinds.CLUSTER_QUEUES,)

    def __init__(
        self,
        counting: Counting = NO_TRANSFORMATIONS,
        *,
        protects: bool = False,
        pod_specs: PodSpecCache | None = None,
        devices: WorkloadDevices | None = None,
        detailed_reasons: bool = True,
    ) -> None:
        self.detailed_reasons = detailed_reasons
        self.counting, self.protects, self.pod_specs = counting, protects, pod_specs
        self.devices = devices
        self.queue_changes = QueueChanges()

    reviews = staticmethod(reviews)

    # ── decode ─────────────────────────────────────────────────────────────────────────────────────

    def decode(self, event: Event) -> Iterator[Change]:
        return events.decode(
            event, self.counting, protects=self.protects, pod_specs=self.pod_specs, devices=self.devices
        )

    def decode_usage(self, event: Event) -> Iterator[Change]:
        return events.decode_usage(event)

    def assumed_pod(self, pod: Pod, node: str) -> Change:
        return events.assumed_pod(pod, node)

    def ref_of(self, obj: Object) -> Ref:
        return source(Field(obj), KIND)

    def concerned(self, event: Event, objects: Mapping[Key, Object]) -> Iterable[Key]:
        return self.queue_changes.concerns(event, objects)

    # ── encode ─────────────────────────────────────────────────────────────────────────────────────

    def status_after(
        self, action: AdmissionAction, obj: Object, now: float,
        holders: Callable[[], Collection[str]], levels: Callable[[], Collection[str]],
    ) -> Object | None:  # fmt: skip
        match action:
            case Admit():
                return self._in_words(obj, decisions.admitted(obj, action, now))
            case EvictGang():
                if not is_true(obj, QUOTA_RESERVED):
                    return None  # the admission that it would lose was never written
                return self._released(obj, decisions.evicted(obj, action, now), now)
            case ReportNotAdmitted():
                status = decisions.not_admitted(obj, action, now, list(holders()), set(levels()))
                return self._in_words(obj, status)

    def _released(self, obj: Object, status: Object | None, now: float) -> Object | None:
        """The status of an evicted gang; one without an owner has no job that would have to stop first."""
        if status is None or has_owner(obj):
            return status
        evicted = {**obj, "status": status}
        return self._in_words(obj, released(evicted, now) or status)

    def status_write(self, obj: Object, status: Object, tag: object) -> Write:
        return status_write(obj, status, tag)

    def action_events(
        self, action: AdmissionAction, before: Object, now: float, status: Object | None = None
    ) -> Iterator[Write]:
        for event in notices.events(action, before, now, status, detailed=self.detailed_reasons):
            yield notices.workload_event_write(event, now)

    def is_reworded(self, obj: Object, status: Object) -> bool:
        before, after = condition_of(obj, QUOTA_RESERVED), condition_of({"status": status}, QUOTA_RESERVED)
        return before is not None and after is not None and before.get("reason") == after.get("reason")

    def is_undecided(self, obj: Object, code: RejectionReason) -> bool:
        known = condition_of(obj, QUOTA_RESERVED)
        if not self.detailed_reasons:  # `Pending` does not tell whether a decision was made
            return known is None
        return known is None or known.get("reason") in _BEFORE_A_DECISION - {reason(code)}

    # ── reconcile ──────────────────────────────────────────────────────────────────────────────────

    def status_due(
        self, obj: Object, queues: Mapping[str, Queue], local: Mapping[Key, NamespaceQueue], now: float
    ) -> Object | None:
        return status_due(obj, queues, local, now, self._in_words)

    def _in_words(self, obj: Object, status: Object | None) -> Object | None:
        return status if self.detailed_reasons else with_default_reasons(obj, status)

    def status_events(self, before: Object, status: Object, now: float) -> Iterator[Write]:
        for event in notices.reconcile_events(before, status, now):
            yield notices.workload_event_write(event, now)

    def requeue_at(self, obj: Object) -> float:
        return requeue_at(obj)

    def deactivation(self, obj: Object, tag: object) -> Write | None:
        if not should_deactivate(obj):
            return None
        meta, body = obj["metadata"], {"spec": {"active": False}}
        where = (meta.get("namespace", ""), meta["name"])
        return Write(Verb.MERGE_PATCH, self.gangs, *where, body, version=meta["resourceVersion"], tag=tag)

    def queue_status(
        self, kind: Kind, key: Key, obj: Object, summary: Summaries, refused: str,
        names: Callable[[Kind], Collection[str]], now: float,
    ) -> Object | None:  # fmt: skip
        if kind == api_kinds.CLUSTER_QUEUES and key[1] in summary.queues:
            return queue_status.cluster_queue(obj, summary.queues[key[1]], now, refused)
        if kind == api_kinds.LOCAL_QUEUES and key in summary.namespace_queues:
            return queue_status.local_queue(obj, summary.namespace_queues[key], now)
        if kind == api_kinds.COHORTS and key[1] in summary.shared:
            return queue_status.cohort(obj, summary.shared[key[1]], now)
        if kind == api_kinds.CHECKS:
            return queue_status.admission_check(obj, set(names(api_kinds.CONFIGS)), now)
        return None

    def finalizers(self, kind: Kind, obj: Object, summary: Summaries) -> list[str] | None:
        return queue_status.finalizers(kind.kind, obj, summary)
