"""PodGroups, Queues and Topologies as the scheduler decodes them, and their status."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from bayplan.backends.crds import define
from bayplan.backends.embedded.api.options import Deletion
from bayplan.cli.commands.replay import replay
from bayplan.dialects.jobs.batch_jobs import JOBS
from bayplan.dialects.kai.api import queues, wire
from bayplan.dialects.kai.api.names import POD_GROUP, QUEUE, TOPOLOGY
from bayplan.dialects.kube.decode.wire import Metadata
from bayplan.dialects.kueue.decode import scheduled_jobs
from bayplan.model.change import Change, GangSpecSeen
from bayplan.model.gang import GangSpec, Ref
from bayplan.runtime.core.journal import FileJournal, MemoryJournal
from tests.support.kai_site import CLASSES, RACK, ZONE, Site
from tests.support.pod_site import NODES, PODS

IN_RACK = {"topology": "hall", "requiredTopologyLevel": RACK}
IN_ZONE = {"topology": "hall", "requiredTopologyLevel": ZONE}
SEGMENTS = [
    {"name": "worker", "minMember": 1},
    {"name": "worker-0", "minMember": 4, "parent": "worker", "topologyConstraint": IN_RACK},
    {"name": "worker-1", "minMember": 4, "parent": "worker", "topologyConstraint": IN_RACK},
]
WORKERS = [f"w{number}" for number in range(8)]


def charter(site: Site, name: str) -> GangSpec:
    found = site.role.state.spec_of(Ref("kai", "PodGroup", "default", name))
    assert found is not None
    return found


def two_segments(site: Site, count: int = 8) -> None:
    site.group("g", minMember=8, topologyConstraint=IN_ZONE, subGroups=SEGMENTS)
    for number in range(count):
        site.pod(f"w{number}", "g", f"worker-{number // 4}")


def test_a_group_starts_when_its_pods_are_there_and_its_status_follows() -> None:
    site = Site()
    site.group("g", minMember=3)
    site.pod("a", "g")
    site.pod("b", "g")
    site.run(6)
    assert site.on("a", "b") == ["", ""]
    reason, words = site.waits("g")
    assert reason == "Unschedulable" and "2 pods are there while 3 are required" in words
    assert site.said("a") == words and ("FailedScheduling", words) in site.events("g")
    assert site.status("g")["pending"] == 2
    site.pod("c", "g")
    site.run()
    assert all(site.on("a", "b", "c"))
    for name in "abc":
        site.phase(name, "Running")
    site.run()
    status = site.status("g")
    assert (status["phase"], status["running"], status["pending"]) == ("Running", 3, 0)
    assert status["resourcesStatus"]["allocated"] == {"cpu": "3"} and "schedulingConditions" not in status
    for name in "abc":
        site.phase(name, "Succeeded")
    site.run()
    status = site.status("g")
    assert (status["phase"], status["succeeded"]) == ("Succeeded", 3)
    assert status["resourcesStatus"] == {"allocated": {}, "allocatedNonPreemptible": {}, "requested": {}}


def test_each_segment_is_in_one_rack_and_a_replacement_pod_joins_it() -> None:
    site = Site((2, 2, 2, 2))
    site.topology()
    two_segments(site)
    site.run()
    racks = site.racks(*WORKERS)
    assert all(racks) and len(set(racks[:4])) == len(set(racks[4:])) == 1 and racks[0] != racks[4]
    gone = site.on("w1")[0]
    site.store.delete(PODS, "default", "w1", Deletion(grace=0))
    site.pod("w1b", "g", "worker-0")
    site.run(4)
    assert site.on("w1b") == [gone]


def test_optional_pods_that_arrive_one_by_one_go_to_a_domain_for_the_whole_segment() -> None:
    site = Site((3, 3, 3))
    site.topology(levels=(RACK,))
    last = {"name": "worker-2", "minMember": 0, "parent": "worker", "topologyConstraint": IN_RACK}
    site.group("g", minMember=8, subGroups=[*SEGMENTS, last])
    for number in range(12):
        site.pod(f"w{number}", "g", f"worker-{number // 4}")
        site.run(0.5)
    racks = site.racks(*(f"w{number}" for number in range(12)))
    assert all(racks) and len(set(racks[8:])) == 1 and len(set(racks)) == 3


def test_no_gang_starts_partially_and_its_status_names_the_sub_group_that_does_not_fit() -> None:
    site = Site((2, 1))
    site.topology()
    two_segments(site)
    site.run(6)
    assert site.on(*WORKERS) == [""] * 8
    reason, words = site.waits("g")
    assert reason == "PodSchedulingErrors" and "topology hall" in words and "worker" in words


def test_pending_pods_beyond_the_minimum_have_a_reason_and_do_not_count_for_it() -> None:
    """Racks of three nodes hold a segment and half of one that is optional."""
    site = Site((3, 3))
    site.topology()
    optional = [{"name": f"worker-{n}", "minMember": 0, "parent": "worker", "topologyConstraint": IN_RACK}
                for n in (2, 3)]  # fmt: skip
    site.group("g", minMember=8, topologyConstraint=IN_ZONE, subGroups=[*SEGMENTS, *optional])
    site.node("far", "r9", "z9", 7)
    for number in range(16):
        site.pod(f"w{number}", "g", f"worker-{number // 4}")
    site.run(6)
    left = next(f"w{number}" for number in range(16) if not site.on(f"w{number}")[0])
    assert sum(map(bool, site.on(*(f"w{number}" for number in range(16))))) == 12
    assert site.waits("g")[1] == (
        f"Resources were not found for pod default/{left} due to: 0/7 nodes are available: 6 Insufficient "
        "cpu. The remaining nodes are outside the topology domain of its group."
    )
    for name in [f"w{number}" for number in range(8)]:
        site.phase(name, "Running")
    for name in ("w1", *(f"w{number}" for number in range(8, 16))):
        site.store.delete(PODS, "default", name, Deletion(grace=0))
    for node in [found["metadata"]["name"] for found in site.store.list(NODES).items]:
        site.store.patch(NODES, "", node, {"spec": {"unschedulable": True}})
    site.pod("w1b", "g", "worker-0")
    site.run(8)
    assert site.waits("g")[1].startswith("Resources were found for 7 pods from all sub-groups while ")
    site.run(90)
    assert any("7 of 8 pods were scheduled, which is too few" in words for _, words in site.events("g"))


def test_a_flaw_is_in_the_status_of_the_group_until_it_is_fixed() -> None:
    site = Site()
    two_segments(site)
    site.run(4)
    assert site.waits("g") == ("Unschedulable", "Requested topology hall does not exist")
    assert site.said("w0") == "Requested topology hall does not exist"
    site.topology(levels=("other",))
    site.run(12)
    assert "does not contain a level with this name" in site.waits("g")[1]
    site.store.delete(TOPOLOGY, "", "hall", Deletion())
    site.topology()
    site.run(4)
    assert all(site.on(*WORKERS)) and site.waits("g") == ("", "")


def test_a_group_whose_sub_groups_form_no_tree_stays_pending_with_a_reason() -> None:
    site = Site()
    site.group("g", subGroups=[{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}])
    site.pod("p", "g", "a")
    site.run(4)
    assert site.waits("g")[1] == "cycle detected in subgroups" == site.said("p")
    assert site.on("p") == [""]


def test_priorities_come_from_classes_and_decide_preemptibility() -> None:
    site = Site()
    site.group("g", priorityClassName="urgent", minMember=2)
    site.group("h", priorityClassName="build")
    site.group("i", priorityClassName="urgent", preemptibility="preemptible")
    site.run()
    assert (charter(site, "g").priority, charter(site, "g").non_preemptible) == (50, False)
    assert (charter(site, "h").priority, charter(site, "h").non_preemptible) == (100, True)
    site.store.create(CLASSES, {"metadata": {"name": "urgent"}, "value": 700})
    site.run()
    assert (charter(site, "g").priority, charter(site, "g").non_preemptible) == (700, True)
    assert (charter(site, "i").priority, charter(site, "i").non_preemptible) == (700, False)
    site.group("j", priorityClassName="interactive-preemptible")
    site.run()
    assert (charter(site, "j").priority, charter(site, "j").non_preemptible) == (75, False)


def test_topologies_of_two_dialects_with_one_name_are_distinct() -> None:
    site = Site()
    site.topology("hall", (ZONE, RACK))
    levels = [{"nodeLabel": "kubernetes.io/hostname"}]
    site.store.create(scheduled_jobs.TOPOLOGIES, {"metadata": {"name": "hall"}, "spec": {"levels": levels}})
    two_segments(site)
    site.run()
    assert all(site.on(*WORKERS))
    site.store.delete(TOPOLOGY, "", "hall", Deletion())
    site.run()
    assert "hall" in site.role.state.store.nodes.topologies and charter(site, "g").flaw


def test_gangs_of_another_dialect_are_not_placed_by_kai_topologies() -> None:
    site = Site()
    site.topology("hall", (ZONE, RACK))
    levels = [{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]
    body = {"metadata": {"name": "z-last"}, "spec": {"levels": levels}}
    site.store.create(scheduled_jobs.TOPOLOGIES, body)
    notes = {"kueue.x-k8s.io/podset-required-topology": RACK}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "5"}}}
    template = {
        "metadata": {"annotations": notes},
        "spec": {"schedulerName": "bayplan", "restartPolicy": "Never", "containers": [container]},
    }
    made = site.store.create(JOBS, {"metadata": {"name": "j"}, "spec": {"template": template}}, "default")
    ref = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "j",
        "uid": made["metadata"]["uid"],
        "controller": True,
    }
    site.pod("p", owner=ref, cpu=5)
    site.run(6)
    told = site.role.state.reported(Ref("kueue", "Job", "default", "j"))
    assert told is not None and told.misfit is not None and told.misfit.topology == "z-last"


def test_groups_are_scheduled_once_their_crds_exist_and_stay_pending_once_they_are_deleted() -> None:
    site = Site(defined=False)
    site.pod("a", "g")
    site.pod("alone")
    site.run(6)
    assert site.on("a", "alone")[0] == "" and site.on("alone")[0]
    assert "pod group default/g does not exist" in site.said("a")
    define(site.store)
    site.group("g", minMember=1)
    site.run(90)
    assert site.on("a")[0]
    site.store.delete(POD_GROUP, "default", "g", Deletion())
    site.pod("b", "g")
    site.run(4)
    assert site.on("b") == [""] and "does not exist" in site.said("b")


def test_binding_a_pod_does_not_decode_its_group_again() -> None:
    site = Site()
    site.topology()
    two_segments(site)
    site.run()
    for name in WORKERS:
        site.phase(name, "Running")
    site.run()
    assert isinstance(site.journal, MemoryJournal)
    changes = [entry.body_as(Change) for entry in site.journal.entries() if entry.kind == "change"]
    assert sum(isinstance(change, GangSpecSeen) for change in changes) == 1


def test_a_pod_that_could_not_be_grouped_stays_pending_even_without_a_grouper() -> None:
    site = Site()
    site.pod("p", notes={"bayplan.dev/flaw": "its job has no workers"})
    site.run(4)
    assert site.on("p") == [""] and site.said("p") == "its job has no workers"
    site.store.patch(PODS, "default", "p", {"metadata": {"annotations": {"bayplan.dev/flaw": None}}})
    site.run()
    assert site.on("p")[0]


def test_a_pod_may_move_to_another_group() -> None:
    site = Site()
    site.group("g", minMember=2)
    site.group("h")
    site.pod("a", "g")
    site.run()
    assert site.on("a") == [""]
    site.store.patch(PODS, "default", "a", {"metadata": {"annotations": {"pod-group-name": "h"}}})
    site.run()
    assert site.on("a")[0] and site.status("g")["pending"] == 0


def test_queue_status_has_allocated_and_requested_resources() -> None:
    site = Site()
    unlimited = {name: {"quota": -1, "limit": -1} for name in ("cpu", "memory", "gpu")}
    site.queue("top", resources=unlimited)
    site.queue("team", parentQueue="top", resources=unlimited)
    site.group("g", minMember=2, queue="team", preemptibility="non-preemptible")
    site.pod("a", "g")
    site.pod("b", "g")
    site.group("h", minMember=2, queue="team")
    site.pod("c", "h")
    site.run(4)
    for name in ("team", "top"):
        status = site.store.get(QUEUE, "", name)["status"]
        assert status["allocated"] == status["allocatedNonPreemptible"] == {"cpu": "2"}
        assert status["requested"] == {"cpu": "3"}
    assert site.store.get(QUEUE, "", "top")["status"]["childQueues"] == ["team"]
    site.store.delete(PODS, "default", "a", Deletion(grace=0))
    site.store.delete(PODS, "default", "c", Deletion(grace=0))
    site.run(4)
    assert site.store.get(QUEUE, "", "top")["status"]["requested"] == {"cpu": "1"}


def test_a_group_without_a_queue_or_over_its_limit_has_a_reason() -> None:
    site = Site()
    site.queue("small", resources={"cpu": {"quota": 1000, "limit": 1000}})
    site.group("g", minMember=2, queue="small")
    site.group("h", queue="nowhere")
    site.group("i", minMember=2, queue="small", preemptibility="non-preemptible")
    for number, name in enumerate("gghii"):
        site.pod(f"p{number}", name)
    site.run(6)
    reason, words = site.waits("h")
    assert reason == "QueueDoesNotExist" and words.startswith("Queue 'nowhere' does not exist: create it")
    reason, words = site.waits("g")
    assert reason == "OverLimit" and "Limit is 1 CPU cores, currently 0 CPU cores allocated" in words
    reason, words = site.waits("i")
    assert reason == "NonPreemptibleOverQuota" and "Workload requested 2 CPU cores" in words
    (told,) = site.status("i")["schedulingConditions"][0]["reasons"]
    assert told["details"]["queueDetails"] == {
        "name": "small",
        "queueDeservedResources": {"cpu": "1"},
        "queueAllocatedNonPreemptibleResources": {"cpu": "0"},
        "podGroupRequestedResources": {"cpu": "2"},
    }
    assert site.on(*(f"p{number}" for number in range(5))) == [""] * 5


def test_a_limit_below_the_quota_is_a_limit_and_one_of_0_is_the_quota() -> None:
    """The webhook, which is optional, rejects the first."""
    for quota, limit, bound in (
        (8, 6, 6),
        (8, 0, 8),
        (8, None, 8),
        (8, -1, None),
        (-1, None, None),
        (-1, 0, None),
    ):
        gpu = wire.QueueResourceWire(quota=quota, limit=limit)
        spec = wire.QueueSpecWire(resources=wire.ResourcesWire(gpu=gpu))
        found = queues.queue(wire.QueueWire(Metadata(name="q"), spec))
        assert found.entitlements["nvidia.com/gpu"].limit == bound


def test_a_quiet_cluster_is_not_written_to() -> None:
    site = Site()
    site.topology()
    two_segments(site)
    site.queue("q")
    site.run(10)
    before = site.store.get(POD_GROUP, "default", "g")["metadata"]["resourceVersion"]
    site.run(120)
    assert site.store.get(POD_GROUP, "default", "g")["metadata"]["resourceVersion"] == before


def test_a_journal_with_groups_is_replayed_to_the_same_decisions(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path)
    site = Site((2, 2, 1), journal=journal)
    site.topology()
    site.queue("q")
    two_segments(site, 5)
    site.run(0.3)
    for number in range(5, 8):
        site.pod(f"w{number}", "g", f"worker-{number // 4}")
    site.run(4)
    journal.close()
    told = CliRunner().invoke(replay, [str(tmp_path), "--quiet"])
    assert told.exit_code == 0 and "0 plans differ" in told.output, told.output
    assert all(site.on(*WORKERS))
