"""gang/unit_*_gangplugin: which pods and groups concern a pod that waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bayplan.dialects.kube.gang_api.gates import V1ALPHA1
from bayplan.model.pod import PodKey
from tests.conformance.gang_steps import dialect_of
from tests.conformance.gang_steps_objects import NAMESPACES, PODS, SCHEDULER, Dialect, Object
from tests.conformance.gang_steps_stage import Embedded
from tests.conformance.registry import Check, ForFile, NothingToRun

HOME = "gangs"  # where objects are that name no namespace


def for_file(path: Path) -> Check:
    dialect = Dialect(dialect_of(path.name.split("_")[1]))

    def check(case: Object) -> list[str]:
        if "expectedHint" not in case:  # what the plugin answers is left out of the tables
            raise NothingToRun(case["name"])
        concerned = _is_concerned(dialect, case)
        return [] if concerned is bool(case["expectedHint"]) else [f"concerned: {concerned}"]

    return check


def _is_concerned(dialect: Dialect, case: Object) -> bool:
    """Whether what is new belongs to the gang of the pod."""
    stage = Embedded(dialect, ())
    pod = _put(stage, case["pod"], "p")
    stage.pass_time()
    gang = stage.role.state.store.pods[pod].gang
    if "newPod" in case:
        other = _put(stage, case["newPod"], "new")
        stage.pass_time()
        return gang is not None and stage.role.state.store.pods[other].gang == gang
    new: Any = case.get("newWorkload") or case["newPodGroup"]
    metadata, spec = new["metadata"], {**new["spec"]}
    spec.pop("podGroupTemplateRef", None)  # whether its template is there is not asked here
    kind = dialect.workloads if dialect.version == V1ALPHA1 else dialect.groups
    _place(
        stage, kind, {**new, "apiVersion": kind.api_version, "spec": spec}, metadata.get("namespace", HOME)
    )
    stage.pass_time()
    return gang in stage.role.state.store.specs


def _put(stage: Embedded, pod: Object, name: str) -> PodKey:
    metadata = {"name": name, **pod["metadata"]}
    container = {"name": "c", "image": "pause"}
    spec = {"containers": [container], **pod["spec"], "schedulerName": SCHEDULER}
    namespace = metadata.pop("namespace", HOME)
    _place(stage, PODS, {**pod, "metadata": metadata, "spec": spec}, namespace)
    return PodKey(namespace, metadata["name"])


def _place(stage: Embedded, kind: Any, found: Object, namespace: str) -> None:
    if stage.store.find(NAMESPACES, "", namespace) is None:
        stage.store.create(NAMESPACES, {"metadata": {"name": namespace}})
    body = {**found, "metadata": {k: v for k, v in found["metadata"].items() if k != "namespace"}}
    body.pop("status", None)
    stage.store.create(kind, body, namespace)


FILES = {"gang/unit_*_gangplugin": ForFile(for_file)}
