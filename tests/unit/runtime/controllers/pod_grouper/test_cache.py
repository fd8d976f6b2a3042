"""Which events make the pod grouper reconcile a pod, and that it never scans all pods for one of them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from bayplan.backends.crds import DEFINITIONS
from bayplan.backends.embedded.api.options import Deletion
from bayplan.backends.fake_controllers.crds import schemaless_crd
from bayplan.dialects.api import Ended, Event, Happened, WriteOutcome
from bayplan.dialects.kai.api.names import (
    POD_GROUP,
    POD_GROUP_NAME,
    SEGMENT_SIZE,
    SUB_GROUP_NAME,
)
from bayplan.dialects.kai.api.wire import POD_GROUPS, KaiPodGroupWire
from bayplan.dialects.kai.grouper.owner_kinds import OWNER_KINDS
from bayplan.dialects.kube.decode.wire import PODS_KIND, Metadata, OwnerReference, PodSpecWire, PodWire
from bayplan.model.pod import PodKey
from bayplan.runtime.controllers.pod_grouper.cache import group_ref
from bayplan.runtime.controllers.pod_grouper.controller import (
    OWNER_SECONDS,
    REFUSED_SECONDS,
    RETRY_SECONDS,
    PodGrouperController,
)
from tests.support.kai_site import Site
from tests.support.pod_site import PODS, Object
from tests.unit.runtime.controllers.pod_grouper.test_controller import INDEX, PYTORCH, TYPE, Trained
from tests.unit.runtime.controllers.pod_grouper.test_controller import NOTES as IN_FOURS

NOTES = {**IN_FOURS, SEGMENT_SIZE: "2"}


def training(notes: Mapping[str, str] = NOTES) -> Object:
    worker = {"replicas": 4, "template": {"metadata": {"annotations": dict(notes)}}}
    meta = {"name": "train", "namespace": "ns", "uid": "u-train"}
    return {"metadata": meta, "spec": {"pytorchReplicaSpecs": {"Worker": worker}}}


def member(
    name: str, owner: str = "train", api: str = "kubeflow.org/v1", kind: str = "PyTorchJob",
    labels: Mapping[str, str] | None = None, notes: Mapping[str, str] | None = None,
) -> PodWire:  # fmt: skip
    ref = OwnerReference(api_version=api, kind=kind, name=owner, uid=f"u-{owner}", controller=True)
    meta = Metadata(
        name=name, namespace="ns", uid=f"u-{name}", labels=dict(labels or {}),
        annotations=dict(notes or {}), owner_references=[ref],
    )  # fmt: skip
    return PodWire(metadata=meta, spec=PodSpecWire(scheduler_name="bayplan"))


def worker(number: int, notes: Mapping[str, str] = NOTES, **labels: str) -> PodWire:
    numbered = {TYPE: "worker", INDEX: str(number), **labels}
    return member(f"w{number}", labels=numbered, notes=notes)


def carried_out(role: PodGrouperController, now: float, uid: str = "g") -> list[Object]:
    """The writes that are due, each of a group as if the API had accepted it."""
    found = []
    for write in list(role.reconcile(now)):
        body: Object = dict(write.body)
        if write.kind.kind == "PodGroup":
            meta = {"name": write.name, "namespace": "ns", **body["metadata"], "uid": uid}
            body = {**body, "metadata": meta}
        found.append({"kind": write.kind.kind, "name": write.name, **body})
        list(role.on_outcome(WriteOutcome(write, Ended.DONE, 200, "", body), now))
    return found


def test_pods_that_were_grouped_before_their_owner_came_are_all_put_where_they_belong() -> None:
    role = PodGrouperController()
    for number in range(4):
        role.decode(Event(Happened.SEEN, PODS_KIND, worker(number)))
    now = 2 * OWNER_SECONDS
    list(role.reconcile(0.0))
    first = carried_out(role, now) + carried_out(role, now)
    assert [one["kind"] for one in first if one["kind"] != "Event"] == ["PodGroup", *["Pod"] * 4]
    group = first[0]["name"]
    for number in range(4):
        joined = worker(number, {**NOTES, POD_GROUP_NAME: group})
        role.decode(Event(Happened.SEEN, PODS_KIND, joined))
    assert carried_out(role, now) == []
    role.decode(Event(Happened.SEEN, PYTORCH, training()))
    again = carried_out(role, now) + carried_out(role, now)
    labels = {one["name"]: one["metadata"]["labels"] for one in again if one["kind"] == "Pod"}
    assert {name: found[SUB_GROUP_NAME] for name, found in labels.items()} == {
        "w0": "worker-0", "w1": "worker-0", "w2": "worker-1", "w3": "worker-1",
    }  # fmt: skip


class Owned(Site):
    """With the pod grouper, and owner kinds that accept any fields."""

    def __init__(self, *kinds: str) -> None:
        super().__init__((2, 2), grouper=PodGrouperController())
        for kind in OWNER_KINDS:
            if kind.kind in kinds:
                self.store.create(DEFINITIONS, schemaless_crd(kind))

    def sub_groups(self, *names: str) -> list[str]:
        return [self.get(name)["metadata"]["labels"].get(SUB_GROUP_NAME, "") for name in names]


def test_pods_of_a_gang_whose_object_comes_later_or_names_them_later_are_put_into_it() -> None:
    site = Owned("PodCliqueSet", "PodGang")
    owner = site.owner("PodCliqueSet", "set", {})
    for name in ("a", "b"):
        site.pod(name, labels={"grove.io/podgang": "gang"}, owner=owner)
    site.run(2)
    assert "not found" in site.said("a")
    part = {"name": "x", "minReplicas": 1, "podReferences": [{"namespace": "default", "name": "a"}]}
    site.owner("PodGang", "gang", {"podgroups": [part]})
    site.run(2)
    assert site.sub_groups("a", "b") == ["x", ""]
    both = [{"namespace": "default", "name": name} for name in ("a", "b")]
    kind = next(one for one in OWNER_KINDS if one.kind == "PodGang")
    site.store.patch(kind, "default", "gang", {"spec": {"podgroups": [{**part, "podReferences": both}]}})
    site.run(2)
    assert site.sub_groups("a", "b") == ["x", "x"] and all(site.on("a", "b"))


def test_all_pods_that_wait_move_when_their_owner_comes_to_ask_for_segments() -> None:
    site = Owned()
    site.topology()
    spec = training({})["spec"]
    owner = site.owner("PyTorchJob", "train", spec)
    for number in range(4):
        labels = {TYPE: "worker", INDEX: str(number)}
        site.pod(f"w{number}", labels=labels, owner=owner, cpu=3)  # more than any node has
    site.run(2)
    names = [f"w{number}" for number in range(4)]
    assert site.sub_groups(*names) == ["worker"] * 4
    site.store.patch(PYTORCH, "default", "train", {"spec": training()["spec"]})
    site.run(3)
    assert site.sub_groups(*names) == ["worker-0", "worker-0", "worker-1", "worker-1"]


def test_pods_are_looked_for_by_what_they_are_listed_by() -> None:
    role = PodGrouperController()
    jobs = {name: str(number) for number, name in enumerate(("one", "two", "three"))}
    number = {"batch.kubernetes.io/job-completion-index": "0"}
    for name in jobs:
        pod = member(name, name, "batch/v1", "Job", number | {"leaderworkerset.sigs.k8s.io/name": "set"})
        role.decode(Event(Happened.SEEN, PODS_KIND, pod))
    list(role.reconcile(0.0))
    list(role.reconcile(2 * OWNER_SECONDS))
    index = role.cache.index
    assert [len(index.others_at_position(PodKey("ns", name))) for name in jobs] == [0, 0, 0]
    assert len(list(role.cache.pods_with("ns", {"leaderworkerset.sigs.k8s.io/name": "set"}))) == 3
    role.decode(Event(Happened.GONE, PODS_KIND, role.cache.pods[PodKey("ns", "two")]))
    assert len(list(role.cache.pods_with("ns", {"leaderworkerset.sigs.k8s.io/name": "set"}))) == 2
    for name in ("one", "three"):
        role.decode(Event(Happened.GONE, PODS_KIND, role.cache.pods[PodKey("ns", name)]))
    assert not any((index.members, index._sizes, index._labelled, index._pods_at, index._position_of))
    assert not role.cache.dependents and not role.cache.owners_of


def test_an_answer_about_a_group_that_is_no_more_does_not_hide_the_one_in_its_place() -> None:
    role = PodGrouperController()
    role.decode(Event(Happened.SEEN, PYTORCH, training()))
    role.decode(Event(Happened.SEEN, PODS_KIND, worker(0)))
    made = carried_out(role, 1.0, "old")[0]
    list(role.reconcile(1.0))
    changed = training({**NOTES, SEGMENT_SIZE: "1"})
    role.decode(Event(Happened.SEEN, PYTORCH, changed))
    role.decode(Event(Happened.SEEN, PODS_KIND, worker(1, {**NOTES, SEGMENT_SIZE: "1"})))
    (write,) = [one for one in role.reconcile(2.0) if one.kind.kind == "PodGroup"]
    (ref,) = role.cache.groups
    another = role.cache.groups[ref]
    object.__setattr__(another, "uid", "new")
    list(role.on_outcome(WriteOutcome(write, Ended.GONE, 409, "another"), 2.0))
    assert made["name"] == ref.name and role.cache.groups[ref].uid == "new"


def test_a_group_that_went_before_its_making_was_answered_is_not_taken_for_there() -> None:
    role = PodGrouperController()
    role.decode(Event(Happened.SEEN, PYTORCH, training()))
    role.decode(Event(Happened.SEEN, PODS_KIND, worker(0)))
    (write,) = [one for one in role.reconcile(1.0) if one.kind.kind == "PodGroup"]
    meta = {"name": write.name, "namespace": "ns", **write.body["metadata"], "uid": "g"}
    made = {**write.body, "metadata": meta}
    for happened in (Happened.SEEN, Happened.GONE):
        role.decode(Event(happened, POD_GROUPS, msgspec.convert(made, KaiPodGroupWire)))
    list(role.on_outcome(WriteOutcome(write, Ended.DONE, 201, "", made), 1.0))
    assert role.cache.groups == {}
    assert [one.name for one in role.reconcile(2.0) if one.kind.kind == "PodGroup"] == [write.name]


def test_what_was_refused_is_not_tried_again_all_the_time() -> None:
    role = PodGrouperController()
    role.decode(Event(Happened.SEEN, PYTORCH, training()))
    role.decode(Event(Happened.SEEN, PODS_KIND, worker(0)))
    (write,) = role.reconcile(1.0)
    (flaw,) = role.on_outcome(WriteOutcome(write, Ended.REFUSED, 422, "no"), 1.0)
    assert "cannot be written: no" in str(flaw.body)
    list(role.on_outcome(WriteOutcome(flaw, Ended.DONE), 1.0))
    assert list(role.reconcile(1.0 + RETRY_SECONDS)) == []
    assert [one.kind.kind for one in role.reconcile(1.0 + REFUSED_SECONDS)] == ["PodGroup"]


def test_running_segments_stay_when_no_pod_asks_for_segments_any_more() -> None:
    site = Owned()
    site.topology()
    owner = site.owner("PyTorchJob", "train", training()["spec"])
    for number in range(4):
        labels = {TYPE: "worker", INDEX: str(number)}
        site.pod(f"w{number}", labels=labels, owner=owner, notes=NOTES)
    site.run(3)
    bare = {"Worker": {"template": {"metadata": {"annotations": None}}}}
    site.store.patch(PYTORCH, "default", "train", {"spec": {"pytorchReplicaSpecs": bare}})
    site.store.delete(PODS, "default", "w3", Deletion(grace=0))
    site.run(1)
    site.pod("w3", labels={TYPE: "worker", INDEX: "3"}, owner=owner)
    site.run(3)
    assert site.sub_groups("w0", "w3") == ["worker-0", "worker-1"] and all(site.on("w3"))
    told = [message for _, message in site.events(f"pg-train-{owner['uid']}")]
    assert any(f"removal of {SEGMENT_SIZE} takes effect" in message for message in told)


def test_what_was_said_of_a_group_is_forgotten_with_it() -> None:
    site = Trained()
    site.training(1, {SEGMENT_SIZE: "4"})
    site.worker(0, notes={SEGMENT_SIZE: "4"})
    site.run(4)
    assert list(site.grouper.warned) == [group_ref("default", site.name)]
    site.store.delete(PODS, "default", "w0", Deletion(grace=0))
    site.store.delete(POD_GROUP, "default", site.name)
    site.run(4)
    assert site.grouper.warned == {}
