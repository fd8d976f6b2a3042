"""The reasons that Kueue gives by default, in place of detailed ones."""

from __future__ import annotations

from bayplan.dialects.kueue.jobs.writes import status_write
from bayplan.dialects.kueue.status.conditions import condition_of
from bayplan.dialects.kueue.status.default_reasons import (
    default_reason,
    with_default_reasons,
    write_with_default_reasons,
)
from bayplan.dialects.kueue.status.reconcile import released
from bayplan.dialects.kueue.status.rejection_messages import reason
from bayplan.model.rejection import RejectionReason
from tests.support.kueue_workloads import NOW, condition, workload_with

OF_ADMISSION = (
    RejectionReason.TO_BE_EVALUATED,
    RejectionReason.NO_PLACE,
    RejectionReason.NO_QUOTA_NOW,
    RejectionReason.NEVER_ENOUGH_QUOTA,
    RejectionReason.NO_FLAVOR,
    RejectionReason.VICTIMS_LEAVING,
    RejectionReason.MISCONFIGURED,
    RejectionReason.CLOSED,
    RejectionReason.ON_HOLD,
    RejectionReason.OTHERS_STARTING,
    RejectionReason.GATED,
    RejectionReason.INTERNAL,
    RejectionReason.OUT_OF_TIME,
)


def test_every_reason_to_wait_has_a_default() -> None:
    kept = {"OnHold", "AdmissionGated"}  # Kueue has these in both wordings
    assert {default_reason(reason(code)) for code in OF_ADMISSION} == {
        "Pending", "Inadmissible", "Waiting", *kept,
    }  # fmt: skip


def test_a_condition_that_holds_keeps_its_reason() -> None:
    before = workload_with(condition("QuotaReserved", "False", "Pending", "short"))
    after = workload_with(
        condition("QuotaReserved", "True", "QuotaReserved", "given"),
        condition("Admitted", "False", "UnsatisfiedAdmissionChecks", "checks"),
        condition("Requeued", "False", "Misconfigured", "another kind"),
    )
    status = with_default_reasons(before, after["status"])
    assert status is not None
    reasons = [one["reason"] for one in status["conditions"]]
    assert reasons == ["QuotaReserved", "UnsatisfiedChecks", "Misconfigured"]


def test_a_status_that_differs_in_detail_only_is_no_change() -> None:
    before = workload_with(condition("QuotaReserved", "False", "Pending", "short"))
    after = workload_with(condition("QuotaReserved", "False", "WaitingForQuota", "short"))
    assert with_default_reasons(before, after["status"]) is None
    assert with_default_reasons(before, None) is None


def test_a_job_that_releases_quota_leaves_its_workload_pending() -> None:
    workload = workload_with(
        condition("QuotaReserved", "True", "QuotaReserved", "given"),
        condition("Evicted", "True", "Preempted", "by another"),
    )
    status = released(workload, NOW)
    assert status is not None
    write = write_with_default_reasons(status_write(workload, status))
    told = condition_of(dict(write.body), "QuotaReserved")
    assert told is not None and told["reason"] == "Pending"
    assert condition_of({"status": status}, "QuotaReserved") != told, "the detailed status is not changed"
