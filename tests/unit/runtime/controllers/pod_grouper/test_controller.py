"""The pod grouper on a cluster in memory: the groups it creates, the pods it joins, and its events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from bayplan.backends.crds import DEFINITIONS
from bayplan.backends.embedded.api.options import Deletion
from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.backends.fake_controllers.crds import schemaless_crd
from bayplan.dialects.api import Event, Happened, Kind, Verb
from bayplan.dialects.jobs.kind import GroupBy, Grouping
from bayplan.dialects.jobs.kinds import BY_GROUP
from bayplan.dialects.kai.api.names import (
    POD_GROUP,
    SEGMENT_REQUIRED,
    SEGMENT_SIZE,
    SUB_GROUP_NAME,
    TOPOLOGY_NAME,
)
from bayplan.dialects.kai.api.pod_group import PodGroup
from bayplan.dialects.kai.grouper.defaults import GrouperSettings, View
from bayplan.dialects.kai.grouper.dispatch import RULES
from bayplan.dialects.kai.grouper.join import desired_group, group_write
from bayplan.dialects.kai.grouper.owner_kinds import BY_NAME, OWNER_KINDS
from bayplan.dialects.kube.decode.wire import PODS_KIND, Metadata, OwnerReference, PodSpecWire, PodWire
from bayplan.runtime.controllers.pod_grouper.controller import PodGrouperController
from bayplan.runtime.core.containment import Containment
from bayplan.runtime.core.journal import MemoryJournal
from bayplan.runtime.core.loop import Loop
from tests.support.kai_site import RACK, Site
from tests.support.pod_site import PODS, Object

NOTES = {TOPOLOGY_NAME: "hall", SEGMENT_SIZE: "4", SEGMENT_REQUIRED: RACK}
INDEX, TYPE = "training.kubeflow.org/replica-index", "training.kubeflow.org/replica-type"
PYTORCH = next(one for one in OWNER_KINDS if one.kind == "PyTorchJob")
WORKERS = [f"w{number}" for number in range(8)]


def template(notes: Mapping[str, str]) -> Object:
    return {"metadata": {"annotations": dict(notes)}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


class Trained(Site):
    """With the pod grouper, and a PyTorchJob whose pods are created as by its controller."""

    def __init__(self, *, racks: tuple[int, ...] = (2, 2, 2, 2), **settings: Any) -> None:
        self.notes: list[str] = []
        self.grouper = PodGrouperController(settings=GrouperSettings(**settings), note=self.notes.append)
        super().__init__(racks, grouper=self.grouper)
        self.topology()

    def training(self, replicas: int = 8, notes: Mapping[str, str] = NOTES, **spec: Any) -> Object:
        types = {"Worker": {"replicas": replicas, "template": template(notes)}}
        self.ref = self.owner("PyTorchJob", "train", {"pytorchReplicaSpecs": types, **spec})
        return self.ref

    def worker(self, number: object, name: str = "", notes: Mapping[str, str] = NOTES, **more: Any) -> None:
        labels = {TYPE: "worker"} | ({INDEX: str(number)} if number is not None else {})
        self.pod(name or f"w{number}", labels=labels, owner=self.ref, notes=notes, **more)

    @property
    def name(self) -> str:
        return f"pg-train-{self.ref['uid']}"

    def groups(self) -> dict[str, Object]:
        return {one["metadata"]["name"]: one for one in self.store.list(POD_GROUP).items}


def test_segments_of_a_training_job_become_sub_groups_and_each_sits_in_one_rack() -> None:
    site = Trained()
    site.training()
    for number in range(8):
        site.worker(number)
    site.run(4)
    group = site.groups()[site.name]
    assert [(one["name"], one["minMember"]) for one in group["spec"]["subGroups"]] == [
        ("worker", 8), ("worker-0", 4), ("worker-1", 4),
    ]  # fmt: skip
    racks = site.racks(*WORKERS)
    assert all(racks) and len(set(racks[:4])) == len(set(racks[4:])) == 1
    joined = site.get("w5")["metadata"]
    assert joined["labels"]["kai.scheduler/subgroup-name"] == "worker-1"
    assert joined["annotations"]["pod-group-name"] == site.name


def test_another_size_counts_once_the_job_is_started_anew() -> None:
    site = Trained()
    site.training()
    for number in range(8):
        site.worker(number)
    site.run(4)
    before, racks = site.groups()[site.name]["spec"], site.racks(*WORKERS)
    other = {**NOTES, SEGMENT_SIZE: "2"}
    types = {"Worker": {"replicas": 8, "template": template(other)}}
    site.store.patch(PYTORCH, "default", "train", {"spec": {"pytorchReplicaSpecs": types}})
    site.run(4)
    site.store.delete(PODS, "default", "w5", Deletion(grace=0))
    site.worker(5, notes=other)
    site.run(4)
    assert site.groups()[site.name]["spec"] == before and site.racks(*WORKERS) == racks
    assert site.get("w5")["metadata"]["labels"][SUB_GROUP_NAME] == "worker-1"
    (told,) = site.events(site.name)
    words = (
        "kai.scheduler/segment-size: 2 takes effect when the job is restarted, "
        "because pods run in segments of 4"
    )
    assert told == ("SegmentsAdjusted", words)
    for name in WORKERS:
        site.store.delete(PODS, "default", name, Deletion(grace=0))
    for number in range(8):
        site.worker(number, notes=other)
    site.run(4)
    assert len(site.groups()[site.name]["spec"]["subGroups"]) == 5 and all(site.on(*WORKERS))


def test_once_the_last_pod_of_the_old_size_is_gone_all_others_have_the_new_one() -> None:
    site = Trained()
    site.training(4)
    site.worker(0)
    other = {**NOTES, SEGMENT_SIZE: "2"}
    for number in range(1, 4):
        site.worker(number)
    site.run(4)
    for number in range(4):
        site.store.delete(PODS, "default", f"w{number}", Deletion(grace=0))
        site.worker(number, notes=other)
        site.run(4)
    homes = [site.get(name)["metadata"]["labels"][SUB_GROUP_NAME] for name in WORKERS[:4]]
    assert homes == ["worker-0", "worker-0", "worker-1", "worker-1"] and all(site.on(*WORKERS[:4]))


def test_no_pod_starts_before_it_is_in_its_group() -> None:
    site = Trained()
    site.training()
    site.worker(0)
    site.run(6)
    assert site.on("w0") == [""] and "1 pods" in site.said("w0")


def test_a_bad_size_stands_on_group_and_pod_and_goes_once_it_is_mended() -> None:
    site = Trained()
    bad = {**NOTES, SEGMENT_SIZE: "0"}
    site.training(notes=bad)
    site.worker(0, notes=bad)
    site.run(5)
    said = "invalid segment size 0"
    assert said in site.waits(site.name)[1] and said in site.said("w0")
    assert any(said in words for _, words in site.events(site.name))
    assert any(said in words for _, words in site.events("w0"))
    types = {"Worker": {"replicas": 1, "template": template(NOTES)}}
    kind = next(one for one in OWNER_KINDS if one.kind == "PyTorchJob")
    site.store.patch(kind, "default", "train", {"spec": {"pytorchReplicaSpecs": types}})
    site.store.patch(PODS, "default", "w0", {"metadata": {"annotations": {SEGMENT_SIZE: "4"}}})
    site.run(15)
    assert site.on("w0")[0] and "bayplan.dev/flaw" not in str(site.groups()[site.name])


def test_two_pods_with_one_number_hold_their_group_up_until_one_goes() -> None:
    site = Trained()
    site.training()
    for number in range(7):
        site.worker(number)
    site.worker(3, name="twin")
    site.run(5)
    assert "both have" in site.waits(site.name)[1] and site.on("w0") == [""]
    site.store.delete(PODS, "default", "twin", Deletion(grace=0))
    site.worker(7)
    site.run(15)
    assert all(site.on(*WORKERS))


def test_a_missing_number_is_told_and_the_pod_is_in_the_group_all_the_same() -> None:
    site = Trained()
    site.training()
    site.worker(None, name="w")
    site.run(5)
    assert "has no label" in site.said("w")
    assert site.get("w")["metadata"]["annotations"]["pod-group-name"] == site.name


def test_a_pod_that_can_be_in_no_group_says_why() -> None:
    site = Trained()
    types = {"Worker": {"replicas": 1, "template": template({})}}
    ref = site.owner("XGBoostJob", "boost", {"xgbReplicaSpecs": types})
    site.pod("p", owner=ref, labels={TYPE: "worker", INDEX: "0"})
    site.run(5)
    assert "doesn't have a Master replica spec" in site.said("p") and site.on("p") == [""]
    assert site.groups() == {}


def test_annotations_without_a_topology_are_passed_over_and_that_is_said_once() -> None:
    site = Trained()
    notes = {SEGMENT_SIZE: "4", SEGMENT_REQUIRED: RACK}
    site.training(2, notes)
    for number in range(2):
        site.worker(number, notes=notes)
    site.run(20)
    assert all(site.on("w0", "w1"))
    assert [reason for reason, _ in site.events(site.name)].count("SegmentsIgnored") == 1
    site.loop = Loop(EmbeddedBackend(site.store), (PodGrouperController(),), MemoryJournal())
    site.worker(0, name="again", notes=notes)
    site.run(4)
    assert site.get("again")["metadata"]["annotations"]["pod-group-name"] == site.name
    told = [reason for reason, _ in site.events(site.name)]
    assert told.count("SegmentsIgnored") == 1, "also if another one comes after us"


def test_segments_where_there_can_be_none_or_fewer_are_warned_of_under_the_right_name() -> None:
    site = Trained()
    site.training(2)
    site.worker(0)
    site.worker(1)
    site.pod("alone", notes=NOTES)
    site.run(4)
    assert all(site.on("w0", "w1", "alone"))
    assert [reason for reason, _ in site.events(site.name)] == ["SegmentsAdjusted"]
    name = f"pg-alone-{site.get('alone')['metadata']['uid']}"
    ((reason, words),) = site.events(name)
    assert reason == "SegmentsIgnored" and words.endswith("because a Pod has no segments")


def test_pods_without_owner_and_of_unknown_kinds_are_groups_of_their_own() -> None:
    site = Trained()
    site.pod("alone")
    things = Kind("example.com", "v1", "Thing", "things")
    site.store.create(DEFINITIONS, schemaless_crd(things))
    uid = site.store.create(things, {"metadata": {"name": "t"}}, "default")["metadata"]["uid"]
    ref = {"apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "uid": uid, "controller": True}
    site.pod("thing", owner=ref)
    site.run(4)
    assert all(site.on("alone", "thing"))
    assert f"pg-t-{uid}" in site.groups() and len(site.groups()) == 2


def test_what_stands_on_an_owner_counts_for_every_kind_of_the_table() -> None:
    assert {key for key, kind in BY_GROUP.items() if kind.grouping and not kind.is_pod} == set(BY_NAME)
    site = Trained()
    run, task = BY_NAME["tekton.dev", "PipelineRun"], BY_NAME["tekton.dev", "TaskRun"]
    for kind in (run, task):
        site.store.create(DEFINITIONS, schemaless_crd(kind))
    pipeline = site.owner("PipelineRun", "nightly", {}, labels={"kai.scheduler/queue": "builds"})
    first = site.owner("TaskRun", "first", {}, ownerReferences=[pipeline])
    site.pod("first-pod", owner=first)
    site.run(4)
    assert site.groups()[f"pg-nightly-{pipeline['uid']}"]["spec"]["queue"] == "builds"


def test_a_leader_may_take_its_time_to_be_ready_and_its_workers_follow() -> None:
    site = Trained()
    site.store.create(DEFINITIONS, schemaless_crd(BY_NAME["leaderworkerset.x-k8s.io", "LeaderWorkerSet"]))
    spec = {"startupPolicy": "LeaderReady", "leaderWorkerTemplate": {"size": 3}}
    ref = site.owner("LeaderWorkerSet", "serve", spec)
    group = f"pg-serve-{ref['uid']}-group-0"

    def member(number: int) -> None:
        labels = {"name": "serve", "group-index": "0", "worker-index": str(number)}
        prefixed = {f"leaderworkerset.sigs.k8s.io/{key}": text for key, text in labels.items()}
        site.pod(f"s{number}", owner=ref, labels=prefixed)

    member(0)
    site.run(4)
    site.phase("s0", "Running")
    site.run(100)
    assert site.on("s0")[0] and site.groups()[group]["spec"]["minMember"] == 1
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    site.store.patch(PODS, "default", "s0", ready, subresource="status")
    site.run()
    assert site.groups()[group]["spec"]["minMember"] == 3
    member(1)
    member(2)
    site.run(4)
    assert all(site.on("s0", "s1", "s2"))
    unready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    site.store.patch(PODS, "default", "s0", unready, subresource="status")
    site.run()
    assert site.groups()[group]["spec"]["minMember"] == 3, "its workers are there"


def test_pods_of_other_families_are_left_alone() -> None:
    site = Trained()
    site.pod("queued", labels={"kueue.x-k8s.io/queue-name": "q"})
    site.group("mine")
    site.pod("chosen", "mine")
    site.pod("elsewhere", schedulerName="other")
    site.run(4)
    assert list(site.groups()) == ["mine"]
    assert site.on("queued")[0] and site.on("chosen")[0] and not site.on("elsewhere")[0]


def test_an_owner_that_is_seen_late_is_waited_for_and_no_pod_is_lost() -> None:
    role = PodGrouperController()
    owner = OwnerReference("kubeflow.org/v1", "PyTorchJob", "train", "9", controller=True)
    meta = Metadata("p", "default", "1", owner_references=[owner])
    pod = PodWire(meta, PodSpecWire(scheduler_name="bayplan"))
    list(role.decode(Event(Happened.SEEN, PODS_KIND, pod)))
    assert list(role.reconcile(100.0)) == [] and role.next_due(100.0) <= 101.0
    assert list(role.reconcile(109.0)) == []
    (write,) = role.reconcile(110.0)
    assert write.verb is Verb.CREATE and write.name == "pg-train-9"


def test_a_deleted_group_is_created_again_and_grows_with_its_job() -> None:
    site = Trained()
    site.training(4)
    for number in range(4):
        site.worker(number)
    site.run()
    site.store.delete(POD_GROUP, "default", site.name, Deletion())
    site.run()
    assert site.name in site.groups()
    kind = next(one for one in OWNER_KINDS if one.kind == "PyTorchJob")
    types = {"Worker": {"replicas": 8, "template": template(NOTES)}}
    site.store.patch(kind, "default", "train", {"spec": {"pytorchReplicaSpecs": types}})
    site.run()
    assert len(site.groups()[site.name]["spec"]["subGroups"]) == 3


def test_what_is_changed_by_hand_on_a_group_stays_until_its_owner_asks_for_something_else() -> None:
    site = Trained()
    site.training(4)
    for number in range(4):
        site.worker(number)
    site.run()
    kind = next(one for one in OWNER_KINDS if one.kind == "PyTorchJob")

    def spec() -> tuple[str, str, str, int]:
        found = site.groups()[site.name]["spec"]
        chosen = (found["queue"], found["priorityClassName"], found.get("preemptibility", ""))
        return *chosen, found["minMember"]

    def job(replicas: int, **labels: str) -> None:
        types = {"Worker": {"replicas": replicas, "template": template(NOTES)}}
        body = {"metadata": {"labels": labels}, "spec": {"pytorchReplicaSpecs": types}}
        site.store.patch(kind, "default", "train", body)
        site.run()

    by_hand = {"queue": "urgent", "priorityClassName": "build", "preemptibility": "non-preemptible"}
    site.store.patch(POD_GROUP, "default", site.name, {"spec": by_hand})
    site.run()
    job(8)
    assert spec() == ("urgent", "build", "non-preemptible", 8), "the job grew, and said nothing of these"
    job(8, **{"kai.scheduler/queue": "night"})
    assert spec() == ("night", "build", "non-preemptible", 8), "of the queue it did"
    job(8, **{"kai.scheduler/preemptibility": "preemptible"})
    assert spec() == ("night", "build", "preemptible", 8)
    site.store.patch(POD_GROUP, "default", site.name, {"spec": {"preemptibility": None}})
    job(4)
    assert spec() == ("night", "build", "", 4), "taken away by hand is changed by hand, too"


def test_a_group_without_an_owner_keeps_its_fields() -> None:
    site = Trained()
    site.training(4)
    ours = {"metadata": {"name": site.name}, "spec": {"minMember": 1, "queue": "theirs"}}
    site.store.create(POD_GROUP, ours, "default")
    for number in range(4):
        site.worker(number)
    site.run()
    found = site.groups()[site.name]["spec"]
    assert (found["queue"], found["priorityClassName"], found["minMember"]) == ("theirs", "train", 4)


def test_a_bug_in_one_kind_is_shown_on_its_pods_and_affects_no_other_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def bug(view: View, grouping: Grouping) -> PodGroup:
        raise ZeroDivisionError("an unexpected error")

    monkeypatch.setitem(RULES, GroupBy.REPLICA_TYPES, bug)
    site = Trained()
    for role in site.loop.controllers:
        role.containment = Containment()
    site.training()
    site.worker(0)
    site.pod("alone")
    site.run(4)
    assert "an unexpected error" in site.said("w0") and site.on("w0", "alone")[0] == ""
    assert site.on("alone")[0]


def test_a_quiet_cluster_is_not_written_to() -> None:
    site = Trained()
    site.training()
    for number in range(8):
        site.worker(number)
    site.run(10)
    before = [one["metadata"]["resourceVersion"] for one in site.store.list(PODS).items]
    site.run(60)
    assert [one["metadata"]["resourceVersion"] for one in site.store.list(PODS).items] == before


def test_unchanged_fields_are_not_sent_because_they_may_change_concurrently() -> None:
    known = PodGroup("g", "ns", "theirs", "train", "preemptible", uid="u")
    made = replace(known, queue="ours", minimum=2)
    write = group_write(known, desired_group(known, made, ""))
    assert write is not None and dict(write.body["spec"]) == {
        "minMember": 2, "topologyConstraint": None, "subGroups": None,
    }  # fmt: skip
