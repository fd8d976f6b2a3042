"""The pod grouper: priority, inherited labels and annotations, and invalid numbers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bayplan.dialects.kai.api.names import (
    PREEMPTIBILITY,
    PRIORITY_LABEL,
    QUEUE_LABEL,
    REQUIRED,
    TOPOLOGY_NAME,
    USER_LABEL,
)
from bayplan.dialects.kai.api.pod_group import Constraint
from tests.support.kai_owners import Object, group, made, named, owned_pod, thing

REVISION = "serving.knative.dev/revision"
LWS = "leaderworkerset.sigs.k8s.io"
REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"


def defaults(*entries: Object) -> Object:
    cm = thing("v1", "ConfigMap", name="defaults")
    return {**cm, "data": {"types": json.dumps(entries)}}


# ── priority ───────────────────────────────────────────────────────────────────────────────────────


def test_of_several_unknown_owners_the_nearest_one_decides_the_priority() -> None:
    near = thing(
        "a.io/v1", "Near", labels={PRIORITY_LABEL: "low", PREEMPTIBILITY: "preemptible"}, name="near"
    )
    far = thing("b.io/v1", "Far", labels={PRIORITY_LABEL: "high", PREEMPTIBILITY: "non-preemptible"})
    found = group(owned_pod(), near, far)
    assert (found.priority_class, found.preemptibility) == ("low", "preemptible")
    assert found.name == "pg-own-u-own"


def test_without_a_priority_of_the_nearest_owner_the_pod_decides_then_the_next_owner() -> None:
    near, far = (
        thing("a.io/v1", "Near", name="near"),
        thing("b.io/v1", "Far", labels={PRIORITY_LABEL: "high"}),
    )
    assert group(owned_pod(), near, far).priority_class == "high"
    assert group(owned_pod({PRIORITY_LABEL: "low"}), near, far).priority_class == "low"


def test_an_owner_with_an_unknown_priority_class_gets_the_default_of_its_kind() -> None:
    owner = thing("a.io/v1", "Thing", labels={PRIORITY_LABEL: "missing"})
    assert group(owned_pod({PRIORITY_LABEL: "low"}), owner).priority_class == "train"
    cm = defaults({"typeName": "Thing", "group": "a.io", "priorityName": "high"})
    found = group(owned_pod({PRIORITY_LABEL: "low"}), owner, around=(cm,), defaults=("kai", "defaults"))
    assert found.priority_class == "high"


@pytest.mark.parametrize(
    ("entries", "wanted"),
    [
        ([{"typeName": "Thing", "preemptibility": "Non-Preemptible"}], ("train", "non-preemptible")),
        ([{"typeName": "Thing.a.io", "priorityName": "low"}], ("low", "")),
        (
            [{"typeName": "Thing", "group": "a.io", "priorityName": name} for name in ("low", "high")],
            ("high", ""),
        ),
        ([{"typeName": "Thing", "group": "b.io", "priorityName": "low"}], ("train", "")),
        ([None, {"typeName": "Thing", "priorityName": "low"}], ("low", "")),
    ],
)
def test_defaults_by_kind_are_read_as_administrators_write_them(
    entries: Any, wanted: tuple[str, str]
) -> None:
    cm = defaults(*entries)
    found = group(owned_pod(), thing("a.io/v1", "Thing"), around=(cm,), defaults=("kai", "defaults"))
    assert (found.priority_class, found.preemptibility) == wanted


def test_the_group_takes_the_user_label_of_its_owner_else_of_the_pod() -> None:
    one = owned_pod(notes={USER_LABEL: "ann"})
    assert group(one, thing("a.io/v1", "Thing")).annotations == {USER_LABEL: "ann"}
    assert group(one, thing("a.io/v1", "Thing", notes={USER_LABEL: "bob"})).annotations == {USER_LABEL: "bob"}


# ── inherited labels and annotations ───────────────────────────────────────────────────────────────

HALL = {TOPOLOGY_NAME: "hall", REQUIRED: "rack"}


def test_annotations_of_a_skipped_owner_are_inherited_and_never_override() -> None:
    workflow = thing("argoproj.io/v1alpha1", "Workflow", notes=HALL, name="flow")
    assert group(owned_pod(), workflow).constraint == Constraint("hall", "rack")
    below = thing("a.io/v1", "Thing", notes={TOPOLOGY_NAME: "attic"})
    assert group(owned_pod(), below, workflow).constraint == Constraint("attic", "rack")


def test_the_topology_of_a_cron_job_may_be_on_the_job_or_the_cron_job() -> None:
    refs = [{"apiVersion": "batch/v1", "kind": "Job", "name": "run", "uid": "u-run", "controller": True}]
    one = owned_pod(ownerReferences=refs)
    cron = thing("batch/v1", "CronJob", labels={"a": "b"}, notes={**HALL, "other": "x"}, name="cron")
    run = thing("batch/v1", "Job", name="run")
    made_for_run = group(one, run, cron, around=(run,))
    assert made_for_run.constraint == Constraint("hall", "rack")
    assert made_for_run.labels == {} and "other" not in made_for_run.annotations
    own = thing("batch/v1", "Job", notes={TOPOLOGY_NAME: "attic"}, name="run")
    assert group(one, own, cron, around=(own,)).constraint == Constraint("attic", "rack")


@pytest.mark.parametrize("meta", [5, "x", [], True, None])
def test_invalid_metadata_is_no_error(meta: object) -> None:
    workflow = thing("argoproj.io/v1alpha1", "Workflow", notes=HALL, name="flow")
    below: Object = {"apiVersion": "a.io/v1", "kind": "Thing", "metadata": meta}
    assert group(owned_pod(), below, workflow).constraint == Constraint("hall", "rack")


# ── names of existing groups ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("api", "kind", "parallelism", "there", "wanted"),
    [
        ("batch/v1", "Job", 1, "pg-own-u-own", "pg-own-u-own"),
        ("batch/v1", "Job", 2, "pg-own-u-own", "pg-run-7-u-own"),
        ("run.ai/v1", "RunaiJob", 1, "pg-own-u-own", "pg-own-u-own"),
        ("run.ai/v1", "RunaiJob", 2, "pg-run-7-u-own", "pg-run-7-u-own"),
        ("run.ai/v1", "RunaiJob", 2, "pg-own-u-own", "pg-run-u-own"),
    ],
)
def test_older_versions_had_a_group_for_each_pod_of_a_parallel_job(
    api: str, kind: str, parallelism: int, there: str, wanted: str
) -> None:
    old = thing("scheduling.run.ai/v2alpha2", "PodGroup", name=there)
    owner = thing(api, kind, {"parallelism": parallelism})
    assert group(owned_pod(name="run-7"), owner, around=(old,), legacy_names=True).name == wanted


# ── training ───────────────────────────────────────────────────────────────────────────────────────


def replicas(**counts: int) -> Object:
    return {name: {"replicas": count, "template": {}} for name, count in counts.items()}


def test_the_order_of_sub_groups_does_not_depend_on_the_order_of_types() -> None:
    spec = {"pytorchReplicaSpecs": replicas(Worker=3, Master=1)}
    found = group(owned_pod(), thing("kubeflow.org/v1", "PyTorchJob", spec))
    assert [one.name for one in found.sub_groups] == ["master", "worker"]


@pytest.mark.parametrize(
    ("kind", "spec", "wanted"),
    [
        ("TFJob", {}, "doesn't have a tfReplicaSpecs field. Please fix the replica field"),
        ("TFJob", {"tfReplicaSpecs": {}}, "Must be greater than 0, but got 0"),
        ("TFJob", {"tfReplicaSpecs": {"Worker": None}}, "doesn't allow for 0 Worker pods"),
        ("JAXJob", {"jaxReplicaSpecs": {}}, "doesn't have a Worker replica spec which is required"),
        (
            "PyTorchJob",
            {"pytorchReplicaSpecs": replicas(Worker=0), "elasticPolicy": {"minReplicas": 2}},
            "doesn't allow for 0 Worker pods",
        ),
        ("TFJob", {"tfReplicaSpecs": replicas(PS=9, Worker=2**31 - 1)}, "more than a pod group can have"),
    ],
)
def test_a_job_of_no_pods_or_too_many_is_rejected_with_a_reason(kind: str, spec: Object, wanted: str) -> None:
    found = made(owned_pod(), thing("kubeflow.org/v1", kind, spec))
    assert found.group is None and wanted in found.error


@pytest.mark.parametrize(
    ("api", "kind"),
    [
        *(("kubeflow.org/v1", kind) for kind in ("PyTorchJob", "TFJob", "XGBoostJob", "JAXJob", "MPIJob")),
        *(("ray.io/v1", kind) for kind in ("RayCluster", "RayJob", "RayService")),
        ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
        ("jobset.x-k8s.io/v1alpha2", "JobSet"),
    ],
)
def test_a_pod_is_grouped_if_only_the_name_of_its_owner_is_known(api: str, kind: str) -> None:
    found = group(owned_pod({REPLICATED_JOB: "a"}), named(api, kind))
    assert found.name.startswith("pg-own-u-own") and found.minimum == 1


def test_a_terminating_launcher_does_not_count() -> None:
    spec = {
        "mpiReplicaSpecs": replicas(Launcher=1, Worker=4),
        "launcherCreationPolicy": "WaitForWorkersReady",
    }
    labels = {"training.kubeflow.org/job-name": "own", "training.kubeflow.org/job-role": "launcher"}
    owner = thing("kubeflow.org/v1", "MPIJob", spec)
    launcher, going = (
        owned_pod(labels, name="l"),
        owned_pod(labels, name="g", deletionTimestamp="2026-01-01T00:00:00Z"),
    )
    assert group(owned_pod(), owner, around=(going,)).minimum == 4
    assert group(owned_pod(), owner, around=(going, launcher)).minimum == 5


@pytest.mark.parametrize("count", ["9" * 5000, "", "x", True, 1.5, [], 0, -1, 2**31])
def test_an_invalid_number_of_nodes_is_an_error(count: object) -> None:
    spec = {"job": {"options": {"envs": {"AZUREML_NODE_COUNT": count}}}}
    found = made(owned_pod(), thing("amlarc.azureml.com/v1alpha1", "AmlJob", spec))
    assert found.group is None and "AZUREML_NODE_COUNT must be a whole number" in found.error


def test_a_job_set_of_too_many_pods_is_rejected() -> None:
    jobs = [{"name": "a", "replicas": 2**20, "template": {"spec": {"parallelism": 2**20}}}]
    owner = thing("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": jobs})
    found = made(owned_pod({REPLICATED_JOB: "a"}), owner)
    assert found.group is None and "exceeds int32 max value" in found.error


# ── serving workloads ──────────────────────────────────────────────────────────────────────────────


def lws(**spec: Any) -> Object:
    return thing("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec)


SIZE_4 = {"leaderWorkerTemplate": {"size": 4}}


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({}, "leaderWorkerTemplate.size not found in LWS ns/own"),
        ({"leaderWorkerTemplate": {"size": 0}}, "invalid leaderWorkerTemplate.size 0 in LWS ns/own"),
        ({**SIZE_4, "startupPolicy": "Whenever"}, "unknown startupPolicy: Whenever"),
    ],
)
def test_an_invalid_leader_worker_set_is_an_error(spec: Object, wanted: str) -> None:
    found = made(owned_pod({f"{LWS}/worker-index": "1"}), lws(**spec))
    assert found.group is None and found.error == wanted


@pytest.mark.parametrize(("text", "name"), [("007", "pg-own-u-own-group-7"), ("x", "pg-own-u-own")])
def test_only_a_numeric_group_index_is_part_of_the_name(text: str, name: str) -> None:
    assert group(owned_pod({f"{LWS}/group-index": text}), lws(**SIZE_4)).name == name


@pytest.mark.parametrize(("policy", "minimum"), [("LeaderReady", 6), ("LeaderCreated", 4)])
def test_the_size_annotation_of_a_worker_is_the_minimum_if_the_leader_starts_first(
    policy: str, minimum: int
) -> None:
    one = owned_pod({f"{LWS}/worker-index": "1"}, {f"{LWS}/size": "6"})
    assert group(one, lws(**SIZE_4, startupPolicy=policy)).minimum == minimum


def revision(scale: str | None = None) -> Object:
    notes = {} if scale is None else {"autoscaling.knative.dev/min-scale": scale}
    return thing("serving.knative.dev/v1", "Revision", notes=notes, name="rev")


SERVICE = thing("serving.knative.dev/v1", "Service")


@pytest.mark.parametrize(("scale", "minimum"), [("3", 3), ("+3", 3), ("0", 1), ("x", 1), ("9" * 5000, 1)])
def test_an_invalid_min_scale_is_one_pod(scale: str, minimum: int) -> None:
    assert group(owned_pod({REVISION: "rev"}), SERVICE, around=(revision(scale),)).minimum == minimum


@pytest.mark.parametrize(
    ("groups", "together"), [("ab", False), ("aab", True), ("aa", True), ("a", False), ("", True)]
)
def test_a_revision_is_grouped_like_its_existing_pods(groups: str, together: bool) -> None:
    others = tuple(
        owned_pod({REVISION: "rev"}, {"pod-group-name": f"pg-{name}"}, name=f"o{at}")
        for at, name in enumerate(groups)
    )
    alone = thing("scheduling.run.ai/v2alpha2", "PodGroup", name="pg-a", ownerReferences=[{"kind": "Pod"}])
    found = group(owned_pod({REVISION: "rev"}), SERVICE, around=(revision(), alone, *others))
    assert (found.owner.kind == "Revision") is together


def test_a_pod_that_has_a_group_of_its_own_keeps_it() -> None:
    mine = owned_pod({REVISION: "rev"}, {"pod-group-name": "pg-a"})
    alone = thing("scheduling.run.ai/v2alpha2", "PodGroup", name="pg-a", ownerReferences=[{"kind": "Pod"}])
    assert group(mine, SERVICE, around=(revision(), alone, mine)).owner.kind == "Pod"


def test_an_empty_queue_label_is_ignored() -> None:
    owner = thing("a.io/v1", "Thing", labels={QUEUE_LABEL: ""})
    assert group(owned_pod({QUEUE_LABEL: "q"}), owner).queue == "q"
