"""On which nodes pods get their devices, where several would do or only one serves a whole gang."""

from __future__ import annotations

from bayplan.backends.fake_controllers.device_claims import TEMPLATES
from tests.support.device_site import DeviceSite


def test_pods_that_share_a_claim_go_to_a_node_that_has_devices_for_all_of_them() -> None:
    site = DeviceSite(racks=1, nodes=1, devices=2)
    site.node("r1-n2", "r1")
    site.slice("r1-n2", 3)
    site.claim("ours")
    site.template("one")
    names = site.gang("g", 2, template="one", claim="ours")
    site.run()
    assert site.on(*names) == ["r1-n2", "r1-n2"]
    site.check()


def test_the_node_that_satisfies_an_earlier_alternative_is_preferred() -> None:
    """All else equal, the first node by name would be chosen."""
    site = DeviceSite(racks=1, nodes=1, devices=2)
    site.node("r1-n2", "r1")
    site.slice("r1-n2", 4)
    asks = [
        {"name": name, "deviceClassName": "gpu", "count": count} for name, count in (("best", 4), ("ok", 1))
    ]
    spec = {"devices": {"requests": [{"name": "gpus", "firstAvailable": asks}]}}
    site.store.create(TEMPLATES, {"metadata": {"name": "best"}, "spec": {"spec": spec}}, "default")
    site.pod("p", "best")
    site.run()
    assert site.on("p") == ["r1-n2"]
    site.check()
