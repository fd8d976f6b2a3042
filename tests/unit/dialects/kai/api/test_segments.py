"""Segments of every kind: how replica types are split, the segment of each pod, and errors and warnings."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from bayplan.dialects.jobs.kinds import TABLE
from bayplan.dialects.jobs.part import COMPLETION_INDEX, REPLICA_INDEX, WORKER_INDEX
from bayplan.dialects.kai.api.names import (
    FLAW,
    POD_GROUP_NAME,
    POD_INDEX_LABEL,
    SEGMENT_INDEX,
    SEGMENT_REQUIRED,
    SEGMENT_SIZE,
    SUB_GROUP_NAME,
    TOPOLOGY_NAME,
)
from bayplan.dialects.kai.api.pod_group import Constraint, PodGroup, merged, pod_group_object, read_pod_group
from bayplan.dialects.kai.api.segments import INDEX_LABELS, SegmentSize, segment_sizes
from bayplan.dialects.kai.grouper.dispatch import Grouped, group_pod, membership
from bayplan.dialects.kai.grouper.injection import segment_index, with_segment_index
from bayplan.dialects.kai.grouper.ray_and_grove import RAY_GROUP
from bayplan.dialects.kai.grouper.training import JOB_ROLE, REPLICA_TYPE
from bayplan.dialects.kube.fields.reader import Field

Object = dict[str, Any]

NOTES = {SEGMENT_SIZE: "4", SEGMENT_REQUIRED: "rack", TOPOLOGY_NAME: "hall"}
RACK = Constraint("hall", "rack")


def template(notes: Object | None = None) -> Object:
    return {"metadata": {"annotations": NOTES if notes is None else notes}, "spec": {"containers": []}}


def owner(kind: str, api: str, spec: Object | None, notes: Object | None = None) -> Object:
    meta = {"name": "job", "namespace": "ns", "uid": "u", "annotations": notes or {}}
    return {"apiVersion": api, "kind": kind, "metadata": meta, "spec": spec}


def training(kind: str, specs: str, count: int = 16, notes: Object | None = None, **more: Any) -> Object:
    others = {"JAXJob": [], "MPIJob": ["Launcher"], "TFJob": ["Chief", "PS"]}.get(kind, ["Master"])
    types: Object = {name: {"replicas": 1, "template": template({})} for name in others}
    types["Worker"] = {"replicas": count, "template": template(notes)}
    return owner(kind, "kubeflow.org/v1", {specs: types, **more})


def made_pod(labels: Object, notes: Object | None = None, name: str = "pod") -> Object:
    meta = {"name": name, "namespace": "ns", "labels": labels, "annotations": notes or {}}
    return {"metadata": meta, "spec": {"containers": [{"name": "c"}]}}


def worker(index: int | str, **labels: str) -> Object:
    return made_pod({REPLICA_TYPE: "worker", REPLICA_INDEX: str(index), **labels})


def pytorch(count: int = 16, notes: Object | None = None, **more: Any) -> Object:
    return training("PyTorchJob", "pytorchReplicaSpecs", count, notes, **more)


def cut(found: Grouped) -> list[tuple[str, int]]:
    assert found.group is not None
    return [(one.name, one.minimum) for one in found.group.sub_groups if one.constraint == RACK]


JOB = {"parallelism": 16, "completions": 16, "completionMode": "Indexed", "template": template()}
LWS = {"leaderWorkerTemplate": {"size": 17, "workerTemplate": template()}}
NUMBERED = template(NOTES | {POD_INDEX_LABEL: "index"})
RAY = {"workerGroupSpecs": [{"groupName": "gpu", "replicas": 16, "template": NUMBERED}]}
FLUX = {"size": 16, "pod": {"annotations": NOTES}, "containers": [{"image": "lammps"}]}
OF_EVERY_KIND = [
    (owner("Job", "batch/v1", JOB), {COMPLETION_INDEX: "5"}, "main-1"),
    (pytorch(), {REPLICA_TYPE: "worker", REPLICA_INDEX: "5"}, "worker-1"),
    (training("TFJob", "tfReplicaSpecs"), {REPLICA_TYPE: "worker", REPLICA_INDEX: "5"}, "worker-1"),
    (training("MPIJob", "mpiReplicaSpecs"), {JOB_ROLE: "worker", REPLICA_INDEX: "5"}, "worker-1"),
    (training("JAXJob", "jaxReplicaSpecs"), {REPLICA_TYPE: "worker", REPLICA_INDEX: "5"}, "worker-1"),
    (training("XGBoostJob", "xgbReplicaSpecs"), {REPLICA_TYPE: "worker", REPLICA_INDEX: "5"}, "worker-1"),
    (owner("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", LWS), {WORKER_INDEX: "6"}, "segment-1"),
    (owner("MiniCluster", "flux-framework.org/v1alpha2", FLUX), {COMPLETION_INDEX: "5"}, "main-1"),
    (owner("RayCluster", "ray.io/v1", RAY), {RAY_GROUP: "gpu", "index": "5"}, "gpu-1"),
]


@pytest.mark.parametrize(("top", "labels", "mine"), OF_EVERY_KIND, ids=lambda one: str(one)[:40])
def test_every_kind_of_the_table_has_segments(top: Object, labels: Object, mine: str) -> None:
    found = group_pod(made_pod(labels), [top])
    assert found.error == "" and found.group is not None
    assert found.sub_group == mine
    assert len(cut(found)) == 4
    parents = {one.parent for one in found.group.sub_groups}
    leaves = [one for one in found.group.sub_groups if one.name not in parents]
    assert sum(one.minimum for one in leaves) == found.group.minimum


def test_the_table_above_has_every_kind_that_numbers_its_pods() -> None:
    assert set(INDEX_LABELS) <= {top["kind"] for top, _, _ in OF_EVERY_KIND}
    assert set(INDEX_LABELS) <= {kind.kind for kind in TABLE if kind.grouping is not None}


def test_segments_beyond_the_minimum_are_elastic_and_the_minimum_is_rounded_up() -> None:
    found = group_pod(worker(0), [pytorch(20, elasticPolicy={"minReplicas": 11})])  # a master, ten workers
    assert cut(found) == [("worker-0", 4), ("worker-1", 4), ("worker-2", 4), ("worker-3", 0), ("worker-4", 0)]
    assert found.group is not None and found.group.minimum == 13
    assert segment_sizes(20, 12, 4)[2:4] == (SegmentSize(4, 4), SegmentSize(4, 0))
    assert segment_sizes(10, 10, 4)[-1] == SegmentSize(2, 2)


def test_a_pod_beyond_the_replicas_opens_an_elastic_segment_that_stays() -> None:
    first = group_pod(worker(21), [pytorch(16)]).group
    assert first is not None and (first.sub_groups[-1].name, first.sub_groups[-1].minimum) == ("worker-5", 0)
    again = group_pod(worker(0), [pytorch(16)]).group
    assert again is not None
    assert merged(first, again).sub_groups[-1].name == "worker-5"
    assert merged(again, again) == again


def test_a_size_beyond_the_replica_type_is_one_segment_and_a_warning() -> None:
    found = group_pod(worker(3), [pytorch(4, NOTES | {SEGMENT_SIZE: "100"})])
    assert cut(found) == [("worker-0", 4)]
    assert found.warnings == (f"{SEGMENT_SIZE}: 100 is more than the 4 pods of worker: one segment",)


def test_segment_annotations_without_a_topology_are_ignored_with_one_warning() -> None:
    notes = {SEGMENT_SIZE: "4", SEGMENT_REQUIRED: "rack"}
    found = group_pod(worker(3), [pytorch(4, notes)])
    assert found.sub_group == "worker" and found.error == ""
    assert len(found.warnings) == 1 and TOPOLOGY_NAME in found.warnings[0]


def test_the_topology_of_the_template_wins() -> None:
    job = pytorch(4)
    job["metadata"]["annotations"] = {TOPOLOGY_NAME: "other"}
    assert cut(group_pod(worker(0), [job])) == [("worker-0", 4)]
    del job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"]["annotations"]
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"]["annotations"] = {
        SEGMENT_SIZE: "4", SEGMENT_REQUIRED: "rack"}  # fmt: skip
    group = group_pod(worker(0), [job]).group
    assert group is not None and group.sub_groups[-1].constraint == Constraint("other", "rack")


@pytest.mark.parametrize("size", ["0", "-2", "four", "", "4.5", "9" * 30, "٤"])
@pytest.mark.parametrize("where", ["template", "pod"])
def test_an_invalid_size_is_a_flaw_of_the_group_and_every_pod_is_grouped(size: str, where: str) -> None:
    notes = NOTES | {SEGMENT_SIZE: size}
    pod, job = worker(0), pytorch(4, notes if where == "template" else NOTES)
    if where == "pod":
        pod["metadata"]["annotations"] = notes
    found = group_pod(pod, [job])
    assert found.group is not None and f"invalid segment size {size}" in found.error
    assert found.sub_group == "worker"
    again = read_pod_group(Field(pod_group_object(found.group)))
    assert again.flaw == again.annotations[FLAW] == found.error


@pytest.mark.parametrize("kind", range(len(OF_EVERY_KIND)))
@pytest.mark.parametrize("index", [None, "", "x", "-1", "9" * 20])
def test_a_pod_without_an_index_is_an_error(kind: int, index: str | None) -> None:
    top, labels, _ = OF_EVERY_KIND[kind]
    numbered = next(name for name in labels if "index" in name)
    wrong = {name: text for name, text in labels.items() if name != numbered or index is not None}
    found = group_pod(made_pod(wrong | ({} if index is None else {numbered: index})), [top])
    assert found.group is not None and numbered in found.error
    assert membership(found)[1] == {POD_GROUP_NAME: found.group.name}


def test_two_pods_with_the_same_index_are_an_error() -> None:
    def other(name: str, **status: str) -> Object:
        pod = worker(5, **{SUB_GROUP_NAME: "worker-1"})
        pod["metadata"] |= {"name": name, "annotations": {POD_GROUP_NAME: "pg-job-u"}}
        return pod | {"status": status}

    found = group_pod(worker(5), [pytorch()], siblings=lambda *seat: [other("twin", phase="Running")])
    assert found.error == f"pods twin and pod both have {REPLICA_INDEX}=5"
    for fine in (other("pod"), other("twin", phase="Failed")):
        assert group_pod(worker(5), [pytorch()], siblings=lambda *seat, one=fine: [one]).error == ""


def test_kinds_without_an_index_need_an_index_label() -> None:
    spec = {"replicas": 8, "template": template()}
    plain = group_pod(made_pod({}, NOTES), [owner("StatefulSet", "apps/v1", spec)])
    assert plain.group is not None and plain.group.sub_groups == () and plain.error == ""
    assert POD_INDEX_LABEL in plain.warnings[0]
    notes = NOTES | {POD_INDEX_LABEL: "apps.kubernetes.io/pod-index"}
    pod = made_pod({"apps.kubernetes.io/pod-index": "6"}, notes)
    found = group_pod(pod, [owner("StatefulSet", "apps/v1", spec)])
    assert found.sub_group == "main-1" and cut(found) == [("main-0", 4), ("main-1", 0)]
    loose = owner("Job", "batch/v1", JOB | {"completionMode": "NonIndexed"})
    assert POD_INDEX_LABEL in group_pod(made_pod({}), [loose]).warnings[0]


def test_with_an_unknown_number_of_pods_the_first_segment_is_mandatory() -> None:
    notes = NOTES | {POD_INDEX_LABEL: "order"}
    for spec in (None, {}, {"replicas": None}):
        top = owner("Trainer", "example.com/v1", spec)
        found = [group_pod(made_pod({"order": number}, notes), [top]) for number in "1234"]
        assert [one.sub_group for one in found] == ["main-0"] * 3 + ["main-1"]
        assert cut(found[0]) == [("main-0", 4)] and cut(found[3]) == [("main-0", 4), ("main-1", 0)]
        assert found[0].group is not None and found[0].group.minimum == 4
        (words,) = found[0].warnings
        assert "the number of pods of a Trainer is unknown" in words and "all 4" in words
    told = group_pod(made_pod({"order": "0"}, notes), [owner("Trainer", "example.com/v1", {"replicas": 3})])
    assert cut(told) == [("main-0", 3)] and "more than the 3 pods" in told.warnings[0]
    silent = group_pod(made_pod({"order": "0"}, notes), [owner("StatefulSet", "apps/v1", {"a": 1})])
    assert cut(silent) == [("main-0", 1)], "one is what a StatefulSet has then"
    bad = group_pod(made_pod({"order": "0"}, notes | {SEGMENT_SIZE: "-4"}), [owner("Trainer", "a/v1", None)])
    assert "invalid segment size -4" in bad.error and len(bad.warnings) == 0


def test_segments_of_a_leader_worker_set_by_annotation() -> None:
    def sub_groups(size: int, index: int) -> tuple[str, list[tuple[str, int, str]]]:
        spec = {"leaderWorkerTemplate": {"size": size, "workerTemplate": template()}}
        top = owner("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", spec)
        found = group_pod(made_pod({WORKER_INDEX: str(index)}), [top])
        assert found.group is not None and not found.error
        return found.sub_group, [(one.name, one.minimum, one.parent) for one in found.group.sub_groups]

    inside = [("leader", 1, "segment-0"), ("workers", 4, "segment-0")]
    assert sub_groups(8, 4) == ("workers", [("segment-0", 5, ""), ("segment-1", 3, ""), *inside])
    assert sub_groups(8, 5)[0] == "segment-1"
    assert sub_groups(8, 0)[0] == "leader"
    assert sub_groups(8, 30)[1][2] == ("segment-7", 0, "")
    assert sub_groups(1, 0) == ("leader", [("leader", 1, "")])


def test_workers_of_a_set_are_numbered_by_the_index_label_annotation() -> None:
    notes = NOTES | {POD_INDEX_LABEL: "order"}
    spec = {"leaderWorkerTemplate": {"size": 9, "workerTemplate": template(notes)}}
    top = owner("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", spec)

    def home(number: str, order: str | None, **known: Any) -> Grouped:
        labels = {WORKER_INDEX: number} | ({} if order is None else {"order": order})
        return group_pod(made_pod(labels, notes), [top], **known)

    assert [home("1", "8").sub_group, home("8", "1").sub_group] == ["segment-1", "workers"]
    assert home("0", None).sub_group == "leader", "a leader needs no number among workers"
    assert home("1", None).error == "pod ns/pod has no label order, which would tell its segment"
    twin = made_pod({"order": "8", SUB_GROUP_NAME: "segment-1"}, {POD_GROUP_NAME: "pg-job-u"}, "twin")
    assert home("1", "8", siblings=lambda *seat: [twin]).error == "pods twin and pod both have order=8"


def test_nothing_a_user_may_write_is_a_crash() -> None:
    odd: list[Any] = [None, 0, -1, "x", [], {}, True, [1], {"a": 1}]
    pods = [made_pod({}, NOTES), worker("x"), {"metadata": None}]
    for entry, value, pod in itertools.product(TABLE, odd, pods):
        group, kind = entry.group, entry.kind
        for spec in (value, {"pytorchReplicaSpecs": value, "replicatedJobs": value, "template": value}):
            top = owner(kind, f"{group}/v1" if group else "v1", spec)
            found = group_pod(pod, [top])
            assert found.group is not None or found.error


# ── the segment index in the pod ───────────────────────────────────────────────────────────────────


def test_a_pod_gets_its_segment_index_and_keeps_existing_values() -> None:
    pod = worker(9)
    pod["spec"] = {
        "initContainers": [{"name": "a", "env": [{"name": "KAI_SEGMENT_INDEX", "value": "7"}]}],
        "containers": [{"name": "b", "env": [{"name": "X", "value": "$(KAI_SEGMENT_INDEX)"}]}, {"name": "c"}],
    }
    found = group_pod(pod, [pytorch()])
    told = with_segment_index(pod, found)
    assert told["metadata"]["annotations"] == {SEGMENT_INDEX: "2"}
    first = {"name": "KAI_SEGMENT_INDEX", "value": "2"}
    assert told["spec"]["initContainers"] == pod["spec"]["initContainers"]
    assert told["spec"]["containers"][0]["env"] == [first, pod["spec"]["containers"][0]["env"][0]]
    assert told["spec"]["containers"][1] == {"name": "c", "env": [first]}
    assert "env" not in pod["spec"]["containers"][1], "the pod itself is left as it is"
    assert with_segment_index(told, found) == told


def test_a_pod_in_no_segment_is_unchanged() -> None:
    pod = made_pod({REPLICA_TYPE: "master", REPLICA_INDEX: "0"})
    assert with_segment_index(pod, group_pod(pod, [pytorch()])) is pod
    broken = worker("x")
    assert with_segment_index(broken, group_pod(broken, [pytorch()])) is broken
    by_hand = PodGroup("g", sub_groups=read_pod_group(
        Field({"spec": {"subGroups": [{"name": "gpu-0"}, {"name": "b-1", "parent": "a"}, {"name": "a"}]}})
    ).sub_groups)  # fmt: skip
    assert segment_index(by_hand, "gpu-0") is None
    assert segment_index(by_hand, "b-1") is None


def test_annotations_of_the_pod_win() -> None:
    pod = worker(0)
    pod["metadata"]["annotations"] = NOTES | {SEGMENT_REQUIRED: "row", SEGMENT_SIZE: "2"}
    group = group_pod(pod, [pytorch(4)]).group
    assert group is not None
    assert [one.constraint for one in group.sub_groups if one.parent] == [Constraint("hall", "row")] * 2


def test_a_launcher_that_runs_as_worker_has_index_0() -> None:
    job = training("MPIJob", "mpiReplicaSpecs", 8, runLauncherAsWorker=True)
    homes = [group_pod(worker(index), [job]).sub_group for index in (1, 4, 5, 8)]
    assert homes == ["worker-0", "worker-0", "worker-1", "worker-1"]
