"""Evictions of Workloads of started jobs: deadlines that begin them, the release of quota that ends them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayplan.dialects.kueue.jobs import status as job_statuses
from bayplan.dialects.kueue.jobs.status import PodsReadyPolicy
from bayplan.dialects.kueue.jobs.writes import WARNING, WriteWithEvents, event_about, with_status
from bayplan.dialects.kueue.status.conditions import EVICTED, condition_of, is_true
from bayplan.dialects.kueue.status.reconcile import released

Object = dict[str, Any]


def finish_eviction(
    stopping: list[WriteWithEvents],
    workload: Object,
    active: bool,
    now: float,
    reclaimable: Mapping[str, int] | None = None,
) -> list[WriteWithEvents]:
    """Stop an evicted job; once it has no active pods, release the quota of its Workload.

    From then on it may be admitted at any moment, so the pods that it needs no longer are counted anew in the
    same write.
    """
    if stopping or active:
        return stopping
    status = released(workload, now)
    if status is None:
        return []
    if reclaimable is not None:
        status = job_statuses.reclaimed({**workload, "status": status}, reclaimable) or status
    return [with_status(workload, status)]


def enforce_deadlines(workload: Object, policy: PodsReadyPolicy | None, now: float) -> list[WriteWithEvents]:
    """Evict or deactivate a Workload whose pods are not ready in time, or that ran for too long."""
    status = job_statuses.execution_timed_out(workload, now)
    if status is not None:
        seconds = workload["spec"]["maximumExecutionTimeSeconds"]
        message = f"The maximum execution time ({seconds}s) exceeded"
        event = event_about(workload, "MaximumExecutionTimeExceeded", message, now, WARNING)
        return [with_status(workload, status, event)]
    status = None if policy is None else job_statuses.pods_ready_timed_out(workload, policy, now)
    if status is None:
        return []
    eviction = condition_of({"status": status}, EVICTED)
    if eviction is None or is_true(workload, EVICTED) or eviction.get("status") != "True":
        return [with_status(workload, status)]
    why = f"EvictedDueTo{job_statuses.PODS_READY_TIMEOUT}"
    return [with_status(workload, status, event_about(workload, why, eviction["message"], now))]


def eviction_message(workload: Object) -> str:
    """The message of the Evicted condition of a Workload."""
    return str((condition_of(workload, EVICTED) or {}).get("message", ""))
