"""What queues, cohorts and checks say about themselves, field by field."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from bayplan.dialects.kueue.names.annotations import IN_USE
from bayplan.dialects.kueue.status import queue_status
from bayplan.model.quota import Quota
from bayplan.model.summary import (
    CellUse,
    Flaw,
    GangCounts,
    NamespaceQueueSummary,
    QueueFault,
    QueueSummary,
    SharedSummary,
    Summaries,
)
from tests.support.kueue_workloads import EARLIER, NOW, NOW_TEXT, condition, conditions

Object = dict[str, Any]
CELLS = (
    CellUse("big", "cpu", Quota(1000), 2500, 500, can_borrow=True),
    CellUse("big", "memory", Quota(1 << 30), 1 << 30, 0, can_borrow=True),
    CellUse("small", "cpu", Quota(0), 0, 0, can_borrow=True),
)
COUNTS = GangCounts(ready=2, inadmissible=3, reserving=4, admitted=1)
QUEUE = QueueSummary("q", COUNTS, CELLS)
ENTRANCE = NamespaceQueueSummary("ns", "main", "q", COUNTS, CELLS)
READY = ("True", "Ready", "Can admit new workloads")


def obj(*told: Object, generation: int = 0, name: str = "q", **meta: Any) -> Object:
    status = {"status": {"conditions": list(told)}} if told else {}
    return {"metadata": {"name": name, "generation": generation, **meta}} | status


def faulty(*faults: QueueFault) -> tuple[str, str, str]:
    return conditions(queue_status.cluster_queue(obj(), QueueSummary("q", faults=faults), NOW))["Active"]


def test_a_cluster_queue_tells_its_counts_and_amounts() -> None:
    status = queue_status.cluster_queue(obj(generation=3), QUEUE, NOW)
    reserved = [
        {
            "name": "big",
            "resources": [
                {"name": "cpu", "total": "2500m", "borrowed": "1500m"},
                {"name": "memory", "total": "1Gi", "borrowed": "0"},
            ],
        },
        {"name": "small", "resources": [{"name": "cpu", "total": "0", "borrowed": "0"}]},
    ]
    used = [
        {
            "name": "big",
            "resources": [
                {"name": "cpu", "total": "500m", "borrowed": "0"},
                {"name": "memory", "total": "0", "borrowed": "0"},
            ],
        },
        {"name": "small", "resources": [{"name": "cpu", "total": "0", "borrowed": "0"}]},
    ]
    active = condition("Active", *READY, at=NOW_TEXT, observedGeneration=3)
    assert status == {
        "pendingWorkloads": 5,
        "reservingWorkloads": 4,
        "admittedWorkloads": 1,
        "flavorsReservation": reserved,
        "flavorsUsage": used,
        "conditions": [active],
    }
    assert queue_status.cluster_queue(obj(generation=3) | {"status": status}, QUEUE, NOW + 5) is None


def test_a_transition_is_dated_only_when_the_status_turns() -> None:
    before = condition("Active", *READY, observedGeneration=1)
    stopped = QueueSummary("q", faults=(QueueFault(Flaw.STOPPED, ("q",)),))
    same = queue_status.cluster_queue(obj(before, generation=2), QUEUE, NOW)
    turned = queue_status.cluster_queue(obj(before, generation=2), stopped, NOW)
    assert same is not None and turned is not None
    assert [(c["lastTransitionTime"], c["observedGeneration"]) for c in same["conditions"]] == [(EARLIER, 2)]
    assert turned["conditions"][0]["lastTransitionTime"] == NOW_TEXT


def test_other_conditions_are_left_alone() -> None:
    other = condition("Other", "True", "Because", "of that")
    status = queue_status.cluster_queue(obj(other), QUEUE, NOW)
    assert conditions(status) == {"Other": ("True", "Because", "of that"), "Active": READY}


@pytest.mark.parametrize(
    ("faults", "reason", "words"),
    [
        ((QueueFault(Flaw.STOPPED, ("q",)),), "Stopped", "is stopped"),
        (
            (QueueFault(Flaw.FLAVOR_MISSING, ("b", "a")),),
            "FlavorNotFound",
            "references missing ResourceFlavor(s): b,a",
        ),
        (
            (QueueFault(Flaw.CHECK_MISSING, ("x",)), QueueFault(Flaw.CHECK_INACTIVE, ("y", "z"))),
            "AdmissionCheckNotFound",
            "references missing AdmissionCheck(s): x, references inactive AdmissionCheck(s): y,z",
        ),
        (
            (QueueFault(Flaw.SEVERAL_MULTI_CLUSTER, ("x", "y")),),
            "MultipleMultiKueueAdmissionChecks",
            "Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: x,y",
        ),
        (
            (QueueFault(Flaw.TOPOLOGY_MISSING, ("tas", "dc")),),
            "TopologyNotFound",
            'there is no Topology "dc" for TAS flavor "tas"',
        ),
        ((QueueFault(Flaw.CYCLE, ("c",)),), "CohortCycle", "the Cohort is its own ancestor: c"),
    ],
)
def test_what_is_amiss_is_told_together(faults: tuple[QueueFault, ...], reason: str, words: str) -> None:
    assert faulty(*faults) == ("False", reason, f"Can't admit new workloads: {words}.")


def test_what_has_no_words_is_unknown_and_every_flaw_is_told_somehow() -> None:
    assert faulty(QueueFault(Flaw.OTHER, ("x",))) == ("False", "Unknown", "Can't admit new workloads.")
    for flaw in Flaw:
        assert faulty(QueueFault(flaw, ("a", "b")))[0] == "False"


def test_a_queue_that_is_deleted_says_only_that() -> None:
    leaving = obj(deletionTimestamp=EARLIER)
    for faults in ((), (QueueFault(Flaw.STOPPED, ("q",)),)):
        status = queue_status.cluster_queue(leaving, QueueSummary("q", faults=faults), NOW)
        told = "Can't admit new workloads; clusterQueue is terminating"
        assert conditions(status)["Active"] == ("False", "Terminating", told)


@pytest.mark.parametrize(
    ("share", "told"),
    [
        (None, None),
        (0.0, {"weightedShare": 0}),
        (214.2, {"weightedShare": 215}),
        (inf, {"weightedShare": 2**63 - 1}),
    ],
)
def test_shares_are_whole_numbers(share: float | None, told: Object | None) -> None:
    before = {"status": {"fairSharing": {"weightedShare": 7}}}
    queue = queue_status.cluster_queue(obj() | before, QueueSummary("q", share=share), NOW)
    cohort = queue_status.cohort(obj() | before, SharedSummary("c", share=share), NOW)
    assert queue is not None and cohort is not None
    assert queue.get("fairSharing") == cohort.get("fairSharing") == told
    assert queue_status.cohort(obj() | {"status": cohort}, SharedSummary("c", share=share), NOW) is None


def test_a_local_queue_tells_its_own_numbers_and_nothing_of_borrowing() -> None:
    consumed = {"weightedShare": 3}
    status = queue_status.local_queue(obj() | {"status": {"fairSharing": consumed}}, ENTRANCE, NOW)
    assert status is not None
    assert status["flavorsReservation"][0] == {
        "name": "big",
        "resources": [{"name": "cpu", "total": "2500m"}, {"name": "memory", "total": "1Gi"}],
    }
    assert [status[f"{what}Workloads"] for what in ("pending", "reserving", "admitted")] == [5, 4, 1]
    assert status["fairSharing"] == consumed, "kept by others"
    assert conditions(status)["Active"] == ("True", "Ready", "Can submit new workloads to localQueue")


def test_a_local_queue_says_why_nobody_gets_through() -> None:
    def told(**more: bool) -> tuple[str, str, str]:
        summary = NamespaceQueueSummary("ns", "main", "q", COUNTS, **more)  # type: ignore[arg-type]
        return conditions(queue_status.local_queue(obj(), summary, NOW))["Active"]

    closed = "Can't submit new workloads to clusterQueue"
    assert told(stopped=True) == ("False", "Stopped", "LocalQueue is stopped")
    assert told(queue_active=False) == ("False", "ClusterQueueIsInactive", closed)
    assert told(queue_known=False, queue_active=False) == ("False", "ClusterQueueDoesNotExist", closed)


def test_before_a_cluster_queue_that_is_not_there_only_those_in_line_are_counted() -> None:
    summary = NamespaceQueueSummary("ns", "main", "q", COUNTS, queue_known=False, queue_active=False)
    status = queue_status.local_queue(obj() | {"status": {"flavorsUsage": [{"name": "old"}]}}, summary, NOW)
    assert status is not None
    assert [status[f"{what}Workloads"] for what in ("pending", "reserving", "admitted")] == [5, 0, 0]
    assert "flavorsUsage" not in status


CONFIG = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "c"}


@pytest.mark.parametrize(
    ("parameters", "trouble"),
    [
        (CONFIG, ""),
        (None, "missing parameters reference"),
        (CONFIG | {"name": ""}, "empty name: bad parameters reference"),
        (
            CONFIG | {"apiGroup": "x"},
            'wrong group "x", expecting "kueue.x-k8s.io": bad parameters reference',
        ),
        (
            CONFIG | {"kind": "X"},
            'wrong kind "X", expecting "ProvisioningRequestConfig": bad parameters reference',
        ),
        (CONFIG | {"name": "d"}, 'ProvisioningRequestConfig.kueue.x-k8s.io "d" not found'),
    ],
)
def test_a_check_is_active_when_its_parameters_are_there(parameters: Object | None, trouble: str) -> None:
    spec = {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters}
    status = queue_status.admission_check(obj() | {"spec": spec}, {"c"}, NOW)
    told = ("False", "BadParametersRef", trouble)
    assert conditions(status)["Active"] == (
        told if trouble else ("True", "Active", "The admission check is active")
    )
    assert queue_status.admission_check(obj() | {"spec": spec, "status": status}, {"c"}, NOW + 1) is None


def test_checks_of_others_are_theirs_to_answer_for() -> None:
    assert queue_status.admission_check(obj() | {"spec": {"controllerName": "theirs"}}, (), NOW) is None


SUMMARIES = Summaries(
    {"used": QueueSummary("used", COUNTS), "free": QueueSummary("free", GangCounts(ready=3))},
    flavors_in_use=frozenset({"used"}),
    checks_in_use=frozenset({"used"}),
    topologies_in_use=frozenset({"used"}),
)


@pytest.mark.parametrize("kind", ["ClusterQueue", "ResourceFlavor", "Topology", "AdmissionCheck"])
def test_what_others_need_stays_until_they_have_let_go(kind: str) -> None:
    def told(name: str, *there: str, leaving: bool = True) -> list[str] | None:
        meta: Object = {"deletionTimestamp": EARLIER} if leaving else {}
        return queue_status.finalizers(kind, obj(name=name, finalizers=list(there), **meta), SUMMARIES)

    assert told("used", "theirs", leaving=False) == ["theirs", IN_USE]
    assert told("used", IN_USE, leaving=False) is None
    assert told("used", IN_USE) is None
    assert told("free", "theirs", IN_USE) == ["theirs"]
    if kind != "ClusterQueue":  # which is protected before gangs come
        assert told("free", IN_USE, leaving=False) == [], "what nobody uses can be deleted without us"
        assert told("free", leaving=False) is None
    assert told("used", "theirs") is None, "nothing is added to what is going away"


def test_every_queue_is_protected_before_the_first_gang_comes_to_it() -> None:
    unused = Summaries({"q": QueueSummary("q", GangCounts())})
    assert queue_status.finalizers("ClusterQueue", obj(), unused) == [IN_USE]
    leaving = obj(finalizers=[IN_USE], deletionTimestamp=EARLIER)
    assert queue_status.finalizers("ClusterQueue", leaving, unused) == [], "nothing has quota from it"


def test_a_queue_whose_finalizer_is_refused_says_so() -> None:
    status = queue_status.cluster_queue(obj(), QueueSummary("q", GangCounts()), NOW, "patching is forbidden")
    assert conditions(status)["Active"] == (
        "False",
        "NotProtected",
        "Can't admit new workloads: its finalizer kueue.x-k8s.io/resource-in-use was refused "
        "(patching is forbidden); let Bayplan patch ClusterQueues.",
    )


@pytest.mark.parametrize("kind", ["LocalQueue", "Cohort", "Workload"])
def test_nothing_else_is_kept(kind: str) -> None:
    assert queue_status.finalizers(kind, obj(), SUMMARIES) is None
