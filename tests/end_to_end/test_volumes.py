"""Pods whose volumes wait for a node, on a real control plane, with its own volume controller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bayplan.assembly.manifests import InstallSettings, custom_resources
from tests.end_to_end.objects import Object, eventually, kwok_node, namespace
from tests.end_to_end.test_run import rights, scheduler
from tests.support.api_objects import pod

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

HOSTS = ("v-1", "v-2")
CLASS, TO_BE_MADE = "disk-by-hand", "disk-to-be-made"
SELECTED = "volume.kubernetes.io/selected-node"


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Iterator[Cluster]:
    cluster.apply(*custom_resources(InstallSettings(roles=("scheduler",))))
    eventually(
        lambda: "topologies" in cluster.kubectl("api-resources", "-o", "name"), "the definition is served"
    )
    cluster.apply(namespace("bayplan-system"))
    cluster.apply(*rights(), *(kwok_node(name, 4) for name in HOSTS))
    cluster.kubectl("wait", "--for=condition=Ready", "--timeout=60s", "node", *HOSTS)
    yield cluster
    cluster.kubectl("delete", "node", *HOSTS)


def storage_class(name: str, provisioner: str) -> Object:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def volume(name: str, host: str, class_: str, **spec: object) -> Object:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [host]}]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "storageClassName": class_,
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "local": {"path": "/disks/1"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            **spec,
        },
    }


def claim(name: str, class_: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "storageClassName": class_,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def claiming_pod(name: str, claimed: str) -> Object:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": claimed}}
    return pod(name, namespace="default", schedulerName="bayplan", volumes=[volume])


def host_of(site: Cluster, name: str) -> str:
    return str(site.get("pod", "-n", "default", name)["spec"].get("nodeName", ""))


def phase_of(site: Cluster, name: str) -> str:
    return str(site.get("pvc", "-n", "default", name)["status"].get("phase", ""))


def test_a_volume_that_exists_brings_its_pod_to_it(site: Cluster, tmp_path: Path) -> None:
    site.apply(storage_class(CLASS, "kubernetes.io/no-provisioner"), volume("only", "v-2", CLASS))
    site.apply(claim("static", CLASS), claiming_pod("reads", "static"))
    with scheduler(site, tmp_path):
        eventually(lambda: host_of(site, "reads") == "v-2", "the pod is where the volume is")
    assert phase_of(site, "static") == "Bound"


def test_a_volume_that_is_to_be_made_is_asked_for_on_the_node(site: Cluster, tmp_path: Path) -> None:
    site.apply(
        storage_class(TO_BE_MADE, "example.com/by-hand"),
        claim("dynamic", TO_BE_MADE),
        claiming_pod("writes", "dynamic"),
    )

    def asked() -> str:
        notes = site.get("pvc", "-n", "default", "dynamic")["metadata"].get("annotations") or {}
        return str(notes.get(SELECTED, ""))

    with scheduler(site, tmp_path):
        eventually(lambda: bool(asked()), "the claim is told the node")
        assert host_of(site, "writes") == ""
        made_for = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "dynamic"}
        site.apply(volume("made-by-hand", asked(), TO_BE_MADE, claimRef=made_for))  # as a provisioner would
        eventually(lambda: host_of(site, "writes") == asked(), "the pod is bound once its claim is")
    assert phase_of(site, "dynamic") == "Bound"
