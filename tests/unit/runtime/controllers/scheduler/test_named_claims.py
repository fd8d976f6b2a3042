"""Pods that name claims for devices: alone they are like pods of a template, several pods share the claim."""

from __future__ import annotations

import pytest

from bayplan.backends.fake_controllers.device_claims import CLAIMS
from bayplan.model.pod import PodKey
from tests.support.device_site import DRIVER, DeviceSite
from tests.support.pod_site import Object


@pytest.fixture
def site() -> DeviceSite:
    return DeviceSite()


@pytest.mark.parametrize("steps", range(8))
def test_a_pod_that_names_a_claim_after_another_pod_joins_it_whenever_it_comes(
    site: DeviceSite, steps: int
) -> None:
    site.claim("mine", 2)
    site.pod("first", claim="mine")
    site.run(steps * 0.1)
    site.pod("second", claim="mine")
    site.run(3)
    assert site.on("second") == site.on("first") != [""]
    (claim,) = site.claims()
    assert len(site.devices(claim)) == 2
    assert len(claim["status"]["reservedFor"]) == 2
    site.check()


def test_pods_with_a_claim_each_are_decided_on_together(site: DeviceSite) -> None:
    """Pods of one signature are one batch: a claim that only one pod names is as good as its own."""
    for number in range(6):
        site.claim(f"c{number}", 1)
        site.pod(f"p{number}", claim=f"c{number}")
    site.loop.step(site.now)
    decoded = [site.role.state.store.pods[PodKey("default", f"p{number}")] for number in range(6)]
    assert len({pod.spec.signature for pod in decoded}) == 1
    assert [pod.spec.new_claims for pod in decoded] == [(("default", f"c{at}"),) for at in range(6)]
    site.run(3)
    assert all(site.on(*(f"p{number}" for number in range(6))))
    site.check()


def test_a_claim_is_shared_as_long_as_two_pods_name_it(site: DeviceSite) -> None:
    site.claim("big", 9)  # more devices than there are: its pods wait
    site.pod("first", claim="big")

    def shared(name: str) -> bool:
        devices = site.role.state.store.pods[PodKey("default", name)].spec.signature.devices
        assert devices is not None
        return bool(devices.shared)

    site.run(1)
    assert not shared("first")
    site.pod("second", claim="big")
    site.run(1)
    assert shared("first") and shared("second")
    site.end("first")
    site.run(1)
    assert not shared("second")


def test_a_pod_waits_until_the_binding_conditions_of_its_devices_hold(site: DeviceSite) -> None:
    """Another scheduler allocated the claim, and the driver has yet to prepare the device."""
    device = {"driver": DRIVER, "pool": "r1-n1", "device": "gpu-0"}
    result = {**device, "request": "gpus", "bindingConditions": ["attached"]}
    site.claim("mine")

    def show(*conditions: Object) -> None:
        status: Object = {"allocation": {"devices": {"results": [result]}}}
        status["devices"] = [{**device, "conditions": list(conditions)}]
        site.store.patch(CLAIMS, "default", "mine", {"status": status}, subresource="status")

    show()
    site.pod("p", claim="mine")
    site.run(30)
    assert site.on("p") == [""]
    words = "device gpu.example.com/r1-n1/gpu-0 is not ready: its binding condition attached is not true"
    assert f"ResourceClaim default/mine: {words}" in site.message("p")
    show({"type": "attached", "status": "True"})
    site.run(30)
    assert all(site.on("p"))


def test_the_reason_of_a_single_pod_has_the_name_of_its_claim(site: DeviceSite) -> None:
    selector = {"cel": {"expression": f'device.attributes["{DRIVER}"].healthy'}}
    site.claim("mine", selectors=[selector])
    site.pod("p", claim="mine")
    site.run(3)
    assert "claim default/mine: selector #0 on device" in site.message("p")
