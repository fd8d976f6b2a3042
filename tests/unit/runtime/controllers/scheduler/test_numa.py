"""The scheduler with NUMA reports: gangs are aligned, or the reason names the container and resource."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.backends.crds import DEFINITIONS, define
from bayplan.backends.embedded.api.options import Deletion
from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.backends.fake_controllers.controller_manager import FakeControllerManager
from bayplan.backends.fake_controllers.manifests import job
from bayplan.dialects.jobs.batch_jobs import JOBS
from bayplan.dialects.kube.gang_api.gates import V1ALPHA2
from bayplan.dialects.kueue.decode import scheduled_jobs
from bayplan.dialects.nrt.fingerprint import ATTRIBUTE, fingerprint_with
from bayplan.dialects.nrt.numa_placement import HEAD, METADATA, VECTOR, encoded_vector
from bayplan.dialects.nrt.wire import OLDER_TOPOLOGIES, TOPOLOGIES
from bayplan.model.numa import NumaStalenessPolicy, OverReserve
from bayplan.model.profile import NodeChoice, Profile
from bayplan.placement.numa.fingerprint import container_fingerprint, pods_fingerprint
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from tests.support.numa_crd import definition, topology
from tests.support.pod_site import NODES, PODS
from tests.unit.runtime.controllers.scheduler.test_controller import CLASSES, OF_GROUP, Site

GPU = "example.com/gpu"
ZONE: dict[str, str | int] = {"cpu": "4", "memory": "32Gi", GPU: 2}
USED: dict[str, str | int] = {"cpu": "4", "memory": "32Gi", GPU: 0}


class Zoned(Site):
    """Racks of two nodes, each with two zones of 4 CPUs and 2 GPUs."""

    def __init__(self, nodes: int = 4, role: SchedulerController | None = None) -> None:
        super().__init__(V1ALPHA2, cpus=(), role=role)
        self.store.create(DEFINITIONS, definition())
        for number in range(nodes):
            self.zoned(f"n{number}", f"r{number // 2}")

    def zoned(self, name: str, rack: str) -> None:
        amounts = {"cpu": "8", "memory": "64Gi", "pods": "110", GPU: "4"}
        labels = {"kubernetes.io/hostname": name, "rack": rack}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "in memory"}
        status = {"allocatable": amounts, "capacity": amounts, "conditions": [ready]}
        self.store.create(NODES, {"metadata": {"name": name, "labels": labels}, "status": status})

    def tells(self, name: str, *zones: dict[str, str | int], **attributes: str) -> None:
        body = topology(name, zones or (ZONE, ZONE), **attributes)
        if name in {one["metadata"]["name"] for one in self.store.list(TOPOLOGIES).items}:
            old = self.store.get(TOPOLOGIES, "", name)
            body["metadata"] = old["metadata"]
            self.store.update(TOPOLOGIES, "", name, body)
        else:
            self.store.create(TOPOLOGIES, body)

    def guaranteed(self, name: str, cpu: int, gpus: int, **spec: Any) -> None:
        asks = {"cpu": str(cpu), "memory": "4Gi", GPU: str(gpus)}
        container = {"name": "main", "image": "i", "resources": {"requests": asks, "limits": asks}}
        whole = {"schedulerName": "bayplan", "containers": [container], **spec}
        self.store.create(PODS, {"metadata": {"name": name}, "spec": whole}, "default")

    def starts(self, name: str, phase: str = "Running") -> None:
        pod = self.get(name)
        status = pod["status"] | {"phase": phase}
        self.store.update(PODS, "default", name, pod | {"status": status}, "status")


def apply_gang(site: Zoned, count: int, cpu: int, gpus: int) -> list[str]:
    site.group(V1ALPHA2, count, schedulingConstraints={"topology": [{"key": "rack"}]})
    names = [f"p{number}" for number in range(count)]
    for name in names:
        site.guaranteed(name, cpu, gpus, **OF_GROUP)
    return names


def test_without_reports_only_room_counts() -> None:
    site = Zoned(1)
    site.guaranteed("a", 6, 3)
    site.run()
    assert site.on("a") == ["n0"]


def test_a_gang_lands_aligned_in_one_rack() -> None:
    site = Zoned()
    for name in ("n0", "n1"):  # as much capacity as in the other rack, but no zone has two GPUs
        site.tells(name, {**ZONE, GPU: 1}, {**ZONE, GPU: 1})
    for name in ("n2", "n3"):
        site.tells(name)
    names = apply_gang(site, 4, 3, 2)
    site.run()
    assert sorted(site.on(*names)) == ["n2", "n2", "n3", "n3"]


@pytest.mark.parametrize("choice", list(NodeChoice))
def test_equal_pods_share_a_node_zone_by_zone(choice: NodeChoice) -> None:
    site = Zoned(1, SchedulerController(Profile(gang_nodes=choice)))
    site.tells("n0")
    names = apply_gang(site, 2, 3, 2)
    site.run()
    assert site.on(*names) == ["n0", "n0"]


def test_a_gang_that_cannot_be_aligned_stays_pending_with_the_reason() -> None:
    site = Zoned(2)
    site.tells("n0")
    site.tells("n1", ZONE, USED)
    names = apply_gang(site, 4, 3, 2)
    site.run(2)
    assert site.on(*names) == [""] * 4
    message = site.said("p0")[2]
    assert "has room for 3 of 4 pods" in message
    assert "cannot align container: node n1: container main" in message
    assert f"zone 0 has 1 of cpu, zone 1 has 0 of {GPU}" in message
    site.tells("n1")
    site.run(3)
    assert all(site.on(*names)), "a report that tells of more room wakes it"


def test_a_single_pod_shows_the_sentence_of_kube_scheduler_first() -> None:
    site = Zoned(1)
    site.tells("n0", USED, ZONE)
    site.guaranteed("a", 6, 1)
    site.run(2)
    message = site.said("a")[2]
    assert message.startswith("0/1 nodes are available: 1 cannot align container.")
    assert "node n0: container main asks for 6 of cpu" in message
    assert "zone 0 has 4 of cpu, zone 1 has 4 of cpu" in message


def test_zones_that_are_gone_do_not_matter_any_more() -> None:
    site = Zoned(1)
    site.tells("n0")
    site.guaranteed("a", 6, 3)
    site.run(2)
    assert site.on("a") == [""]
    site.store.delete(DEFINITIONS, "", definition()["metadata"]["name"])
    site.run(5)
    assert site.on("a") == ["n0"]


def test_an_older_report_counts_where_there_is_no_newer_one() -> None:
    site = Zoned(1)
    site.store.delete(DEFINITIONS, "", definition()["metadata"]["name"])
    site.run(1)
    site.store.create(DEFINITIONS, definition("v1alpha1"))
    body = topology("n0", (ZONE, ZONE)) | {"topologyPolicies": ["SingleNUMANodeContainerLevel"]}
    del body["attributes"]
    site.store.create(OLDER_TOPOLOGIES, body | {"apiVersion": "topology.node.k8s.io/v1alpha1"})
    site.guaranteed("a", 6, 3)
    site.guaranteed("b", 4, 2)
    site.run(2)
    assert site.on("a", "b") == ["", "n0"]


def test_what_makes_no_sense_in_a_report_is_told_once() -> None:
    site = Zoned(1)
    for _ in range(3):
        site.tells("n0", policy="always")
        site.run(1)
    told = [message for reason, message in site.events("n0") if reason == "ZonesNotUnderstood"]
    assert told == ["attribute topologyManagerPolicy is 'always', which is not known"]


def test_our_own_pods_are_taken_from_every_zone_until_the_report_knows_them() -> None:
    site = Zoned(1)
    site.tells("n0", **{ATTRIBUTE: fingerprint_with(pods_fingerprint(()))})
    site.guaranteed("a", 3, 2)
    site.run(2)
    site.guaranteed("b", 3, 2)
    site.run(2)
    assert site.on("a", "b") == ["n0", ""], "its zone is unknown"
    site.starts("a")
    site.run(2)
    assert site.on("b") == [""], "the report is still that of an empty node"
    sign = fingerprint_with(pods_fingerprint([("default", "a")]))
    site.tells("n0", {"cpu": "1", "memory": "28Gi", GPU: 0}, ZONE, **{ATTRIBUTE: sign})
    site.run(3)
    assert site.on("b") == ["n0"]


def test_a_report_without_a_fingerprint_counts_when_it_changes() -> None:
    site = Zoned(1)
    site.tells("n0")
    site.guaranteed("a", 3, 2)
    site.run(2)
    site.starts("a")
    site.guaranteed("b", 3, 2)
    site.run(2)
    assert site.on("a", "b") == ["n0", ""]
    site.tells("n0", {"cpu": "1", "memory": "28Gi", GPU: 0}, ZONE)
    site.run(3)
    assert site.on("b") == ["n0"]


def test_who_takes_no_care_trusts_the_last_report() -> None:
    site = Zoned(1, SchedulerController(numa_policy=NumaStalenessPolicy(OverReserve.NONE)))
    site.tells("n0")
    site.guaranteed("a", 3, 2)
    site.run(2)
    site.guaranteed("b", 3, 2)
    site.run(2)
    assert site.on("a", "b") == ["n0", "n0"]


def test_a_stranger_casts_doubt_on_a_node() -> None:
    site = Zoned(1)
    site.tells("n0", **{ATTRIBUTE: fingerprint_with(pods_fingerprint(()))})
    site.run(1)
    site.pod("stranger", scheduler="other", nodeName="n0")
    site.guaranteed("a", 1, 1)
    site.run(2)
    assert site.on("a") == [""]
    assert "invalid node topology data" in site.said("a")[2]
    site.starts("stranger")
    site.tells("n0", **{ATTRIBUTE: fingerprint_with(pods_fingerprint([("default", "stranger")]))})
    site.run(3)
    assert site.on("a") == ["n0"]


def test_pods_are_told_which_zones_they_were_meant_for() -> None:
    site = Zoned(1, SchedulerController(Profile(zone_hints=True)))
    site.tells("n0")
    names = apply_gang(site, 2, 3, 2)
    site.run()
    hints = [site.get(name)["metadata"]["annotations"]["bayplan.dev/assumed-zones"] for name in names]
    assert hints == ["main=0", "main=1"]


def test_no_hint_is_published_unless_configured() -> None:
    site = Zoned(1)
    site.tells("n0")
    site.guaranteed("a", 3, 2)
    site.run()
    assert site.on("a") == ["n0"]
    assert "bayplan.dev/assumed-zones" not in site.get("a")["metadata"].get("annotations", {})


def test_pods_that_differ_rather_go_where_their_order_does_not_matter() -> None:
    """On one node, the node may put the two small ones into different zones."""
    site = Zoned(2)
    site.tells("n0")
    site.tells("n1", ZONE, USED)
    site.group(V1ALPHA2, 3)
    site.guaranteed("a", 2, 1, **OF_GROUP)
    site.guaranteed("b", 2, 1, **OF_GROUP)
    site.guaranteed("c", 1, 2, **OF_GROUP)
    site.run(2)
    first, second, third = site.on("a", "b", "c")
    assert first == second != third != ""


def test_pods_that_differ_share_a_node_if_there_is_no_other() -> None:
    site = Zoned(1)
    site.tells("n0")
    site.group(V1ALPHA2, 3)
    site.guaranteed("a", 2, 1, **OF_GROUP)
    site.guaranteed("b", 2, 1, **OF_GROUP)
    site.guaranteed("c", 1, 2, **OF_GROUP)
    site.run(2)
    assert site.on("a", "b", "c") == ["n0", "n0", "n0"]


def test_a_job_with_topology_annotations_counts_aligned_pods() -> None:
    site = Zoned()
    define(site.store)
    body: dict[str, Any] = {"metadata": {"name": "t"}, "spec": {"levels": [{"nodeLabel": "rack"}]}}
    site.store.create(scheduled_jobs.TOPOLOGIES, body)
    for name in ("n0", "n1"):  # each fits two pods, and can align one
        site.tells(name, ZONE, {**ZONE, GPU: 1})
    for name in ("n2", "n3"):
        site.tells(name)
    wide = job("wide", 4, 2, {"kueue.x-k8s.io/podset-required-topology": "rack"}, 60)
    asks = {"cpu": "3", "memory": "4Gi", GPU: "2"}
    wide["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": asks, "limits": asks}
    site.store.create(JOBS, wide)
    crew = FakeControllerManager(EmbeddedBackend(site.store))
    for _ in range(6):
        crew.step(site.now)
        site.run(0.2)
    pods = site.store.list(PODS).items
    assert sorted(one["spec"].get("nodeName", "") for one in pods) == ["n2", "n2", "n3", "n3"]


@pytest.mark.parametrize("thought_through", [True, False])
def test_who_has_to_go_is_found_by_zones(thought_through: bool) -> None:
    """The node has enough capacity as it is; only one of the two can free a zone."""
    care = NumaStalenessPolicy(OverReserve.RESERVE, simulate_evictions=thought_through)
    site = Zoned(1, SchedulerController(numa_policy=care))
    for name in ("near", "far"):
        site.guaranteed(name, 1, 1, priority=0)
    site.run(1)
    site.starts("near")
    site.starts("far")
    sign = fingerprint_with(pods_fingerprint([("default", "near"), ("default", "far")]))
    near, far = (container_fingerprint("default", name, "main") for name in ("near", "far"))
    left = {"cpu": "3", "memory": "28Gi"}
    body = topology("n0", ({**left, GPU: 1}, {**left, GPU: 0}), **{ATTRIBUTE: sign})
    body["attributes"].append({"name": METADATA, "value": f"{HEAD}::ve=leb89::cc=2::nn=2::bn=0"})
    body["zones"][1]["attributes"] = [{"name": VECTOR, "value": encoded_vector([int(near < far)])}]
    for zone in body["zones"]:
        for resource in zone["resources"]:
            resource |= {"capacity": ZONE[resource["name"]], "allocatable": ZONE[resource["name"]]}
    site.store.create(TOPOLOGIES, body)
    site.run(2)
    site.store.create(CLASSES, {"metadata": {"name": "high"}, "value": 1000})
    site.guaranteed("high", 1, 2, priorityClassName="high", priority=1000)
    site.run(2)
    leaving = [n for n in ("near", "far") if site.get(n)["metadata"].get("deletionTimestamp")]
    if thought_through:
        assert leaving == ["near"], "its zone has one GPU left, and one more when it is gone"
    else:
        assert leaving == []


def test_a_gang_keeps_its_zones_from_others_of_the_same_decision() -> None:
    site = Zoned(1)
    site.tells("n0")
    for name in "abc":
        site.guaranteed(name, 3, 2)
    site.run(0.1)
    assert sorted(site.on("a", "b", "c")) == ["", "n0", "n0"]


@pytest.mark.parametrize("ends", ["gone", "over"])
def test_a_pod_that_came_and_went_between_two_reports_leaves_nothing_behind(ends: str) -> None:
    """No report will ever show it: the report stays as it was."""
    site = Zoned(1)
    site.tells("n0")
    site.guaranteed("a", 3, 2)
    site.run(2)
    site.starts("a")
    site.run(1)
    if ends == "gone":
        site.store.delete(PODS, "default", "a", Deletion(grace=0))
    else:
        site.starts("a", "Succeeded")
    names = apply_gang(site, 2, 3, 2)
    site.run(3)
    assert site.on(*names) == ["n0", "n0"]


def test_a_complete_search_for_pods_that_differ_knows_how_many_nodes_align() -> None:
    """In no greedy order do they all fit: 5+5, 4+3+3 and 4+3+3 is the only way."""
    site = Zoned(0)
    for name in ("n0", "n1", "n2"):
        amounts = {"cpu": "12", "memory": "64Gi", "pods": "110", GPU: "0"}
        body = {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}}
        site.store.create(NODES, body | {"status": {"allocatable": amounts, "capacity": amounts}})
        site.tells(name, {"cpu": "10", "memory": "64Gi"}, {"cpu": "2", "memory": "0"})
    site.group(V1ALPHA2, 8)
    sizes = {f"p{at}": cpu for at, cpu in enumerate((5, 5, 4, 4, 3, 3, 3, 3))}
    for name, cpu in sizes.items():
        site.guaranteed(name, cpu, 0, **OF_GROUP)
    site.run(3)
    taken = dict.fromkeys(("n0", "n1", "n2"), 0)
    for name, node in zip(sizes, site.on(*sizes), strict=True):
        assert node, "every pod has a node"
        taken[node] += sizes[name]
    assert set(taken.values()) == {10}
