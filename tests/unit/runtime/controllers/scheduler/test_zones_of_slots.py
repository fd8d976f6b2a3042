"""Zones that admission has promised: the scheduler binds no other pod into them, and never waits for ever."""

from __future__ import annotations

from bayplan.backends.crds import define
from bayplan.dialects.kueue.names import api_kinds
from bayplan.dialects.kueue.names.annotations import POD_SET, WORKLOAD_NAME
from bayplan.model.node import HOSTNAME
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from tests.support.pod_site import PODS, Object
from tests.unit.runtime.controllers.scheduler.test_numa import GPU, ZONE, Zoned


def template(gpus: int) -> Object:
    asks = {"cpu": "1", "memory": "1Gi", GPU: str(gpus)}
    container = {"name": "main", "image": "i", "resources": {"requests": asks, "limits": asks}}
    return {"schedulerName": "bayplan", "restartPolicy": "Never", "containers": [container]}


class SlotSite(Zoned):
    """Nodes with zones, and admitted Workloads."""

    def __init__(self, nodes: int = 1, role: SchedulerController | None = None) -> None:
        super().__init__(nodes, role)
        define(self.store)

    def admitted(self, name: str, gpus: int, *hosts: str) -> None:
        """A Workload with a slot on each of these hosts."""
        slices = [
            {"domainCount": 1, "valuesPerLevel": [{"universal": host}], "podCounts": {"universal": 1}}
            for host in hosts
        ]
        part: Object = {"name": "main", "count": len(hosts), "flavors": {GPU: "f"}}
        part |= {"resourceUsage": {GPU: str(gpus * len(hosts))}}
        part |= {"topologyAssignment": {"levels": [HOSTNAME], "slices": slices}}
        pod_set = {"name": "main", "count": len(hosts), "template": {"spec": template(gpus)}}
        spec = {"queueName": "q", "podSets": [pod_set]}
        made = self.store.create(api_kinds.WORKLOADS, {"metadata": {"name": name}, "spec": spec}, "default")
        now = "2027-01-15T08:00:00Z"
        conditions = [
            {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": now}
            for kind in ("QuotaReserved", "Admitted")
        ]
        admission = {"clusterQueue": "q", "podSetAssignments": [part]}
        body = {**made, "status": {"admission": admission, "conditions": conditions}}
        self.store.update(api_kinds.WORKLOADS, "default", name, body, "status")

    def member(self, gang: str, gpus: int, host: str) -> str:
        """A pod in a slot of a Workload."""
        name = f"{gang}-{host}"
        meta = {"name": name, "annotations": {WORKLOAD_NAME: gang}, "labels": {POD_SET: "main"}}
        spec = {**template(gpus), "nodeSelector": {HOSTNAME: host}}
        self.store.create(PODS, {"metadata": meta, "spec": spec}, "default")
        return name


def test_a_pod_is_not_bound_where_it_would_get_the_zone_of_a_slot() -> None:
    """Zone 0 has two GPUs, zone 1 has one: a pod for one GPU would get zone 0, and two GPUs are promised."""
    site = SlotSite()
    site.tells("n0", ZONE, {**ZONE, GPU: 1})
    site.admitted("gang", 2, "n0")
    site.run(1)
    site.guaranteed("plain", 1, 1)
    site.run(3)
    assert site.on("plain") == [""]
    name = site.member("gang", 2, "n0")
    site.run(3)
    assert site.on(name) == ["n0"]


def test_a_pod_is_bound_beside_the_zone_of_a_slot() -> None:
    """Zone 0 has one GPU, zone 1 has two: the pod for one GPU gets zone 0."""
    site = SlotSite()
    site.tells("n0", {**ZONE, GPU: 1}, ZONE)
    site.admitted("gang", 2, "n0")
    site.run(1)
    site.guaranteed("plain", 1, 1)
    site.run(3)
    assert site.on("plain") == ["n0"]


def test_pods_that_differ_get_their_slots_on_one_node() -> None:
    """Each of them would fit if the other one were there already."""
    site = SlotSite()
    site.tells("n0")
    site.admitted("one", 1, "n0")
    site.admitted("two", 2, "n0")
    names = [site.member("one", 1, "n0"), site.member("two", 2, "n0")]
    site.run(3)
    assert any(site.on(*names)), "one of them is bound at once; the other one waits for a report"


def test_a_pod_waits_for_the_slot_that_has_to_be_taken_first() -> None:
    """Zone 0 has two GPUs, zone 1 has one. The small pod would get zone 0, so the large pod goes first."""
    site = SlotSite()
    site.tells("n0", ZONE, {**ZONE, GPU: 1})
    site.admitted("large", 2, "n0")
    site.admitted("small", 1, "n0")
    small = site.member("small", 1, "n0")
    site.run(3)
    assert site.on(small) == [""]
    large = site.member("large", 2, "n0")
    site.run(3)
    assert site.on(large) == ["n0"]


def test_no_pod_of_a_gang_starts_while_other_pods_use_the_zone_of_one() -> None:
    site = SlotSite(2)
    site.tells("n0", {**ZONE, GPU: 1}, {**ZONE, GPU: 1})
    site.tells("n1")
    site.admitted("gang", 2, "n0", "n1")
    names = [site.member("gang", 2, host) for host in ("n0", "n1")]
    site.run(3)
    assert site.on(*names) == ["", ""]
    assert "n0" in site.said("gang-n1")[2]
