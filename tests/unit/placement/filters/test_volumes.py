"""Decoding of claims, volumes and storage classes."""

from __future__ import annotations

import msgspec

from bayplan.dialects.kube.decode.volumes import (
    ClaimWire,
    CsiNodeWire,
    PersistentVolumeWire,
    StorageCapacityWire,
    StorageClassWire,
    claim_of,
    class_of,
    limits_of,
    storage_capacity_of,
    volume_of,
)
from bayplan.model.node_rules import NodeSelectorTerm, Requirement
from bayplan.model.pod_spec import NOTHING, Selector
from bayplan.model.storage import StorageCapacity, StorageClass, Volume, VolumeClaim


def test_a_claim_is_decoded() -> None:
    obj = {
        "metadata": {
            "name": "c",
            "namespace": "red",
            "annotations": {
                "pv.kubernetes.io/bind-completed": "yes",
                "volume.kubernetes.io/selected-node": "n1",
            },
            "deletionTimestamp": "2030-01-01T00:00:00Z",
            "ownerReferences": [{"kind": "Pod", "name": "p", "uid": "u", "controller": True}],
        },
        "spec": {
            "volumeName": "v",
            "storageClassName": "fast",
            "accessModes": ["ReadWriteOncePod"],
            "resources": {"requests": {"storage": "1Ki"}},
            "volumeMode": "Block",
            "selector": {"matchLabels": {"a": "b"}},
        },
        "status": {"phase": "Lost"},
    }
    assert claim_of(msgspec.convert(obj, ClaimWire)) == VolumeClaim(
        "red", "c", "fast", "v", True, 1024, ("ReadWriteOncePod",), True,
        Selector((Requirement("a", "In", ("b",)),)), selected_node="n1", lost=True, terminating=True,
        owner="u",
    )  # fmt: skip


def test_a_claim_is_bound_only_with_volume_name_and_annotation() -> None:
    bare = {"metadata": {"name": "c", "namespace": "red"}, "spec": {"volumeName": "v"}}
    assert not claim_of(msgspec.convert(bare, ClaimWire)).bound
    annotated = {"metadata": {"name": "c", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}}
    assert not claim_of(msgspec.convert(annotated, ClaimWire)).bound


def test_a_volume_is_decoded() -> None:
    expression = {"key": "zone", "operator": "In", "values": ["a"]}
    obj = {
        "metadata": {"name": "v", "labels": {"x": "y"}},
        "spec": {
            "capacity": {"storage": "2Ki"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "fast",
            "claimRef": {"namespace": "red", "name": "c"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
            "csi": {"driver": "d", "volumeHandle": "h"},
        },
        "status": {"phase": "Available"},
    }
    affinity = (NodeSelectorTerm((Requirement("zone", "In", ("a",)),)),)
    assert volume_of(msgspec.convert(obj, PersistentVolumeWire)) == Volume(
        "v", 2048, "fast", ("ReadWriteOnce",), claim=("red", "c"), labels={"x": "y"}, affinity=affinity,
        driver="d", handle="h",
    )  # fmt: skip


def test_storage_class_csi_node_and_storage_capacity_are_decoded() -> None:
    topology = {"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}
    obj = {
        "metadata": {"name": "fast"},
        "provisioner": "d",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [topology],
    }
    term = NodeSelectorTerm((Requirement("zone", "In", ("a", "b")),))
    assert class_of(msgspec.convert(obj, StorageClassWire)) == StorageClass("fast", "d", True, (term,))
    drivers = [{"name": "d", "allocatable": {"count": 3}}, {"name": "e"}]
    assert limits_of(msgspec.convert({"spec": {"drivers": drivers}}, CsiNodeWire)) == {"d": 3}
    capacity = {"storageClassName": "fast", "capacity": "9Ki", "maximumVolumeSize": "1Ki"}
    assert storage_capacity_of(msgspec.convert(capacity, StorageCapacityWire)) == StorageCapacity(
        "fast", 1024, NOTHING
    )
    unknown = storage_capacity_of(msgspec.convert({"storageClassName": "fast"}, StorageCapacityWire))
    assert unknown.largest == -1
