"""Decoding for scheduling: gangs of every version of the API, pods, budgets, volumes, services."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from bayplan.dialects.api import Event, Happened, Kind
from bayplan.dialects.kube.decode import volumes
from bayplan.dialects.kube.decode.disruption_budget import BUDGETS
from bayplan.dialects.kube.decode.wire import NODES, PODS_KIND
from bayplan.dialects.kube.gang.events import NAMESPACES, SERVICES, SchedulingDecoder
from bayplan.dialects.kube.gang.objects import POD_GROUPS, WORKLOADS
from bayplan.dialects.kueue.decode import scheduled_jobs
from bayplan.model.change import (
    BudgetLost,
    BudgetSeen,
    Change,
    GangSpecLost,
    GangSpecSeen,
    ImagesSeen,
    NamespaceSeen,
    NodeSeen,
    PodLost,
    PodSeen,
    StorageLost,
    StorageSeen,
)
from bayplan.model.gang import DisruptionBudget, GangSpec, Locality, Ref
from bayplan.model.node_rules import Requirement
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import EVERYTHING, NOTHING, Selector
from bayplan.model.storage import NodeVolumes, StorageCapacity, VolumeClaim

Object = dict[str, Any]
SECOND, THIRD = POD_GROUPS.values()
BORN = "2026-11-15T12:00:00Z"
BORN_SECONDS = 1794744000.0


class Tape:
    """Events in, changes out."""

    def __init__(self, *names: str) -> None:
        self.reading = SchedulingDecoder(names or ("bayplan",), scheduled_jobs.membership)

    def seen(self, kind: Kind, name: str, **body: Any) -> list[Change]:
        return list(self._event(Happened.SEEN, kind, name, body))

    def gone(self, kind: Kind, name: str, **body: Any) -> list[Change]:
        return list(self._event(Happened.GONE, kind, name, body))

    def pod(
        self, name: str, metadata: Object | None = None, status: Object | None = None, **spec: Any
    ) -> Pod:
        """The published pod; there must be one."""
        meta = {"namespace": "ns", "name": name, "uid": f"u-{name}", **(metadata or {})}
        spec = {"schedulerName": "bayplan", "containers": [{"name": "c"}], **spec}
        changes = self.seen(PODS_KIND, name, metadata=meta, spec=spec, status=status or {})
        (found,) = [change.pod for change in changes if isinstance(change, PodSeen)]
        return found

    def _event(self, happened: Happened, kind: Kind, name: str, body: Object) -> Iterator[Change]:
        assert kind.wire is not None
        meta = {"name": name, "creationTimestamp": BORN} | body.get("metadata", {})
        meta |= {"namespace": "ns"} if kind.namespaced else {}
        item = msgspec.convert({**body, "metadata": meta}, kind.wire, strict=False)
        return self.reading.decode(Event(happened, kind, item))


@pytest.fixture
def tape() -> Tape:
    return Tape()


def workload_spec(*groups: Object) -> Object:
    return {"podGroups": list(groups)}


GANG = {"name": "workers", "policy": {"gang": {"minCount": 3}}}
BASIC = {"name": "rest", "policy": {"basic": {}}}


def to(name: str, group: str, key: str = "") -> Object:
    return {"name": name, "podGroup": group} | ({"podGroupReplicaKey": key} if key else {})


def named(text: str) -> Ref:
    return Ref("gang", "Workload", "ns", text)


# ── v1alpha1 ───────────────────────────────────────────────────────────────────────────────────────


def test_replicas_of_a_group_are_gangs_once_pods_name_them(tape: Tape) -> None:
    assert tape.seen(WORKLOADS, "train", metadata={"uid": "w"}, spec=workload_spec(GANG, BASIC)) == []
    changes = tape.seen(
        PODS_KIND, "a", spec={"schedulerName": "bayplan", "workloadRef": to("train", "workers", "0")}
    )
    assert changes[0] == GangSpecSeen(
        GangSpec(named("train/workers/0"), minimum=3, created=BORN_SECONDS, uid="w")
    )
    assert tape.pod("b", workloadRef=to("train", "workers", "1")).gang == named("train/workers/1")
    assert tape.pod("c", workloadRef=to("train", "rest")).gang == named("train/rest/")
    changed = tape.seen(WORKLOADS, "train", metadata={"uid": "w"}, spec=workload_spec(GANG, BASIC))
    assert [(change.spec.source.name, change.spec.minimum) for change in changed] == [  # type: ignore[union-attr]
        ("train/workers/0", 3),
        ("train/workers/1", 3),
        ("train/rest/", 0),
    ]


def test_a_workload_that_is_created_or_deleted_changes_all_its_gangs(tape: Tape) -> None:
    tape.pod("a", workloadRef=to("train", "workers"))
    (seen,) = tape.seen(WORKLOADS, "train", spec=workload_spec(GANG))
    assert isinstance(seen, GangSpecSeen)
    assert tape.gone(WORKLOADS, "train", spec=workload_spec(GANG)) == [GangSpecLost(named("train/workers/"))]
    assert tape.gone(PODS_KIND, "a") == [PodLost(PodKey("ns", "a")), GangSpecLost(named("train/workers/"))]
    assert tape.seen(WORKLOADS, "train", spec=workload_spec(GANG)) == [], "nobody names it any more"


def test_a_group_that_the_workload_lacks_is_a_flaw(tape: Tape) -> None:
    tape.pod("a", workloadRef=to("train", "leaders"))
    (seen,) = tape.seen(WORKLOADS, "train", spec=workload_spec(GANG))
    assert isinstance(seen, GangSpecSeen)
    assert seen.spec.flaw == 'pod group "leaders" doesn\'t exist for a workload "train"'


@pytest.mark.parametrize(
    ("notes", "policy", "desired"),
    [
        ({"bayplan.dev/desired-count": "8"}, {"basic": {}}, 8),
        ({"bayplan.dev/desired-count": "8"}, {"basic": {"desiredCount": 5}}, 5),
        ({"bayplan.dev/desired-count": "8"}, {"gang": {"minCount": 2}}, 0),
        ({"bayplan.dev/desired-count": "many"}, {"basic": {}}, 0),
        ({}, {"basic": {}}, 0),
    ],
)
def test_the_desired_count_of_a_group(tape: Tape, notes: Object, policy: Object, desired: int) -> None:
    tape.pod("a", workloadRef=to("train", "g"))
    groups = workload_spec({"name": "g", "policy": policy})
    (seen,) = tape.seen(WORKLOADS, "train", metadata={"annotations": notes}, spec=groups)
    assert isinstance(seen, GangSpecSeen)
    assert seen.spec.desired == desired


# ── v1alpha2 and v1beta1 ───────────────────────────────────────────────────────────────────────────


def test_a_pod_group_is_a_gang_with_or_without_pods(tape: Tape) -> None:
    spec = {
        "schedulingPolicy": {"gang": {"minCount": 4}},
        "schedulingConstraints": {"topology": [{"key": "rack"}]},
        "disruptionMode": "PodGroup",
        "priority": 7,
    }
    ref = Ref("gang", "PodGroup", "ns", "pg")
    assert tape.seen(SECOND, "pg", metadata={"uid": "g"}, spec=spec) == [
        GangSpecSeen(
            GangSpec(
                ref,
                minimum=4,
                priority=7,
                disrupt_together=True,
                locality=Locality(required="rack"),
                created=BORN_SECONDS,
                uid="g",
            )
        )
    ]
    assert tape.pod("a", schedulingGroup={"podGroupName": "pg"}).gang == ref
    assert tape.gone(SECOND, "pg", spec=spec) == [GangSpecLost(ref)]


@pytest.mark.parametrize(
    ("spec", "conditions", "expected"),
    [
        ({"disruptionMode": {"all": {}}}, [], {"disrupt_together": True}),
        ({"disruptionMode": {"single": {}}, "preemptionPolicy": "Never"}, [], {"preempts": False}),
        ({"preemptionPolicy": "PreemptLowerPriority"}, [], {"preempts": True}),
        ({}, [{"type": "PodGroupInitiallyScheduled", "status": "True"}], {"started": True}),
        ({}, [{"type": "PodGroupInitiallyScheduled", "status": "False"}], {"started": False}),
    ],
)
def test_the_fields_of_v1beta1(tape: Tape, spec: Object, conditions: list[Object], expected: Object) -> None:
    (seen,) = tape.seen(THIRD, "pg", spec=spec, status={"conditions": conditions})
    assert isinstance(seen, GangSpecSeen)
    assert {key: getattr(seen.spec, key) for key in expected} == expected


def test_of_two_versions_the_newer_wins_and_equal_specs_are_published_once(tape: Tape) -> None:
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    assert len(tape.seen(SECOND, "pg", spec=spec)) == 1
    assert tape.seen(THIRD, "pg", spec=spec) == []
    assert tape.reading.newest(Ref("gang", "PodGroup", "ns", "pg")) == "v1beta1"
    grown = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    assert tape.seen(SECOND, "pg", spec=grown) == []
    (seen,) = tape.seen(THIRD, "pg", spec=grown)
    assert isinstance(seen, GangSpecSeen)
    assert seen.spec.minimum == 3
    assert tape.gone(THIRD, "pg", spec=grown) == []
    assert tape.gone(SECOND, "pg", spec=grown) == [GangSpecLost(seen.spec.source)]


# ── pods ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_pod_with_everything(tape: Tape) -> None:
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    pod = tape.pod(
        "a",
        {"creationTimestamp": BORN, "labels": {"app": "x"}},
        {"nominatedNodeName": "n1", "conditions": [said]},
        priority=5,
        preemptionPolicy="Never",
        schedulingGates=[{"name": "g"}],
        containers=[{"name": "c", "resources": {"requests": {"cpu": "2"}}}],
    )
    assert (pod.ours, pod.scheduler, pod.message, pod.created) == (True, "bayplan", "no room", BORN_SECONDS)
    assert (pod.spec.priority, pod.spec.preempts, pod.spec.nominated) == (5, False, "n1")
    assert (pod.spec.gates, pod.gated, pod.pending) == (("g",), True, True)
    assert pod.spec.signature.labels == (("app", "x"),)
    assert pod.amounts == {"cpu": 2000, "pods": 1}


def test_pods_of_other_schedulers_are_decoded_but_not_ours(tape: Tape) -> None:
    pod = tape.pod(
        "a", status={"phase": "Running", "startTime": BORN}, schedulerName="other", nodeName="n1",
        workloadRef=to("train", "workers"),
    )  # fmt: skip
    assert (pod.ours, pod.scheduler, pod.node, pod.started) == (False, "", "n1", BORN_SECONDS)
    assert pod.gang == named("train/workers/")


def test_a_scheduler_may_have_several_names() -> None:
    tape = Tape("one", "two")
    assert tape.pod("a", schedulerName="two").scheduler == "two"
    assert not tape.pod("b", schedulerName="bayplan").ours


def test_the_gang_api_wins_over_the_job_that_made_a_pod(tape: Tape) -> None:
    owned = {"ownerReferences": [{"kind": "Job", "name": "j", "uid": "j"}]}
    assert tape.pod("a", owned).gang == Ref("kueue", "Job", "ns", "j")
    assert tape.pod("b", owned, workloadRef=to("train", "workers")).gang == named("train/workers/")
    assert tape.pod("c").gang is None


def test_equal_pods_share_one_signature_on_all_nodes(tape: Tape) -> None:
    one = tape.pod("a", {"labels": {"app": "x"}}, nodeName="n1")
    other = tape.pod("b", {"labels": {"app": "x"}})
    assert one.spec.signature is other.spec.signature
    assert one.spec.signature.node == ""
    third = tape.pod("c", {"labels": {"app": "y"}})
    assert third.spec.signature.labels == (("app", "y"),)


def test_signatures_with_terms_on_own_labels_are_not_shared(tape: Tape) -> None:
    term = {"topologyKey": "zone", "labelSelector": {}, "matchLabelKeys": ["app"]}
    spread = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    shapes = [tape.pod(app, {"labels": {"app": app}}, affinity=spread).spec.signature for app in "xy"]
    wanted = [shape.affinity.required_anti[0].selector.requirements for shape in shapes]
    assert wanted == [(Requirement("app", "In", ("x",)),), (Requirement("app", "In", ("y",)),)]


def test_ephemeral_claims_are_not_shared(tape: Tape) -> None:
    volume = [{"name": "scratch", "ephemeral": {}}]
    shapes = [tape.pod(name, volumes=volume).spec.signature for name in "ab"]
    assert [shape.claims[0].name for shape in shapes] == ["a-scratch", "b-scratch"]


def test_an_irrelevant_update_is_not_published(tape: Tape) -> None:
    tape.pod("a", nodeName="n1")
    again = {"metadata": {"namespace": "ns", "uid": "u-a"}, "spec": {"schedulerName": "bayplan",
             "containers": [{"name": "c"}], "nodeName": "n1"}}  # fmt: skip
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    assert tape.seen(PODS_KIND, "a", **again, status=ready) == []
    assert len(tape.seen(PODS_KIND, "a", **again, status={"phase": "Succeeded"})) == 1


def test_another_pod_of_the_same_name_is_another_pod(tape: Tape) -> None:
    tape.pod("a")
    changes = tape.seen(PODS_KIND, "a", metadata={"uid": "new"}, spec={"schedulerName": "bayplan"})
    assert changes[0] == PodLost(PodKey("ns", "a"))
    assert isinstance(changes[1], PodSeen)


# ── other objects ──────────────────────────────────────────────────────────────────────────────────


def test_services_set_the_default_spread_selector_of_pending_pods(tape: Tape) -> None:
    assert tape.pod("a", {"labels": {"app": "x"}}).spec.signature.default_spread is None
    tape.pod("b", {"labels": {"app": "y"}})
    tape.pod("c", {"labels": {"app": "x"}}, nodeName="n1")
    (change,) = tape.seen(SERVICES, "s", spec={"selector": {"app": "x"}})
    assert isinstance(change, PodSeen)
    assert change.pod.key.name == "a"
    assert change.pod.spec.signature.default_spread == Selector((Requirement("app", "In", ("x",)),))
    assert tape.seen(SERVICES, "s", spec={"selector": {"app": "x"}}) == []
    (back,) = tape.gone(SERVICES, "s", spec={"selector": {"app": "x"}})
    assert isinstance(back, PodSeen)
    assert back.pod.spec.signature.default_spread is None


def test_budgets(tape: Tape) -> None:
    status = {"disruptionsAllowed": 2, "disruptedPods": {"a": BORN}}
    (seen,) = tape.seen(BUDGETS, "b", spec={"selector": {}}, status=status)
    assert seen == BudgetSeen(DisruptionBudget("ns", "b", EVERYTHING, 2, frozenset({"a"})))
    (none,) = tape.seen(BUDGETS, "b", spec={})
    assert none == BudgetSeen(DisruptionBudget("ns", "b", NOTHING))
    assert tape.gone(BUDGETS, "b") == [BudgetLost("ns", "b")]


def test_nodes_and_their_images(tape: Tape) -> None:
    status = {"images": [{"names": ["a:1", "a@sha"], "sizeBytes": 5}]}
    node, images = tape.seen(NODES, "n1", status=status)
    assert isinstance(node, NodeSeen)
    assert images == ImagesSeen("n1", {"a:1": 5, "a@sha": 5})
    assert len(tape.seen(NODES, "n1", status=status)) == 1, "images are told when they change"


def test_namespaces_and_storage(tape: Tape) -> None:
    (seen,) = tape.seen(NAMESPACES, "ns", metadata={"labels": {"team": "a"}})
    assert seen == NamespaceSeen("ns", {"team": "a"})
    (claim,) = tape.seen(volumes.CLAIMS, "c", spec={"storageClassName": "fast"})
    assert claim == StorageSeen(VolumeClaim("ns", "c", "fast"))
    assert tape.gone(volumes.CLAIMS, "c") == [StorageLost("VolumeClaim", "ns/c")]
    drivers = [{"name": "d", "allocatable": {"count": 3}}]
    assert tape.seen(volumes.CSI_NODES, "n1", spec={"drivers": drivers}) == [
        StorageSeen(NodeVolumes("n1", {"d": 3}))
    ]
    (room,) = tape.seen(volumes.STORAGE_CAPACITIES, "r", storageClassName="fast", capacity="1Ki")
    assert room == StorageSeen(StorageCapacity("fast", 1024, NOTHING), "ns/r")
    assert tape.gone(volumes.STORAGE_CAPACITIES, "r") == [StorageLost("StoreRoom", "ns/r")]
