"""Claims and volumes for small random clusters."""

from __future__ import annotations

from random import Random
from typing import Any

Obj = dict[str, Any]
HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
DRIVER = "disks.example.com"
SLOW, LOCAL, MADE, MADE_IN_A = "slow", "local", "made", "made-in-a"


def put_volumes(random: Random, made: Obj) -> None:
    """Claims of four sorts: given a volume, waiting for a local one, to be made anywhere, to be made in a."""
    made["classes"] = [
        _class(SLOW, "Immediate", "kubernetes.io/no-provisioner"),
        _class(LOCAL, "WaitForFirstConsumer", "kubernetes.io/no-provisioner"),
        _class(MADE, "WaitForFirstConsumer", DRIVER),
        _class(MADE_IN_A, "WaitForFirstConsumer", DRIVER)
        | {"allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["a"]}]}]},
    ]
    for number in range(random.randint(1, 5)):
        namespace = random.choice(tuple(made["namespaces"]))
        mode = random.choice(("ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod"))
        match random.randint(0, 3):
            case 0 | 1:
                _given(random, made, namespace, number, mode)
            case 2:
                made["claims"].append(
                    _claim(
                        namespace, f"{made['prefix']}c{number}", LOCAL, mode, random.choice(("1Gi", "3Gi"))
                    )
                )
            case _:
                made["claims"].append(
                    _claim(
                        namespace, f"{made['prefix']}c{number}", random.choice((MADE, MADE_IN_A)), mode, "1Gi"
                    )
                )
    for number in range(random.randint(0, 3)):
        size = random.choice(("1Gi", "2Gi", "4Gi"))
        made["volumes"].append(
            _volume(random, made, f"{made['prefix']}local-{number}", LOCAL, size, "ReadWriteOnce")
        )
    for node in made["nodes"]:
        if random.random() < 0.7:
            made["csinodes"].append(_csi_node(node["metadata"]["name"], random.choice((0, 1, 2, 30))))


def _given(random: Random, made: Obj, namespace: str, number: int, mode: str) -> None:
    volume = _volume(random, made, f"{made['prefix']}given-{number}", SLOW, "1Gi", mode)
    volume["spec"]["claimRef"] = {"namespace": namespace, "name": f"{made['prefix']}c{number}"}
    volume["status"] = {"phase": "Bound"}
    claim = _claim(namespace, f"{made['prefix']}c{number}", SLOW, mode, "1Gi")
    claim["spec"]["volumeName"] = f"{made['prefix']}given-{number}"
    claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    claim["status"] = {"phase": "Bound"}
    made["volumes"].append(volume)
    made["claims"].append(claim)


def _volume(random: Random, made: Obj, name: str, storage_class: str, size: str, mode: str) -> Obj:
    spec: Obj = {
        "capacity": {"storage": size},
        "accessModes": [mode],
        "storageClassName": storage_class,
        "persistentVolumeReclaimPolicy": "Retain",
        "csi": {"driver": DRIVER, "volumeHandle": name},
    }
    labels = {}
    if random.random() < 0.7:
        node = random.choice(made["nodes"])["metadata"]["name"]
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
