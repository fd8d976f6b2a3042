"""Validation of jobs by the webhook: names, time limits, gates, and updates of running jobs."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from bayplan.dialects.kueue.names.feature_switches import RULES, FeatureSwitches
from bayplan.dialects.kueue.webhooks.validate import errors

Object = dict[str, Any]
K = "kueue.x-k8s.io/"
QUEUED = {K + "queue-name": "q"}


def made(kind: str, spec: Object, **metadata: Any) -> Object:
    return {"kind": kind, "metadata": {"name": "x", "namespace": "n", **metadata}, "spec": spec}


def batch(spec: Object | None = None, notes: dict[str, str] | None = None, **metadata: Any) -> Object:
    template: Object = {"metadata": {"annotations": notes or {}}, "spec": {}}
    return made("Job", {"parallelism": 4, "suspend": True, "template": template, **(spec or {})}, **metadata)


def errors_of(
    new: Object, old: Object | None = None, rules: FeatureSwitches = RULES
) -> list[tuple[str, str, str]]:
    return [(str(error.fault), error.path, error.why) for error in errors(new, old, rules)]


def test_a_plain_job_of_every_kind_passes() -> None:
    template: Object = {"spec": {}}
    replicas = {"Worker": {"replicas": 2, "template": template}}
    ray = {"headGroupSpec": {"template": template}, "workerGroupSpecs": []}
    good = [
        batch(labels=QUEUED),
        made("JobSet", {"replicatedJobs": [{"name": "a", "template": {"spec": {"template": template}}}]}),
        made("LeaderWorkerSet", {"leaderWorkerTemplate": {"size": 3, "workerTemplate": template}}),
        made("MPIJob", {"mpiReplicaSpecs": {"Launcher": {"template": template}, **replicas}}),
        made("PyTorchJob", {"pytorchReplicaSpecs": replicas}),
        made("TrainJob", {"runtimeRef": {"name": "torch"}}),
        made("RayCluster", ray, labels=QUEUED),
        made("RayJob", {"rayClusterSpec": ray, "shutdownAfterJobFinishes": True}, labels=QUEUED),
        made("RayService", {"rayClusterConfig": ray}, labels=QUEUED),
        made("AppWrapper", {"components": [{"template": batch()}]}),
        made("SparkApplication", {"mode": "cluster", "driver": {}, "executor": {}}, labels=QUEUED),
        made("StatefulSet", {"replicas": 2, "template": template}),
        made("Deployment", {"template": template}),
        made("Pod", {"containers": []}),
    ]
    assert [errors_of(job) for job in good] == [[] for _ in good]


@pytest.mark.parametrize(
    ("job", "fault", "path", "why"),
    [
        (
            batch(labels={K + "queue-name": "No Name"}),
            "Invalid value",
            "labels[" + K + "queue-name]",
            "RFC 1123",
        ),
        (batch(labels={K + "max-exec-time-seconds": "0"}), "Invalid value", "seconds]", "greater than 0"),
        (batch(labels={K + "max-exec-time-seconds": "x"}), "Invalid value", "seconds]", "invalid syntax"),
        (
            batch(annotations={K + "admission-gated-by": "a,a"}),
            "Invalid value",
            "gated-by]",
            "domain-prefixed",
        ),
        (
            batch(annotations={K + "admission-gated-by": "a.b/c,a.b/c"}),
            "Invalid value",
            "gated-by]",
            "duplicate gate name: a.b/c",
        ),
        (
            batch(annotations={K + "job-min-parallelism": "4"}),
            "Invalid value",
            "parallelism]",
            "between 0 and 3",
        ),
        (
            batch(annotations={K + "job-completions-equal-parallelism": "true"}),
            "Invalid value",
            "spec.completions",
            "should be equal to parallelism",
        ),
        (
            batch(notes={K + "podset-required-topology": "rack"}, annotations={K + "elastic-job": "true"}),
            "Forbidden",
            f"spec.template.metadata.annotations.{K}podset-required-topology",
            "not supported with elastic jobs",
        ),
        (
            made("JobSet", {"replicatedJobs": []}, annotations={K + "elastic-job": "true"}),
            "Forbidden",
            f"metadata.annotations[{K}elastic-job]",
            'elastic job is not supported for "jobset.x-k8s.io/v1alpha2, Kind=JobSet"',
        ),
        (
            made(
                "SparkApplication", {"mode": "client"}, labels={**QUEUED, K + "prebuilt-workload-name": "w"}
            ),
            "Forbidden",
            "prebuilt-workload-name]",
            "Is not supported for",
        ),
        (made("RayJob", {}, labels=QUEUED), "Required value", "spec.rayClusterSpec", "is required"),
        (
            made("RayCluster", {"workerGroupSpecs": [{"groupName": "head"}]}, labels=QUEUED),
            "Forbidden",
            "spec.workerGroupSpecs[0].groupName",
            "reserved",
        ),
        (
            made(
                "RayCluster", {"workerGroupSpecs": [{"groupName": f"g{i}"} for i in range(18)]}, labels=QUEUED
            ),
            "Too many",
            "spec.workerGroupSpecs",
            "at most 18",
        ),
        (
            made("LeaderWorkerSet", {"replicas": 1_000_001}),
            "Invalid value",
            "spec.replicas",
            "must be <= 10000",
        ),
        (made("Pod", {}, labels={K + "managed": "no"}), "Forbidden", "labels[" + K + "managed]", "'true'"),
        (
            made("Pod", {}, annotations={K + "pod-group-total-count": "2"}),
            "Required value",
            "labels[" + K + "pod-group-name]",
            "should be set",
        ),
        (
            made(
                "Pod",
                {},
                labels={K + "pod-group-name": "g"},
                annotations={K + "pod-group-total-count": "0"},
            ),
            "Invalid value",
            "annotations[" + K + "pod-group-total-count]",
            "greater than zero",
        ),
    ],
)
def test_invalid_jobs_are_rejected(job: Object, fault: str, path: str, why: str) -> None:
    found = errors_of(job)
    assert any(f == fault and path in p and why in w for f, p, w in found), found


@pytest.mark.parametrize(
    ("before", "after", "path", "why"),
    [
        (
            batch({"suspend": False}, labels=QUEUED),
            {"labels": {K + "queue-name": "r"}},
            "queue-name]",
            "immutable",
        ),
        (
            batch({"suspend": False}, labels=QUEUED),
            {"labels": {**QUEUED, K + "priority-class": "p"}},
            "priority-class]",
            "cannot be added",
        ),
        (
            batch(labels={**QUEUED, K + "priority-class": "p"}),
            {"labels": QUEUED},
            "priority-class]",
            "cannot be removed",
        ),
        (
            batch({"suspend": False}, labels=QUEUED),
            {"labels": {**QUEUED, K + "max-exec-time-seconds": "5"}},
            "seconds]",
            "immutable",
        ),
        (batch(), {"annotations": {K + "elastic-job": "true"}}, "elastic-job]", "immutable"),
        (batch(), {"annotations": {K + "admission-gated-by": "a.b/c"}}, "gated-by]", "after creation"),
        (
            made(
                "Pod", {}, labels={K + "pod-group-name": "g"}, annotations={K + "pod-group-total-count": "1"}
            ),
            {"labels": {K + "pod-group-name": "h"}},
            "pod-group-name]",
            "immutable",
        ),
    ],
)
def test_immutable_fields_are_rejected(before: Object, after: Object, path: str, why: str) -> None:
    new = copy.deepcopy(before)
    new["metadata"].update(after)
    found = errors_of(new, before)
    assert any(path in p and why in w for _, p, w in found), found


def test_a_suspended_job_may_change_its_queue() -> None:
    assert errors_of(batch(labels={K + "queue-name": "r"}), batch(labels=QUEUED)) == []


def test_a_partially_admitted_job_stays_valid() -> None:
    fewer = {K + "job-min-parallelism": "2"}
    waiting = batch(annotations=fewer)
    started = batch({"suspend": False, "parallelism": 2}, annotations=fewer)
    assert errors_of(started, waiting) == []
    assert [path for _, path, _ in errors_of(batch({"suspend": False}, annotations=fewer), started)] == [
        "spec.parallelism"
    ]


def test_requirements_and_size_of_a_queued_group_are_immutable() -> None:
    def lws(size: int, cpu: str) -> Object:
        spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}
        group = {"size": size, "workerTemplate": {"spec": spec}}
        return made("LeaderWorkerSet", {"leaderWorkerTemplate": group}, labels=QUEUED)

    where = "spec.leaderWorkerTemplate."
    assert [path for _, path, _ in errors_of(lws(3, "2"), lws(2, "1"))] == [
        where + "workerTemplate.spec.containers[0].resources.requests",
        where + "size",
    ]


def test_a_queued_stateful_set_scales_only_to_and_from_zero() -> None:
    def stateful(count: int) -> Object:
        return made("StatefulSet", {"replicas": count, "template": {"spec": {}}}, labels=QUEUED)

    assert errors_of(stateful(0), stateful(3)) == errors_of(stateful(3), stateful(0)) == []
    assert [path for _, path, _ in errors_of(stateful(4), stateful(3))] == ["spec.replicas"]


def test_names_too_long_for_a_label_are_read_from_annotations() -> None:
    long = "a" * 100
    pod = made("Pod", {}, annotations={K + "pod-group-name": long, K + "pod-group-total-count": "2"})
    assert errors_of(pod) == []
    assert errors_of(pod, rules=FeatureSwitches(identifiers=False)) != []


def test_a_job_keeps_a_queue_in_a_namespace_with_a_default_queue() -> None:
    found = errors(batch(), batch(labels=QUEUED), find=lambda kind, namespace, name: {})
    assert [error.why for error in found] == ["queue-name must not be empty in namespace with default queue"]
    assert errors_of(batch(), batch(labels=QUEUED)) == []


@pytest.mark.parametrize(
    "notes",
    [
        {K + "podset-slice-required-topology": "example.com/rack", K + "podset-slice-size": "3"},
        {K + "podset-required-topology": "example.com/rack", K + "podset-group-name": "all"},
    ],
    ids=["segments", "group"],
)
@pytest.mark.parametrize(("kind", "maker"), [("Pod", "Job"), ("Job", "JobSet")])
def test_child_objects_are_not_validated_by_the_topology_request_of_the_whole_job(
    notes: dict[str, str], kind: str, maker: str
) -> None:
    spec: Object = {"parallelism": 1, "template": {"metadata": {"annotations": notes}, "spec": {}}}
    part = made(kind, spec if kind == "Job" else {"containers": []}, annotations=notes)
    assert errors_of(part)
    part["metadata"]["ownerReferences"] = [{"kind": maker, "name": "x", "uid": "u", "controller": True}]
    assert errors_of(part) == []
