"""The rejection that a Workload shares with equivalent ones."""

from __future__ import annotations

from typing import Any

from bayplan.dialects.dialect import QueueDialect
from bayplan.model.plan import ReportNotAdmitted, Requeue
from bayplan.model.rejection import AdmissionRemark, Rejection, RejectionReason
from bayplan.state.admission.queues import AdmissionQueues, QueueEntryState

Object = dict[str, Any]


def rejection_of_equivalents(
    workload: Object, queues: AdmissionQueues, dialect: QueueDialect
) -> ReportNotAdmitted | None:
    """The rejection of equivalent gangs, for a Workload that joins them without an attempt of its own."""
    entry = queues.entries.get(dialect.ref_of(workload))
    if entry is None or entry.state is not QueueEntryState.PENDING:
        return None
    queue = queues.queue(entry.queue)
    reason_code = queue.shapes[entry.class_key].reason
    if not isinstance(reason_code, RejectionReason) or not queue.shapes[entry.class_key].events:
        return None
    if not dialect.is_undecided(workload, reason_code):
        return None
    remark = (
        AdmissionRemark.QUEUE_INACTIVE
        if reason_code is RejectionReason.CLOSED
        else AdmissionRemark.EQUIVALENT
    )
    rejection = Rejection(reason_code, remark=remark, queue=entry.queue)
    return ReportNotAdmitted(entry.queued_gang, rejection, Requeue.ON_EVENT)
