"""Whatever an admitted job of any kind is given, stopping it takes back exactly that."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayplan.dialects.jobs.injection import Injected, InjectionConflict, add
from bayplan.dialects.jobs.kinds import KINDS, parts
from bayplan.dialects.jobs.start_stop import is_suspended, restored, started, suspended
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.jobs.pod_sets import pod_sets
from bayplan.dialects.kueue.jobs.writes import difference

Object = dict[str, Any]
Templates = list[Object]

texts = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.sampled_from(["1", "2"]), max_size=3)
more_texts = st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from(["1", "2"]), max_size=2)
tolerations = st.lists(
    st.fixed_dictionaries({"key": st.sampled_from(["k", "l"]), "operator": st.just("Exists")}),
    unique_by=lambda one: one["key"],
    max_size=2,
)
gates = st.lists(st.sampled_from(["p", "q", "kueue.x-k8s.io/topology"]), unique=True, max_size=2)


@st.composite
def templates(draw: st.DrawFn) -> Object:
    """A pod template in which anything may be missing."""
    spec: Object = {"containers": [{"name": "main", "image": "i"}]}
    if draw(st.booleans()):
        spec["nodeSelector"] = draw(texts)
    if draw(st.booleans()):
        spec["tolerations"] = draw(tolerations)
    if draw(st.booleans()):
        spec["schedulingGates"] = [{"name": name} for name in draw(gates)]
    made: Object = {"spec": spec}
    if draw(st.booleans()):
        made["metadata"] = {
            key: draw(texts) for key in draw(st.sets(st.sampled_from(["labels", "annotations"])))
        }
    return made


@st.composite
def extras(draw: st.DrawFn) -> Injected:
    return Injected(
        "",
        1,
        labels=draw(more_texts),
        annotations=draw(more_texts),
        node_selector=draw(more_texts),
        tolerations=tuple(draw(tolerations)),
        gates=tuple(draw(gates)),
    )


def _job(pods: Templates) -> Object:
    return {"suspend": True, "parallelism": 2, "template": pods[0]}


def _job_set(pods: Templates) -> Object:
    jobs = [{"name": f"p{i}", "template": {"spec": {"template": one}}} for i, one in enumerate(pods)]
    return {"suspend": True, "replicatedJobs": jobs}


def _replicas(specs: str, *types: str) -> Callable[[Templates], Object]:
    def make(pods: Templates) -> Object:
        found = {name: {"replicas": 2, "template": pod} for name, pod in zip(types, pods, strict=False)}
        return {"runPolicy": {"suspend": True}, specs: found}

    return make


def _ray(pods: Templates) -> Object:
    workers = [{"groupName": f"g{i}", "template": pod} for i, pod in enumerate(pods[1:])]
    return {"headGroupSpec": {"template": pods[0]}, "workerGroupSpecs": workers}


def _ray_job(pods: Templates) -> Object:
    made = {"suspend": True, "submissionMode": "K8sJobMode", "rayClusterSpec": _ray(pods[:2])}
    return made | ({"submitterPodTemplate": pods[2]} if len(pods) > 2 else {})


def _train_job(pods: Templates) -> Object:
    patches = [{"manager": "somebody", "trainingRuntimeSpec": {"template": {"spec": _job_set(pods)}}}]
    ours = {"manager": "kueue.x-k8s.io/manager", "trainingRuntimeSpec": {"template": {"spec": {}}}}
    return {"suspend": True, "runtimeRef": {"name": "r"}, "runtimePatches": [*patches, ours]}


def _wrapper(pods: Templates) -> Object:
    inner = [
        {
            "template": {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": "j"},
                "spec": _job([one]),
            }
        }
        for one in pods
    ]
    return {"suspend": True, "components": inner}


def _spark(pods: Templates) -> Object:
    """Fields beside a template; the strategies' templates give the fields."""
    made: Object = {"suspend": True}
    for role, pod in zip(("driver", "executor"), [*pods, *pods], strict=False):
        fields = {key: value for key, value in (pod.get("metadata") or {}).items() if value}
        fields |= {key: pod["spec"][key] for key in ("nodeSelector", "tolerations") if pod["spec"].get(key)}
        made[role] = fields
    return made


MADE: dict[str, Callable[[Templates], Object]] = {
    "Job": _job,
    "JobSet": _job_set,
    "MPIJob": _replicas("mpiReplicaSpecs", "Launcher", "Worker"),
    "PyTorchJob": _replicas("pytorchReplicaSpecs", "Master", "Worker"),
    "TFJob": _replicas("tfReplicaSpecs", "Chief", "Master", "PS"),
    "XGBoostJob": _replicas("xgbReplicaSpecs", "Master", "Worker"),
    "PaddleJob": _replicas("paddleReplicaSpecs", "Master", "Worker"),
    "JAXJob": _replicas("jaxReplicaSpecs", "Worker"),
    "TrainJob": _train_job,
    "RayJob": _ray_job,
    "RayCluster": lambda pods: {"suspend": True, **_ray(pods)},
    "RayService": lambda pods: {"rayClusterConfig": {"suspend": True, **_ray(pods)}},
    "AppWrapper": _wrapper,
    "SparkApplication": _spark,
}


def test_every_kind_with_a_flag_is_tried() -> None:
    assert set(MADE) == {name for name, kind in KINDS.items() if kind.suspend}


@pytest.mark.parametrize("kind", MADE)
@settings(max_examples=settings().max_examples // 2)  # for each of many kinds
@given(data=st.data())
def test_a_job_that_was_started_and_stopped_is_as_it_was(kind: str, data: st.DataObject) -> None:
    pods = data.draw(st.lists(templates(), min_size=1, max_size=3))
    job: Object = {"apiVersion": KINDS[kind].api_version, "kind": kind, "metadata": {"name": "one"}}
    job["spec"] = MADE[kind](copy.deepcopy(pods))
    before = copy.deepcopy(job)
    sets = pod_sets(Field(copy.deepcopy(job)))
    given_to_each = [replace(data.draw(extras()), name=one["name"]) for one in sets]
    ran = started(job, given_to_each)
    assert job == before, "the job itself was changed"
    assert not is_suspended(ran)
    assert len(parts(Field(ran))) == len(sets)
    stopped = restored(suspended(ran), [one["template"] for one in sets])
    assert stopped == before


@given(templates(), extras())
def test_additions_are_all_there_and_nothing_is_lost(template: Object, extra: Injected) -> None:
    after = copy.deepcopy(template)
    add(after, extra)
    for key, more in (("labels", extra.labels), ("annotations", extra.annotations)):
        had = (template.get("metadata") or {}).get(key) or {}
        assert ((after.get("metadata") or {}).get(key) or {}) == {**had, **more}
    names = [gate["name"] for gate in after["spec"].get("schedulingGates") or ()]
    assert set(names) >= set(extra.gates) and len(names) == len(set(names))
    again = copy.deepcopy(after)
    add(again, extra)
    assert again == after


def test_additions_that_contradict_the_job_are_a_clash() -> None:
    template = {"spec": {"nodeSelector": {"pool": "mine"}}}
    told = "conflict for nodeSelector: conflict for key=pool, value1=mine, value2=yours"
    with pytest.raises(InjectionConflict, match=told):
        add(template, Injected("main", 1, node_selector={"pool": "yours"}))


values = st.recursive(
    st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from("abc"), values, max_size=3)


def merged(before: Object, patch: Object) -> Object:
    """RFC 7396, word for word."""
    after = dict(before)
    for key, value in patch.items():
        if value is None:
            after.pop(key, None)
        elif isinstance(value, dict):
            known = after.get(key)
            after[key] = merged(known if isinstance(known, dict) else {}, value)
        else:
            after[key] = value
    return after


@given(objects, objects)
def test_the_difference_of_two_objects_makes_one_of_the_other(before: Object, after: Object) -> None:
    assert merged(before, difference(before, after)) == after
