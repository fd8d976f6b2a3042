"""A tenant with `edit` in one namespace tries everything that ever broke something; nobody else notices.

While it does, another tenant's gangs are admitted, ungated and bound, one after the other. None of them may
wait longer than five seconds. Where the machine is so slow that gangs take long before anything is tried, the
bound is three times what the slowest of those took.
"""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from bayplan.dialects.kube.fields.quantity import amount
from tests.end_to_end import hostile_client as client
from tests.end_to_end import hostile_tenant as hostile
from tests.end_to_end.admission_site import (
    GPU,
    POOL,
    WORKLOADS,
    Site,
    flavor,
    hosts,
    installed,
    made,
    running,
)
from tests.end_to_end.hostile_tenant import Tenant
from tests.end_to_end.objects import Object, eventually
from tests.end_to_end.steady_tenant import HOME as STEADY
from tests.end_to_end.steady_tenant import SteadyTenant
from tests.support.api_objects import cluster_queue
from tests.support.listening import free_address

if TYPE_CHECKING:
    import subprocess

    from tools.controlplane.cluster import Cluster

NAMESPACE = "hostile-test"
STALL_SECONDS = 5.0
SLOWER = 3.0
BEFORE = 4  # gangs of the other tenant before anything is tried
GATE = "kueue.x-k8s.io/admission"
CLAIMING = 4  # pods of two GPUs each: half of what there is


def tenant_queues(name: str, resources: list[Object]) -> list[Object]:
    local = made("LocalQueue", name, {"clusterQueue": name})
    local["metadata"]["namespace"] = name
    return [cluster_queue(name, resources, [hostile.HOME], namespaceSelector={}), local]


class Stage:
    """The cluster, both tenants, and the process that must not end."""

    def __init__(self, site: Site, process: subprocess.Popen[bytes], address: str, log: str) -> None:
        self.site, self.process, self.address, self.log = site, process, address, log
        self.cluster = site.cluster
        self.mallory = Tenant(site.cluster, hostile.HOME)
        self.steady = SteadyTenant(site.cluster)
        self.baseline = 0.0

    def contained(self) -> Counter[str]:
        """Errors that were contained, by where and kind, as the metrics tell."""
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        found: Counter[str] = Counter()
        for line in lines:
            if line.startswith("bayplan_contained_errors_total{"):
                labels, _, value = line.rpartition(" ")
                found[labels.partition("{")[2].rstrip("}")] += int(float(value))
        return found

    def is_as_before(self) -> None:
        """The process lives, and every error that it contained was counted."""
        assert self.process.poll() is None, "bayplan ended"
        assert self.contained() == Counter()

    def tried(self, what: str) -> None:
        """Everything that is submitted from now on is submitted after this was tried."""
        self.steady.during = what


@pytest.fixture(scope="module")
def stage(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Four hosts, a queue for each tenant, and a replica with all roles under the installed account."""
    folder, address = tmp_path_factory.mktemp("hostile"), free_address()
    kinds = hostile.definitions()
    cluster.apply(*kinds)
    names = [one["metadata"]["name"] for one in kinds]
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", *names)
    with installed(cluster, NAMESPACE, folder, roles=("admission", "scheduler", "webhooks")) as site:
        for name in (hostile.HOME, STEADY):
            Tenant(cluster, name).settle()
        site.add_hosts(*hosts(hostile.HOME))
        small: list[Object] = [{"name": "cpu", "nominalQuota": "2"}, {"name": GPU, "nominalQuota": 2}]
        site.apply(
            flavor(hostile.HOME),
            *tenant_queues(hostile.HOME, small),
            *tenant_queues(STEADY, [{"name": GPU, "nominalQuota": 8}]),
        )
        options = ("--roles=admission,scheduler", "--pod-batch-seconds=0.1", f"--listen={address}")
        with running(site, folder / "run", *options) as process:
            found = Stage(site, process, str(address), str(folder / "run" / "log"))
            found.steady.begin()
            eventually(lambda: len(found.steady.waited) >= BEFORE, "gangs are bound before anything is tried")
            found.baseline = max(one.seconds for one in found.steady.waited[1:])
            yield found
            if found.steady.error is None:
                found.steady.end()
            for home in (hostile.HOME, STEADY):
                kinds_left = ",".join((*names, "jobs", "jobsets", "pods", WORKLOADS))
                cluster.kubectl("delete", kinds_left, "--all", "-n", home, "--wait=false")
        _release(cluster)
        for home in (hostile.HOME, STEADY):
            cluster.kubectl("delete", "namespace", home, "--wait=false")
    cluster.kubectl("delete", "crd", *names, "--wait=false")


def _release(cluster: Cluster) -> None:
    """Nobody is there any more to take finalizers away."""
    change = json.dumps({"metadata": {"finalizers": None}})
    for home in (hostile.HOME, STEADY):
        for kind in (WORKLOADS, "pods"):
            for one in cluster.get(kind, "-n", home)["items"]:
                if one["metadata"].get("finalizers"):
                    cluster.kubectl(
                        "patch", kind, one["metadata"]["name"], "-n", home, "--type=merge", "-p", change
                    )


def until_next_gang(stage: Stage) -> None:
    """Wait until two gangs that were submitted after this came through, or one gave up."""
    count = len(stage.steady.waited)
    eventually(lambda: len(stage.steady.waited) >= count + 2 or stage.steady.error is not None, "gangs go on")


def checked(stage: Stage) -> None:
    until_next_gang(stage)
    stage.is_as_before()
    bound = max(STALL_SECONDS, SLOWER * stage.baseline)
    slow = [one for one in stage.steady.waited[BEFORE:] if one.seconds > bound]
    assert slow == [], f"bound {bound:.1f} s, before {stage.baseline:.1f} s"


# ── what killed it ─────────────────────────────────────────────────────────────────────────────────


def test_amounts_beyond_all_measure_stop_nobody(stage: Stage) -> None:
    stage.tried("absurd amounts")
    for one in hostile.absurd_amounts():
        stage.mallory.tries_to_create(one)
    checked(stage)


def test_numbers_of_thousands_of_digits_stop_nobody(stage: Stage) -> None:
    stage.tried("odd numbers")
    for one in hostile.odd_numbers():
        stage.mallory.tries_to_create(one)
    checked(stage)


def test_a_pod_that_changes_its_group_stops_nobody(stage: Stage) -> None:
    stage.tried("a reused group name")
    counted = {hostile.COUNT: "2"}
    for name in ("one", "two"):
        made_pod = hostile.tenant_pod(name, queued=True, labels={hostile.GROUP: "first"}, annotations=counted)
        stage.mallory.tries_to_create(made_pod)
    for group in ("second", "first", "second"):
        stage.mallory.tries("label", "--overwrite", "pod", "one", f"{hostile.GROUP}={group}")
    stage.mallory.tries("delete", "pod", "two", "--wait=false")
    again = hostile.tenant_pod("three-of", queued=True, labels={hostile.GROUP: "first"}, annotations=counted)
    stage.mallory.tries_to_create(again)
    checked(stage)


def test_jobs_without_templates_stop_nobody(stage: Stage) -> None:
    stage.tried("jobs without templates")
    for one in hostile.jobs_without_templates():
        stage.mallory.tries_to_create(one)
    checked(stage)


def test_objects_nested_deeply_stop_nobody(stage: Stage) -> None:
    stage.tried("deep objects")
    for text in hostile.deep():
        stage.mallory.tries("create", "--validate=false", "-f", "-", stdin=text)
    checked(stage)


def test_a_set_of_50000_groups_stops_nobody(stage: Stage) -> None:
    stage.tried("a huge set")
    stage.mallory.tries_to_create(hostile.huge_set())
    checked(stage)


def test_a_long_chain_of_groups_stops_nobody(stage: Stage) -> None:
    served = stage.cluster.kubectl("api-versions").split()
    if "scheduling.k8s.io/v1alpha3" not in served:
        pytest.skip("this version of Kubernetes has no CompositePodGroup")
    stage.tried("a chain of groups")
    listed = {"apiVersion": "v1", "kind": "List", "items": hostile.composites(400)}
    stage.cluster.kubectl("create", "-f", "-", stdin=json.dumps(listed))
    checked(stage)


@pytest.mark.parametrize("version", ["v1alpha2", "v1beta1"])
def test_a_group_with_a_level_that_no_node_has_stops_nobody(stage: Stage, version: str) -> None:
    if f"scheduling.k8s.io/{version}" not in stage.cluster.kubectl("api-versions").split():
        pytest.skip(f"this version of Kubernetes has no PodGroup in {version}")
    stage.tried("an unknown level")
    for one in hostile.constrained(version):
        stage.mallory.tries_to_create(one)
    checked(stage)


def test_bytes_sent_to_the_webhook_port_stop_nobody(stage: Stage) -> None:
    stage.tried("a flood of large bodies")
    address = client.webhook_address(stage.cluster)
    assert set(client.flood(address)) <= {client.CLOSED, 400, 408, 413, 429}
    checked(stage)
    stage.tried("bodies that are no reviews")
    answers = {client.sent(address, path, body) for path, body in client.garbage()}
    assert answers == {400}
    checked(stage)


# ── what is not theirs ─────────────────────────────────────────────────────────────────────────────


def test_an_annotation_admits_nothing(stage: Stage) -> None:
    stage.tried("an admission by annotation")
    stage.mallory.tries_to_create(hostile.admitted_by_annotation())
    checked(stage)
    found = stage.cluster.get(WORKLOADS, "-n", hostile.HOME)["items"]
    for one in found:
        told = {c["type"]: c["status"] for c in (one.get("status") or {}).get("conditions") or []}
        assert told.get("Admitted") != "True" or _cpu(one) <= 2000, one
    usage = stage.cluster.get("clusterqueue", hostile.HOME)["status"].get("flavorsReservation") or []
    held = {one["name"]: amount(one["name"], one["total"]) for part in usage for one in part["resources"]}
    assert held.get("cpu", 0) <= 2000


def _cpu(workload: Object) -> int:
    parts = workload["spec"]["podSets"]
    return sum(
        part["count"] * amount("cpu", one.get("resources", {}).get("requests", {}).get("cpu", "0"))
        for part in parts
        for one in part["template"]["spec"]["containers"]
    )


def test_a_status_is_not_for_tenants_to_write(stage: Stage) -> None:
    name = hostile.admitted_by_annotation()["metadata"]["name"]
    change = json.dumps({"status": {"conditions": []}})
    told = stage.mallory.tries("patch", WORKLOADS, name, "--subresource=status", "--type=merge", "-p", change)
    assert "forbidden" in told.lower() or "not found" in told.lower()


def test_a_gate_is_not_for_tenants_to_remove(stage: Stage) -> None:
    stage.mallory.create(hostile.tenant_pod("gated", {"cpu": "64"}, queued=True))
    found = stage.cluster.get("pod", "gated", "-n", hostile.HOME)
    assert GATE in [one["name"] for one in found["spec"].get("schedulingGates") or []]
    told = stage.mallory.tries(
        "patch", "pod", "gated", "--type=merge", "-p", '{"spec":{"schedulingGates":null}}'
    )
    found = stage.cluster.get("pod", "gated", "-n", hostile.HOME)
    assert GATE in [one["name"] for one in found["spec"].get("schedulingGates") or []], "it was removed"
    assert told


def test_an_unknown_priority_class_is_refused(stage: Stage) -> None:
    labels = {"kueue.x-k8s.io/priority-class": "no-such-class"}
    told = stage.mallory.tries_to_create(
        hostile.rack_job("urgent", hostile.HOME, queue=hostile.HOME, labels=labels)
    )
    assert "WorkloadPriorityClass" in told


def test_an_invented_owner_does_not_escape_the_default_queue(stage: Stage) -> None:
    stage.site.apply(_default_queue())
    owner = {"apiVersion": "example.com/v1", "kind": "Boss", "name": "nobody", "uid": "1", "controller": True}
    known = {**owner, "apiVersion": "batch/v1", "kind": "Job"}

    def is_queued(name: str, who: Object) -> bool:
        told = stage.mallory.tries_to_create(hostile.rack_job(name, hostile.HOME, ownerReferences=[who]))
        if told:
            return True
        jobs = stage.cluster.get("jobs", "-n", hostile.HOME, f"--field-selector=metadata.name={name}")
        labels: list[Object] = [one["metadata"].get("labels") or {} for one in jobs["items"]]
        return all(one.get(hostile.QUEUE) == "default" for one in labels)  # none: it was collected as garbage

    tries = iter(range(1000))  # the webhooks learn of the queue by a watch
    eventually(lambda: is_queued(f"invented-{next(tries)}", owner), "an invented owner does not help")
    assert is_queued("pretended", known)
    stage.site.kubectl("delete", "localqueue", "default", "-n", hostile.HOME)


def _default_queue() -> Object:
    local = made("LocalQueue", "default", {"clusterQueue": hostile.HOME})
    local["metadata"]["namespace"] = hostile.HOME
    return local


def test_no_host_has_more_than_it_can_hold(stage: Stage) -> None:
    """Pods that claim a place which nobody gave them count all the same.

    They are bound while no gang is under way: a host that pods outside queues take between the admission of a
    gang and its start is ordinary competition.
    """
    stage.tried("claimed places")
    notes = {
        "kueue.x-k8s.io/workload": "no-such-workload",
        "kueue.x-k8s.io/podset-required-topology": hostile.RACK,
    }
    names = [f"claiming-{number}" for number in range(CLAIMING)]
    try:
        with stage.steady.turn:
            for name in names:
                marked = {"kueue.x-k8s.io/tas": "true"}
                claiming = hostile.tenant_pod(name, {GPU: "2"}, annotations=notes, labels=marked)
                claiming["spec"]["containers"][0]["resources"]["limits"] = {GPU: "2"}
                stage.mallory.create(claiming)
            eventually(lambda: all(_host(stage, name) for name in names), "pods outside queues are bound")
        checked(stage)
        assert {name: count for name, count in _gpus_used(stage).items() if count > 4} == {}
    finally:
        gone = ("delete", "pod", *names, "-n", hostile.HOME, "--ignore-not-found", "--wait=false")
        stage.cluster.kubectl(*gone)


def _gpus_used(stage: Stage) -> Counter[str]:
    """GPUs of pods that run, by host."""
    ours = {one["metadata"]["name"] for one in stage.cluster.get("nodes", "-l", POOL)["items"]}
    used: Counter[str] = Counter()
    for one in stage.cluster.get("pods", "-A")["items"]:
        if one["spec"].get("nodeName") and one.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            for container in one["spec"]["containers"]:
                asked = container.get("resources", {}).get("requests", {}).get(GPU, "0")
                used[one["spec"]["nodeName"]] += int(asked)
    return Counter({name: count for name, count in used.items() if name in ours})


def _host(stage: Stage, pod: str) -> str:
    return str(stage.cluster.get("pod", pod, "-n", hostile.HOME)["spec"].get("nodeName", ""))


def test_nobody_waited_and_nothing_ended(stage: Stage) -> None:
    stage.tried("after everything")
    checked(stage)
    stage.steady.end()
    assert len(stage.steady.waited) > BEFORE + 5
