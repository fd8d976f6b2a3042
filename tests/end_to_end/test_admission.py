"""Admission on a real control plane, with kubectl and only the rights that were installed."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.end_to_end.admission_site import (
    GPU,
    HOST,
    OLD_WORKLOADS,
    POOL,
    RACK,
    TOPOLOGY,
    WORKLOADS,
    Site,
    admitting,
    flavor,
    gang_workload,
    gpu_queues,
    hosts,
    installed,
    made,
    replayed,
)
from tests.end_to_end.objects import Object, eventually, kwok_node
from tests.support.kueue_api import contains

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

USER = Path(__file__).with_name("kueue_user.yaml")
FAILED = "couldn't assign flavors to pod set main: "
NO_RESERVATION = ("False", "NoReservation", "The workload has no reservation")
NORMAL, WARNING = "Normal", "Warning"


@pytest.fixture(scope="module")
def site(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A cluster with a replica that admits; at the end its journal is decided again."""
    folder = tmp_path_factory.mktemp("admission")
    with installed(cluster, "admission-test", folder) as found:
        with admitting(found, folder / "replica"):
            yield found
            found.kubectl("delete", WORKLOADS, "--all", "-n", "default")
        assert replayed(folder / "replica").endswith("; 0 plans differ when decided again")


def reserved(queue: str) -> tuple[str, str, str]:
    return "True", "QuotaReserved", f"Quota reserved in ClusterQueue {queue}"


def test_a_queue_of_workloads_as_kueue_users_have_them_is_admitted_in_order(site: Site) -> None:
    site.add_hosts(*(_labelled(f"tas-{number}", f"r{(number + 1) // 2}") for number in (1, 2, 3, 4)))
    site.kubectl("apply", "--validate=strict", "-f", str(USER))
    suspended = site.wait("training", "QuotaReserved", "False", "Suspended")
    assert suspended == "ClusterQueue tas-cluster-queue is inactive"
    time.sleep(1.1)  # the API counts whole seconds
    first = next(one for one in yaml.safe_load_all(USER.read_text()) if one["kind"] == "Workload")
    by_class = {"priorityClassName": "urgent", "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass"}
    urgent = first["spec"] | by_class | {"priority": 1000}
    site.apply(_named(first, "a-later-one"), _named({**first, "spec": urgent}, "urgent"))
    old = "clusterqueues.v1beta1.kueue.x-k8s.io"
    site.patch(old, "tas-cluster-queue", {"stopPolicy": "None"})
    site.wait_admitted("urgent", "training")
    assert site.told("urgent") == reserved("tas-cluster-queue")
    assert site.hosts("urgent") == {"tas-1": 1, "tas-2": 1}
    assert site.hosts("training") == {"tas-3": 1, "tas-4": 1}
    short = site.wait("a-later-one", "QuotaReserved", "False", "WaitingForQuota")
    assert short == FAILED + f"insufficient unused quota for {GPU} in flavor tas-flavor, 6 more needed"
    admitted, quota = (event for event in site.events("urgent") if event[0] == NORMAL)
    assert admitted[1:] == (
        "Admitted", "Admitted by ClusterQueue tas-cluster-queue, wait time since reservation was 0s"
    )  # fmt: skip
    told = r"Quota reserved in ClusterQueue tas-cluster-queue, wait time since queued was \d+s"
    assert quota[1] == "QuotaReserved" and re.fullmatch(told, quota[2])
    given = site.workload("urgent")["status"]["admission"]["podSetAssignments"][0]
    assert given["flavors"] == {"cpu": "tas-flavor", GPU: "tas-flavor"}
    assert given["resourceUsage"] == {"cpu": "1", GPU: "6"}
    assert given["topologyAssignment"]["levels"] == [HOST]
    assert site.workload("urgent", OLD_WORKLOADS)["spec"]["priorityClassName"] == "urgent"
    site.finish("urgent")
    site.wait_admitted("a-later-one")
    assert site.hosts("a-later-one") == {"tas-1": 1, "tas-2": 1}


def _labelled(name: str, rack: str) -> Object:
    labels = {"topology-block": "b1", "topology-rack": rack, "node-group": "tas-group"}
    named = {f"cloud.provider.com/{key}": value for key, value in labels.items()}
    return kwok_node(name, 4, **named, **{POOL: "tas"})


def _named(workload: Object, name: str) -> Object:
    return {**workload, "metadata": {**workload["metadata"], "name": name}}


def test_what_does_not_fit_is_told_why_and_starts_when_something_finishes(site: Site) -> None:
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    site.add_hosts(*hosts("fit"))
    site.apply(
        flavor("fit"), *gpu_queues("fit", 12),
        made("ResourceFlavor", "bad", {"nodeTaints": [taint]}), *gpu_queues("picky", 8, "bad"),
        gang_workload("in", "fit", 2, 4, required=RACK),
    )  # fmt: skip
    site.wait_admitted("in")
    site.apply(
        gang_workload("waits", "fit", 2, 3, required=RACK),
        gang_workload("never", "fit", 4, 4),
        gang_workload("unloved", "picky", 1, 1),
        gang_workload("misled", "nowhere", 1, 1),
    )
    short = site.wait("waits", "QuotaReserved", "False", "WaitingForQuota")
    assert short == FAILED + f"insufficient unused quota for {GPU} in flavor fit, 2 more needed"
    assert site.told("waits", "Admitted") == NO_RESERVATION
    eventually(lambda: site.events("waits") == [(WARNING, "WaitingForQuota", short)], "it is announced")
    assert site.workload("waits")["status"]["resourceRequests"] == [{"name": "main", "resources": {GPU: "6"}}]
    assert site.wait("never", "QuotaReserved", "False", "ExceedsMaxQuota") == FAILED + (
        f"insufficient quota for {GPU} in flavor fit, previously considered podsets requests (0) + "
        "current podset request (16) > maximum capacity (12)"
    )
    untolerated = site.wait("unloved", "QuotaReserved", "False", "NoMatchingFlavor")
    assert untolerated == FAILED + "untolerated taint {gpu yes NoSchedule <nil>} in flavor bad"
    missing = site.wait("misled", "QuotaReserved", "False", "Misconfigured")
    assert missing == "LocalQueue nowhere doesn't exist"
    site.finish("in")
    site.wait_admitted("waits")
    assert site.hosts("waits") == {"fit-r1-h1": 1, "fit-r1-h2": 1}
    assert "resourceRequests" not in site.workload("waits")["status"]
    site.apply(*gpu_queues("nowhere", 4, "fit"))
    site.wait_admitted("misled")


def test_a_gang_without_a_place_is_told_what_lacks_and_starts_with_the_node_it_lacked(site: Site) -> None:
    site.add_hosts(*hosts("room"))
    site.apply(flavor("room"), *gpu_queues("room", 64), gang_workload("sits", "room", 1, 2, required=HOST))
    site.wait_admitted("sits")
    site.apply(gang_workload("rack", "room", 3, 4, required=RACK))
    told = site.wait("rack", "QuotaReserved", "False", "TopologyPlacementFailed")
    known = FAILED + (
        f'topology "hall" allows to fit only 2 out of 3 pod(s). Total nodes: 4; excluded: resource "{GPU}": 1'
    )
    more = (
        f"Closest is {RACK} b1/r2: 2 of 3 pod(s) fit, limited by {GPU}: 4 more needed. "
        f"To be admitted: free or add 4 {GPU} there, or ask for 2 pod(s)."
    )
    assert told == f"{known}. {more}"
    eventually(
        lambda: site.events("rack") == [(WARNING, "TopologyPlacementFailed", known)], "it is announced"
    )
    # Times of creation are whole seconds: of two in one second the first by name is the first in line.
    site.apply(gang_workload("similar", "room", 3, 4, required=RACK))
    site.wait("similar", "QuotaReserved", "False", "TopologyPlacementFailed")
    site.add_hosts(*hosts("room", 2, 3)[-1:])
    site.wait_admitted("rack")
    assert site.hosts("rack") == {f"room-r2-h{number}": 1 for number in (1, 2, 3)}
    site.wait("similar", "QuotaReserved", "False", "WaitingForQuota")  # it would fit if others left


def test_a_more_important_gang_makes_others_of_its_queue_leave(site: Site) -> None:
    site.add_hosts(*hosts("prio"))
    site.apply(flavor("prio"), *gpu_queues("prio", 8, preemption={"withinClusterQueue": "LowerPriority"}))
    site.apply(
        gang_workload("old", "prio", 1, 4, priority=1), gang_workload("keeps", "prio", 1, 4, priority=5)
    )
    site.wait_admitted("old", "keeps")
    site.apply(gang_workload("boss", "prio", 1, 4, priority=9, required=HOST))
    site.wait_admitted("boss")
    uid, victim = (site.workload(name)["metadata"]["uid"] for name in ("boss", "old"))
    why = preempted(uid, "prioritization in the ClusterQueue", "/prio", "/prio")
    assert site.told("old", "Evicted") == ("True", "Preempted", why)
    assert site.told("old", "Preempted") == ("True", "InClusterQueue", why)
    assert site.told("old", "Requeued") == ("True", "Preempted", why)
    assert site.told("old", "Admitted") == NO_RESERVATION
    short = f"insufficient unused quota for {GPU} in flavor prio, 4 more needed"
    assert site.wait("old", "QuotaReserved", "False", "WaitingForQuota") == FAILED + short
    ranks = (
        "preemptor effective priority: 9 (base: 9, boost: 0); "
        "preemptee effective priority: 1 (base: 1, boost: 0)"
    )
    announced = site.events("old")
    assert (NORMAL, "EvictedDueToPreempted", why) in announced
    assert (NORMAL, "Preempted", f"{why}; {ranks}") in announced
    announced = site.events("boss")
    who = f"Preempted workload default/old (UID: {victim}) in ClusterQueue prio; {ranks}"
    assert (NORMAL, "PreemptedWorkload", who) in announced
    waits = f"{FAILED}{short}. Pending the preemption of 1 workload(s)"
    assert (WARNING, "WaitingForPreemptedWorkloads", waits) in announced
    assert site.told("keeps", "Admitted")[0] == "True"
    site.finish("boss")
    site.wait_admitted("old")
    assert site.told("old", "Evicted") == ("False", "QuotaReserved", f"Previously: {why}")
    assert site.told("old", "Preempted") == ("False", "QuotaReserved", f"Previously: {why}")
    evictions = site.workload("old")["status"]["schedulingStats"]["evictions"]
    assert evictions == [{"reason": "Preempted", "underlyingCause": "", "count": 1}]


def test_borrowed_quota_returns_to_its_owner(site: Site) -> None:
    reclaim = {"reclaimWithinCohort": "Any"}
    site.add_hosts(*hosts("lent"))
    site.apply(
        flavor("lent"), *gpu_queues("owner", 8, "lent", cohort="lenders", preemption=reclaim),
        *gpu_queues("borrower", 8, "lent", cohort="lenders"), gang_workload("guest", "borrower", 4, 4),
    )  # fmt: skip
    site.wait_admitted("guest")
    considered = "Flavors considered: main: lent(Fit;borrow=1)"
    eventually(lambda: any(considered in event[2] for event in site.events("guest")), "it borrows")
    site.apply(gang_workload("owned", "owner", 2, 4, required=RACK))
    site.wait_admitted("owned")
    uid = site.workload("owned")["metadata"]["uid"]
    why = preempted(uid, "reclamation within the cohort", "/lenders/owner", "/lenders/borrower")
    assert site.told("guest", "Preempted") == ("True", "InCohortReclamation", why)
    assert site.told("guest", "Evicted") == ("True", "Preempted", why)
    site.finish("owned")
    site.wait_admitted("guest")


def preempted(uid: str, ground: str, by: str, path: str) -> str:
    return (
        f"Preempted to accommodate a workload (UID: {uid}, JobUID: UNKNOWN) due to {ground}; "
        f"preemptor path: {by}; preemptee path: {path}"
    )


def test_in_strict_order_nobody_overtakes_and_otherwise_whoever_fits_does(site: Site) -> None:
    site.add_hosts(*hosts("order"))
    site.apply(flavor("order"), *gpu_queues("loose", 8, "order"), *gpu_queues("strict", 8, "order"))
    site.patch("clusterqueue", "strict", {"queueingStrategy": "StrictFIFO"})
    for line in ("loose", "strict"):
        site.apply(gang_workload(f"{line}-first", line, 1, 4))
        site.wait_admitted(f"{line}-first")  # or else the more important one would come first
        site.apply(gang_workload(f"{line}-big", line, 2, 4, priority=2))
        site.wait(f"{line}-big", "QuotaReserved", "False", "WaitingForQuota")
        site.apply(gang_workload(f"{line}-small", line, 1, 2, priority=1))
    site.wait_admitted("loose-small")
    assert site.told("strict-small", "Admitted")[0] != "True"
    site.finish("strict-first")
    site.wait_admitted("strict-big")


def test_queues_stop_drain_and_start(site: Site) -> None:
    site.add_hosts(*hosts("tap"))
    site.apply(flavor("tap"), *gpu_queues("tap", 16), gang_workload("flows", "tap", 1, 4))
    site.wait_admitted("flows")
    site.patch("clusterqueue", "tap", {"stopPolicy": "Hold"})
    site.apply(gang_workload("held", "tap", 1, 4))
    assert site.wait("held", "QuotaReserved", "False", "Suspended") == "ClusterQueue tap is inactive"
    assert site.told("flows", "Admitted")[0] == "True"
    for kind, other in (("ClusterQueue", "LocalQueue"), ("LocalQueue", "ClusterQueue")):
        site.patch(other.lower(), "tap", {"stopPolicy": "None"})
        site.wait_admitted("flows", "held") if other == "ClusterQueue" else None
        site.patch(kind.lower(), "tap", {"stopPolicy": "HoldAndDrain"})
        assert site.wait("flows", "Evicted", "True", f"{kind}Stopped") == f"The {kind} is stopped"
        assert site.wait("flows", "QuotaReserved", "False", "Suspended") == f"{kind} tap is inactive"
        assert site.told("flows", "Requeued")[:2] == ("False", f"{kind}Stopped")
        stopped = (NORMAL, f"EvictedDueTo{kind}Stopped", f"The {kind} is stopped")
        eventually(lambda event=stopped: event in site.events("flows"), "it is announced")  # type: ignore[misc]
    site.patch("localqueue", "tap", {"stopPolicy": "None"})
    site.wait_admitted("flows", "held")
    told = "The LocalQueue was restarted after being stopped"
    assert site.told("flows", "Requeued") == ("True", "LocalQueueRestarted", told)


def test_a_queue_that_is_deleted_at_once_stays_as_long_as_a_gang_has_quota_from_it(site: Site) -> None:
    site.add_hosts(*hosts("brief"))
    site.apply(flavor("brief"))
    for number in range(5):
        _delete_at_once(site, f"brief-{number}", awaits_quota=bool(number % 2))


def _delete_at_once(site: Site, name: str, *, awaits_quota: bool) -> None:
    """Delete a queue as soon as its gang has quota, or before anything is known of either."""
    site.apply(*gpu_queues(name, 8, "brief"), gang_workload(name, name, 1, 1))
    if awaits_quota:
        eventually(lambda: site.told(name)[0] == "True", f"{name} has quota")
    site.kubectl("delete", "clusterqueue", name, "--wait=false")
    eventually(lambda: site.told(name)[0] != "", f"{name} is told how it stands")
    if site.told(name)[0] == "True":
        meta = site.cluster.get("clusterqueue", name)["metadata"]
        assert meta["deletionTimestamp"] and meta["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]
        site.finish(name)
    else:
        assert not awaits_quota
    eventually(
        lambda: not site.kubectl("get", "clusterqueue", name, "--ignore-not-found"),
        f"the queue {name} is gone",
    )


def test_a_deactivated_gang_gives_back_its_quota_and_comes_back_when_it_is_active(site: Site) -> None:
    site.add_hosts(*hosts("idle"))
    site.apply(flavor("idle"), *gpu_queues("idle", 4), gang_workload("sleeper", "idle", 1, 4))
    site.wait_admitted("sleeper")
    site.patch(WORKLOADS, "sleeper", {"active": False})
    assert site.wait("sleeper", "Evicted", "True", "Deactivated") == "The workload is deactivated"
    assert site.wait("sleeper", "QuotaReserved", "False", "Deactivated") == "The workload is deactivated"
    site.apply(gang_workload("taker", "idle", 1, 4))
    site.wait_admitted("taker")
    site.patch(WORKLOADS, "sleeper", {"active": True})
    site.wait("sleeper", "QuotaReserved", "False", "WaitingForQuota")
    assert site.told("sleeper", "Requeued") == ("True", "Reactivated", "The workload was reactivated")
    site.finish("taker")
    site.wait_admitted("sleeper")


def test_queues_tell_how_they_stand(site: Site) -> None:
    site.add_hosts(*hosts("told"))
    site.apply(flavor("told", topologyName="later"), *gpu_queues("told", 8))

    def active() -> tuple[str, str, str]:
        status = site.cluster.get("clusterqueue", "told").get("status") or {}
        found = [c for c in status.get("conditions") or [] if c["type"] == "Active"]
        return (found[0]["status"], found[0]["reason"], found[0]["message"]) if found else ("", "", "")

    missing = 'there is no Topology "later" for TAS flavor "told"'
    inactive = ("False", "TopologyNotFound", f"Can't admit new workloads: {missing}.")
    eventually(lambda: active() == inactive, "the missing Topology is named")
    site.apply(gang_workload("patient", "told", 1, 4), gang_workload("second", "told", 2, 4))
    site.wait("patient", "QuotaReserved", "False", "Suspended")
    site.apply({**TOPOLOGY, "metadata": {"name": "later"}})
    site.wait_admitted("patient")
    eventually(lambda: active() == ("True", "Ready", "Can admit new workloads"), "it works")
    usage = [{"name": GPU, "total": "4", "borrowed": "0"}]
    wanted: Object = {"pendingWorkloads": 1, "reservingWorkloads": 1, "admittedWorkloads": 1}
    wanted |= {"flavorsUsage": [{"name": "told", "resources": usage}]}
    eventually(lambda: contains(site.cluster.get("clusterqueue", "told")["status"], wanted), "usage is told")
