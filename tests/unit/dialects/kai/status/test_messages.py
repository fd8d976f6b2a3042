"""Messages on pending PodGroups and their pods, and on preempted pods."""

from __future__ import annotations

import pytest

from tests.support.kai_site import RACK, ZONE, Site
from tests.support.pod_site import NODES


@pytest.mark.parametrize(
    ("levels", "told"),
    [
        ((ZONE, "example.com/row"), "no node has the label example.com/row, and only nodes with"),
        (("a/b", "a/c"), "no node has the labels a/b, a/c, and only nodes"),
    ],
)
def test_a_topology_without_nodes_is_reported_with_the_missing_labels(
    levels: tuple[str, ...], told: str
) -> None:
    site = Site()
    site.topology("bare", levels=levels)
    within = {"topology": "bare", "requiredTopologyLevel": levels[-1]}
    site.group("g", minMember=2, topologyConstraint=within)
    for name in ("p", "q"):
        site.pod(name, "g")
    site.run(4)
    assert told in site.waits("g")[1] and "Label the nodes" in site.waits("g")[1]
    assert site.said("p") == site.waits("g")[1]


def test_labels_that_no_node_has_at_once_are_reported() -> None:
    site = Site((0,))
    site.node("n", "r0", "z0")
    site.store.patch(NODES, "", "n", {"metadata": {"labels": {ZONE: None}}})
    site.node("m", "r0", "z0")
    site.store.patch(NODES, "", "m", {"metadata": {"labels": {RACK: None}}})
    site.topology()
    site.group("g", topologyConstraint={"topology": "hall", "requiredTopologyLevel": RACK})
    site.pod("p", "g")
    site.run(4)
    assert "no node has the labels of all levels of topology hall at once" in site.waits("g")[1]
    site.store.patch(NODES, "", "n", {"metadata": {"labels": {ZONE: "z0"}}})
    site.run(4)
    assert site.on("p") == ["n"]


GPU = "nvidia.com/gpu"


def gpu(site: Site, *nodes: str, each: int = 1) -> None:
    for node in nodes:
        amounts = {"allocatable": {GPU: str(each)}, "capacity": {GPU: str(each)}}
        site.store.patch(NODES, "", node, {"status": amounts}, subresource="status")


def mixed(site: Site, gpus: int, helpers: int, each: int = 1, cpu: int = 1) -> None:
    """A group in one rack with pods that request a GPU and pods that do not; nodes have some GPUs each."""
    gpu(site, *(node["metadata"]["name"] for node in site.store.list(NODES).items), each=each)
    site.topology()
    within = {"topology": "hall", "requiredTopologyLevel": RACK}
    site.group("g", minMember=gpus + helpers, topologyConstraint=within)
    asked = {"requests": {"cpu": "1", GPU: "1"}, "limits": {GPU: "1"}}
    for number in range(gpus):
        site.pod(f"p{number}", "g", containers=[{"name": "c", "image": "i", "resources": asked}])
    for number in range(helpers):
        site.pod(f"h{number}", "g", cpu=cpu)
    site.run(4)


def test_domains_are_listed_with_what_they_lack_if_pods_request_different_resources() -> None:
    site = Site((2, 3))
    mixed(site, gpus=4, helpers=1)
    assert site.waits("g") == (
        "PodSchedulingErrors",
        "Unable to schedule podgroup.\n"
        "<z0.r0>: z0.r0 didn't have enough resource: GPUs, requested: 4, available: 2, "
        "z0.r0 didn't have enough resources: CPU cores, requested: 5, available: 4.\n"
        "<z0.r1>: z0.r1 didn't have enough resource: GPUs, requested: 4, available: 3.\n"
        "topology hall, requirement example.com/rack couldn't be satisfied for job <default/g>.",
    )
    assert site.said("p0") == site.waits("g")[1]
    site.node("more", "r1", "z0")
    gpu(site, "more")
    site.run(4)
    assert set(site.racks("p0", "p1", "p2", "p3", "h0")) == {"r1", "more"}


def test_each_kind_of_pod_fits_alone_but_not_all_together() -> None:
    """Each node has two CPUs: 4 for the pods with a GPU or 4 for the others."""
    site = Site((2, 2))
    mixed(site, gpus=3, helpers=3, each=2)
    lack = "didn't have enough resources: CPU cores, requested: 6, available: 4"
    assert f"<z0.r0>: z0.r0 {lack}.\n<z0.r1>: z0.r1 {lack}.\n" in site.waits("g")[1]


def test_pods_are_counted_if_the_total_resources_are_sufficient() -> None:
    site = Site((2,))
    mixed(site, gpus=1, helpers=1, cpu=3)
    assert (
        "in the cluster to allocate the job. node-group z0.r0 can allocate only 1 of 2" in site.waits("g")[1]
    )
    site.node("large", "r1", "z0", cpu=8)
    site.run(4)
    assert site.waits("g")[1].splitlines()[1:3] == [
        "<z0.r0>: node-group z0.r0 can allocate only 1 of 2 required pods.",
        "<z0.r1>: z0.r1 didn't have enough resource: GPUs, requested: 1, available: 0.",
    ]


def test_many_domains_are_counted_by_missing_resource() -> None:
    site = Site((1,) * 12)
    mixed(site, gpus=2, helpers=1)
    assert site.waits("g")[1] == (
        "Unable to schedule podgroup: 12 node-group(s) didn't have enough resources: CPU cores. \n"
        "12 node-group(s) didn't have enough resources: GPUs. \n"
        "topology hall, requirement example.com/rack couldn't be satisfied for job <default/g>."
    )


def test_a_shortage_of_the_whole_cluster_is_reported_for_the_nearest_domain() -> None:
    site = Site((2, 2))
    mixed(site, gpus=5, helpers=1)
    told = site.waits("g")[1]
    assert "not enough resources in the cluster to allocate the job. z0.r0 didn't have enough" in told
    assert "resource: GPUs, requested: 5, available: 2" in told


def test_a_queue_with_child_queues_is_not_reported_as_missing() -> None:
    site = Site()
    site.queue("top")
    site.queue("team", parentQueue="top")
    site.queue("hen", parentQueue="egg")
    site.queue("egg", parentQueue="hen")
    for queue in ("top", "hen"):
        site.group(f"in-{queue}", queue=queue)
        site.pod(queue, f"in-{queue}")
    site.run(4)
    reason, words = site.waits("in-top")
    assert reason == "QueueDoesNotExist" and "because it has child queues" in words
    assert "form a cycle" in site.waits("in-hen")[1]


def test_a_preempted_pod_has_an_event_that_names_the_preemptor() -> None:
    site = Site((1,))
    amounts = {"quota": 1000, "limit": -1, "overQuotaWeight": 1}
    free = {"quota": -1, "limit": -1}
    for queue in ("a", "b"):
        site.queue(queue, resources={"cpu": amounts, "memory": free, "gpu": free})
    for name, queue in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        site.group(name, queue=queue)
        site.pod(f"{name}-pod", name)
        site.run(4)
        site.phase(f"{name}-pod", "Running")
    told = [words for name in ("a1-pod", "a2-pod") for reason, words in site.events(name)
            if reason == "Preempted"]  # fmt: skip
    assert told == ["Preempted: it makes room for PodGroup default/b1"]
