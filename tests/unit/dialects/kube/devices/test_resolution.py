"""A pod has the claims that it names or that were made for it, or waits with a reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bayplan.dialects.kube.devices.resolution import ClaimingPod, resolve_claims
from bayplan.model.devices.claims import (
    ClaimConsumer,
    DeviceAllocation,
    DeviceAsk,
    DeviceClaim,
    DeviceClaimKey,
    DeviceRequest,
)
from bayplan.model.devices.inventory import DeviceClass

POD = ClaimingPod(
    "ns", "p", "u1",
    ({"name": "own", "resourceClaimTemplateName": "t"}, {"name": "rack", "resourceClaimName": "shared"}),
    ({"name": "own", "resourceClaimName": "p-own-x"},),
)  # fmt: skip
ASK = DeviceRequest("r", (DeviceAsk("r", "gpu"),))
OWN = DeviceClaim(DeviceClaimKey("ns", "p-own-x"), requests=(ASK,), owner="u1")
SHARED = DeviceClaim(DeviceClaimKey("ns", "shared"), requests=(ASK,))
CLASSES = {"gpu": DeviceClass("gpu")}


def reason(pod: ClaimingPod, *claims: DeviceClaim, classes: dict[str, DeviceClass] = CLASSES) -> str:
    return resolve_claims(pod, {claim.key: claim for claim in claims}, classes).reason


def test_claims_come_in_the_order_of_the_spec() -> None:
    found = resolve_claims(POD, {claim.key: claim for claim in (SHARED, OWN)}, CLASSES)
    assert (found.claims, found.reason) == ((OWN, SHARED), "")


def test_a_claim_that_is_not_needed_is_left_out() -> None:
    pod = replace(POD, statuses=({"name": "own"},))
    assert resolve_claims(pod, {SHARED.key: SHARED}, CLASSES).claims == (SHARED,)


@pytest.mark.parametrize(
    ("pod", "claims", "words"),
    [
        (replace(POD, statuses=()), (SHARED,), 'pod "ns/p": ResourceClaim not created yet'),
        (POD, (OWN,), 'resourceclaim.resource.k8s.io "shared" not found'),
        (
            POD,
            (replace(OWN, owner="u9"), SHARED),
            "ResourceClaim ns/p-own-x was not created for pod ns/p (pod is not owner)",
        ),
        (POD, (OWN, replace(SHARED, terminating=True)), 'resourceclaim "shared" is being deleted'),
        (
            POD,
            (OWN, replace(SHARED, reserved_for=tuple(ClaimConsumer(f"v{n}") for n in range(256)))),
            "ResourceClaim ns/shared is reserved for 256 objects, the most that are allowed",
        ),
    ],
)
def test_a_pod_waits_for_its_claims(pod: ClaimingPod, claims: tuple[DeviceClaim, ...], words: str) -> None:
    assert reason(pod, *claims) == words


def test_a_class_must_exist_only_until_the_claim_is_allocated() -> None:
    assert reason(POD, OWN, SHARED, classes={}) == "request r: device class gpu does not exist"
    have = DeviceAllocation()
    assert reason(POD, replace(OWN, allocation=have), replace(SHARED, allocation=have), classes={}) == ""
