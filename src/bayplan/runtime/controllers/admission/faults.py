"""Rejections of queued gangs on which no decision could be made."""

from __future__ import annotations

from bayplan.model.gang import Ref
from bayplan.model.plan import Action, ReportNotAdmitted, Requeue
from bayplan.model.rejection import Rejection, RejectionReason
from bayplan.runtime.core.controller import DecisionFault
from bayplan.state.admission.queues import BACKOFF_MAX
from bayplan.state.admission.snapshot import AdmissionSnapshot
from bayplan.state.pending_queue import backoff


def rejection_for_fault(view: AdmissionSnapshot, gang: Ref, fault: DecisionFault) -> tuple[Action, ...]:
    """Reject the gang with the fault as the reason, and requeue it with a growing backoff."""
    [head] = [one for one in view.heads if one.queued_gang.gang.source == gang]
    reason, about, tried = RejectionReason.INTERNAL, fault.id, ()
    if not fault.id:
        reason, about = RejectionReason.OUT_OF_TIME, f"{fault.seconds:g}"
        tried = fault.so_far if isinstance(fault.so_far, tuple) else ()
    name = f"{gang.namespace}/{gang.name}"
    rejection = Rejection(reason, tried=tried, queue=head.queue, gang=name, about=about)
    seconds = backoff(head.tries + 1, BACKOFF_MAX)
    return (ReportNotAdmitted(head.queued_gang, rejection, Requeue.AFTER_DELAY, delay=seconds),)
