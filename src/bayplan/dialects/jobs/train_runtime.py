"""The JobSet of a TrainJob: the template of its runtime, resized by the trainer and changed by patches."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from bayplan.dialects.jobs.injection import Injected, section
from bayplan.dialects.jobs.part import Find
from bayplan.dialects.kube.fields.reader import Field

ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
TRAINER = "trainer"
NODE = "node"
"""The name of the replicated job that trains, if no label marks one."""

PATCH_MANAGER = "kueue.x-k8s.io/manager"
"""The manager of our entry in runtimePatches of a TrainJob."""
_CLUSTER_WIDE = "ClusterTrainingRuntime"

Object = dict[str, Any]


def runtime_of(train_job: Field, find: Find) -> Object:
    """The runtime that a TrainJob refers to; empty if it is unknown."""
    ref = train_job.at("spec", "runtimeRef")
    kind = ref.at("kind").text(_CLUSTER_WIDE)
    namespace = "" if kind == _CLUSTER_WIDE else train_job.at("metadata", "namespace").text()
    return _mapping(find(kind, namespace, ref.at("name").text()))


def job_set_of(train_job: Field, runtime: Object) -> Object:
    """The JobSet as plain data. If the runtime is unknown, it has only what the patches contain."""
    spec = _mapping(_mapping(_mapping(runtime.get("spec")).get("template")).get("spec"))
    replicated = spec.get("replicatedJobs")
    jobs = (
        [copy.deepcopy(job) for job in replicated if isinstance(job, dict)]
        if isinstance(replicated, list)
        else []
    )
    nodes = train_job.at("spec", "trainer", "numNodes")
    if nodes.present:
        _resize(jobs, nodes.integer(default=1, minimum=1))
    for patch in train_job.at("spec", "runtimePatches").items():
        changed = patch.at("trainingRuntimeSpec", "template", "spec", "replicatedJobs")
        for job in changed.items():
            _patch(jobs, job, known=bool(runtime))
    return {"spec": {"replicatedJobs": jobs}}


def inject_train_job(train_job: Object, infos: Sequence[Injected], find: Find) -> None:
    """Write pod set infos into our runtime patch."""
    _our_patch(train_job)["replicatedJobs"] = [_job_patch(info) for info in infos]


def restore_train_job(train_job: Object, originals: Sequence[Object]) -> None:
    """Remove pod set infos from our runtime patch."""
    _our_patch(train_job).pop("replicatedJobs", None)


def _our_patch(train_job: Object) -> Object:
    """The JobSet spec in our runtime patch, created if it is missing."""
    patches = train_job["spec"]["runtimePatches"] = train_job["spec"].get("runtimePatches") or []
    ours: Object | None = next((one for one in patches if one and one.get("manager") == PATCH_MANAGER), None)
    if ours is None:
        ours = {"manager": PATCH_MANAGER}
        patches.append(ours)
    spec = ours
    for key in ("trainingRuntimeSpec", "template", "spec"):
        spec = section(spec, key)
    return spec


def _job_patch(info: Injected) -> Object:
    metadata = {"annotations": dict(info.annotations), "labels": dict(info.labels)}
    spec: Object = {
        "nodeSelector": dict(info.node_selector),
        "tolerations": list(info.tolerations),
        "schedulingGates": [{"name": gate} for gate in info.gates],
    }
    template = {
        "metadata": {key: value for key, value in metadata.items() if value},
        "spec": {key: value for key, value in spec.items() if value},
    }
    return {"name": info.name, "template": {"spec": {"template": template}}}


def _resize(jobs: list[Object], count: int) -> None:
    """Set the number of pods of the trainer."""
    labelled = [job for job in jobs if _ancestor(job) == TRAINER]
    for job in labelled or [job for job in jobs if job.get("name") == NODE]:
        template = job["template"] = _mapping(job.get("template"))
        template["spec"] = _mapping(template.get("spec")) | {"parallelism": count, "completions": count}


def _ancestor(job: Object) -> object:
    metadata = _mapping(_mapping(job.get("template")).get("metadata"))
    return _mapping(metadata.get("labels")).get(ANCESTOR)


def _patch(jobs: list[Object], change: Field, *, known: bool) -> None:
    name = change.at("name").text()
    target = next((job for job in jobs if job.get("name") == name), None)
    if target is None and not known:
        target = {"name": name, "template": {"spec": {"template": {}}}}
        jobs.append(target)
    if target is not None and isinstance(change.value, dict):
        _merge(target, copy.deepcopy(change.value))


def _merge(target: Object, change: Object) -> None:
    """Merge a patch in place: mappings are merged, lists are extended, other values are replaced."""
    for key, value in change.items():
        present = target.get(key)
        if isinstance(present, dict) and isinstance(value, dict):
            _merge(present, value)
        elif isinstance(present, list) and isinstance(value, list):
            target[key] = present + [one for one in value if one not in present]
        else:
            target[key] = value


def _mapping(value: object) -> Object:
    return value if isinstance(value, dict) else {}
