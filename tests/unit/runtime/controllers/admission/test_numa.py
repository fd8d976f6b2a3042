"""Admission with NUMA reports: gangs are admitted only where they can be aligned, or rejected with the
reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from bayplan.backends.crds import DEFINITIONS, define
from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.dialects.kube.decode.wire import PODS_KIND
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.assignment_decode import decode_assignment
from bayplan.dialects.kueue.names import api_kinds
from bayplan.dialects.nrt.fingerprint import ATTRIBUTE, fingerprint_with
from bayplan.dialects.nrt.wire import TOPOLOGIES
from bayplan.placement.numa.fingerprint import pods_fingerprint
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.core.loop import Loop
from tests.support.kueue_workloads import conditions
from tests.support.numa_crd import definition, topology
from tests.support.queued_cluster import (
    EVENTS,
    GPU,
    NOW,
    RACK,
    Object,
    QueuedCluster,
    admitted,
    furnish,
    queued_workload,
)
from tests.unit.backends.embedded.storage.test_store import store_at
from tests.unit.runtime.controllers.admission.test_controller import Silent

ZONE: Mapping[str, str | int] = {"cpu": "32", GPU: 2}
TORN: Mapping[str, str | int] = {"cpu": "32", GPU: 1}
Zones = tuple[Mapping[str, str | int], ...]
USED: Mapping[str, str | int] = {"cpu": "32", GPU: 0}


class Zoned:
    """Racks of two hosts; every host has two zones of two GPUs."""

    def __init__(self, *, defined: bool = True) -> None:
        self.store = store_at(NOW)
        define(self.store)
        if defined:
            self.store.create(DEFINITIONS, definition())
        self.cluster = QueuedCluster(self.store, Path("unused"))
        furnish(self.cluster)
        self.role = AdmissionController(tells=True)
        self.loop = Loop(EmbeddedBackend(self.store), [self.role], Silent())
        self.now = NOW

    def run(self, seconds: float = 0.0) -> None:
        self.now += seconds
        for _ in range(30):
            self.loop.step(self.now)

    def tells(self, *hosts: str, zones: Zones = (ZONE, ZONE), sign: int | None = None, **more: str) -> None:
        """What is free in the zones of hosts, of two GPUs each."""
        more |= {} if sign is None else {ATTRIBUTE: fingerprint_with(sign)}
        for host in hosts:
            body = topology(host, zones, **more)
            for zone in body["zones"]:
                for resource in zone["resources"]:
                    resource |= {"allocatable": ZONE[resource["name"]], "capacity": ZONE[resource["name"]]}
            known = {one["metadata"]["name"]: one for one in self.store.list(TOPOLOGIES).items}
            if host in known:
                self.store.update(TOPOLOGIES, "", host, body | {"metadata": known[host]["metadata"]})
            else:
                self.store.create(TOPOLOGIES, body)

    def submit(self, *workloads: Object) -> None:
        for each in workloads:
            self.cluster.submit(each)
        self.run()

    def get(self, name: str) -> Object:
        return self.store.get(api_kinds.WORKLOADS, "ml", name)

    def hosts(self, name: str) -> dict[str, int]:
        """How many pods of a Workload each host got."""
        given = self.get(name).get("status", {}).get("admission", {}).get("podSetAssignments", ())
        found: dict[str, int] = {}
        for one in given:
            for share in _place(one):
                found[share[0]] = found.get(share[0], 0) + share[1]
        return found

    def told(self, name: str) -> tuple[str, str, str]:
        return conditions(self.get(name)["status"])["QuotaReserved"]

    def events(self, name: str) -> list[str]:
        found = self.store.list(EVENTS).items
        return [one["message"] for one in found if one["involvedObject"]["name"] == name]

    def pod(self, name: str, gang: str, host: str, gpus: int = 2, phase: str = "Pending") -> None:
        """A pod of an admitted gang, bound to its host."""
        amounts = {"cpu": "8", GPU: str(gpus)}
        notes = {"kueue.x-k8s.io/workload": gang, "kueue.x-k8s.io/podset-required-topology": RACK}
        asks = {"requests": amounts, "limits": {GPU: str(gpus)}}
        container = {"name": "main", "image": "i", "resources": asks}
        self.store.create(
            PODS_KIND,
            {
                "metadata": {"name": name, "annotations": notes, "labels": {"kueue.x-k8s.io/podset": "main"}},
                "spec": {"nodeName": host, "containers": [container]},
                "status": {"phase": phase},
            },
            "ml",
        )

    def starts(self, name: str, phase: str = "Running") -> None:
        self.store.patch(PODS_KIND, "ml", name, {"status": {"phase": phase}}, subresource="status")


def _place(given: Object) -> list[tuple[str, int]]:
    found = decode_assignment(Field(given).at("topologyAssignment"))
    return [(share.values[-1], share.count) for share in found.shares] if found is not None else []


def test_without_reports_only_amounts_count() -> None:
    world = Zoned()
    world.submit(queued_workload("a", 2, 3, required=RACK))
    assert sum(world.hosts("a").values()) == 2


def test_a_gang_is_admitted_only_where_it_fits_aligned() -> None:
    world = Zoned()
    world.tells("h1", "h2", "h3", "h4", "h5", "h6", zones=(TORN, TORN))
    world.tells("h7", "h8")
    world.submit(queued_workload("a", 4, 2, required=RACK))
    assert world.hosts("a") == {"h7": 2, "h8": 2}


def test_a_gang_that_cannot_be_aligned_stays_pending_with_the_reason() -> None:
    world = Zoned()
    world.tells(*(f"h{number}" for number in range(1, 9)), zones=(TORN, TORN))
    world.submit(queued_workload("a", 2, 2, required=RACK))
    assert world.hosts("a") == {}
    status, reason, message = world.told("a")
    assert (status, reason) == ("False", "TopologyPlacementFailed")
    assert "doesn't allow to fit any of 2 pod(s). Total nodes: 8; excluded: zone alignment: 8" in message
    assert "container main asks for 8 of cpu and 2 of nvidia.com/gpu" in message
    assert "zone 0 has 1 of nvidia.com/gpu, zone 1 has 1 of nvidia.com/gpu" in message
    world.tells("h3", "h4")
    world.run()
    assert world.hosts("a").keys() <= {"h3", "h4"}, "a report that tells of more room wakes it"
    assert sum(world.hosts("a").values()) == 2


def test_two_gangs_of_one_round_never_get_the_same_zone() -> None:
    """Both would be admitted by amounts: the free host has four GPUs, two in each zone."""
    world = Zoned()
    world.tells(*(f"h{number}" for number in range(1, 8)), zones=(USED, USED))
    world.tells("h8")
    for name in "abc":
        world.cluster.submit(queued_workload(name, 1, 2, "left" if name == "a" else "right", required=RACK))
    world.run()
    placed = [name for name in "abc" if world.hosts(name)]
    assert len(placed) == 2
    assert all(world.hosts(name) == {"h8": 1} for name in placed)


def test_a_torn_host_is_not_given_twice_in_one_round() -> None:
    """By amounts three GPUs are left for the second gang, by zones two together are not."""
    world = Zoned()
    world.tells(*(f"h{number}" for number in range(1, 8)), zones=(USED, USED))
    world.tells("h8", zones=(ZONE, TORN))
    world.cluster.submit(queued_workload("a", 1, 2, "left", required=RACK))
    world.cluster.submit(queued_workload("b", 1, 2, "right", required=RACK))
    world.run()
    assert sorted(map(len, (world.hosts("a"), world.hosts("b")))) == [0, 1]


def test_pods_to_come_keep_their_zones_until_the_report_counts_them() -> None:
    world = Zoned()
    world.tells(*(f"h{number}" for number in range(1, 8)), zones=(USED, USED))
    world.tells("h8", zones=(ZONE, TORN), sign=pods_fingerprint(()))
    world.submit(queued_workload("a", 1, 2, required=RACK))
    assert world.hosts("a") == {"h8": 1}
    world.submit(queued_workload("b", 1, 2, required=RACK), queued_workload("c", 1, 1, required=RACK))
    assert (world.hosts("b"), world.hosts("c")) == ({}, {"h8": 1}), "one zone is kept, the other has one GPU"
    world.pod("a-0", "a", "h8")
    world.starts("a-0")
    world.run(2)
    assert world.hosts("b") == {}, "the report is still that of an empty host"
    world.tells("h8", zones=(ZONE, {**USED}), sign=pods_fingerprint([("ml", "a-0")]))
    world.run(2)
    assert world.hosts("b") == {}, "the pod sits in the other zone, and the gang c takes from the first"
    world.store.delete(api_kinds.WORKLOADS, "ml", "c")
    world.run(2)
    assert world.hosts("b") == {"h8": 1}


def test_a_report_without_a_sign_counts_pods_that_run_once_it_changes() -> None:
    world = Zoned()
    world.tells(*(f"h{number}" for number in range(1, 8)), zones=(USED, USED))
    world.tells("h8", zones=(ZONE, ZONE))
    world.submit(queued_workload("a", 1, 2, required=RACK))
    world.pod("a-0", "a", "h8")
    world.starts("a-0")
    world.run(2)
    world.tells("h8", zones=(ZONE, USED))
    world.submit(queued_workload("b", 1, 2, required=RACK))
    world.run(2)
    assert world.hosts("b") == {"h8": 1}, "it is not counted twice"


def test_pods_of_no_gang_are_taken_from_every_zone_until_they_are_counted() -> None:
    world = Zoned()
    world.tells(*(f"h{number}" for number in range(1, 8)), zones=(USED, USED))
    world.tells("h8", sign=pods_fingerprint(()))
    world.run()
    container = {"name": "main", "image": "i", "resources": {"limits": {GPU: "1"}, "requests": {GPU: "1"}}}
    body = {"metadata": {"name": "other"}, "spec": {"nodeName": "h8", "containers": [container]}}
    world.store.create(PODS_KIND, body, "ml")
    world.submit(queued_workload("a", 1, 2, required=RACK))
    assert world.hosts("a") == {}
    world.starts("other")
    world.tells("h8", zones=(TORN, ZONE), sign=pods_fingerprint([("ml", "other")]))
    world.run(2)
    assert world.hosts("a") == {"h8": 1}


def test_the_definition_may_come_later_and_go_again() -> None:
    world = Zoned(defined=False)
    world.submit(queued_workload("a", 1, 3, required=RACK))
    assert sum(world.hosts("a").values()) == 1
    world.store.create(DEFINITIONS, definition())
    world.run(5)
    world.tells(*(f"h{number}" for number in range(1, 9)))
    world.run(5)
    world.submit(queued_workload("b", 1, 3, required=RACK))
    assert world.hosts("b") == {}
    world.store.delete(DEFINITIONS, "", definition()["metadata"]["name"])
    world.run(60)
    assert sum(world.hosts("b").values()) == 1


def test_a_preempted_gang_frees_only_what_is_certain() -> None:
    """All usage on a host is theirs: then their zones will be free. Elsewhere it is unknown."""
    world = Zoned()
    running = admitted("left-queue", "a100", {"cpu": "16", GPU: "4"}, {"h8": 2})
    world.cluster.submit(queued_workload("low", 2, 2, required=RACK, priority=-10), running)
    for number in range(2):
        world.pod(f"low-{number}", "low", "h8")
        world.starts(f"low-{number}")
    world.run()
    world.tells(*(f"h{number}" for number in range(1, 9)), zones=(USED, USED))
    world.run(2)
    world.submit(queued_workload("high", 2, 2, required=RACK, priority=10))
    assert conditions(world.get("low")["status"])["Evicted"][0] == "True"


def test_no_gang_is_preempted_where_that_would_not_free_a_zone() -> None:
    """The zone of the host's other GPUs is unknown: two for one pod are not certain."""
    world = Zoned()
    running = admitted("left-queue", "a100", {"cpu": "8", GPU: "2"}, {"h8": 1})
    world.cluster.submit(queued_workload("low", 1, 2, required=RACK, priority=-10), running)
    world.pod("low-0", "low", "h8")
    world.starts("low-0")
    world.run()
    world.tells(*(f"h{number}" for number in range(1, 9)), zones=(USED, USED))
    world.run(2)
    world.submit(queued_workload("high", 1, 2, required=RACK, priority=10))
    assert "Evicted" not in conditions(world.get("low")["status"])
    status, reason, message = world.told("high")
    assert (status, reason) == ("False", "TopologyPlacementFailed")
    assert "zone 0 has 0 of nvidia.com/gpu" in message


def test_pod_sets_of_one_gang_are_counted_together() -> None:
    """Each of the two would fit the host of the first; together they need the other host as well."""
    world = Zoned()
    world.tells(*(f"h{number}" for number in range(1, 7)), zones=(USED, USED))
    world.tells("h7", "h8", zones=(ZONE, USED))
    gang = queued_workload("a", 1, 2, required=RACK)
    first = gang["spec"]["podSets"][0]
    second = queued_workload("x", 1, 1, required=RACK)["spec"]["podSets"][0] | {"name": "more"}
    gang["spec"]["podSets"] = [first, second]
    world.submit(gang)
    assert world.hosts("a") == {"h7": 1, "h8": 1}


def test_what_makes_no_sense_in_a_report_is_told_once() -> None:
    world = Zoned()
    for _ in range(3):
        world.tells("h1", policy="always")
        world.run(1)
    assert world.events("h1") == ["attribute topologyManagerPolicy is 'always', which is not known"]


def test_a_failed_host_is_replaced_by_one_that_can_align_the_pod() -> None:
    world = Zoned()
    world.tells("h8", zones=(TORN, TORN))
    running = admitted("left-queue", "a100", {"cpu": "8", GPU: "2"}, {"h7": 1})
    world.cluster.submit(
        queued_workload("a", 1, 2, required=RACK), running | {"unhealthyNodes": [{"name": "h7"}]}
    )
    world.run()
    assert world.hosts("a").get("h8") is None
    world.tells("h8")
    for _ in range(3):
        world.run(60)
    assert sum(world.hosts("a").values()) == 1
    assert "h7" not in world.hosts("a")


@pytest.mark.parametrize("other", [True, False])
def test_a_gang_that_grows_keeps_its_zones_and_gets_more_only_where_there_are_some(other: bool) -> None:
    """The zone of its pod is unknown: on its own host one more GPU pair is not certain."""
    world = Zoned()
    anywhere = {"topologyRequest": {"unconstrained": True}}
    first, second = queued_workload("a", 1, 2), queued_workload("a-2", 2, 2)
    for one in (first, second):
        one["spec"]["podSets"][0] |= anywhere
        one["metadata"]["annotations"] = {"kueue.x-k8s.io/elastic-job": "true"}
    second["metadata"]["annotations"]["kueue.x-k8s.io/workload-slice-replacement-for"] = "ml/a"
    world.cluster.submit(first, admitted("left-queue", "a100", {"cpu": "8", GPU: "2"}, {"h1": 1}))
    world.pod("a-0", "a", "h1")
    world.starts("a-0")
    world.run()
    world.tells(*(f"h{number}" for number in range(1, 8)), zones=(USED, USED))
    world.tells("h8", zones=(TORN, TORN))
    world.submit(second)
    assert world.hosts("a-2") == {}
    if other:
        world.tells("h8", zones=(TORN, ZONE))
    else:
        world.tells("h1", zones=(USED, ZONE))
    world.run(2)
    assert world.hosts("a-2") == ({"h1": 1, "h8": 1} if other else {"h1": 2})


def other_pod(world: Zoned, name: str, host: str, gpus: int) -> None:
    """A running pod that no queue knows."""
    resources = {"requests": {GPU: str(gpus)}, "limits": {GPU: str(gpus)}}
    spec = {"nodeName": host, "containers": [{"name": "main", "image": "i", "resources": resources}]}
    world.store.create(PODS_KIND, {"metadata": {"name": name}, "spec": spec}, "ml")
    world.starts(name)


def test_a_gang_whose_zone_other_pods_use_is_evicted() -> None:
    """Two GPUs of four are free on the host, as many as the gang needs, but no zone has two."""
    world = Zoned()
    world.tells(*(f"h{number}" for number in range(1, 8)), zones=(USED, USED))
    world.tells("h8", sign=pods_fingerprint(()))
    world.run(2)
    world.submit(queued_workload("a", 1, 2, required=RACK))
    assert world.hosts("a") == {"h8": 1}
    for number in range(2):
        other_pod(world, f"other-{number}", "h8", 1)
    world.run(2)
    assert world.hosts("a") == {"h8": 1}, "the report does not count these pods yet"
    counted = [("ml", f"other-{number}") for number in range(2)]
    world.tells("h8", zones=(TORN, TORN), sign=pods_fingerprint(counted))
    world.run(2)
    assert conditions(world.get("a")["status"])["Evicted"][1] == "NodesTaken"
