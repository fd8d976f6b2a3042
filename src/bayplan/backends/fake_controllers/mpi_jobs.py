"""A simulated MPI operator: indexed worker pods, and a Job for the launcher, which finishes the MPIJob."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy

from bayplan.backends.fake_controllers.jobs import DEFAULT_BACKOFF_LIMIT, resumed
from bayplan.backends.fake_controllers.objects import (
    JOBS,
    MPI_JOBS,
    OVER,
    PODS,
    Object,
    condition,
    create,
    delete,
    has_condition,
    is_terminating,
    name_of,
    owner_reference,
    patch,
    patch_status,
    phase_of,
)  # fmt: skip
from bayplan.dialects.api import Write

PREFIX = "training.kubeflow.org/"
RESTART = {"Launcher": "OnFailure", "Worker": "Never"}
ENDINGS = {"Complete": ("Succeeded", "MPIJobSucceeded"), "Failed": ("Failed", "MPIJobFailed")}


def reconcile_mpi_job(found: Object, children: Sequence[Object], now: str) -> Iterator[Write]:
    """The writes that bring an MPIJob's launcher, workers and status a step further."""
    if is_terminating(found):
        return
    named = f"{name_of(found)[1]}-launcher"
    launcher = next((child for child in children if name_of(child)[1] == named), None)
    workers = [child for child in children if child is not launcher]
    policy = found["spec"].get("runPolicy") or {}
    if has_condition(found, "Succeeded", "Failed"):
        yield from _cleaned(workers, str(policy.get("cleanPodPolicy", "None")))
        return
    held = bool(policy.get("suspend"))
    if held:
        yield from _cleaned(workers, "All")
        if launcher is not None and not launcher["spec"].get("suspend"):
            yield patch(JOBS, launcher, {"spec": {"suspend": True}})
    else:
        yield from _started(found, launcher, workers)
    yield from _status(found, launcher, workers, now, held)


def _started(found: Object, launcher: Object | None, workers: Sequence[Object]) -> Iterator[Write]:
    there = {name_of(pod)[1] for pod in workers}
    for number in range(_replicas(found, "Worker")):
        pod = _worker(found, number)
        if name_of(pod)[1] not in there:
            yield create(PODS, pod)
    job = _launcher(found)
    if launcher is None:
        yield create(JOBS, job)
    elif launcher["spec"].get("suspend"):
        yield from resumed(launcher, job["spec"]["template"])


def _cleaned(workers: Sequence[Object], policy: str) -> Iterator[Write]:
    """Delete workers as the clean-pod policy says; they do not end by themselves."""
    for pod in workers:
        if not is_terminating(pod) and (
            policy == "All" or (policy == "Running" and phase_of(pod) not in OVER)
        ):
            yield delete(PODS, pod)


def _status(
    found: Object, launcher: Object | None, workers: Sequence[Object], now: str, held: bool
) -> Iterator[Write]:
    name = "/".join(name_of(found))
    status = (launcher or {}).get("status") or {}
    at_work = [pod for pod in workers if phase_of(pod) == "Running" and not is_terminating(pod)]
    counts = {
        "Launcher": {key: int(status.get(told) or 0) for key, told in _LAUNCHER_COUNTS.items()},
        "Worker": {"active": 0 if held else len(at_work)},
    }
    fresh = [condition("Created", now, "MPIJobCreated", f"MPIJob {name} is created.")]
    known = (found.get("status") or {}).get("conditions") or []
    if held or any(entry["type"] == "Suspended" for entry in known):
        told = ("MPIJobSuspended", "MPIJob suspended") if held else ("MPIJobResumed", "MPIJob resumed")
        fresh.append(condition("Suspended", now, *told, status=str(held)))
    if held:
        fresh.append(condition("Running", now, "MPIJobSuspended", f"MPIJob {name} is suspended.", "False"))
    elif counts["Launcher"]["active"] and len(at_work) == _replicas(found, "Worker"):
        fresh.append(condition("Running", now, "MPIJobRunning", f"MPIJob {name} is running."))
    for kind, (ending, reason) in ENDINGS.items():
        if launcher is not None and has_condition(launcher, kind):
            fresh.append(condition(ending, now, reason, f"MPIJob {name} has ended."))
    conditions = _merged(known, fresh)
    if (found.get("status") or {}).get("replicaStatuses") != counts or conditions != known:
        yield patch_status(MPI_JOBS, found, {"replicaStatuses": counts, "conditions": conditions})


_LAUNCHER_COUNTS = {"active": "ready", "succeeded": "succeeded", "failed": "failed"}
"""Fields of the replica status of an MPIJob, by the fields of a Job's status."""


def _merged(known: Sequence[Object], fresh: Sequence[Object]) -> list[Object]:
    """The existing conditions, with changed ones replaced."""
    found = {entry["type"]: entry for entry in known}
    for entry in fresh:
        old = found.get(entry["type"])
        if old is None or old["status"] != entry["status"]:
            found[entry["type"]] = entry
    return list(found.values())


def _replicas(found: Object, role: str) -> int:
    part = found["spec"]["mpiReplicaSpecs"].get(role)
    return 0 if part is None else int(part.get("replicas", 1))


def _worker(found: Object, number: int) -> Object:
    """A launcher that works too has number 0; the first worker still has a name that ends in 0."""
    namespace, name = name_of(found)
    index = number + int(_launcher_works(found))
    pod = _template(found, "Worker", {f"{PREFIX}replica-index": str(index)})
    own = {"name": f"{name}-worker-{number}", "namespace": namespace}
    owned = {"ownerReferences": [owner_reference(found, MPI_JOBS)]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": pod["metadata"] | own | owned, "spec": pod["spec"]}


def _launcher(found: Object) -> Object:
    namespace, name = name_of(found)
    index = {f"{PREFIX}replica-index": "0"} if _launcher_works(found) else {}
    limit = (found["spec"].get("runPolicy") or {}).get("backoffLimit", DEFAULT_BACKOFF_LIMIT)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"{name}-launcher",
            "namespace": namespace,
            "labels": {"app": name},
            "ownerReferences": [owner_reference(found, MPI_JOBS)],
        },
        "spec": {
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": limit,
            "template": _template(found, "Launcher", index),
        },
    }


def _launcher_works(found: Object) -> bool:
    return bool(found["spec"].get("runLauncherAsWorker"))


def _template(found: Object, role: str, index: dict[str, str]) -> Object:
    part = found["spec"]["mpiReplicaSpecs"][role]
    template = deepcopy(part["template"])
    labels = {
        f"{PREFIX}operator-name": "mpi-operator",
        f"{PREFIX}job-name": name_of(found)[1],
        f"{PREFIX}job-role": role.lower(),
    }
    meta = template.get("metadata") or {}
    return {
        "metadata": {
            "labels": (meta.get("labels") or {}) | labels | index,
            "annotations": meta.get("annotations") or {},
        },
        "spec": template["spec"] | {"restartPolicy": part.get("restartPolicy", RESTART[role])},
    }
