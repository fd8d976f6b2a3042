"""Claims and volumes for small random clusters."""

from __future__ import annotations

from random import Random
from typing import Any

Obj = dict[str, Any]
HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
DRIVER = "disks.example.com"
SLOW, LOCAL, PROVISIONED, PROVISIONED_IN_A = "slow", "local", "made", "made-in-a"


def add_volumes(random: Random, world: Obj) -> None:
    """Claims of four kinds: bound, waiting for a local volume, provisioned anywhere, or in zone a."""
    world["classes"] = [
        _class(SLOW, "Immediate", "kubernetes.io/no-provisioner"),
        _class(LOCAL, "WaitForFirstConsumer", "kubernetes.io/no-provisioner"),
        _class(PROVISIONED, "WaitForFirstConsumer", DRIVER),
        _class(PROVISIONED_IN_A, "WaitForFirstConsumer", DRIVER)
        | {"allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["a"]}]}]},
    ]
    for number in range(random.randint(1, 5)):
        namespace = random.choice(tuple(world["namespaces"]))
        mode = random.choice(("ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod"))
        match random.randint(0, 3):
            case 0 | 1:
                _bound_claim(random, world, namespace, number, mode)
            case 2:
                world["claims"].append(
                    _claim(
                        namespace, f"{world['prefix']}c{number}", LOCAL, mode, random.choice(("1Gi", "3Gi"))
                    )
                )
            case _:
                world["claims"].append(
                    _claim(
                        namespace,
                        f"{world['prefix']}c{number}",
                        random.choice((PROVISIONED, PROVISIONED_IN_A)),
                        mode,
                        "1Gi",
                    )
                )
    for number in range(random.randint(0, 3)):
        size = random.choice(("1Gi", "2Gi", "4Gi"))
        world["volumes"].append(
            _volume(random, world, f"{world['prefix']}local-{number}", LOCAL, size, "ReadWriteOnce")
        )
    for node in world["nodes"]:
        if random.random() < 0.7:
            world["csinodes"].append(_csi_node(node["metadata"]["name"], random.choice((0, 1, 2, 30))))


def _bound_claim(random: Random, world: Obj, namespace: str, number: int, mode: str) -> None:
    volume = _volume(random, world, f"{world['prefix']}given-{number}", SLOW, "1Gi", mode)
    volume["spec"]["claimRef"] = {"namespace": namespace, "name": f"{world['prefix']}c{number}"}
    volume["status"] = {"phase": "Bound"}
    claim = _claim(namespace, f"{world['prefix']}c{number}", SLOW, mode, "1Gi")
    claim["spec"]["volumeName"] = f"{world['prefix']}given-{number}"
    claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    claim["status"] = {"phase": "Bound"}
    world["volumes"].append(volume)
    world["claims"].append(claim)


def _volume(random: Random, world: Obj, name: str, storage_class: str, size: str, mode: str) -> Obj:
    spec: Obj = {
        "capacity": {"storage": size},
        "accessModes": [mode],
        "storageClassName": storage_class,
        "persistentVolumeReclaimPolicy": "Retain",
        "csi": {"driver": DRIVER, "volumeHandle": name},
    }
    labels = {}
    if random.random() < 0.7:
        node = random.choice(world["nodes"])["metadata"]["name"]
        expression = random.choice(
            (
                {"key": HOSTNAME, "operator": "In", "values": [node]},
                {"key": ZONE, "operator": "In", "values": ["a", "b"]},
            )
        )
        terms = [{"matchExpressions": [expression]}]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    elif random.random() < 0.5:
        labels[ZONE] = random.choice(("a", "b__c"))
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"phase": "Available"},
    }


def _claim(namespace: str, name: str, storage_class: str, mode: str, size: str) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "storageClassName": storage_class,
            "accessModes": [mode],
            "resources": {"requests": {"storage": size}},
        },
        "status": {"phase": "Pending"},
    }


def _class(name: str, mode: str, provisioner: str) -> Obj:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": mode,
        "reclaimPolicy": "Retain",
    }


def _csi_node(name: str, count: int) -> Obj:
    driver = {"name": DRIVER, "nodeID": name, "allocatable": {"count": count}}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name},
        "spec": {"drivers": [driver]},
    }
