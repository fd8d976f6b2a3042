"""The status that a Workload should have between decisions, and the Workloads that a queue event affects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bayplan.dialects.api import Event, Happened
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.pod_sets import source
from bayplan.dialects.kueue.fields.workload import KIND
from bayplan.dialects.kueue.status import reconcile
from bayplan.dialects.kueue.status.conditions import QUOTA_RESERVED, condition_of
from bayplan.dialects.kueue.status.reconcile import QueueOnPath
from bayplan.dialects.kueue.status.rejection_messages import reason
from bayplan.model.admission_rejection import AdmissionReason, AdmissionRejection, AdmissionRemark
from bayplan.model.plan import ReportNotAdmitted, Requeue
from bayplan.state.admission.config import AdmissionConfig
from bayplan.state.admission.queues import PendingQueues, QueueEntryState

Key = tuple[str, str]
Object = dict[str, Any]

_BEFORE_A_DECISION = {"Deactivated", "Misconfigured", "PendingEvaluation", "Suspended"}
_OPEN = ("None", None)  # a queue that is not stopped and has no checks
GONE_MAX = 1024  # deleted queues that are remembered in case they are created again


def status_due(workload: Object, rules: AdmissionConfig, now: float) -> Object | None:
    """The status that a Workload should have, or None if it has that status."""
    status = reconcile.synced(workload, _checks(workload, rules), now)
    if status is None and (workload.get("spec") or {}).get("active") is not False:
        status = reconcile.heeding(workload, list(_way(workload, rules)), now)
    if status is None and not workload["metadata"].get("ownerReferences"):
        status = reconcile.released(workload, now)  # without an owner, no job controller releases it
    return status


def told_like_others(workload: Object, lines: PendingQueues) -> ReportNotAdmitted | None:
    """The rejection of equivalent gangs, for a Workload that joins them without an attempt of its own."""
    standing = lines.standings.get(source(Field(workload), KIND))
    if standing is None or standing.place is not QueueEntryState.WAITING:
        return None
    line, known = lines.line(standing.queue), condition_of(workload, QUOTA_RESERVED)
    token = line.said.get(standing.shape)
    if not isinstance(token, AdmissionReason) or standing.shape not in line.refused:
        return None
    if known is not None and known.get("reason") not in _BEFORE_A_DECISION - {reason(token)}:
        return None
    remark = AdmissionRemark.QUEUE_CLOSED if token is AdmissionReason.CLOSED else AdmissionRemark.ALIKE
    refusal = AdmissionRejection(token, remark, queue=standing.queue)
    return ReportNotAdmitted(standing.demand, refusal, Requeue.WHEN_IT_MAY_HELP)


class QueueChanges:
    """Notices when a queue is stopped, resumed, created again or deleted; status changes do not count."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str, str], object] = {}
        self.gone: dict[tuple[str, str, str], None] = {}  # the last deleted queues

    def concerns(self, event: Event, workloads: Mapping[Key, Object]) -> Iterable[Key]:
        """The Workloads to reconcile because of an event."""
        kind = event.kind.kind
        if kind not in ("ClusterQueue", "LocalQueue") or event.happened is Happened.SYNCED:
            return ()
        meta, spec = event.object["metadata"], event.object.get("spec") or {}
        namespace, name = (meta.get("namespace", "") if kind == "LocalQueue" else ""), meta["name"]
        gone = event.happened is Happened.GONE
        rule = None if gone else (spec.get("stopPolicy") or "None", spec.get("admissionChecksStrategy"))
        key = (kind, namespace, name)
        before = None if key in self.gone else self.known.get(key, _OPEN)
        self._note(key, rule)
        if before == rule:
            return ()
        if kind == "LocalQueue":
            return _of_entrance(namespace, name, workloads)
        return list(workloads)  # which LocalQueues point to it may change at the same time

    def _note(self, key: tuple[str, str, str], rule: object) -> None:
        self.gone.pop(key, None)
        if rule is not None:
            self.known[key] = rule
            return
        self.known.pop(key, None)
        self.gone[key] = None
        if len(self.gone) > GONE_MAX:
            del self.gone[next(iter(self.gone))]


def _of_entrance(namespace: str, name: str, workloads: Mapping[Key, Object]) -> list[Key]:
    return [
        key
        for key, workload in workloads.items()
        if key[0] == namespace and (workload.get("spec") or {}).get("queueName") == name
    ]


def _admission(workload: Object) -> Object:
    return (workload.get("status") or {}).get("admission") or {}


def _way(workload: Object, rules: AdmissionConfig) -> Iterator[QueueOnPath]:
    """The queues on the path of a Workload, or those that gave it quota."""
    entrance_name = str((workload.get("spec") or {}).get("queueName") or "")
    if not entrance_name:
        return
    namespace = workload["metadata"].get("namespace", "default")
    entrance = rules.entrances.get((namespace, entrance_name))
    yield QueueOnPath("LocalQueue", entrance_name, entrance.stop if entrance is not None else None)
    name = str(_admission(workload).get("clusterQueue") or (entrance.queue if entrance is not None else ""))
    if name:
        queue = rules.queues.get(name)
        yield QueueOnPath("ClusterQueue", name, queue.stop if queue is not None else None)


def _checks(workload: Object, rules: AdmissionConfig) -> tuple[str, ...]:
    """The checks that a Workload has to pass, by its assigned flavors.

    An evicted Workload keeps its checks: they hold the retry counts.
    """
    admission = _admission(workload)
    namespace, spec = workload["metadata"].get("namespace", "default"), workload.get("spec") or {}
    entrance = rules.entrances.get((namespace, str(spec.get("queueName") or "")))
    queue = rules.queues.get(admission.get("clusterQueue") or (entrance.queue if entrance else ""))
    if queue is None:
        return ()
    if not admission:
        known = (workload.get("status") or {}).get("admissionChecks") or ()
        return tuple(check["name"] for check in known if check["name"] in queue.checks)
    parts = admission.get("podSetAssignments") or []
    flavors = {flavor for part in parts for flavor in (part.get("flavors") or {}).values()}
    return tuple(
        name for name, only in sorted(queue.checks.items()) if not only or flavors.intersection(only)
    )
