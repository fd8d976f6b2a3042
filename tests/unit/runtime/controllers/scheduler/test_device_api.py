"""The API group of devices is absent, appears later, and goes away: the scheduler works on all the same."""

from __future__ import annotations

import pytest

from tests.support.device_site import DeviceApi, DeviceSite

NOT_READABLE = (
    "ResourceClaims of resource.k8s.io/v1 cannot be read: either the cluster does not serve them (Kubernetes "
    "1.34 and later do), or the scheduler may not list them"
)


@pytest.fixture
def site() -> DeviceSite:
    return DeviceSite()


def test_pods_with_claims_wait_for_the_group_and_start_when_it_appears(site: DeviceSite) -> None:
    site.template("one")
    api = DeviceApi(site.store)
    api.switch_off()
    site.start()
    site.pod("p", "one")
    site.pod("plain", resourceClaims=[])
    site.run(30)
    assert site.on("p") == [""]
    assert all(site.on("plain"))
    assert NOT_READABLE in site.message("p")
    api.switch_on()
    site.run(70)
    assert all(site.on("p"))
    site.check()


def test_the_group_goes_away_and_comes_back(site: DeviceSite) -> None:
    site.template("three", 3)
    site.pod("before", "three")
    site.run()
    api = DeviceApi(site.store)
    api.switch_off()
    site.pod("during", "three")
    site.pod("plain", resourceClaims=[])
    site.run(30)
    assert site.on("during") == [""]
    assert NOT_READABLE in site.message("during")
    assert all(site.on("plain"))
    api.switch_on()
    site.run(70)
    assert sorted(site.on("before", "during")) == ["r1-n1", "r1-n2"]
    site.check()


def test_a_gang_waits_as_a_whole_while_the_group_is_away(site: DeviceSite) -> None:
    site.template("four", 4)
    api = DeviceApi(site.store)
    api.switch_off()
    names = site.gang("g", 2, template="four")
    site.run(30)
    assert site.on(*names) == ["", ""]
    assert NOT_READABLE in site.message("g-0")
    api.switch_on()
    site.run(70)
    assert sorted(site.on(*names)) == ["r1-n1", "r1-n2"]
    site.check()


def test_the_group_goes_away_between_the_writes_of_a_gang(site: DeviceSite) -> None:
    """What the writes of claims left behind is used, or given back, when the group is there again."""
    site.template("four", 4)
    site.run(1)
    names = site.gang("g", 2, template="four")
    api = DeviceApi(site.store)
    while not any(site.devices(claim) for claim in site.claims()):
        site.run(0.1)
    assert site.on(*names) == ["", ""]
    api.switch_off()
    site.run(30)
    bound = [node for node in site.on(*names) if node]
    api.switch_on()
    site.run(90)
    assert sorted(site.on(*names)) == ["r1-n1", "r1-n2"]
    assert len(bound) in (0, 2)
    site.check()


def test_a_kind_of_the_group_that_appears_before_the_others_binds_no_pod(site: DeviceSite) -> None:
    site.template("three", 3)
    site.pod("before", "three")
    site.run()
    api = DeviceApi(site.store)
    api.switch_off()
    site.pod("during", "three")
    site.run(30)
    for plurals in (("resourceslices", "deviceclasses"), ("resourceclaims",), ("resourceclaimtemplates",)):
        api.switch_on(*plurals)
        site.run(30)
    site.run(30)
    assert sorted(site.on("before", "during")) == ["r1-n1", "r1-n2"]
    site.check()
