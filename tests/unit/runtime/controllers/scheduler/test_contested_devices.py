"""Another scheduler allocates or binds between our last event and our writes: no device goes to two pods."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.backends.embedded.storage.store import Store
from bayplan.backends.fake_controllers.device_claims import CLAIMS
from bayplan.dialects.api import Backend, Write
from tests.support.device_site import DRIVER, DeviceSite
from tests.support.pod_site import NODES, PODS


class OvertakenBackend(EmbeddedBackend):
    """Calls `overtake` once, just before a write of devices to a claim."""

    overtake: Callable[[], None] | None = None

    def submit(self, writes: Sequence[Write]) -> None:
        if self.overtake is not None and any("allocation" in (w.body.get("status") or {}) for w in writes):
            act, self.overtake = self.overtake, None
            act()
        super().submit(writes)


class OvertakenSite(DeviceSite):
    def backend(self) -> Backend:
        return OvertakenBackend(self.store)

    def overtaken_by(self, act: Callable[[], object]) -> None:
        self.loop.backend.overtake = act  # type: ignore[attr-defined]


@pytest.fixture
def site() -> OvertakenSite:
    site = OvertakenSite(nodes=2, devices=1)
    site.template("one")
    site.run(1)
    return site


def allocate_elsewhere(store: Store, node: str) -> None:
    """A claim of another scheduler gets the only device of a node."""
    result = {"request": "gpus", "driver": DRIVER, "pool": node, "device": "gpu-0"}
    status = {"allocation": {"devices": {"results": [result]}}}
    store.patch(CLAIMS, "default", "theirs", {"status": status}, subresource="status")


def test_a_device_that_another_scheduler_allocated_first_is_not_used(site: OvertakenSite) -> None:
    site.claim("theirs")
    site.overtaken_by(lambda: allocate_elsewhere(site.store, "r1-n1"))
    site.pod("p", "one", nodeSelector={"rack": "r1"})
    site.run(5)
    assert site.on("p") == ["r1-n2"]
    site.check()


def test_a_gang_that_lost_a_device_gives_all_of_them_back(site: OvertakenSite) -> None:
    site.claim("theirs")
    site.overtaken_by(lambda: allocate_elsewhere(site.store, "r1-n1"))
    names = site.gang("g", 2, template="one")
    site.run(20)
    assert site.on(*names) == ["", ""]
    assert [site.devices(claim) for claim in site.claims()].count([]) == 2
    site.store.delete(CLAIMS, "default", "theirs")
    site.run(20)
    assert all(site.on(*names))
    site.check()


def test_a_node_that_vanishes_while_claims_are_written_gets_no_pod(site: OvertakenSite) -> None:
    site.overtaken_by(lambda: site.store.delete(NODES, "", "r1-n1"))
    site.pod("p", "one")
    site.run(10)
    assert site.on("p") == ["r1-n2"]
    site.check()


def test_a_node_that_another_scheduler_fills_while_claims_are_written_gets_no_pod(
    site: OvertakenSite,
) -> None:
    def fill() -> None:
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "64"}}}
        spec = {"schedulerName": "another", "containers": [container], "nodeName": "r1-n1"}
        site.store.create(PODS, {"metadata": {"name": "large"}, "spec": spec}, "default")

    site.overtaken_by(fill)
    site.pod("p", "one")
    site.run(10)
    assert site.on("p") == ["r1-n2"]
    site.check()


def test_a_scheduler_with_pods_that_need_devices_may_allocate_a_second_later(site: OvertakenSite) -> None:
    site.claim("theirs")
    spec = {
        "schedulerName": "another",
        "containers": [{"name": "c", "image": "i"}],
        "resourceClaims": [{"name": "gpus", "resourceClaimName": "theirs"}],
    }
    site.store.create(PODS, {"metadata": {"name": "waits"}, "spec": spec}, "default")
    site.run(1)
    site.pod("p", "one")
    site.run(1)
    ((node, _),) = [device for claim in site.claims() for device in site.devices(claim)]
    assert site.on("p") == [""], "its devices are allocated, and it is not bound yet"
    allocate_elsewhere(site.store, node)
    site.run(10)
    assert site.on("p") == [{"r1-n1": "r1-n2", "r1-n2": "r1-n1"}[node]]
    site.check()
