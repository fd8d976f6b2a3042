"""Reconciliation of a Workload's status: checks, evictions, stopped queues, backoff."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.dialects.kueue.status.reconcile import (
    QueueOnPath,
    apply_stop_policies,
    evicted_for,
    released,
    requeued,
    should_deactivate,
    synced,
)
from bayplan.model.quota import StopPolicy
from tests.support.kueue_workloads import EARLIER, NOW, NOW_TEXT, Object, condition, conditions, workload_with

RESERVED = condition("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue main")
ADMITTED = condition("Admitted", "True", "Admitted", "The workload is admitted")
NO_RESERVATION = ("False", "NoReservation", "The workload has no reservation")
ADMISSION = {"clusterQueue": "main", "podSetAssignments": [{"name": "one"}]}


def check(state: str, name: str = "prov", message: str = "", **more: object) -> Object:
    return {"name": name, "state": state, "message": message, "lastTransitionTime": EARLIER} | more


def reserved(*more: Object, **status: Any) -> Object:
    return workload_with(RESERVED, *more, admission=ADMISSION, **status)


def evicted_workload(why: str) -> Object:
    return reserved(ADMITTED, condition("Evicted", "True", why, "has to go"))


@pytest.mark.parametrize(
    ("why", "back"), [("Preempted", "True"), ("NodeFailures", "True"), ("AdmissionCheck", "False")]
)
def test_a_gang_whose_pods_are_removed_releases_its_quota_and_is_requeued(why: str, back: str) -> None:
    status = released(evicted_workload(why), NOW)
    assert status is not None
    assert "admission" not in status
    assert conditions(status) == {
        "QuotaReserved": ("False", "PendingEvaluation", "has to go"),
        "Admitted": NO_RESERVATION,
        "Evicted": ("True", why, "has to go"),
        "Requeued": (back, why, "has to go"),
    }
    assert status["accumulatedPastExecutionTimeSeconds"] == 100


def test_a_gang_of_a_single_pod_is_not_requeued() -> None:
    alone = evicted_workload("Preempted")
    alone["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": "p"}]
    assert conditions(released(alone, NOW))["Requeued"][0] == "False"
    alone["metadata"]["annotations"] = {"kueue.x-k8s.io/is-group-workload": "true"}
    assert conditions(released(alone, NOW))["Requeued"][0] == "True"


def test_only_an_evicted_gang_with_quota_is_released() -> None:
    assert released(reserved(ADMITTED), NOW) is None
    assert released(workload_with(condition("Evicted", "True", "Preempted", "gone")), NOW) is None
    once = released(evicted_workload("Preempted"), NOW)
    assert released(workload_with() | {"status": once}, NOW) is None


def test_a_gang_is_admitted_when_its_last_check_is_ready() -> None:
    waiting = condition(
        "Admitted", "False", "UnsatisfiedAdmissionChecks", "The workload has not all checks ready"
    )
    before = reserved(waiting, admissionChecks=[check("Ready"), check("Pending", "other")])
    assert synced(before, ["prov", "other"], NOW) is None
    before["status"]["admissionChecks"][1]["state"] = "Ready"
    status = synced(before, ["prov", "other"], NOW)
    assert conditions(status)["Admitted"] == ("True", "Admitted", "The workload is admitted")


def test_a_gang_with_a_pending_topology_request_is_not_admitted() -> None:
    delayed = {"clusterQueue": "main", "podSetAssignments": [{"delayedTopologyRequest": "Pending"}]}
    before = workload_with(RESERVED, admission=delayed, admissionChecks=[check("Ready")])
    assert conditions(synced(before, ["prov"], NOW))["Admitted"][1] == "PendingDelayedTopologyRequests"


def test_checks_come_and_go_with_the_queue() -> None:
    status = synced(
        workload_with(admissionChecks=[check("Ready", "old"), check("Ready", "b")]), ["b", "a"], NOW
    )
    assert status == {
        "admissionChecks": [check("Pending", "a") | {"lastTransitionTime": NOW_TEXT}, check("Ready", "b")]
    }
    assert synced(workload_with(admissionChecks=[check("Ready")]), [], NOW) == {}


def test_a_rejected_check_deactivates() -> None:
    before = reserved(ADMITTED, admissionChecks=[check("Rejected", "z", "no"), check("Rejected", "a")])
    status = synced(before, ["a", "z"], NOW)
    message = 'AdmissionChecks in Rejected state: "a"; "z" (no)'
    assert conditions(status)["DeactivationTarget"] == ("True", "AdmissionCheck", message)
    after = before | {"status": status}
    assert should_deactivate(after) and synced(after, ["a", "z"], NOW) is None
    after["spec"]["active"] = False
    assert not should_deactivate(after)
    final = synced(after, ["a", "z"], NOW)
    assert final is not None
    assert conditions(final)["Evicted"] == (
        "True",
        "DeactivatedDueToAdmissionCheck",
        f"The workload is deactivated due to {message}",
    )
    assert "DeactivationTarget" not in conditions(final)
    assert final["schedulingStats"]["evictions"] == [
        {"reason": "Deactivated", "underlyingCause": "AdmissionCheck", "count": 1}
    ]
    assert synced(after | {"status": final}, ["a", "z"], NOW) is None


def test_a_check_in_retry_state_evicts_the_gang_until_its_backoff_ends() -> None:
    before = reserved(admissionChecks=[check("Retry", message="busy", requeueAfterSeconds=160)])
    status = synced(before, ["prov"], NOW)
    assert status is not None
    message = 'Evicted due to AdmissionCheck in Retry state: "prov" (busy)'
    assert conditions(status)["Evicted"] == ("True", "AdmissionCheck", message)
    assert status["requeueState"] == {"requeueAt": "1970-01-12T13:47:40Z"}
    assert status["admissionChecks"][0]["state"] == "Pending"
    assert status["admissionChecks"][0]["retryCount"] == 1
    waiting = before | {"status": released(before | {"status": status}, NOW)}
    assert synced(waiting, ["prov"], NOW + 59) is None
    back = synced(waiting, ["prov"], NOW + 60)
    assert back is not None
    assert conditions(back)["Requeued"] == ("True", "BackoffFinished", "The workload backoff was finished")
    assert "requeueState" not in back


def test_a_pending_gang_that_is_deactivated_may_be_reactivated() -> None:
    before = workload_with(requeueState={"count": 2})
    before["spec"]["active"] = False
    status = synced(before, [], NOW)
    assert status is not None
    assert conditions(status) == {
        "Evicted": ("True", "Deactivated", "The workload is deactivated"),
        "QuotaReserved": ("False", "Deactivated", "The workload is deactivated"),
        "Admitted": NO_RESERVATION,
    }
    assert "requeueState" not in status


def test_a_reactivated_gang_is_requeued() -> None:
    status = synced(workload_with(condition("Requeued", "False", "Deactivated", "off")), [], NOW)
    assert conditions(status)["Requeued"] == ("True", "Reactivated", "The workload was reactivated")


def test_a_finished_gang_is_unchanged() -> None:
    done = workload_with(condition("Finished", "True", "Succeeded", ""), admissionChecks=[check("Ready")])
    assert synced(done, [], NOW) is None


def test_an_evicted_gang_is_not_admitted() -> None:
    assert synced(reserved(condition("Evicted", "True", "Preempted", "go")), [], NOW) is None


def test_a_stopped_queue_evicts_its_gangs_and_requeues_them_when_restarted() -> None:
    status = evicted_for(reserved(ADMITTED), "ClusterQueueStopped", "The ClusterQueue is stopped", NOW)
    assert conditions(status)["Evicted"] == ("True", "ClusterQueueStopped", "The ClusterQueue is stopped")
    gone = workload_with() | {"status": status}
    assert evicted_for(gone, "ClusterQueueStopped", "The ClusterQueue is stopped", NOW) is None
    out = released(gone, NOW)
    assert conditions(out)["Requeued"][0] == "False"
    text = "The ClusterQueue was restarted after being stopped"
    back = requeued(workload_with() | {"status": out}, "ClusterQueueRestarted", text, NOW)
    assert conditions(back)["Requeued"] == ("True", "ClusterQueueRestarted", text)


def queues_on_path(
    entrance: StopPolicy | None = StopPolicy.OPEN, queue: StopPolicy | None = StopPolicy.OPEN
) -> list[QueueOnPath]:
    return [QueueOnPath("LocalQueue", "main", entrance), QueueOnPath("ClusterQueue", "pool", queue)]


@pytest.mark.parametrize(
    ("kind", "drained"),
    [
        ("LocalQueue", queues_on_path(entrance=StopPolicy.DRAIN)),
        ("ClusterQueue", queues_on_path(queue=StopPolicy.DRAIN)),
    ],
)
def test_a_draining_queue_evicts_admitted_gangs(kind: str, drained: list[QueueOnPath]) -> None:
    status = apply_stop_policies(reserved(ADMITTED), drained, NOW)
    assert conditions(status)["Evicted"] == ("True", f"{kind}Stopped", f"The {kind} is stopped")
    gone = workload_with() | {"status": status}
    assert apply_stop_policies(gone, drained, NOW) is None
    out = workload_with() | {"status": released(gone, NOW)}
    told = apply_stop_policies(out, drained, NOW)
    name = "main" if kind == "LocalQueue" else "pool"
    assert conditions(told)["QuotaReserved"] == ("False", "Suspended", f"{kind} {name} is inactive")
    back = apply_stop_policies(workload_with() | {"status": told}, queues_on_path(), NOW)
    text = f"The {kind} was restarted after being stopped"
    assert conditions(back)["Requeued"] == ("True", f"{kind}Restarted", text)
    assert apply_stop_policies(workload_with() | {"status": back}, queues_on_path(), NOW) is None


def test_a_queue_on_hold_keeps_admitted_gangs_and_releases_the_quota_of_others() -> None:
    assert apply_stop_policies(reserved(ADMITTED), queues_on_path(queue=StopPolicy.HOLD), NOW) is None
    for stop in (StopPolicy.HOLD, StopPolicy.DRAIN):
        status = apply_stop_policies(reserved(), queues_on_path(queue=stop), NOW)
        assert status is not None and "admission" not in status
        assert conditions(status)["QuotaReserved"] == ("False", "Suspended", "ClusterQueue pool is stopped")
    outside = apply_stop_policies(workload_with(), queues_on_path(queue=StopPolicy.HOLD), NOW)
    assert conditions(outside)["QuotaReserved"] == ("False", "Suspended", "ClusterQueue pool is inactive")


def test_a_missing_queue_is_named() -> None:
    status = apply_stop_policies(workload_with(), queues_on_path(entrance=None)[:1], NOW)
    assert conditions(status)["QuotaReserved"] == ("False", "Misconfigured", "LocalQueue main doesn't exist")
    status = apply_stop_policies(reserved(), queues_on_path(queue=None), NOW)
    told = "ClusterQueue pool is terminating or missing"
    assert conditions(status)["QuotaReserved"] == ("False", "Misconfigured", told)
    assert apply_stop_policies(reserved(ADMITTED), queues_on_path(queue=None), NOW) is None
    assert apply_stop_policies(reserved(ADMITTED), queues_on_path(), NOW) is None


def test_stop_policies_do_not_affect_evicted_or_finished_gangs() -> None:
    assert (
        apply_stop_policies(evicted_workload("Preempted"), queues_on_path(queue=StopPolicy.DRAIN), NOW)
        is None
    )
    done = reserved(ADMITTED, condition("Finished", "True", "Succeeded", ""))
    assert apply_stop_policies(done, queues_on_path(queue=StopPolicy.DRAIN), NOW) is None
