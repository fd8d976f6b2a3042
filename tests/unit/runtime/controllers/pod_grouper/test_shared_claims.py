"""Pods of a plain Job that share a claim for devices, with the pod grouper.

Each pod of a plain Job is a group of its own: it starts as soon as it can, and the first of them decides
where the devices of the claim are. Pods of one group start on a node that has devices for all of them.
"""

from __future__ import annotations

from bayplan.backends.crds import define
from bayplan.backends.fake_controllers.manifests import job
from bayplan.dialects.jobs.batch_jobs import JOBS
from bayplan.dialects.kai.api.names import POD_GROUP, POD_GROUP_NAME
from bayplan.runtime.controllers.pod_grouper.controller import PodGrouperController
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.core.journal import MemoryJournal
from bayplan.runtime.core.loop import Loop
from tests.support.device_site import DeviceSite
from tests.support.pod_site import PODS


class GroupedSite(DeviceSite):
    """Nodes with four and with six devices; three pods share a claim of two, and each has one of its own."""

    def __init__(self) -> None:
        super().__init__(nodes=0)
        for name, devices in (("four", 4), ("six", 6)):
            self.node(name, "r1")
            self.slice(name, devices)
        self.claim("team", 2)
        self.template("one", 1)

    def start(self) -> None:
        define(self.store)
        self.role = SchedulerController(awaits_grouper=True)
        self.loop = Loop(self.backend(), (PodGrouperController(), self.role), MemoryJournal())

    def job(self, **annotations: str) -> None:
        body = job("notebooks", 3, 0, annotations, 600)
        body["spec"]["template"]["spec"]["resourceClaims"] = [
            {"name": "ours", "resourceClaimName": "team"},
            {"name": "mine", "resourceClaimTemplateName": "one"},
        ]
        self.store.create(JOBS, body, "default")

    def hosts(self) -> dict[str, str]:
        pods = self.store.list(PODS).items
        return {one["metadata"]["name"]: one["spec"].get("nodeName", "") for one in pods}


def test_pods_of_a_plain_job_start_one_by_one_where_the_first_got_the_devices_of_the_claim() -> None:
    site = GroupedSite()
    site.job()
    site.run(10)
    assert len(site.store.list(POD_GROUP).items) == 3
    assert sorted(site.hosts().values()) == ["", "four", "four"]
    (waiting,) = (name for name, host in site.hosts().items() if not host)
    assert "1 cannot allocate all claims, 1 resourceclaim not available on the node" in site.message(waiting)
    site.check()


def test_pods_of_one_group_start_together_on_a_node_that_has_devices_for_all() -> None:
    site = GroupedSite()
    site.store.create(POD_GROUP, {"metadata": {"name": "team"}, "spec": {"minMember": 3}}, "default")
    site.job(**{POD_GROUP_NAME: "team"})
    site.run(10)
    assert list(site.hosts().values()) == ["six"] * 3
    site.check()
