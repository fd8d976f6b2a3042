"""Pods with resource claims on a real control plane: its claim controller makes and ends the claims."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bayplan.assembly.manifests import InstallSettings, custom_resources
from bayplan.backends.fake_controllers.manifests import BLOCK, RACK, job, topology
from bayplan.dialects.kueue.names.annotations import REQUIRED
from tests.end_to_end.objects import Object, eventually, kwok_node, namespace
from tests.end_to_end.scheduler_oracle import NAME as KUBE_SCHEDULER
from tests.end_to_end.scheduler_oracle import scheduler as kube_scheduler
from tests.end_to_end.test_run import is_complete, nodes_by_rank, rights, scheduler
from tests.support.api_objects import api_object, pod
from tests.support.journal_replay import check_replay

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

DRIVER, API = "gpu.example.com", "resource.k8s.io/v1"
HOSTS = [f"d{rack}-h{host}" for rack in (1, 2) for host in (1, 2)]
DEVICES = 4


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Iterator[Cluster]:
    """Two racks of two hosts with four devices each, published as a driver would."""
    cluster.apply(*custom_resources(InstallSettings(roles=("scheduler",))))
    eventually(
        lambda: "topologies" in cluster.kubectl("api-resources", "-o", "name"), "the definition is served"
    )
    cluster.apply(namespace("bayplan-system"))
    cluster.apply(topology(), *rights())
    cluster.apply(*(kwok_node(name, 0, **{BLOCK: "d", RACK: name[:2]}) for name in HOSTS))
    cluster.apply(*map(resource_slice, HOSTS), device_class("gpu"), *(template(count) for count in (1, 2, 4)))
    cluster.kubectl("wait", "--for=condition=Ready", "--timeout=120s", "node", *HOSTS)
    yield cluster
    cluster.kubectl("delete", "node", *HOSTS)
    cluster.kubectl("delete", "resourceslices", "--all")
    cluster.kubectl("delete", "topologies.kueue.x-k8s.io", "data-centre")


def resource_slice(node: str) -> Object:
    devices = [
        {"name": f"gpu-{number}", "attributes": {"model": {"string": "big"}}} for number in range(DEVICES)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": node, "devices": devices}
    return api_object(API, "ResourceSlice", f"{node}-gpus", spec=spec)


def device_class(name: str) -> Object:
    expression = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].model == "big"'
    return api_object(API, "DeviceClass", name, spec={"selectors": [{"cel": {"expression": expression}}]})


def asked(count: int) -> Object:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    return {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}


def template(count: int) -> Object:
    spec = {"spec": asked(count)}
    return api_object(API, "ResourceClaimTemplate", f"of-{count}", namespace="default", spec=spec)


def claiming_job(name: str, pods: int, devices: int, seconds: float, *, rack: bool = True) -> Object:
    made = job(name, pods, 0, {REQUIRED: RACK} if rack else {}, seconds)
    made["spec"]["template"]["spec"]["resourceClaims"] = [
        {"name": "gpus", "resourceClaimTemplateName": f"of-{devices}"}
    ]
    return made


def claims(site: Cluster) -> list[Object]:
    found: list[Object] = site.get("resourceclaims", "-n", "default")["items"]
    return found


def devices(claim: Object) -> list[tuple[str, str]]:
    results = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
    return [(one["pool"], one["device"]) for one in results]


def check(site: Cluster) -> None:
    """No device is allocated twice."""
    held = [device for claim in claims(site) for device in devices(claim)]
    assert len(held) == len(set(held))


def all_free(site: Cluster) -> bool:
    return not any(devices(claim) for claim in claims(site))


def doubly_used(site: Cluster) -> list[Any]:
    """Devices of two claims that both have a bound pod which is not over."""
    pods = site.get("pods", "-n", "default")["items"]
    using = {
        one["metadata"]["uid"]
        for one in pods
        if one["spec"].get("nodeName") and one["status"].get("phase") not in ("Succeeded", "Failed")
    }
    used = [
        device
        for claim in claims(site)
        if any(one["uid"] in using for one in claim.get("status", {}).get("reservedFor") or ())
        for device in devices(claim)
    ]
    return sorted(device for device, count in Counter(used).items() if count > 1)


def racks(site: Cluster, name: str) -> set[str]:
    return {host[:2] for host in nodes_by_rank(site, name)}


def test_a_gang_with_templates_runs_in_one_rack_and_gives_its_devices_back(
    site: Cluster, tmp_path: Path
) -> None:
    with scheduler(site, tmp_path):
        site.apply(claiming_job("rack", 4, 2, seconds=6))
        eventually(lambda: all(nodes_by_rank(site, "rack") or [""]), "all pods are bound")
        check(site)
        assert sum(len(devices(claim)) for claim in claims(site)) == 8
        assert len(racks(site, "rack")) == 1
        eventually(lambda: is_complete(site, "rack"), "the job completes")
        eventually(lambda: all_free(site), "the claim controller frees the devices")
    check_replay(tmp_path / "journal")


def test_a_gang_without_enough_devices_waits_with_the_reason_and_starts_when_they_are_free(
    site: Cluster, tmp_path: Path
) -> None:
    with scheduler(site, tmp_path):
        site.apply(*(claiming_job(f"first-{number}", 2, 4, seconds=20) for number in (1, 2)))
        eventually(
            lambda: all(all(nodes_by_rank(site, f"first-{one}") or [""]) for one in (1, 2)), "both run"
        )
        site.apply(claiming_job("second", 2, 4, seconds=2))

        def told() -> bool:
            pods = site.get("pods", "-n", "default", "-l", "job-name=second")["items"]
            conditions = [one for each in pods for one in each["status"].get("conditions") or ()]
            return any("cannot allocate all claims" in (one.get("message") or "") for one in conditions)

        eventually(told, "its pods are told that devices are missing")
        assert set(nodes_by_rank(site, "second")) == {""}
        eventually(lambda: is_complete(site, "second"), "it runs when the devices are free", seconds=180)
    check(site)


def test_pods_that_share_a_claim_run_where_its_devices_are(site: Cluster, tmp_path: Path) -> None:
    spec: Any = {"resourceClaims": [{"name": "ours", "resourceClaimName": "shared"}]}
    site.apply(api_object(API, "ResourceClaim", "shared", namespace="default", spec=asked(2)))
    names = ["shares-1", "shares-2", "shares-3"]
    with scheduler(site, tmp_path):
        site.apply(*(pod(name, namespace="default", schedulerName="bayplan", **spec) for name in names))

        def hosts() -> set[str]:
            return {site.get("pod", "-n", "default", name)["spec"].get("nodeName", "") for name in names}

        eventually(lambda: "" not in hosts(), "all are bound")
        assert len(hosts()) == 1
        (claim,) = (one for one in claims(site) if one["metadata"]["name"] == "shared")
        assert len(claim["status"]["reservedFor"]) == 3
        site.kubectl("delete", "pod", "-n", "default", "--grace-period=0", "--force", *names)
        eventually(lambda: all_free(site), "the devices are free")
    site.kubectl("delete", "resourceclaim", "-n", "default", "shared")


def test_killed_between_writes_it_starts_the_gangs_and_loses_no_device(site: Cluster, tmp_path: Path) -> None:
    names = [f"flow-{number}" for number in range(4)]
    site.apply(*(claiming_job(name, 4, 2, seconds=2) for name in names))
    for round_ in range(3):
        with scheduler(site, tmp_path / f"round-{round_}") as process:
            time.sleep(2.5 + 0.4 * round_)
            process.kill()
            check(site)
    with scheduler(site, tmp_path / "last"):
        eventually(lambda: all(is_complete(site, name) for name in names), "all complete", seconds=180)
        eventually(lambda: all_free(site), "all devices are free")
    for name in names:
        assert len(racks(site, name)) == 1


def test_pods_of_a_lost_node_are_replaced_where_devices_are_free(site: Cluster, tmp_path: Path) -> None:
    with scheduler(site, tmp_path):
        site.apply(claiming_job("survives", 3, 4, seconds=600, rack=False))
        eventually(lambda: all(nodes_by_rank(site, "survives") or [""]), "all pods are bound")
        lost = nodes_by_rank(site, "survives")[0]
        site.kubectl("delete", "node", lost)
        site.kubectl("delete", "resourceslice", f"{lost}-gpus")

        def replaced() -> bool:
            hosts = nodes_by_rank(site, "survives")
            return len(hosts) == 3 and all(hosts) and lost not in hosts

        eventually(replaced, "its pod is replaced on the last free node", seconds=240)
        check(site)
        assert doubly_used(site) == []
        assert lost not in {pool for claim in claims(site) for pool, _ in devices(claim)}
        site.apply(kwok_node(lost, 0, **{BLOCK: "d", RACK: lost[:2]}), resource_slice(lost))
        site.kubectl("delete", "job", "-n", "default", "survives")
        eventually(lambda: all_free(site), "the devices are free")
    site.kubectl("wait", "--for=condition=Ready", "--timeout=120s", "node", lost)


def test_a_kube_scheduler_beside_us_and_we_never_use_one_device_for_two_pods(
    site: Cluster, tmp_path: Path
) -> None:
    """Sixteen devices for sixty pods that run for a moment: both schedulers want what becomes free."""
    spec: Any = {
        "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "of-2"}],
        "restartPolicy": "Never",
    }
    played = {"bayplan.dev/run-seconds": "1"}
    names = [f"{whose}-{number}" for number in range(30) for whose in ("ours", "theirs")]
    with scheduler(site, tmp_path), kube_scheduler(site):
        site.apply(
            *(
                pod(
                    name, namespace="default", metadata={"annotations": played},
                    schedulerName="bayplan" if name.startswith("ours") else KUBE_SCHEDULER, **spec,
                )
                for name in names
            )
        )  # fmt: skip
        seen: list[Any] = []

        def over() -> bool:
            seen.extend(doubly_used(site))
            pods = site.get("pods", "-n", "default")["items"]
            ended = {one["metadata"]["name"] for one in pods if one["status"].get("phase") == "Succeeded"}
            return ended.issuperset(names)

        eventually(over, "all pods of both schedulers ran", seconds=300)
        assert seen == []
        eventually(lambda: all_free(site), "all devices are free")
    site.kubectl("delete", "pod", "-n", "default", *names)
