"""Gangs on nodes with zones, on a real control plane: aligned in one rack, told why not, without zones."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bayplan.assembly.manifests import InstallSettings, custom_resources
from tests.end_to_end import admission_site as admission
from tests.end_to_end.objects import Object, eventually, kwok_node, namespace
from tests.end_to_end.test_run import rights, scheduler
from tests.support.api_objects import container, node, pod
from tests.support.numa_crd import definition, topology

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

GPU = "example.com/gpu"
RACKS = {"z-1": "torn", "z-2": "torn", "z-3": "whole", "z-4": "whole"}
ZONE: Mapping[str, str | int] = {"cpu": "8", "memory": "32Gi", GPU: 4}
TORN: tuple[Mapping[str, str | int], ...] = ({**ZONE, GPU: 2}, {**ZONE, GPU: 2})
CRD = str(definition()["metadata"]["name"])
HINTS = "apiVersion: bayplan.dev/v1\nkind: Configuration\nzones:\n  hints: true\n"


def numa_node(name: str, rack: str) -> Object:
    return node(name, {"cpu": "16", "memory": "64Gi", "pods": "110", GPU: "8"}, {"zoned-rack": rack})


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Iterator[Cluster]:
    cluster.apply(*custom_resources(InstallSettings(roles=("scheduler",))))
    cluster.apply(namespace("bayplan-system"))
    cluster.apply(*rights(), *(numa_node(name, rack) for name, rack in RACKS.items()))
    cluster.kubectl("wait", "--for=condition=Ready", "--timeout=60s", "node", *RACKS)
    yield cluster
    cluster.kubectl("delete", "node", *RACKS)


def install(site: Cluster) -> None:
    """The definition and a report of each node; the first rack has as much, but no zone of it has four."""
    site.apply(definition())
    site.kubectl("wait", "--for=condition=Established", "--timeout=60s", f"crd/{CRD}")
    for name, rack in RACKS.items():
        site.apply(topology(name, TORN if rack == "torn" else (ZONE, ZONE)))


def apply_gang(site: Cluster, name: str, pods: int, gpus: int) -> list[str]:
    """Pods that each need so many GPUs in one zone, all of them in one rack."""
    api = {"apiVersion": "scheduling.k8s.io/v1alpha1", "kind": "Workload"}
    notes = {"bayplan.dev/required-topology": "zoned-rack"}
    groups = [{"name": "g", "policy": {"gang": {"minCount": pods}}}]
    site.apply({**api, "metadata": meta(name, annotations=notes), "spec": {"podGroups": groups}})
    names = [f"{name}-{number}" for number in range(pods)]
    asks = {"cpu": "4", "memory": "8Gi", GPU: str(gpus)}
    spec: Object = {"schedulerName": "bayplan", "workloadRef": {"name": name, "podGroup": "g"}}
    site.apply(*(pod(one, namespace="default", containers=[container(asks, asks)], **spec) for one in names))
    return names


def meta(name: str, **more: Any) -> Object:
    return {"name": name, "namespace": "default", **more}


def read_pod(site: Cluster, name: str) -> Object:
    return site.get("pod", "-n", "default", name)


def hosts(site: Cluster, names: list[str]) -> list[str]:
    return sorted(str(read_pod(site, name)["spec"].get("nodeName", "")) for name in names)


def told(site: Cluster, name: str) -> str:
    for one in read_pod(site, name)["status"].get("conditions") or ():
        if one["type"] == "PodScheduled" and one["status"] == "False":
            return str(one.get("message", ""))
    return ""


def remove(site: Cluster, *names: str) -> None:
    site.kubectl("delete", "pod", "-n", "default", "--force", "--grace-period=0", *names)


def test_a_gang_lands_aligned_in_one_rack_or_hears_why(site: Cluster, tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text(HINTS)
    install(site)
    with scheduler(site, tmp_path, "--config", str(settings)):
        names = apply_gang(site, "aligned", 4, 4)
        eventually(lambda: all(hosts(site, names)), "all pods have nodes", 30)
        assert hosts(site, names) == ["z-3", "z-3", "z-4", "z-4"]
        hints = sorted(
            read_pod(site, one)["metadata"]["annotations"]["bayplan.dev/assumed-zones"] for one in names
        )
        assert hints == ["main=0", "main=0", "main=1", "main=1"]

        late = apply_gang(site, "late", 2, 3)
        eventually(lambda: "cannot align container" in told(site, late[0]), "it hears why it waits", 30)
        assert hosts(site, late) == ["", ""]
        assert "container main asks for 4 of cpu and 3 of example.com/gpu and 8Gi of memory" in told(
            site, late[0]
        )
        assert "zone 0 has 2 of example.com/gpu, zone 1 has 2 of example.com/gpu" in told(site, late[0])
        events = site.get("events", "-n", "default", "--field-selector", f"involvedObject.name={late[0]}")
        assert "cannot align container" in json.dumps(events)

        remove(site, *names)
        for name in ("z-3", "z-4"):  # as their exporters would
            site.apply(topology(name, ({**ZONE, "cpu": "7"}, ZONE)))
        eventually(lambda: all(hosts(site, late)), "a report that tells of more room wakes it", 30)
        assert set(hosts(site, late)) <= {"z-3", "z-4"}
        remove(site, *late)


def test_without_the_definition_zones_do_not_matter(site: Cluster, tmp_path: Path) -> None:
    install(site)
    for name in RACKS:
        site.apply(topology(name, TORN))
    with scheduler(site, tmp_path):
        names = apply_gang(site, "torn", 2, 3)
        eventually(lambda: "cannot align container" in told(site, names[0]), "no zone has three", 30)
        site.kubectl("delete", "crd", CRD)
        eventually(lambda: all(hosts(site, names)), "it is scheduled by room alone", 60)
        remove(site, *names)
        more = apply_gang(site, "later", 2, 3)
        eventually(lambda: all(hosts(site, more)), "so is another one", 30)
        remove(site, *more)


def test_a_queue_admits_only_where_a_gang_can_be_aligned(cluster: Cluster, tmp_path: Path) -> None:
    """Pods of eight GPUs that have to lie in one zone, and all pods of a gang in one rack."""
    whole: Mapping[str, str | int] = {admission.GPU: 8}
    torn: Mapping[str, str | int] = {admission.GPU: 7}
    with admission.installed(cluster, "zones-test", tmp_path) as found:
        racks = {f"q-r{rack}-h{number}": f"r{rack}" for rack in (1, 2) for number in (1, 2)}
        for name, rack in racks.items():
            labels = {admission.POOL: "zoned", admission.BLOCK: "b1", admission.RACK: rack}
            found.add_hosts(kwok_node(name, 16, **labels))
        found.apply(admission.flavor("zoned"), *admission.gpu_queues("zoned", 64))
        with admission.admitting(found, tmp_path / "replica"):
            found.apply(admission.gang_workload("before", "zoned", 1, 9, required=admission.RACK))
            found.wait_admitted("before")  # nobody tells of zones yet
            found.kubectl("delete", admission.WORKLOADS, "before", "-n", "default")

            cluster.apply(definition())
            cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", f"crd/{CRD}")
            for name, rack in racks.items():
                cluster.apply(topology(name, (torn, torn) if rack == "r1" else (whole, whole)))
            eventually(lambda: _waits(found, "probe", 1, 9), "reports are heard", 60)
            found.apply(
                admission.gang_workload("aligned", "zoned", 4, 8, required=admission.RACK),
                admission.gang_workload("late", "zoned", 2, 8, required=admission.RACK),
            )
            found.wait_admitted("aligned")
            assert found.hosts("aligned") == {"q-r2-h1": 2, "q-r2-h2": 2}
            eventually(lambda: "cannot align container" in found.told("late")[2], "it hears why it waits")
            assert found.told("late")[:2] == ("False", "WaitingForQuota"), "it would fit if the first left"
            said = "container main asks for 8 of nvidia.com/gpu; zone 0 has 7 of nvidia.com/gpu"
            assert said in found.told("late")[2]

            cluster.apply(topology("q-r1-h1", (whole, whole)))
            found.wait_admitted("late")
            assert found.hosts("late") == {"q-r1-h1": 2}
            cluster.kubectl("delete", "crd", CRD)
            found.wait_admitted("probe")
        assert admission.replayed(tmp_path / "replica").endswith("; 0 plans differ when decided again")


def _waits(site: admission.Site, name: str, pods: int, gpus: int) -> bool:
    """Whether a gang that is too large for any zone waits for one; asked anew if it was admitted before."""
    site.apply(admission.gang_workload(name, "zoned", pods, gpus, required=admission.RACK))
    eventually(lambda: site.told(name)[0] in ("True", "False"), f"{name} is decided upon")
    if site.told(name)[0] == "False":
        return True
    site.kubectl("delete", admission.WORKLOADS, name, "-n", "default")
    return False
