"""Pods with claims for devices: what they wait for, which devices they get, and that none is lost."""

from __future__ import annotations

import pytest

from bayplan.backends.crds import define
from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.backends.fake_controllers.device_claims import CLAIMS, TEMPLATES
from bayplan.backends.fake_controllers.manifests import job
from bayplan.dialects.api import Backend, Event, Happened
from bayplan.dialects.jobs.batch_jobs import JOBS
from bayplan.dialects.kube.decode.wire import Metadata
from bayplan.dialects.kube.devices.wire import (
    TAINT_RULES,
    DeviceTaintWire,
    TaintRuleSpecWire,
    TaintRuleWire,
    TaintSelectorWire,
)
from bayplan.dialects.kueue.decode import scheduled_jobs
from bayplan.dialects.kueue.names.annotations import REQUIRED
from tests.support.device_site import CLASSES, DRIVER, SLICES, DeviceSite
from tests.support.pod_site import NODES, PODS, Object


@pytest.fixture
def site() -> DeviceSite:
    return DeviceSite()


def test_a_pod_gets_the_devices_that_its_template_asks_for(site: DeviceSite) -> None:
    site.template("two", 2)
    site.pod("p", "two")
    site.run()
    (claim,) = site.claims()
    node = site.on("p")[0]
    assert site.devices(claim) == [(node, "gpu-0"), (node, "gpu-1")]
    assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    site.check()


def test_a_pod_waits_for_its_claim_and_the_reason_says_so(site: DeviceSite) -> None:
    site.pod("p", "absent")
    site.run(30)
    assert site.on("p") == [""]
    assert site.message("p") == 'pod "default/p": ResourceClaim not created yet'
    site.template("absent")
    site.run()
    assert all(site.on("p"))


def test_a_pod_that_names_a_claim_waits_until_it_exists(site: DeviceSite) -> None:
    site.pod("p", claim="mine")
    site.run(30)
    assert 'resourceclaim.resource.k8s.io "mine" not found' in site.message("p")
    site.claim("mine")
    site.run()
    assert all(site.on("p"))
    site.check()


def test_a_pod_waits_for_a_class_that_does_not_exist(site: DeviceSite) -> None:
    site.template("fast", deviceClassName="fast")
    site.pod("p", "fast")
    site.run(30)
    assert "request gpus: device class fast does not exist" in site.message("p")
    site.store.create(CLASSES, {"metadata": {"name": "fast"}, "spec": {}})
    site.run()
    assert all(site.on("p"))


def test_a_pod_without_claims_is_bound_beside_one_that_waits(site: DeviceSite) -> None:
    site.pod("waiting", "absent")
    site.pod("plain", resourceClaims=[])
    site.run()
    assert site.on("waiting") == [""]
    assert all(site.on("plain"))


def test_a_gang_does_not_start_without_its_pod_that_waits_for_a_claim(site: DeviceSite) -> None:
    names = site.gang("g", 2)
    site.pod("g-2", "absent", schedulingGroup={"podGroupName": "g"})
    site.run(30)
    assert site.on(*names) == ["", ""]
    assert "ResourceClaim not created yet" in site.message("g-0")


def test_a_pod_that_asks_for_too_many_devices_waits_and_starts_when_some_are_free(site: DeviceSite) -> None:
    site.template("all", 4)
    for name in ("a", "b", "c"):
        site.pod(name, "all")
    site.run(3)
    assert sorted(site.on("a", "b", "c")) == ["", "r1-n1", "r1-n2"]
    (waiting,) = (name for name in ("a", "b", "c") if not site.on(name)[0])
    assert site.message(waiting).startswith("0/2 nodes are available: 2 cannot allocate all claims.")
    running = next(name for name in ("a", "b", "c") if name != waiting)
    site.end(running)
    site.run(3)
    assert all(site.on(waiting))
    site.check()


def test_devices_come_with_a_slice(site: DeviceSite) -> None:
    site.template("eight", 8)
    site.pod("p", "eight")
    site.run()
    assert site.on("p") == [""]
    site.node("big", "r1")
    site.slice("big", 8)
    site.run()
    assert site.on("p") == ["big"]


def test_a_gang_is_placed_in_the_rack_that_has_devices_for_all_of_it() -> None:
    site = DeviceSite(racks=3, nodes=4, devices=4)
    site.template("four", 4)
    site.pod("other", "four", nodeSelector={"rack": "r1"})
    site.pod("another", "four", nodeSelector={"rack": "r3"})
    site.run()
    names = site.gang("g", 4, rack=True, template="four")
    site.run(3)
    assert sorted(site.on(*names)) == [f"r2-n{number}" for number in (1, 2, 3, 4)]
    site.check()


def test_a_gang_that_has_not_enough_devices_in_any_rack_allocates_none() -> None:
    site = DeviceSite(racks=2, nodes=2, devices=4)
    site.template("two", 2)
    names = site.gang("g", 5, rack=True, template="two")
    site.run(3)
    assert set(site.on(*names)) == {""}
    assert [site.devices(claim) for claim in site.claims()] == [[]] * 5
    assert "cannot allocate all claims" in site.message("g-0")


def test_pods_of_a_gang_share_one_claim(site: DeviceSite) -> None:
    site.claim("ours", 2)
    names = site.gang("g", 3, claim="ours")
    site.run(3)
    assert len(set(site.on(*names))) == 1
    assert all(site.on(*names))
    (claim,) = site.claims()
    assert len(claim["status"]["reservedFor"]) == 3
    site.check()


def test_pods_with_a_shared_and_an_own_claim_get_both(site: DeviceSite) -> None:
    site.claim("ours", 1)
    site.template("one", 1)
    names = site.gang("g", 3, claim="ours", template="one")
    site.run(3)
    assert len(set(site.on(*names))) == 1
    assert len({device for claim in site.claims() for device in site.devices(claim)}) == 4
    site.check()


def test_a_claim_that_has_devices_decides_on_the_node(site: DeviceSite) -> None:
    site.claim("mine", 4)
    site.pod("first", claim="mine")
    site.run()
    site.pod("second", claim="mine")
    site.run()
    assert site.on("second") == site.on("first")
    site.check()


def test_a_device_of_the_network_goes_to_one_pod_wherever_it_runs() -> None:
    site = DeviceSite(devices=0)
    site.slice("network", 2, nodeName=None, allNodes=True)
    site.template("one")
    names = [f"p{number}" for number in range(3)]
    for name in names:
        site.pod(name, "one")
    site.run(3)
    assert sum(map(bool, site.on(*names))) == 2
    site.check()


def test_a_gang_on_devices_of_the_network_starts_only_if_there_are_enough() -> None:
    site = DeviceSite(devices=0)
    site.slice("network", 3, nodeName=None, allNodes=True)
    site.template("one")
    few = site.gang("few", 3, template="one")
    site.run(3)
    many = site.gang("many", 2, template="one")
    site.run(3)
    assert all(site.on(*few))
    assert site.on(*many) == ["", ""]
    site.check()


def test_one_channel_for_each_node_means_one_pod_on_each_node() -> None:
    site = DeviceSite(nodes=3, devices=1)
    site.template("channel")
    names = site.gang("g", 3, template="channel")
    site.run()
    assert sorted(site.on(*names)) == ["r1-n1", "r1-n2", "r1-n3"]


def test_a_finished_pod_gives_its_devices_back(site: DeviceSite) -> None:
    site.template("all", 4)
    site.pod("a", "all", nodeSelector={"kubernetes.io/hostname": "r1-n1"})
    site.run()
    site.end("a")
    site.run()
    assert site.claims() == []


class Crash(Exception):
    """The process dies."""


class DyingBackend(EmbeddedBackend):
    """Dies after so many writes."""

    left = 10**6

    def submit(self, writes: object) -> None:
        for write in writes:  # type: ignore[attr-defined]
            if not self.left:
                raise Crash
            self.left -= 1
            super().submit([write])


class DyingSite(DeviceSite):
    def backend(self) -> Backend:
        return DyingBackend(self.store)


@pytest.mark.parametrize("writes", range(14))
def test_after_a_death_between_any_two_writes_the_gang_starts_and_no_device_is_lost(writes: int) -> None:
    site = DyingSite(racks=2, nodes=2, devices=4)
    site.template("two", 2)
    site.run(1)
    site.loop.backend.left = writes  # type: ignore[attr-defined]
    names = site.gang("g", 4, rack=True, template="two")
    try:
        site.run(2)
    except Crash:
        site.start()
    site.run(60)
    assert all(site.on(*names))
    assert len({node.partition("-")[0] for node in site.on(*names)}) == 1
    assert len({device for claim in site.claims() for device in site.devices(claim)}) == 8
    site.check()


def test_devices_of_a_gang_that_cannot_start_any_more_are_free_for_others() -> None:
    """The scheduler dies before it binds, and a node that it had chosen is gone when it starts again."""
    site = DyingSite(racks=1, nodes=2, devices=4)
    site.template("four", 4)
    site.run(1)
    site.loop.backend.left = 4  # type: ignore[attr-defined]
    names = site.gang("g", 2, rack=True, template="four")
    with pytest.raises(Crash):
        site.run(2)
    assert all(site.devices(claim) for claim in site.claims())
    site.store.delete(NODES, "", "r1-n2")
    site.start()
    site.run(5)
    assert site.on(*names) == ["", ""]
    site.pod("other", "four")
    site.run(5)
    assert site.on("other") == ["r1-n1"]
    site.check()


def test_a_cluster_without_the_group_schedules_other_pods_and_picks_the_group_up_later() -> None:
    site = DeviceSite()
    site.template("one")
    kept = [site.store.resources.of(kind) for kind in (CLAIMS, TEMPLATES, CLASSES, SLICES)]
    for resource in kept:
        site.store.resources.remove(resource.group, resource.plural)
    site.start()
    site.pod("plain", resourceClaims=[])
    site.run()
    assert all(site.on("plain"))
    site.store.resources.add(kept)
    site.pod("p", "one")
    site.run(70)
    assert all(site.on("p"))
    site.check()


def test_a_pod_preempts_those_whose_devices_it_needs_and_no_more() -> None:
    site = DeviceSite(nodes=2, devices=4)
    site.template("one")
    site.template("three", 3)
    low = [f"low-{number}" for number in range(8)]
    for name in low:
        site.pod(name, "one")
    site.run(3)
    assert all(site.on(*low))
    site.pod("high", "three", importance="middle")
    site.run(60)
    assert all(site.on("high"))
    left = [pod for pod in site.store.list(PODS).items if pod["metadata"]["name"] in low]
    assert len(left) == 5
    site.check()


def test_a_gang_preempts_for_devices_in_one_rack() -> None:
    site = DeviceSite(racks=2, nodes=2, devices=4)
    site.template("four", 4)
    for number, rack in enumerate(("r1", "r1", "r2", "r2")):
        importance = "high" if number == 0 else "low"
        site.pod(f"low-{number}", "four", importance=importance, nodeSelector={"rack": rack})
    site.run(3)
    names = site.gang("g", 2, rack=True, template="four", importance="middle")
    site.run(60)
    assert sorted(site.on(*names)) == ["r2-n1", "r2-n2"]
    left = sorted(pod["metadata"]["name"] for pod in site.store.list(PODS).items)
    assert left == ["g-0", "g-1", "low-0", "low-1"]
    site.check()


def test_devices_that_a_pod_of_higher_priority_shares_are_not_taken(site: DeviceSite) -> None:
    site.claim("ours", 4)
    site.pod("low", claim="ours")
    site.run()
    site.pod("important", claim="ours", importance="high")
    site.run()
    site.template("four", 4)
    site.pod("other", "four", importance="high")
    site.run(3)
    site.pod("high", "four", importance="middle")
    site.run(20)
    assert site.on("high") == [""]
    assert all(site.on("low", "important", "other"))


def job_with_claims(name: str, pods: int, template: str) -> Object:
    made = job(name, pods, 0, {REQUIRED: "rack"}, 600)
    spec = made["spec"]["template"]["spec"]
    spec["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": template}]
    spec["containers"][0]["resources"] = {}
    return made


def test_a_job_in_one_rack_gets_devices_there_and_one_that_does_not_fit_is_told_of_devices() -> None:
    site = DeviceSite(racks=2, nodes=2, devices=4)
    define(site.store)
    levels = [{"nodeLabel": level} for level in ("rack", "kubernetes.io/hostname")]
    site.store.create(scheduled_jobs.TOPOLOGIES, {"metadata": {"name": "racks"}, "spec": {"levels": levels}})
    site.start()
    site.template("two", 2)
    for name in ("first", "second", "third"):
        site.store.create(JOBS, job_with_claims(name, 4, "two"), "default")
        site.run(5)
    bound: dict[str, list[str]] = {}
    for pod in site.store.list(PODS).items:
        bound.setdefault(pod["metadata"]["labels"]["job-name"], []).append(pod["spec"].get("nodeName", ""))
    racks = [{node.partition("-")[0] for node in bound[name]} for name in ("first", "second", "third")]
    assert sorted(map(tuple, racks[:2])) == [("r1",), ("r2",)]
    assert racks[2] == {""}
    third = next(pod for pod in site.store.list(PODS).items if pod["metadata"]["name"].startswith("third"))
    assert "Devices of 4/4 nodes: cannot allocate all claims." in site.message(third["metadata"]["name"])
    site.check()


def test_a_rule_taints_devices_until_it_is_gone(site: DeviceSite) -> None:
    """The cluster in memory serves no rules: the scheduler is told of one."""
    site.template("four", 4)
    taint = DeviceTaintWire("broken", None, "NoSchedule")
    selector = TaintSelectorWire(driver=DRIVER, device="gpu-0")
    rule = TaintRuleWire(Metadata(name="r"), TaintRuleSpecWire(selector, taint))
    site.run(1)
    site.role.apply(site.role.decode(Event(Happened.SEEN, TAINT_RULES[0], rule)))
    site.pod("p", "four")
    site.run(3)
    assert site.on("p") == [""]
    site.role.apply(site.role.decode(Event(Happened.GONE, TAINT_RULES[0], rule)))
    site.run(3)
    assert all(site.on("p"))
