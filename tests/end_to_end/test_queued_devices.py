"""Queued Jobs whose pods claim devices, on a real control plane: quota by class, racks with free devices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.end_to_end.admission_site import RACK, WORKLOADS, Site, flavor, hosts, installed, made, running
from tests.end_to_end.objects import Object, eventually
from tests.support.api_objects import api_object, cluster_queue, container, job, pod, workload
from tests.support.journal_replay import check_replay

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

POOL, CLASS, RESOURCE, DEVICES = "queued", "queued.example.com", "example.com/gpus", 4
API, QUEUE = "resource.k8s.io/v1", "kueue.x-k8s.io/queue-name"
NO_DEVICES = "cannot allocate all claims"
CONFIGURATION = f"""
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
resources:
  deviceClassMappings:
    - {{name: {RESOURCE}, deviceClassNames: [{CLASS}]}}
"""


@pytest.fixture(scope="module")
def site(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two racks of two hosts with four devices each, and a queue for more of them than there are."""
    folder = tmp_path_factory.mktemp("queued")
    roles = ("admission", "scheduler", "webhooks")
    nodes = hosts(POOL)
    names = [one["metadata"]["name"] for one in nodes]
    with installed(cluster, "queued-devices-test", folder, roles=roles) as found:
        found.add_hosts(*nodes)
        found.apply(*map(resource_slice, names), device_class(), template("four"), template("two", 2))
        queue = cluster_queue(
            POOL, [{"name": RESOURCE, "nominalQuota": 32}], [POOL], namespaceSelector={},
            preemption={"withinClusterQueue": "LowerPriority"},
        )  # fmt: skip
        found.apply(flavor(POOL), queue, made("LocalQueue", POOL, {"clusterQueue": POOL}))
        yield found
        found.kubectl("delete", "jobs,pods", "--all", "-n", "default", "--wait=false")
        found.kubectl("delete", "resourceslices", *(f"{name}-queued" for name in names))
        found.kubectl("delete", "deviceclass", CLASS)
        found.kubectl("delete", "resourceclaimtemplates", "--all", "-n", "default")


@contextmanager
def deciding(site: Site, folder: Path, *processes: str) -> Iterator[None]:
    """Processes that admit and bind (one for both roles), with the rights that were installed."""
    config = folder / "configuration.yaml"
    config.write_text(CONFIGURATION)
    options = [f"--config={config}", "--pod-batch-seconds=0.1"]
    options += ["--no-elect"] if len(processes) > 1 else [f"--journal={folder / 'journal'}"]
    with ExitStack() as stack:
        for roles in processes or ("admission,scheduler",):
            stack.enter_context(running(site, folder / roles, f"--roles={roles}", *options))
        yield


def resource_slice(node: str) -> Object:
    devices = [{"name": f"gpu-{number}"} for number in range(DEVICES)]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": CLASS, "pool": pool, "nodeName": node, "devices": devices}
    return api_object(API, "ResourceSlice", f"{node}-queued", spec=spec)


def device_class() -> Object:
    selector = {"cel": {"expression": f'device.driver == "{CLASS}"'}}
    return api_object(API, "DeviceClass", CLASS, spec={"selectors": [selector]})


def template(name: str, count: int = DEVICES, **request: Any) -> Object:
    exactly = {"exactly": {"deviceClassName": CLASS, "count": count}}
    spec = {"spec": {"devices": {"requests": [{"name": "gpus", **(request or exactly)}]}}}
    return api_object(API, "ResourceClaimTemplate", name, namespace="default", spec=spec)


def claiming(name: str) -> Object:
    return {
        "schedulerName": "bayplan",
        "terminationGracePeriodSeconds": 0,
        "containers": [container()],
        "resourceClaims": [{"name": "own", "resourceClaimTemplateName": name}],
    }


def rack_job(name: str, pods: int, claims: str = "four", seconds: int = 600) -> Object:
    """A queued Job in one rack, each of whose pods has one claim."""
    notes = {"kueue.x-k8s.io/podset-required-topology": RACK, "bayplan.dev/run-seconds": str(seconds)}
    spec = {"restartPolicy": "Never", **claiming(claims)}
    return job(
        name, {"metadata": {"annotations": notes}, "spec": spec}, pods, namespace="default",
        labels={QUEUE: POOL}, completionMode="Indexed", suspend=True,
    )  # fmt: skip


def of_job(site: Site, name: str) -> Object:
    listed: list[Object] = site.cluster.get(WORKLOADS, "-n", "default")["items"]
    for one in listed:
        if one["metadata"]["ownerReferences"][0]["name"] == name:
            return one
    return {}


def condition(site: Site, name: str, kind: str) -> Object:
    conditions = of_job(site, name).get("status", {}).get("conditions", ())
    return next((one for one in conditions if one["type"] == kind), {})


def is_admitted(site: Site, name: str) -> bool:
    return bool(condition(site, name, "Admitted").get("status") == "True")


def nodes_of(site: Site, selector: str) -> list[str]:
    pods = site.cluster.get("pods", "-n", "default", "-l", selector)["items"]
    return sorted(one["spec"].get("nodeName", "") for one in pods)


def told(site: Site, selector: str) -> list[str]:
    """Why pods wait: the reason of each node."""
    pods = site.cluster.get("pods", "-n", "default", "-l", selector)["items"]
    conditions = [one for each in pods for one in each["status"].get("conditions") or ()]
    messages = [one.get("message") or "" for one in conditions if one["type"] == "PodScheduled"]
    return [NO_DEVICES for message in messages if NO_DEVICES in message]


def runs(site: Site, name: str, pods: int) -> bool:
    nodes = nodes_of(site, f"job-name={name}")
    return len(nodes) == pods and all(nodes)


def held(site: Site) -> list[tuple[str, str]]:
    """All devices that claims have. None is there twice."""
    claims = site.cluster.get("resourceclaims", "-n", "default")["items"]
    results = [
        one
        for claim in claims
        for one in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
    ]
    found = [(one["pool"], one["device"]) for one in results]
    assert len(found) == len(set(found)), "a device is allocated twice"
    return found


def clear(site: Site) -> None:
    site.kubectl("delete", "jobs,pods", "--all", "-n", "default", "--wait=false")
    eventually(lambda: not site.cluster.get("pods", "-n", "default")["items"], "no pod is left")
    eventually(lambda: not held(site), "all devices are free")
    eventually(lambda: not site.cluster.get(WORKLOADS, "-n", "default")["items"], "no Workload is left")


def test_a_queued_job_has_quota_and_devices_in_one_rack_and_gives_both_back(
    site: Site, tmp_path: Path
) -> None:
    with deciding(site, tmp_path):
        site.apply(rack_job("train", 4, "two", seconds=4))
        eventually(lambda: runs(site, "train", 4), "all pods are bound")
        (part,) = of_job(site, "train")["status"]["admission"]["podSetAssignments"]
        assert part["resourceUsage"] == {RESOURCE: "8"}
        assert len(held(site)) == 8
        nodes = nodes_of(site, "job-name=train")
        assert len(set(nodes)) == 2 and len({node.rpartition("-")[0] for node in nodes}) == 1
        eventually(lambda: bool(condition(site, "train", "Finished")), "the job completes")
        eventually(lambda: not held(site), "the devices are free again")
        clear(site)
    check_replay(tmp_path / "journal")


def test_a_gang_that_finds_too_few_devices_waits_with_the_reason_and_then_runs(
    site: Site, tmp_path: Path
) -> None:
    with deciding(site, tmp_path):
        site.apply(rack_job("first", 2, seconds=12), rack_job("second", 2))
        eventually(lambda: runs(site, "first", 2) and runs(site, "second", 2), "both racks are full")
        site.apply(rack_job("third", 2))
        claims = f"Each pod claims 4 of class {CLASS} (claim own, request gpus); 4 node(s) have too few"
        eventually(
            lambda: claims in condition(site, "third", "QuotaReserved").get("message", ""),
            "it is told which devices are missing",
        )
        assert not is_admitted(site, "third")
        eventually(lambda: runs(site, "third", 2), "it runs in the rack that became free", seconds=120)
        held(site)
        clear(site)


def test_plain_pods_of_the_same_moment_get_no_device_that_is_promised(site: Site, tmp_path: Path) -> None:
    labels = {"app": "plain"}
    plain = [
        pod(f"plain-{number}", namespace="default", labels=labels, **claiming("two")) for number in range(6)
    ]
    with deciding(site, tmp_path):
        for _ in range(3):
            site.apply(rack_job("gang", 2), *plain)
            eventually(
                lambda: is_admitted(site, "gang") or all(nodes_of(site, "app=plain")),
                "one of both has devices",
            )
            if is_admitted(site, "gang"):
                eventually(lambda: runs(site, "gang", 2), "the gang gets what it was promised")
            held(site)
            clear(site)


@pytest.mark.parametrize(
    "processes", [("admission,scheduler",), ("admission", "scheduler")], ids=("one process", "two processes")
)
def test_the_devices_of_an_admitted_gang_are_held_until_its_pods_come(
    site: Site, tmp_path: Path, processes: tuple[str, ...]
) -> None:
    spec = {"restartPolicy": "Never", **claiming("four")}
    pod_set = {
        "name": "main",
        "count": 3,
        "template": {"spec": spec},
        "topologyRequest": {"unconstrained": True},
    }
    plain = [pod(f"late-{number}", namespace="default", **claiming("four")) for number in range(3)]
    for one in plain:
        one["metadata"]["labels"] = {"app": "late"}
    with deciding(site, tmp_path, *processes):
        site.apply(workload("bare", pod_set, namespace="default", queueName=POOL))
        site.wait_admitted("bare")
        site.apply(*plain)
        eventually(lambda: any(nodes_of(site, "app=late")), "one of them gets the last devices")
        eventually(
            lambda: told(site, "app=late").count(NO_DEVICES) == 2, "the others are told that there are none"
        )
        assert nodes_of(site, "app=late").count("") == 2, "those of the gang are held"
        site.kubectl("delete", WORKLOADS, "bare", "-n", "default", "--wait=false")
        eventually(lambda: all(nodes_of(site, "app=late")), "they are free when the gang is gone")
        clear(site)


def test_what_quota_cannot_count_is_refused_until_the_template_is_another(site: Site, tmp_path: Path) -> None:
    alternatives = [{"name": "big", "deviceClassName": CLASS}]
    site.apply(template("choice", firstAvailable=alternatives))
    with deciding(site, tmp_path):
        site.apply(rack_job("picky", 2, "choice"))
        words = (
            "spec.podSets[0].template.spec.resourceClaims[0].devices.requests[0]: Invalid value: null: "
            "ResourceClaimTemplate choice: FirstAvailable device selection is not supported"
        )
        eventually(lambda: condition(site, "picky", "QuotaReserved").get("message") == words, "it is refused")
        assert condition(site, "picky", "QuotaReserved")["reason"] == "Misconfigured"
        assert condition(site, "picky", "Requeued")["reason"] == "Inadmissible"
        site.kubectl("delete", "resourceclaimtemplate", "choice", "-n", "default")
        site.apply(template("choice", 1))
        eventually(lambda: runs(site, "picky", 2), "it runs with a template that can be counted")
        assert condition(site, "picky", "Requeued") == {}
        clear(site)
