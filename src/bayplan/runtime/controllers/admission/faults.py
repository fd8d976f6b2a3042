"""Rejections of queued gangs on which no decision could be made."""

from __future__ import annotations

from bayplan.model.admission_rejection import AdmissionReason, AdmissionRejection, AdmissionRemark
from bayplan.model.gang import Ref
from bayplan.model.plan import Action, ReportNotAdmitted, Requeue
from bayplan.runtime.core.controller import DecisionFault
from bayplan.state.admission.queues import BACKOFF_MAX
from bayplan.state.admission.snapshot import AdmissionSnapshot
from bayplan.state.pending_queue import backoff


def rejection_for_fault(view: AdmissionSnapshot, gang: Ref, fault: DecisionFault) -> tuple[Action, ...]:
    """Reject the gang with the fault as the reason, and requeue it with a growing backoff."""
    [head] = [one for one in view.heads if one.queued_gang.gang.source == gang]
    reason, remark, known, tried = AdmissionReason.INTERNAL, AdmissionRemark.INTERNAL, fault.id, ()
    if not fault.id:
        reason, remark, known = AdmissionReason.OUT_OF_TIME, AdmissionRemark.OUT_OF_TIME, f"{fault.seconds:g}"
        tried = fault.so_far if isinstance(fault.so_far, tuple) else ()
    rejection = AdmissionRejection(
        reason, remark, tried, queue=head.queue, about=f"{gang.namespace}/{gang.name}", error=known
    )
    seconds = backoff(head.tries + 1, BACKOFF_MAX)
    return (ReportNotAdmitted(head.queued_gang, rejection, Requeue.AFTER_DELAY, delay=seconds),)
