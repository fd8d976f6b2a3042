"""Queued gangs whose pods claim devices: quota by class, racks with free devices, none promised twice."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.backends.fake_controllers.device_claims import CLAIMS
from bayplan.dialects.api import Kind
from bayplan.dialects.jobs.batch_jobs import JOBS
from bayplan.dialects.kueue.fields.counting import CounterSource, DeviceClassMapping, UncountedDevices
from bayplan.dialects.kueue.names import api_kinds
from tests.support.api_objects import container, job
from tests.support.device_site import DeviceApi
from tests.support.queued_devices import (
    CLASS,
    HOSTS,
    RACK,
    RACKS,
    RESOURCE,
    SLICES,
    devices,
    rack_of,
)
from tests.support.queued_devices import QueuedDevices as Site

Object = dict[str, Any]
PRIORITIES = Kind(
    "kueue.x-k8s.io", "v1beta2", "WorkloadPriorityClass", "workloadpriorityclasses", namespaced=False
)


def test_a_queued_job_uses_quota_of_its_device_class_and_runs_in_one_rack() -> None:
    site = Site()
    site.template("four")
    site.job("train", 2, resourceClaimTemplateName="four")
    site.run()
    (part,) = site.workload("train")["status"]["admission"]["podSetAssignments"]
    assert part["resourceUsage"] == {RESOURCE: "8", "cpu": "2"}
    assert part["flavors"] == {RESOURCE: "hosts", "cpu": "hosts"}
    hosts = site.hosts("train")
    assert len(set(hosts)) == 2 and "" not in hosts, "one pod takes all devices of a host"
    assert len({rack_of(host) for host in hosts}) == 1
    (queue,) = site.store.list(api_kinds.CLUSTER_QUEUES).items
    used = {one["name"]: one["total"] for one in queue["status"]["flavorsReservation"][0]["resources"]}
    assert used[RESOURCE] == "8"


def test_quota_of_devices_runs_out_as_that_of_any_resource() -> None:
    site = Site(quota=11)
    site.template("four")
    site.job("first", 2, resourceClaimTemplateName="four")
    site.run()
    site.job("second", 1, resourceClaimTemplateName="four")
    site.run()
    condition = site.condition("second")
    assert condition["message"].startswith(
        "couldn't assign flavors to pod set main: "
        f"insufficient unused quota for {RESOURCE} in flavor hosts, 1 more needed"
    )
    assert site.workload("second")["status"]["resourceRequests"] == [
        {"name": "main", "resources": {RESOURCE: "4", "cpu": "1"}}
    ]


def test_a_gang_is_admitted_only_where_devices_are_free() -> None:
    site = Site()
    site.template("one", 1)
    site.template("four")
    site.job("alone", 1, queue="", resourceClaimTemplateName="one")
    site.run()
    (taken,) = site.hosts("alone")
    site.job("train", 2, resourceClaimTemplateName="four")
    site.run()
    assert {rack_of(host) for host in site.hosts("train")} == {"r01", "r02"} - {rack_of(taken)}


def test_a_gang_without_enough_devices_is_told_the_claim_the_class_and_how_many_nodes_lack_them() -> None:
    site = Site(quota=100)
    site.template("three", 3)
    site.job("first", 2, resourceClaimTemplateName="three")
    site.job("second", 2, resourceClaimTemplateName="three")
    site.run()
    site.job("third", 1, resourceClaimTemplateName="three")
    site.run()
    message = site.condition("third")["message"]
    assert "devices: 4" in message and "Total nodes: 4" in message
    assert (
        "Each pod claims 3 of class gpu.example.com (claim own, request gpus); 4 node(s) have too few free "
        "devices for one pod."
    ) in message


def test_devices_promised_to_an_admitted_gang_without_pods_are_given_to_no_other_pod() -> None:
    site = Site()
    site.template("four")
    site.template("one", 1)
    site.bare(3, {"unconstrained": True}, resourceClaimTemplateName="four")
    site.run()
    assert site.condition("bare")["status"] == "True"
    site.job("plain", 2, queue="", resourceClaimTemplateName="four")  # two hosts, and one is left
    site.job("small", 4, queue="", resourceClaimTemplateName="one")
    site.run()
    assert site.hosts("plain") == ["", ""]
    assert len(set(site.hosts("small"))) == 1 and "" not in site.hosts("small")
    site.job("queued", 1, resourceClaimTemplateName="one")
    site.run()
    assert site.condition("queued")["reason"] != "QuotaReserved"


def test_a_gang_whose_devices_another_scheduler_took_is_evicted_and_admitted_where_there_are_some() -> None:
    site = Site()
    site.template("four")
    site.bare(2, {"required": RACK}, resourceClaimTemplateName="four")
    site.run()
    before = site.assigned("bare")
    assert len(before) == HOSTS
    site.foreign_pod("foreign", before[0], 1)
    site.run()
    assert f"Other pods were bound to node(s) {before[0]}" in site.condition("bare", "Evicted")["message"]
    after = site.assigned("bare")
    assert len(after) == HOSTS
    assert rack_of(after[0]) != rack_of(before[0])
    assert site.condition("bare")["status"] == "True"


def test_a_gang_waits_for_devices_that_a_driver_withdrew_and_for_those_of_a_pod_that_leaves() -> None:
    site = Site()
    site.template("four")
    site.bare(2, {"required": RACK}, resourceClaimTemplateName="four")
    site.run()
    before = site.assigned("bare")
    (part,) = (one for one in site.store.list(SLICES).items if one["spec"].get("nodeName") == before[0])
    site.store.delete(SLICES, "", part["metadata"]["name"])
    site.run(30)
    assert site.assigned("bare") == before
    assert site.condition("bare", "Evicted") == {}


def test_a_more_important_gang_preempts_one_that_uses_quota_and_devices() -> None:
    site = Site(quota=100)
    site.store.create(PRIORITIES, {"metadata": {"name": "high"}, "value": 10})
    site.template("four")
    for name in ("first", "second"):
        site.job(name, 2, resourceClaimTemplateName="four")
    site.run()
    site.job("important", 2, importance="high", resourceClaimTemplateName="four")
    site.run(20)
    assert "" not in site.hosts("important") and len(site.hosts("important")) == 2
    preempted = [name for name in ("first", "second") if site.condition(name, "Preempted")]
    assert len(preempted) == 1, "one rack is enough"


def test_quota_of_devices_alone_is_preempted_for() -> None:
    site = Site(quota=8)
    site.store.create(PRIORITIES, {"metadata": {"name": "high"}, "value": 10})
    site.template("four")
    site.job("first", 2, resourceClaimTemplateName="four")
    site.run()
    site.job("important", 1, importance="high", resourceClaimTemplateName="four")
    site.run(20)
    assert "" not in site.hosts("important") and len(site.hosts("important")) == 1


PATH = "spec.podSets[0].template.spec.resourceClaims[0]"
EXACT = {"deviceClassName": CLASS}
REFUSED: list[tuple[Object, str]] = [
    (
        {"firstAvailable": [{"name": "big", "deviceClassName": CLASS}]},
        f"{PATH}.devices.requests[0]: Invalid value: null: ResourceClaimTemplate it: "
        "FirstAvailable device selection is not supported",
    ),
    (
        {"exactly": {**EXACT, "allocationMode": "All"}},
        f'{PATH}.devices.requests[0].exactly.allocationMode: Invalid value: "All": '
        "ResourceClaimTemplate it: AllocationMode 'All' is not supported",
    ),
    (
        {"exactly": {"deviceClassName": "other.example.com"}},
        f'{PATH}.resourceClaimTemplateName: Not found: "DeviceClass other.example.com is not mapped in DRA '
        'configuration for podset main"',
    ),
    (
        {"exactly": {**EXACT, "selectors": [{"cel": {"expression": 'device.driver == "none.example.com"'}}]}},
        f"{PATH}.devices.requests[0].exactly.selectors: Internal error: ResourceClaimTemplate it: "
        f"insufficient matching devices for CEL selector in DeviceClass {CLASS}: 0 device(s) match in the "
        "cluster but 1 requested",
    ),
]


@pytest.mark.parametrize(("request_", "words"), REFUSED, ids=("first", "all", "unmapped", "selector"))
def test_what_quota_cannot_count_is_refused_in_the_words_of_kueue(request_: Object, words: str) -> None:
    site = Site()
    site.template("it", **request_)
    site.job("train", 1, resourceClaimTemplateName="it")
    site.run()
    condition = site.condition("train")
    assert (condition["status"], condition["reason"]) == ("False", "Misconfigured")
    assert condition["message"] == words
    requeued = site.condition("train", "Requeued")
    assert (requeued["status"], requeued["reason"], requeued["message"]) == ("False", "Inadmissible", words)


def test_a_class_that_is_counted_by_capacity_is_refused_with_that_reason() -> None:
    site = Site(device_classes=(), by_capacity=(CLASS,))
    site.template("four")
    site.job("train", 2, resourceClaimTemplateName="four")
    site.run()
    assert site.condition("train")["reason"] == "Misconfigured"
    assert (
        f"DeviceClass {CLASS} is mapped with a capacity as its source" in site.condition("train")["message"]
    )


def test_quota_counts_what_partitions_consume_of_a_counter() -> None:
    """Of the devices that a request may get, the largest amount: two of three units are charged for each."""
    source = CounterSource("units", CLASS, f'device.driver == "{CLASS}"')
    site = Site(quota=9, device_classes=(DeviceClassMapping(RESOURCE, (CLASS,), (source,)),))
    site.template("one", 1)
    site.job("early", 1, resourceClaimTemplateName="one")
    site.run()
    words = 'Internal error: matched devices have no consumesCounters entry for counter "units"'
    assert words in site.condition("early")["message"]
    site.partitioned("units", (1, 3))
    site.run()
    (part,) = site.workload("early")["status"]["admission"]["podSetAssignments"]
    assert part["resourceUsage"][RESOURCE] == "3"
    site.job("second", 2, resourceClaimTemplateName="one")
    site.job("third", 1, resourceClaimTemplateName="one")
    site.run()
    assert site.condition("second")["status"] == "True"
    assert "insufficient unused quota" in site.condition("third")["message"]


def test_a_job_that_is_refused_does_not_keep_a_strict_queue_waiting() -> None:
    site = Site(strategy="StrictFIFO")
    site.template("it", **REFUSED[0][0])
    site.template("four")
    site.job("refused", 1, resourceClaimTemplateName="it")
    site.run()
    site.job("next", 1, resourceClaimTemplateName="four")
    site.run()
    assert "" not in site.hosts("next") and site.hosts("next")


def test_claims_that_pods_name_directly_are_refused_in_the_words_of_kueue() -> None:
    site = Site()
    site.job("train", 1, resourceClaimName="shared")
    site.run()
    words = "KueueDRAIntegration feature does not support use of resource claims"
    assert site.condition("train")["message"] == words
    assert site.condition("train", "Requeued")["message"] == "DRA resource claims not supported"


@pytest.mark.parametrize("request_", [REFUSED[0][0], REFUSED[1][0]], ids=("first", "all"))
def test_the_configuration_can_admit_what_quota_cannot_count(request_: Object) -> None:
    site = Site(uncounted_devices=UncountedDevices.ADMIT)
    site.template("it", **request_)
    site.job("train", 1, resourceClaimTemplateName="it")
    site.run()
    assert site.condition("train")["status"] == "True"
    assert "" not in site.hosts("train")


def test_a_shared_claim_is_admitted_if_the_configuration_allows_it() -> None:
    site = Site(uncounted_devices=UncountedDevices.ADMIT)
    site.shared_claim("shared", 2)
    site.job("train", 2, resourceClaimName="shared")
    site.run()
    assert len(set(site.hosts("train"))) == 1 and "" not in site.hosts("train")


def test_devices_of_a_claim_that_the_pods_of_an_admitted_gang_share_are_given_to_no_other_pod() -> None:
    site = Site(uncounted_devices=UncountedDevices.ADMIT)
    site.shared_claim("shared", 3)
    site.bare(2, {"required": "kubernetes.io/hostname"}, resourceClaimName="shared")
    site.run()
    (host,) = set(site.assigned("bare"))
    site.template("two", 2)
    for number in range(HOSTS * RACKS * 2):
        site.job(f"plain{number}", 1, queue="", resourceClaimTemplateName="two")
    site.run()
    hosts = site.hosts("plain")
    assert host not in hosts
    assert hosts.count("") == 2, "the rest is on the three other hosts"
    site.store.delete(api_kinds.WORKLOADS, "default", "bare")
    site.run()
    assert site.hosts("plain").count(host) == 2


def test_the_pods_of_a_gang_get_the_devices_of_their_shared_claim_one_after_the_other() -> None:
    """Some pods exist before the others: the devices that are promised are those that they get."""
    site = Site(uncounted_devices=UncountedDevices.ADMIT)
    site.shared_claim("shared", 3)
    site.job("train", 3, resourceClaimName="shared")
    site.template("two", 2)
    for number in range(HOSTS * RACKS * 2):
        site.job(f"plain{number}", 1, queue="", resourceClaimTemplateName="two")
    site.run(20)
    hosts = site.hosts("train")
    assert len(set(hosts)) == 1 and "" not in hosts
    (claim,) = (one for one in site.store.list(CLAIMS).items if one["metadata"]["name"] == "shared")
    assert len(devices(claim)) == 3


def test_a_gang_whose_template_is_missing_is_admitted_when_it_exists() -> None:
    site = Site()
    site.job("train", 1, resourceClaimTemplateName="late")
    site.run()
    assert site.condition("train")["message"] == (
        f"{PATH}: Internal error: failed to get claim spec for ResourceClaimTemplate late in podset main: "
        'ResourceClaimTemplate.resource.k8s.io "late" not found'
    )
    site.template("late")
    site.run()
    assert site.condition("train")["status"] == "True"
    assert site.condition("train", "Requeued") == {}
    assert "" not in site.hosts("train")


def test_queued_gangs_wait_for_the_group_of_devices_and_run_when_it_appears() -> None:
    site = Site()
    site.template("four")
    api = DeviceApi(site.store)
    api.switch_off()
    site.job("train", 2, resourceClaimTemplateName="four")
    plain = job(
        "plain", {"spec": {"restartPolicy": "Never", "containers": [container(requests={"cpu": "1"})]}}, 1,
        labels={"kueue.x-k8s.io/queue-name": "all"},
    )  # fmt: skip
    plain["spec"]["template"]["spec"]["schedulerName"] = "bayplan"
    site.store.create(JOBS, plain, "default")
    site.steps(30.0)
    assert site.condition("plain")["status"] == "True"
    assert site.condition("train")["status"] == "False"
    assert 'ResourceClaimTemplate.resource.k8s.io "four" not found' in site.condition("train")["message"]
    api.switch_on()
    site.run(60)
    assert site.condition("train")["status"] == "True"
    assert "" not in site.hosts("train")


def test_the_group_of_devices_goes_away_while_gangs_run_and_comes_back() -> None:
    site = Site()
    site.template("four")
    site.job("first", 2, resourceClaimTemplateName="four")
    site.run()
    assert "" not in site.hosts("first")
    api = DeviceApi(site.store)
    api.switch_off()
    site.job("second", 2, resourceClaimTemplateName="four")
    site.steps(30.0)
    assert site.condition("first", "Evicted") == {}
    assert site.condition("second").get("status") != "True"
    api.switch_on()
    site.run(60)
    assert site.condition("first", "Evicted") == {}
    assert "" not in site.hosts("second")
    assert {rack_of(host) for host in site.hosts("first")} != {rack_of(host) for host in site.hosts("second")}
