"""Events about Workloads, as `kubectl describe` shows them and as tools parse them."""

from __future__ import annotations

import pytest

from bayplan.dialects.kueue.status.decisions import not_admitted
from bayplan.dialects.kueue.status.events import WorkloadEvent, events, reconcile_events, workload_event_write
from bayplan.dialects.kueue.status.reconcile import synced
from bayplan.model.assignment import Code, Exclusions, Misfit
from bayplan.model.node_rules import Taint
from bayplan.model.plan import Admit, EvictGang, EvictionReason, ReportNotAdmitted
from bayplan.model.queued_gang import Delayed
from bayplan.model.rejection import (
    AdmissionRemark,
    FlavorAttempt,
    FlavorMode,
    Obstacle,
    ObstacleKind,
    PodSetAttempts,
    Rejection,
    RejectionReason,
)
from tests.support.kueue_workloads import NOW, NOW_TEXT, Object, admission, condition, demand, workload_with

RESERVED = condition("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue tas-main")
QUEUED = "Quota reserved in ClusterQueue tas-main, wait time since queued was"
ADMITTED = ("Normal", "Admitted", "Admitted by ClusterQueue tas-main, wait time since reservation was 0s")
TAINT = Obstacle(ObstacleKind.TAINT, "flavor-a", taint=Taint("example.com/flavor", "a", "NoSchedule"))
NO_NODE = Misfit(Code.NO_ROOM, ("one",), "t", asked=1, excluded=Exclusions(6, resources={"cpu": 6}))
NO_NODE_TEXT = (
    "couldn't assign flavors to pod set one: topology \"t\" doesn't allow to fit any of 1 pod(s). "
    'Total nodes: 6; excluded: resource "cpu": 6'
)


def summaries(notices: list[WorkloadEvent]) -> list[tuple[str, str, str]]:
    return [(notice.kind, notice.reason, notice.message) for notice in notices]


def without_creation_time() -> Object:
    found = workload_with()
    del found["metadata"]["creationTimestamp"]
    return found


@pytest.mark.parametrize(
    ("before", "action", "want"),
    [
        (
            workload_with(),
            Admit(demand(), admission()),
            [("Normal", "QuotaReserved", f"{QUEUED} 100s"), ADMITTED],
        ),
        (
            without_creation_time(),
            Admit(demand(), admission()),
            [("Normal", "QuotaReserved", f"{QUEUED} 9223372037s"), ADMITTED],
        ),
        (
            workload_with(condition("Requeued", "True", "Preempted", "left", NOW_TEXT)),
            Admit(demand(), admission()),
            [("Normal", "QuotaReserved", f"{QUEUED} 0s"), ADMITTED],
        ),
        (
            workload_with(),
            Admit(
                demand(),
                admission(),
                tried=(
                    PodSetAttempts(
                        "ps-b",
                        attempts=(
                            FlavorAttempt(
                                "flavor-a", FlavorMode.NONE, 0, (TAINT,), RejectionReason.NO_FLAVOR
                            ),
                        ),
                    ),
                ),
            ),
            [
                (
                    "Normal",
                    "QuotaReserved",
                    f"{QUEUED} 100s; Flavors considered: ps-b: flavor-a(NoFit;untolerated taint "
                    "{example.com/flavor a NoSchedule <nil>} in flavor flavor-a)",
                ),
                ADMITTED,
            ],
        ),
        (
            workload_with(),
            Admit(demand(), admission(Delayed.PENDING, None), checks=("prov",)),
            [("Normal", "QuotaReserved", f"{QUEUED} 100s")],
        ),
        (workload_with(RESERVED), Admit(demand(given=admission()), admission()), [ADMITTED]),
        (
            workload_with(RESERVED, unhealthyNodes=[{"name": "x0"}]),
            Admit(demand(given=admission(), failed=("x0",)), admission()),
            [],
        ),
        (
            workload_with(),
            ReportNotAdmitted(
                demand(),
                Rejection(RejectionReason.NO_PLACE, tried=(PodSetAttempts("one", (NO_NODE,)),)),
            ),
            [("Warning", "TopologyPlacementFailed", NO_NODE_TEXT)],
        ),
        (
            workload_with(),
            ReportNotAdmitted(
                demand(), Rejection(RejectionReason.NO_QUOTA_NOW, remark=AdmissionRemark.OVERTAKEN)
            ),
            [("Warning", "WaitingForQuota", "Workload no longer fits after processing another workload")],
        ),
        (
            workload_with(),
            ReportNotAdmitted(
                demand(),
                Rejection(
                    RejectionReason.VICTIMS_LEAVING,
                    remark=AdmissionRemark.PREEMPTING,
                    tried=(PodSetAttempts("one", (NO_NODE,)),),
                    victims=1,
                ),
            ),
            [
                (
                    "Warning",
                    "WaitingForPreemptedWorkloads",
                    f"{NO_NODE_TEXT}. Pending the preemption of 1 workload(s)",
                )
            ],
        ),
        (
            workload_with(RESERVED),
            ReportNotAdmitted(
                demand(given=admission()),
                Rejection(RejectionReason.NO_PLACE, tried=(PodSetAttempts("one", (NO_NODE,)),)),
            ),
            [("Warning", "SecondPassFailed", NO_NODE_TEXT)],
        ),
        (
            workload_with(),
            ReportNotAdmitted(
                demand(), Rejection(RejectionReason.NO_PLACE, remark=AdmissionRemark.EQUIVALENT)
            ),
            [],
        ),
        (
            workload_with(RESERVED),
            EvictGang(demand(given=admission(), failed=("x0",)), EvictionReason.NODES_FAILED),
            [
                (
                    "Normal",
                    "EvictedDueToNodeFailures",
                    "Workload was evicted as there was no replacement for unhealthy node(s): x0",
                )
            ],
        ),
    ],
)
def test_events_of_actions_have_the_exact_words(
    before: Object, action: Admit | EvictGang | ReportNotAdmitted, want: list[tuple[str, str, str]]
) -> None:
    assert summaries(events(action, before, NOW)) == want


def test_a_preemption_is_an_event_of_both_gangs() -> None:
    by = demand("high", uid="wl-high", priority=3, labels={"kueue.x-k8s.io/job-uid": "job-high"})
    victim = demand(priority=-1, given=admission(queue="tas-cq-c"))
    action = EvictGang(victim, EvictionReason.RECLAIM, by, ("main", "tas-cq-c"), ("main", "tas-cq-a"))
    message = (
        "Preempted to accommodate a workload (UID: wl-high, JobUID: job-high) due to reclamation within the "
        "cohort; preemptor path: /main/tas-cq-a; preemptee path: /main/tas-cq-c"
    )
    ranks = (
        "preemptor effective priority: 3 (base: 3, boost: 0); "
        "preemptee effective priority: -1 (base: -1, boost: 0)"
    )
    lost = f"Preempted workload default/foo (UID: wl-foo) in ClusterQueue tas-cq-c; {ranks}"
    assert events(action, workload_with(RESERVED), NOW) == [
        WorkloadEvent("default", "foo", "wl-foo", "Normal", "EvictedDueToPreempted", message),
        WorkloadEvent("default", "foo", "wl-foo", "Normal", "Preempted", f"{message}; {ranks}"),
        WorkloadEvent("default", "high", "wl-high", "Normal", "PreemptedWorkload", lost),
    ]


def test_a_preemption_by_an_unknown_gang_says_so() -> None:
    action = EvictGang(demand(given=admission()), EvictionReason.PRIORITY, demand("high", uid=""))
    message = events(action, workload_with(RESERVED), NOW)[0].message
    assert "(UID: UNKNOWN, JobUID: UNKNOWN)" in message
    assert message.endswith("preemptor path: UNKNOWN; preemptee path: UNKNOWN")


def test_the_same_rejection_is_one_event() -> None:
    action = ReportNotAdmitted(
        demand(), Rejection(RejectionReason.NO_PLACE, tried=(PodSetAttempts("one", (NO_NODE,)),))
    )
    again = workload_with() | {"status": not_admitted(workload_with(), action, NOW)}
    assert events(action, again, NOW + 1) == []
    other = ReportNotAdmitted(demand(), Rejection(RejectionReason.NO_QUOTA_NOW, tried=action.rejection.tried))
    assert summaries(events(other, again, NOW + 1)) == [("Warning", "WaitingForQuota", NO_NODE_TEXT)]


def test_an_evicted_gang_gets_no_second_event() -> None:
    leaving = workload_with(RESERVED, condition("Evicted", "True", "Preempted", "for another"))
    assert (
        events(EvictGang(demand(given=admission()), EvictionReason.PRIORITY, demand("high")), leaving, NOW)
        == []
    )


def test_an_admission_after_its_checks_reports_their_duration() -> None:
    ready = {"name": "prov", "state": "Ready", "message": ""}
    before = workload_with(RESERVED, admission={"clusterQueue": "tas-main"}, admissionChecks=[ready])
    status = synced(before, ["prov"], NOW)
    assert status is not None
    assert summaries(reconcile_events(before, status, NOW)) == [
        ("Normal", "Admitted", "Admitted by ClusterQueue tas-main, wait time since reservation was 100s")
    ]


@pytest.mark.parametrize(
    ("state", "want"),
    [
        (
            "Rejected",
            (
                "Warning",
                "AdmissionCheckRejected",
                'Deactivated due to AdmissionCheck in Rejected state: "prov" (no)',
            ),
        ),
        (
            "Retry",
            (
                "Normal",
                "EvictedDueToAdmissionCheck",
                'Evicted due to AdmissionCheck in Retry state: "prov" (no)',
            ),
        ),
    ],
)
def test_a_rejected_or_retried_check_is_an_event(state: str, want: tuple[str, str, str]) -> None:
    said = {"name": "prov", "state": state, "message": "no"}
    before = workload_with(RESERVED, admission={"clusterQueue": "tas-main"}, admissionChecks=[said])
    status = synced(before, ["prov"], NOW)
    assert status is not None
    assert summaries(reconcile_events(before, status, NOW)) == [want]


def test_an_event_regards_the_workload() -> None:
    write = workload_event_write(
        WorkloadEvent("ns", "foo", "u-1", "Warning", "WaitingForQuota", "none left"), NOW
    )
    assert write.namespace == "ns"
    assert write.body["involvedObject"] == {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "namespace": "ns",
        "name": "foo",
        "uid": "u-1",
    }
    assert (write.body["type"], write.body["reason"], write.body["message"]) == (
        "Warning",
        "WaitingForQuota",
        "none left",
    )
