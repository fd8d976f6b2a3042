"""Queued Jobs whose pods some hosts cannot run are admitted on hosts that can, and all their pods run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.end_to_end.admission_site import GPU, RACK, Site, flavor, gpu_queues, hosts, installed, running
from tests.end_to_end.objects import Object, eventually
from tests.end_to_end.test_shared_capacity import POD, Scene, delete
from tests.support.api_objects import container, job

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

pytestmark = pytest.mark.minutes(2)
POOLS = ("ports", "apart", "disk")


@pytest.fixture(scope="module")
def site(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """For each pool two racks of two hosts with four GPUs each, and a queue."""
    roles = ("admission", "scheduler", "webhooks")
    with installed(cluster, "bindable-test", tmp_path_factory.mktemp("bindable"), roles=roles) as found:
        found.add_hosts(*(host for pool in POOLS for host in hosts(pool)))
        found.apply(
            *(flavor(pool) for pool in POOLS), *(one for pool in POOLS for one in gpu_queues(pool, 64))
        )
        yield found


def queued_job(pool: str, pods: int, *, ports: list[Object] | None = None, **spec: Any) -> Object:
    """A queued Job of pods with one GPU each: without a filter all of them get one host."""
    limits = {GPU: "1"}
    main = container(limits, limits) | ({"ports": ports} if ports else {})
    meta = {
        "annotations": {"kueue.x-k8s.io/podset-unconstrained-topology": "true"},
        "labels": {"app": pool},
    }
    template = {"metadata": meta, "spec": {"restartPolicy": "Never", "containers": [main], **POD, **spec}}
    labels = {"kueue.x-k8s.io/queue-name": pool}
    return job(f"gang-{pool}", template, pods, namespace="default", labels=labels, suspend=True)


def apart(pool: str, key: str) -> Object:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": pool}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def volume_in(rack: str) -> list[Object]:
    """A volume that only the hosts of a rack reach, and its claim."""
    term = {"matchExpressions": [{"key": RACK, "operator": "In", "values": [rack]}]}
    shared: Object = {"storageClassName": "", "accessModes": ["ReadWriteMany"]}
    volume = {
        "capacity": {"storage": "1Gi"},
        "nfs": {"server": "files.example.com", "path": "/"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        "claimRef": {"namespace": "default", "name": "data"},
        **shared,
    }
    claim = {"resources": {"requests": {"storage": "1Gi"}}, "volumeName": "bindable-disk", **shared}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "bindable-disk"},
            "spec": volume,
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": "default"},
            "spec": claim,
        },
    ]


def test_jobs_are_admitted_where_their_pods_can_run_and_all_of_them_run(site: Site, tmp_path: Path) -> None:
    port = [{"containerPort": 80, "hostPort": 8080}]
    data = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    options = ("--roles=admission,scheduler", "--pod-batch-seconds=0.1")
    with running(site, tmp_path, *options):
        site.apply(
            queued_job("ports", 4, ports=port),
            queued_job("apart", 2, affinity=apart("apart", RACK)),
            queued_job("disk", 3, volumes=data),
        )
        eventually(lambda: len(Scene(site).bound("gang-ports")) == 4, "each pod has a port of a host")
        eventually(lambda: len(Scene(site).bound("gang-apart")) == 2, "each pod has a rack")
        assert not Scene(site).assigned("gang-disk"), "its claim does not exist"
        site.apply(*volume_in("r2"))
        eventually(lambda: len(pods_of(site, "disk")) == 3, "the claim is bound, and the gang runs")
        scene = Scene(site)
        assert scene.bound("gang-apart") == scene.assigned("gang-apart")
        assert {name.rpartition("-")[0] for name in scene.bound("gang-apart")} == {"apart-r1", "apart-r2"}
        assert scene.bound("gang-disk") == scene.assigned("gang-disk")
        assert {name.rpartition("-")[0] for name in scene.bound("gang-disk")} == {"disk-r2"}
        assert not any(o for o in scene.pods.values() if not o["spec"].get("nodeName"))
        delete(site, "jobs", "pods")
        site.kubectl("delete", "pvc", "data", "-n", "default", "--wait=false")
        site.kubectl("delete", "pv", "bindable-disk", "--wait=false")


def pods_of(site: Site, pool: str) -> list[str]:
    """The hosts of the pods of a gang, one entry for each pod."""
    found = Scene(site).pods.items()
    return [
        o["spec"]["nodeName"] for n, o in found if n.startswith(f"gang-{pool}") and o["spec"].get("nodeName")
    ]
