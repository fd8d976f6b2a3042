"""The status of a Workload after an admission decision."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from bayplan.dialects.kueue.status.decisions import admitted, evicted, not_admitted
from bayplan.model.assignment import Code, Misfit, NearMiss
from bayplan.model.plan import Admit, EvictGang, EvictionReason, ReportNotAdmitted
from bayplan.model.queued_gang import Delayed
from bayplan.model.rejection import (
    AdmissionRemark,
    Obstacle,
    ObstacleKind,
    PodSetAttempts,
    Rejection,
    RejectionReason,
)
from tests.support.kueue_workloads import (
    EARLIER,
    NOW,
    NOW_TEXT,
    Object,
    admission,
    condition,
    conditions,
    demand,
    workload_with,
)

RESERVED = ("True", "QuotaReserved", "Quota reserved in ClusterQueue tas-main")
ADMITTED = ("True", "Admitted", "The workload is admitted")
NO_RESERVATION = ("False", "NoReservation", "The workload has no reservation")
UNSATISFIED = ("False", "UnsatisfiedAdmissionChecks", "The workload has not all checks ready")
SHORT = PodSetAttempts("one", (Obstacle(ObstacleKind.SHORT, "default", "cpu", amounts=(1000,)),))
SHORT_TEXT = (
    "couldn't assign flavors to pod set one: insufficient unused quota for cpu in flavor default, "
    "1 more needed"
)


def check(state: str, name: str = "prov", **more: object) -> Object:
    return {"name": name, "state": state, "message": "", "lastTransitionTime": EARLIER} | more


def held(*more: Object, generation: int = 0, **status: Any) -> Object:
    """A Workload that is admitted."""
    return workload_with(
        condition("QuotaReserved", "True", *RESERVED[1:]),
        condition("Admitted", "True", *ADMITTED[1:]),
        *more,
        generation=generation,
        admission={"clusterQueue": "tas-main", "podSetAssignments": [{"name": "one"}]},
        **status,
    )


def test_a_gang_without_checks_is_admitted_at_once() -> None:
    status = admitted(workload_with(generation=3), Admit(demand(), admission()), NOW)
    assert status == {
        "admission": {
            "clusterQueue": "tas-main",
            "podSetAssignments": [
                {
                    "name": "one",
                    "count": 1,
                    "flavors": {"cpu": "tas-default", "memory": "tas-default"},
                    "resourceUsage": {"cpu": "500m", "memory": "2Gi"},
                    "topologyAssignment": {
                        "levels": ["kubernetes.io/hostname"],
                        "slices": [
                            {
                                "domainCount": 1,
                                "valuesPerLevel": [{"universal": "x1"}],
                                "podCounts": {"universal": 1},
                            }
                        ],
                    },
                }
            ],
        },
        "conditions": [
            condition("QuotaReserved", "True", *RESERVED[1:], NOW_TEXT, observedGeneration=3),
            condition("Admitted", "True", *ADMITTED[1:], NOW_TEXT, observedGeneration=3),
        ],
    }


def test_admitting_twice_writes_once() -> None:
    before = workload_with()
    status = admitted(before, Admit(demand(), admission()), NOW)
    assert admitted(before | {"status": status}, Admit(demand(), admission()), NOW + 60) is None


def test_checks_start_as_pending_and_block_the_admission() -> None:
    action = Admit(demand(), admission(Delayed.PENDING, None), checks=("b", "a"))
    status = admitted(
        workload_with(admissionChecks=[check("Ready", "b"), check("Ready", "gone")]), action, NOW
    )
    assert status is not None
    assert status["admissionChecks"] == [
        check("Pending", "a") | {"lastTransitionTime": NOW_TEXT},
        check("Ready", "b"),
    ]
    assert status["admission"]["podSetAssignments"][0]["delayedTopologyRequest"] == "Pending"
    assert conditions(status) == {"QuotaReserved": RESERVED, "Admitted": UNSATISFIED}


def test_a_pending_placement_blocks_the_admission() -> None:
    action = Admit(demand(), admission(Delayed.PENDING, None), checks=("prov",))
    status = admitted(workload_with(admissionChecks=[check("Ready")]), action, NOW)
    assert conditions(status)["Admitted"] == (
        "False",
        "PendingDelayedTopologyRequests",
        "There are pending delayed topology requests",
    )


def test_a_second_pass_that_places_the_gang_admits_it() -> None:
    first = workload_with(admissionChecks=[check("Ready")])
    pending = admitted(first, Admit(demand(), admission(Delayed.PENDING, None), checks=("prov",)), NOW)
    action = Admit(demand(given=admission()), admission(Delayed.READY), checks=("prov",))
    status = admitted(first | {"status": pending}, action, NOW + 9)
    assert status is not None
    assert status["admission"]["podSetAssignments"][0]["delayedTopologyRequest"] == "Ready"
    assert conditions(status) == {"QuotaReserved": RESERVED, "Admitted": ADMITTED}
    assert [c["lastTransitionTime"] for c in status["conditions"]] == [NOW_TEXT, "1970-01-12T13:46:49Z"]


def test_reserving_quota_again_resets_eviction_and_preemption() -> None:
    before = workload_with(
        condition("QuotaReserved", "False", "PendingEvaluation", "left"),
        condition("Evicted", "True", "Preempted", "for another"),
        condition("Preempted", "True", "InClusterQueue", "for another"),
        condition("Requeued", "True", "Preempted", "for another"),
        unhealthyNodes=[{"name": "x0"}],
        resourceRequests=[{"name": "one"}],
        requeueState={"count": 1},
    )
    status = admitted(before, Admit(demand(), admission()), NOW)
    assert status is not None
    ended = ("False", "QuotaReserved", "Previously: for another")
    assert conditions(status) == {
        "QuotaReserved": RESERVED,
        "Evicted": ended,
        "Preempted": ended,
        "Requeued": ("True", "Preempted", "for another"),
        "Admitted": ADMITTED,
    }
    assert "unhealthyNodes" not in status and "resourceRequests" not in status
    assert status["requeueState"] == {"count": 1}


def test_a_rejection_is_reported_with_the_requests() -> None:
    action = ReportNotAdmitted(demand(), Rejection(RejectionReason.NO_QUOTA_NOW, tried=(SHORT,)))
    status = not_admitted(workload_with(requeueState={"count": 1}), action, NOW)
    assert status == {
        "requeueState": {"count": 1},
        "conditions": [
            condition("QuotaReserved", "False", "WaitingForQuota", SHORT_TEXT, NOW_TEXT),
            condition("Admitted", "False", *NO_RESERVATION[1:], NOW_TEXT),
        ],
        "resourceRequests": [{"name": "one", "resources": {"cpu": "1", "memory": "2Gi"}}],
    }


def test_a_second_rejection_changes_the_message_but_not_the_transition_time() -> None:
    first = not_admitted(
        workload_with(),
        ReportNotAdmitted(demand(), Rejection(RejectionReason.NO_QUOTA_NOW, tried=(SHORT,))),
        NOW,
    )
    again = workload_with() | {"status": first}
    assert (
        not_admitted(
            again,
            ReportNotAdmitted(demand(), Rejection(RejectionReason.NO_QUOTA_NOW, tried=(SHORT,))),
            NOW + 60,
        )
        is None
    )
    other = not_admitted(
        again,
        ReportNotAdmitted(
            demand(), Rejection(RejectionReason.NO_QUOTA_NOW, remark=AdmissionRemark.OVERTAKEN)
        ),
        NOW + 60,
    )
    assert other is not None
    assert conditions(other)["QuotaReserved"][2].startswith("Workload no longer fits")
    assert {c["lastTransitionTime"] for c in other["conditions"]} == {NOW_TEXT}


def test_hints_follow_the_message_that_tools_parse() -> None:
    near = NearMiss(("r1",), "rack", 1, 1, "cpu", 500)
    misfit = Misfit(Code.NO_ROOM, ("one",), "default", fit=1, asked=2, nearest=near)
    action = ReportNotAdmitted(
        demand(), Rejection(RejectionReason.NO_PLACE, tried=(PodSetAttempts("one", (misfit,)),))
    )
    _, why, message = conditions(not_admitted(workload_with(), action, NOW, ["team/other"]))["QuotaReserved"]
    assert why == "TopologyPlacementFailed"
    assert message == (
        'couldn\'t assign flavors to pod set one: topology "default" allows to fit only 1 out of 2 pod(s). '
        "Closest is rack r1: 1 of 2 pod(s) fit, limited by cpu: 500m more needed. Held there by "
        "team/other. To be admitted: free or add 500m cpu there, or ask for 1 pod(s)."
    )


@pytest.mark.parametrize("given", [None, admission()])
def test_a_gang_that_holds_quota_keeps_it_when_its_placement_fails(given: object) -> None:
    action = ReportNotAdmitted(demand(given=admission()), Rejection(RejectionReason.NO_PLACE, tried=(SHORT,)))
    assert not_admitted(held() if given is None else workload_with(), action, NOW) is None


def evict(why: EvictionReason = EvictionReason.PRIORITY, failed: tuple[str, ...] = ()) -> EvictGang:
    by = demand("high", uid="wl-high", priority=3, labels={"kueue.x-k8s.io/job-uid": "job-high"})
    return EvictGang(demand(given=admission(), failed=failed), why, by, ("top", "team-a"), ("top", "team-b"))


@pytest.mark.parametrize(
    ("why", "short", "words"),
    [
        (EvictionReason.PRIORITY, "InClusterQueue", "prioritization in the ClusterQueue"),
        (EvictionReason.RECLAIM, "InCohortReclamation", "reclamation within the cohort"),
        (
            EvictionReason.RECLAIM_WHILE_BORROWING,
            "InCohortReclaimWhileBorrowing",
            "reclamation within the cohort while borrowing",
        ),
        (EvictionReason.FAIR_SHARE, "InCohortFairSharing", "Fair Sharing within the cohort"),
    ],
)
def test_a_preempted_gang_names_preemptor_and_reason(why: EvictionReason, short: str, words: str) -> None:
    status = evicted(held(), evict(why), NOW)
    assert status is not None
    message = (
        f"Preempted to accommodate a workload (UID: wl-high, JobUID: job-high) due to {words}; "
        "preemptor path: /top/team-b; preemptee path: /top/team-a"
    )
    assert conditions(status) == {
        "QuotaReserved": RESERVED,
        "Admitted": ADMITTED,
        "Preempted": ("True", short, message),
        "Evicted": ("True", "Preempted", message),
    }
    assert status["schedulingStats"] == {
        "evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 1}]
    }
    assert status["admission"]["clusterQueue"] == "tas-main"


def test_the_generation_is_observed_in_all_conditions_but_preempted() -> None:
    status = evicted(held(generation=4), evict(), NOW)
    assert status is not None
    observed = {c["type"]: c.get("observedGeneration") for c in status["conditions"]}
    assert observed["Evicted"] == 4 and observed["Preempted"] is None


def test_a_gang_without_replacement_for_its_nodes_is_evicted() -> None:
    before = held(
        unhealthyNodes=[{"name": "x0"}, {"name": "x1"}],
        clusterName="elsewhere",
        admissionChecks=[
            check("Ready", retryCount=1, podSetUpdates=[{"name": "one"}]),
            check("Pending", "q"),
        ],
        schedulingStats={"evictions": [{"reason": "NodeFailures", "underlyingCause": "", "count": 1}]},
        preemptionGates=[{"name": "g", "position": "Open", "lastTransitionTime": EARLIER}],
    )
    kept = copy.deepcopy(before)
    status = evicted(before, evict(EvictionReason.NODES_FAILED, ("x0", "x1")), NOW)
    assert before == kept, "the Workload that was given is not changed"
    assert status is not None
    assert conditions(status)["Evicted"] == (
        "True",
        "NodeFailures",
        "Workload was evicted as there was no replacement for unhealthy node(s): x0,x1",
    )
    assert "Preempted" not in conditions(status)
    assert "unhealthyNodes" not in status and "clusterName" not in status
    assert status["admissionChecks"] == [
        check("Pending")
        | {
            "message": "Reset to Pending after eviction. Previously: Ready",
            "lastTransitionTime": NOW_TEXT,
        },
        check("Pending", "q"),
    ]
    assert status["schedulingStats"]["evictions"][0]["count"] == 2
    assert status["preemptionGates"][0] == {"name": "g", "position": "Closed", "lastTransitionTime": NOW_TEXT}


def test_an_evicted_gang_is_not_evicted_again() -> None:
    leaving = held(condition("Evicted", "True", "Preempted", "for another"))
    assert evicted(leaving, evict(), NOW) is None
