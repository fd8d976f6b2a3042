"""The writes to a claim have what the API asks for, and read back as what was decided."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from bayplan.dialects.api import Verb
from bayplan.dialects.kube.devices.decode import claim_of, exact_amount
from bayplan.dialects.kube.devices.wire import ResourceClaimWire
from bayplan.dialects.kube.devices.writes import (
    FINALIZER,
    allocate_write,
    allocation_body,
    protect_write,
    quantity_text,
    release_write,
    reserve_write,
)
from bayplan.model.devices.claims import ClaimConsumer, DeviceClaim

ALLOCATION = {
    "devices": {
        "results": [
            {
                "request": "gpu/large", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0",
                "adminAccess": True,
                "tolerations": [{"effect": "NoExecute", "operator": "Exists", "tolerationSeconds": 60}],
            },
            {
                "request": "part", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-1",
                "shareID": "11111111-1111-1111-1111-111111111111", "consumedCapacity": {"memory": "1500m"},
                "bindingConditions": ["attached"], "bindingFailureConditions": ["failed"],
            },
        ],
        "config": [
            {"source": "FromClass", "requests": ["part"], "opaque": {"driver": "d", "parameters": {"a": 1}}},
            {"source": "FromClaim", "opaque": {"driver": "d", "parameters": {"b": [2]}}},
        ],
    },
    "nodeSelector": {
        "nodeSelectorTerms": [
            {
                "matchExpressions": [{"key": "rack", "operator": "Exists"}],
                "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
            }
        ]
    },
}  # fmt: skip
POD, OTHER = ClaimConsumer("u1", "p1"), ClaimConsumer("u2", "p2")


def claim_with(status: dict[str, Any] | None = None, finalizers: tuple[str, ...] = ()) -> DeviceClaim:
    meta = {"name": "c", "namespace": "ns", "uid": "uc", "resourceVersion": "7", "finalizers": finalizers}
    return claim_of(
        msgspec.convert({"metadata": meta, "status": status or {}}, ResourceClaimWire, strict=False)
    )


def test_an_allocation_is_written_as_it_was_read() -> None:
    allocation = claim_with({"allocation": ALLOCATION}).allocation
    assert allocation is not None
    assert allocation_body(allocation, iter(())) == ALLOCATION


def test_allocation_and_reservation_are_one_write_with_the_version_as_its_precondition() -> None:
    allocation = claim_with({"allocation": ALLOCATION}).allocation
    assert allocation is not None
    fresh = replace(allocation, devices=(replace(allocation.devices[1], share=""),))
    write = allocate_write(claim_with(), fresh, [POD], iter(["share-1"]))
    assert (write.verb, write.subresource, write.uid, write.version) == (
        Verb.MERGE_PATCH,
        "status",
        "uc",
        "7",
    )
    status = write.body["status"]
    assert status["reservedFor"] == [{"resource": "pods", "name": "p1", "uid": "u1"}]
    assert [one["shareID"] for one in status["allocation"]["devices"]["results"]] == ["share-1"]


def test_the_finalizer_is_added_once_and_others_stay() -> None:
    write = protect_write(claim_with(finalizers=("other",)))
    assert write is not None
    assert (write.subresource, write.body) == ("", {"metadata": {"finalizers": ["other", FINALIZER]}})
    assert protect_write(claim_with(finalizers=(FINALIZER,))) is None


def test_a_shared_claim_is_reserved_for_each_pod_once() -> None:
    reserved = {"reservedFor": [{"resource": "pods", "name": "p1", "uid": "u1"}]}
    assert reserve_write(claim_with(reserved), [POD]) is None
    write = reserve_write(claim_with(reserved), [OTHER])
    assert write is not None
    assert [one["uid"] for one in write.body["status"]["reservedFor"]] == ["u1", "u2"]
    assert "allocation" not in write.body["status"]


def test_devices_are_given_back_with_the_last_reservation_only() -> None:
    both = [{"resource": "pods", "name": f"p{n}", "uid": f"u{n}"} for n in (1, 2)]
    kept = release_write(claim_with({"allocation": ALLOCATION, "reservedFor": both}), ["u1"])
    assert kept.body == {"status": {"reservedFor": both[1:]}}
    last = release_write(claim_with({"allocation": ALLOCATION, "reservedFor": both[:1]}), ["u1"])
    assert last.body == {"status": {"reservedFor": None, "allocation": None, "devices": None}}


@pytest.mark.parametrize("text", ["0", "3", "1500m", "1u", "7n", "85899345920"])
def test_an_amount_is_written_as_a_quantity_of_the_same_value(text: str) -> None:
    assert quantity_text(exact_amount(text)) == text
