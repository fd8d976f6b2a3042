"""The pod sets of jobs of each kind, and JSON in annotations."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bayplan.dialects.jobs.kind import GroupBy
from bayplan.dialects.jobs.kinds import BY_GROUP, KINDS, TABLE, copies, is_known, is_suspended, parts
from bayplan.dialects.kai.grouper.dispatch import RULES
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.json_lists import read_json, read_layer_list
from bayplan.dialects.kueue.jobs.pod_sets import pod_sets

Object = dict[str, Any]
TEMPLATE: Object = {"metadata": {"annotations": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}}


def made(kind: str, spec: Object) -> Field:
    return Field({"kind": kind, "metadata": {"name": "x", "namespace": "n"}, "spec": spec})


def shape(job: Field) -> list[tuple[str, int, str | None]]:
    return [(part.name, part.count, part.index_label) for part in parts(job)]


REPLICA = "training.kubeflow.org/replica-index"
RAY = {
    "headGroupSpec": {"template": TEMPLATE},
    "workerGroupSpecs": [{"groupName": "Big", "replicas": 2, "numOfHosts": 3, "template": TEMPLATE}],
}
GROUP = {"size": 4, "leaderTemplate": TEMPLATE, "workerTemplate": TEMPLATE}


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (
            made(
                "TFJob", {"tfReplicaSpecs": {"Worker": {"replicas": 3}, "Chief": {}, "PS": {"replicas": 2}}}
            ),
            [("chief", 1, REPLICA), ("ps", 2, REPLICA), ("worker", 3, REPLICA)],
        ),
        (made("RayCluster", RAY), [("head", 1, None), ("big", 6, None)]),
        (made("RayService", {"rayClusterConfig": RAY}), [("head", 1, None), ("big", 6, None)]),
        (
            made("RayJob", {"rayClusterSpec": RAY, "submissionMode": "K8sJobMode"}),
            [("head", 1, None), ("big", 6, None), ("submitter", 1, None)],
        ),
        (made("RayJob", {"clusterSelector": {"a": "b"}}), []),
        (
            made("LeaderWorkerSet", {"replicas": 2, "leaderWorkerTemplate": GROUP}),
            [("leader", 1, None), ("worker", 3, "leaderworkerset.sigs.k8s.io/worker-index")],
        ),
        (
            made("StatefulSet", {"replicas": 3, "template": TEMPLATE}),
            [("main", 3, "apps.kubernetes.io/pod-index")],
        ),
        (
            made("SparkApplication", {"driver": {}, "executor": {"instances": 4}}),
            [("driver", 1, None), ("executor", 4, None)],
        ),
    ],
)
def test_pod_sets_of_a_kind(job: Field, expected: list[tuple[str, int, str | None]]) -> None:
    assert shape(job) == expected


def test_every_kind_is_known_by_its_group() -> None:
    for kind, entry in KINDS.items():
        assert is_known(Field({"apiVersion": entry.api_version, "kind": kind})), kind
        assert not is_known(Field({"apiVersion": "other.io/v1", "kind": kind})), kind


def test_replicas_of_some_kinds_are_gangs_of_their_own() -> None:
    assert copies(made("LeaderWorkerSet", {"replicas": 3, "leaderWorkerTemplate": GROUP})) == 3
    assert copies(made("Deployment", {"replicas": 2, "template": TEMPLATE})) == 2
    assert copies(made("Job", {"parallelism": 4, "template": TEMPLATE})) == 1


def test_jobs_are_suspended_by_the_flag_of_their_kind() -> None:
    assert is_suspended(made("Job", {"suspend": True}))
    assert is_suspended(made("PyTorchJob", {"runPolicy": {"suspend": True}}))
    assert not is_suspended(made("RayService", {"suspend": True}))


def test_worker_indexes_follow_a_launcher_that_runs_as_worker() -> None:
    both = {"Launcher": {"template": TEMPLATE}, "Worker": {"replicas": 2, "template": TEMPLATE}}
    job = made("MPIJob", {"runLauncherAsWorker": True, "mpiReplicaSpecs": both})
    assert [part.index_offset for part in parts(job)] == [0, 1]
    assert [part.index_offset for part in parts(made("MPIJob", {"mpiReplicaSpecs": both}))] == [0, 0]
    assert parts(job)[1].template.path == "spec.mpiReplicaSpecs[Worker].template"


def runtime(kind: str, namespace: str, name: str) -> object:
    assert (kind, namespace, name) == ("ClusterTrainingRuntime", "", "torch")
    inner = {"parallelism": 1, "completions": 1, "template": {"spec": {}}}
    jobs = [{"name": name, "replicas": 1, "template": {"spec": inner}} for name in ("load", "node")]
    return {"spec": {"template": {"spec": {"replicatedJobs": jobs}}}}


def test_the_pod_sets_of_a_train_job_come_from_its_runtime_and_its_patches() -> None:
    patch = {"template": {"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}}}
    patches = {"template": {"spec": {"replicatedJobs": [{"name": "node", **patch}]}}}
    job = made(
        "TrainJob",
        {
            "runtimeRef": {"name": "torch"},
            "trainer": {"numNodes": 5},
            "runtimePatches": [{"manager": "me", "trainingRuntimeSpec": patches}],
        },
    )
    load, node = parts(job, runtime)
    assert (load.name, load.count, node.name, node.count, node.count_known) == ("load", 1, "node", 5, True)
    assert node.metadata.at("annotations").path == "job[node].annotations"
    assert node.metadata.at("annotations").texts() == {"a": "b"}
    unknown = parts(job)
    assert [(part.name, part.count_known) for part in unknown] == [("node", False)]


def test_wrapped_jobs_are_numbered_and_paths_are_followed() -> None:
    inner = {"kind": "Job", "apiVersion": "batch/v1", "spec": {"parallelism": 3, "template": TEMPLATE}}
    other = {"kind": "Thing", "apiVersion": "x.io/v1", "spec": {"pods": TEMPLATE}}
    declared = [{"replicas": 2, "path": "template.spec.pods"}]
    wrapper = made(
        "AppWrapper", {"components": [{"template": inner}, {"template": other, "podSets": declared}]}
    )
    assert [(part.name, part.count) for part in parts(wrapper)] == [("x-0", 3), ("x-1", 2)]
    assert parts(wrapper)[1].metadata.at("annotations").texts() == {"a": "b"}


def test_spark_writes_resources_in_its_own_units() -> None:
    driver = {"coreRequest": "100m", "memory": "512m", "annotations": {"a": "b"}}
    first = pod_sets(made("SparkApplication", {"driver": driver, "executor": {}}))[0]
    assert first["template"]["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "100m", "memory": "512Mi"}
    }
    assert first["template"]["metadata"] == {"annotations": {"a": "b"}}


def test_a_pod_set_keeps_the_last_of_equal_variables_and_no_label_of_the_controller() -> None:
    variables = [{"name": "A", "value": "1"}, {"name": "B"}, {"name": "A", "value": "2"}]
    template: Object = {
        "metadata": {"labels": {"controller-uid": "u", "app": "x"}},
        "spec": {"containers": [{"name": "c", "env": variables}]},
    }
    (only,) = pod_sets(made("Job", {"parallelism": 2, "template": template}))
    assert only["template"]["metadata"]["labels"] == {"app": "x"}
    assert only["template"]["spec"]["containers"][0]["env"] == [{"name": "A", "value": "2"}, {"name": "B"}]
    assert template["metadata"]["labels"] == {"controller-uid": "u", "app": "x"}, (
        "the job itself is not touched"
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "unexpected end of JSON input"),
        ("[", "unexpected end of JSON input"),
        ("garbage", "invalid character 'g' looking for beginning of value"),
        ("[1,]", "invalid character ']' looking for beginning of value"),
        ("[1 2]", "invalid character '2' after array element"),
        ('{"a" 1}', "invalid character '1' after object key"),
        ('{"a":1 "b"}', "invalid character '\"' after object key:value pair"),
        ("{a:1}", "invalid character 'a' looking for beginning of object key string"),
        ("[] x", "invalid character 'x' after top-level value"),
        ("trux", "invalid character 'x' in literal true (expecting 'e')"),
        ("NaN", "invalid character 'N' looking for beginning of value"),
    ],
)
def test_invalid_json_is_reported_like_the_api_does(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)) as told:
        read_json(text)
    assert str(told.value) == why


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[{"size": "4"}]', "cannot unmarshal string into Go struct field X.size of type int32"),
        ('[{"size": 4.5}]', "cannot unmarshal number 4.5 into Go struct field X.size of type int32"),
        ('[{"topology": 1}]', "cannot unmarshal number into Go struct field X.topology of type string"),
        ("[1]", "cannot unmarshal number into Go value of type v1beta2.X"),
        ("true", "cannot unmarshal bool into Go value of type []v1beta2.X"),
    ],
)
def test_layers_of_the_wrong_type(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)) as told:
        read_layer_list(text, "X")
    assert str(told.value) == f"json: {why}"


def test_an_entry_has_all_that_its_way_of_being_held_back_needs() -> None:
    assert len(BY_GROUP) == len(TABLE), "two entries of one kind"
    for entry in KINDS.values():
        ways = (bool(entry.suspend), entry.serving is not None, bool(entry.job_labels), entry.is_pod)
        assert sum(ways) == 1, entry.kind
        assert bool(entry.suspend) == (entry.status_reader is not None) == bool(entry.changes), entry.kind
        assert (entry.inject is None) == (entry.restore is None), entry.kind
        if entry.ahead:
            assert entry.serving is not None and entry.serving.group is not None, entry.kind


def test_every_rule_that_the_table_names_is_known_to_the_grouper() -> None:
    assert set(RULES) == set(GroupBy)
