"""Volumes that wait for the first consumer are bound first; then the pods of the gang."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bayplan.dialects.api import Event, Happened, Kind, Write
from bayplan.dialects.kube.decode import volumes
from bayplan.dialects.kube.decode.wire import NODES, PODS_KIND
from bayplan.dialects.kube.gang.objects import WORKLOADS
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.controllers.scheduler.volume_binding import HELD_SECONDS

Object = dict[str, Any]
SELECTED = "volume.kubernetes.io/selected-node"
BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
NOW = 1_800_000_000.0


class Hand:
    """Passes objects to a scheduler and takes its writes, without a server."""

    def __init__(self) -> None:
        self.role = SchedulerController()
        self.see(
            volumes.CLASSES, "slow", provisioner="example.com/disks", volumeBindingMode="WaitForFirstConsumer"
        )
        for name, zone in (("n1", "a"), ("n2", "b")):
            amounts = {"cpu": "4", "pods": "10"}
            labels = {"kubernetes.io/hostname": name, "zone": zone}
            self.see(NODES, name, {"labels": labels}, status={"allocatable": amounts})

    def see(self, kind: Kind, name: str, metadata: Object | None = None, **body: Any) -> None:
        assert kind.wire is not None
        meta = {"name": name, "uid": f"u-{name}", "resourceVersion": "7", **(metadata or {})}
        meta |= {"namespace": "ns"} if kind.namespaced else {}
        item = msgspec.convert({**body, "metadata": meta}, kind.wire, strict=False)
        self.role.apply(self.role.decode(Event(Happened.SEEN, kind, item)))

    def claim(self, name: str, notes: Object | None = None, **spec: Any) -> None:
        asked = {"requests": {"storage": "1Gi"}}
        whole = {"storageClassName": "slow", "accessModes": ["ReadWriteOnce"], "resources": asked, **spec}
        self.see(volumes.CLAIMS, name, {"annotations": notes or {}}, spec=whole)

    def volume(self, name: str, zone: str, **spec: Any) -> None:
        term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
        whole = {
            "storageClassName": "slow",
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            **spec,
        }
        self.see(volumes.VOLUMES, name, spec=whole, status={"phase": "Available"})

    def pod(self, name: str, *claims: str, **spec: Any) -> None:
        mounted = [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]
        whole = {"schedulerName": "bayplan", "containers": [{"name": "c"}], "volumes": mounted, **spec}
        self.see(PODS_KIND, name, spec=whole)

    def writes(self, now: float = NOW) -> list[Write]:
        """One step."""
        found: list[Write] = []
        view = self.role.snapshot(now)
        if view is not None:
            plan = self.role.decide(view, now)
            self.role.assume(plan, now)
            found += self.role.encode(plan, now)
        return [*found, *self.role.reconcile(now)]


@pytest.fixture
def hand() -> Hand:
    return Hand()


def test_a_claim_is_told_the_node_and_the_pod_is_bound_when_the_claim_is(hand: Hand) -> None:
    hand.claim("c")
    hand.pod("p", "c", nodeSelector={"zone": "b"})
    (told,) = hand.writes()
    assert (told.kind.kind, told.name, told.uid) == ("PersistentVolumeClaim", "c", "u-c")
    assert told.body == {"metadata": {"annotations": {SELECTED: "n2"}}}
    hand.claim("c", {SELECTED: "n2"})
    assert hand.writes(NOW + 1) == []
    hand.volume("v", "b", claimRef={"namespace": "ns", "name": "c"})
    hand.claim("c", {SELECTED: "n2", **BOUND}, volumeName="v")
    (bind,) = hand.writes(NOW + 2)
    assert (bind.subresource, bind.name, bind.body["target"]["name"]) == ("binding", "p", "n2")
    assert hand.writes(NOW + 3) == []


def test_a_volume_that_exists_is_told_its_claim(hand: Hand) -> None:
    hand.volume("far", "b")
    hand.volume("near", "a")
    hand.claim("c")
    hand.pod("p", "c", nodeSelector={"zone": "a"})
    (told,) = hand.writes()
    assert (told.kind.kind, told.name, told.version) == ("PersistentVolume", "near", "7")
    assert told.body["spec"]["claimRef"] == {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "ns", "name": "c", "uid": "u-c",
    }  # fmt: skip


def test_the_pods_of_a_gang_wait_for_each_other_s_volumes(hand: Hand) -> None:
    groups = [{"name": "g", "policy": {"gang": {"minCount": 2}}}]
    hand.see(WORKLOADS, "w", spec={"podGroups": groups})
    hand.claim("c")
    hand.pod("p", "c", workloadRef={"name": "w", "podGroup": "g"})
    hand.pod("q", workloadRef={"name": "w", "podGroup": "g"})
    assert [write.name for write in hand.writes()] == ["c"]
    hand.volume("v", "a", claimRef={"namespace": "ns", "name": "c"})
    hand.claim("c", BOUND, volumeName="v")
    assert [write.name for write in hand.writes(NOW + 1)] == ["p", "q"]


def test_who_waits_too_long_is_decided_on_anew_and_keeps_its_node(hand: Hand) -> None:
    hand.claim("c")
    hand.pod("p", "c")
    (told,) = hand.writes()
    node = told.body["metadata"]["annotations"][SELECTED]
    hand.claim("c", {SELECTED: node})
    assert hand.writes(NOW + HELD_SECONDS) == []
    assert hand.role.volumes.waiting == {}
    assert hand.writes(NOW + 40) == hand.writes(NOW + 41) == []
    assert [held.binds[0].node for held in hand.role.volumes.waiting.values()] == [node]


def test_bound_claims_and_pods_without_any_are_bound_at_once(hand: Hand) -> None:
    hand.volume("v", "a", claimRef={"namespace": "ns", "name": "c"})
    hand.claim("c", BOUND, volumeName="v")
    hand.pod("p", "c")
    hand.pod("q")
    assert {write.name: write.subresource for write in hand.writes()} == {"p": "binding", "q": "binding"}
