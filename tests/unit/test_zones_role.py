"""The scheduler where nodes report their zones: gangs land aligned, or hear which container lacks what."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.backends.definitions import DEFINITIONS
from bayplan.dialects.kube.gangs.gates import SECOND
from bayplan.dialects.nrt.fingerprint import ATTRIBUTE, spelled
from bayplan.dialects.nrt.wire import OLDER_TOPOLOGIES, TOPOLOGIES
from bayplan.model.profile import NodeChoice, Profile
from bayplan.model.zone import Caution, ZoneCare
from bayplan.placement.zone_signs import sign_of_pods
from bayplan.runtime.scheduler_role import SchedulerRole
from tests.numa_definition import definition, topology
from tests.unit.test_scheduler_role import NODES, OF_GROUP, PODS, Site

GPU = "example.com/gpu"
ZONE: dict[str, str | int] = {"cpu": "4", "memory": "32Gi", GPU: 2}
USED: dict[str, str | int] = {"cpu": "4", "memory": "32Gi", GPU: 0}


class Zoned(Site):
    """Racks of two nodes, each with two zones of 4 CPUs and 2 GPUs."""

    def __init__(self, nodes: int = 4, role: SchedulerRole | None = None) -> None:
        super().__init__(SECOND, cpus=(), role=role)
        self.store.create(DEFINITIONS, definition())
        for number in range(nodes):
            self.zoned(f"n{number}", f"r{number // 2}")

    def zoned(self, name: str, rack: str) -> None:
        amounts = {"cpu": "8", "memory": "64Gi", "pods": "110", GPU: "4"}
        labels = {"kubernetes.io/hostname": name, "rack": rack}
        body = {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": amounts}}
        self.store.create(NODES, body | {"status": {"allocatable": amounts, "capacity": amounts}})

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

    def starts(self, name: str) -> None:
        pod = self.get(name)
        status = pod["status"] | {"phase": "Running"}
        self.store.update(PODS, "default", name, pod | {"status": status}, "status")


def gang(site: Zoned, count: int, cpu: int, gpus: int) -> list[str]:
    site.group(SECOND, count, schedulingConstraints={"topology": [{"key": "rack"}]})
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
    for name in ("n0", "n1"):  # as much room as in the other rack, but no zone has two GPUs
        site.tells(name, {**ZONE, GPU: 1}, {**ZONE, GPU: 1})
    for name in ("n2", "n3"):
        site.tells(name)
    names = gang(site, 4, 3, 2)
    site.run()
    assert sorted(site.on(*names)) == ["n2", "n2", "n3", "n3"]


@pytest.mark.parametrize("choice", list(NodeChoice))
def test_equal_pods_share_a_node_zone_by_zone(choice: NodeChoice) -> None:
    site = Zoned(1, SchedulerRole(Profile(gang_nodes=choice)))
    site.tells("n0")
    names = gang(site, 2, 3, 2)
    site.run()
    assert site.on(*names) == ["n0", "n0"]


def test_a_gang_that_cannot_be_aligned_waits_and_hears_why() -> None:
    site = Zoned(2)
    site.tells("n0")
    site.tells("n1", ZONE, USED)
    names = gang(site, 4, 3, 2)
    site.run(2)
    assert site.on(*names) == [""] * 4
    message = site.said("p0")[2]
    assert "only 3 out of 4 pod(s). For example: cannot align container: node n1: container main" in message
    assert f"zone 0 has 1 of cpu, zone 1 has 0 of {GPU}" in message
    site.tells("n1")
    site.run(3)
    assert all(site.on(*names)), "a report that tells of more room wakes it"


def test_a_lone_pod_hears_the_sentence_that_users_know_first() -> None:
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
    site.tells("n0", **{ATTRIBUTE: spelled(sign_of_pods(()))})
    site.guaranteed("a", 3, 2)
    site.run(2)
    site.guaranteed("b", 3, 2)
    site.run(2)
    assert site.on("a", "b") == ["n0", ""], "nobody knows which zone it got"
    site.starts("a")
    site.run(2)
    assert site.on("b") == [""], "the report is still that of an empty node"
    sign = spelled(sign_of_pods([("default", "a")]))
    site.tells("n0", {"cpu": "1", "memory": "28Gi", GPU: 0}, ZONE, **{ATTRIBUTE: sign})
    site.run(3)
    assert site.on("b") == ["n0"]


def test_a_report_without_a_sign_is_believed_when_it_changes() -> None:
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
    site = Zoned(1, SchedulerRole(zone_care=ZoneCare(Caution.NONE)))
    site.tells("n0")
    site.guaranteed("a", 3, 2)
    site.run(2)
    site.guaranteed("b", 3, 2)
    site.run(2)
    assert site.on("a", "b") == ["n0", "n0"]


def test_a_stranger_casts_doubt_on_a_node() -> None:
    site = Zoned(1)
    site.tells("n0", **{ATTRIBUTE: spelled(sign_of_pods(()))})
    site.run(1)
    site.pod("stranger", scheduler="other", nodeName="n0")
    site.guaranteed("a", 1, 1)
    site.run(2)
    assert site.on("a") == [""]
    assert "invalid node topology data" in site.said("a")[2]
    site.starts("stranger")
    site.tells("n0", **{ATTRIBUTE: spelled(sign_of_pods([("default", "stranger")]))})
    site.run(3)
    assert site.on("a") == ["n0"]
