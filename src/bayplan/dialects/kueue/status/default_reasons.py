"""The reasons that releases of Kueue give by default, for tools that match them.

Kueue has the detailed reasons behind its feature gate UnadmittedWorkloadsObservability.
"""

from __future__ import annotations

from dataclasses import replace

from bayplan.dialects.api import Write
from bayplan.dialects.kube.encode.fault_messages import INTERNAL_ERROR, OUT_OF_TIME
from bayplan.dialects.kueue.names.api_kinds import WORKLOADS
from bayplan.dialects.kueue.status.conditions import (
    ADMITTED,
    INADMISSIBLE,
    PENDING,
    QUOTA_RESERVED,
    Object,
)

_DEFAULT_REASONS = {
    **dict.fromkeys(
        (
            "PendingEvaluation",
            "TopologyPlacementFailed",
            "WaitingForQuota",
            "ExceedsMaxQuota",
            "NoMatchingFlavor",
            "WaitingForPreemptedWorkloads",
            INTERNAL_ERROR,
            OUT_OF_TIME,
        ),
        PENDING,
    ),
    "Misconfigured": INADMISSIBLE,
    "Suspended": INADMISSIBLE,
    "WaitingForPodsReady": "Waiting",
    "UnsatisfiedAdmissionChecks": "UnsatisfiedChecks",
}


def default_reason(reason: str) -> str:
    """The default reason in place of a detailed one; other reasons stay as they are."""
    return _DEFAULT_REASONS.get(reason, reason)


def with_default_reasons(workload: Object, status: Object | None) -> Object | None:
    """A new status with default reasons, or None if the Workload has that status already."""
    if status is None:
        return None
    worded = _worded(status)
    return None if worded == (workload.get("status") or {}) else worded


def write_with_default_reasons(write: Write) -> Write:
    """A write with default reasons, if it is one of the status of a Workload."""
    status = write.body.get("status") if write.kind == WORKLOADS and write.subresource else None
    return write if status is None else replace(write, body={**write.body, "status": _worded(status)})


def _worded(status: Object) -> Object:
    conditions = [
        {**condition, "reason": default_reason(str(condition.get("reason", "")))}
        if condition.get("type") in (QUOTA_RESERVED, ADMITTED) and condition.get("status") == "False"
        else condition
        for condition in status.get("conditions") or ()
    ]
    return {**status, "conditions": conditions} if conditions else status
