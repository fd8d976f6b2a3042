"""A simulated Job controller: creates pods up to the parallelism, by index if indexed, and counts them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bayplan.backends.fake_controllers.made_pods import free_endings, pod_from_template
from bayplan.backends.fake_controllers.objects import (
    JOBS,
    PODS,
    Object,
    annotations_of,
    condition,
    create,
    delete,
    has_condition,
    is_terminating,
    labels_of,
    name_of,
    patch,
    patch_status,
    phase_of,
    uid_of,
)  # fmt: skip
from bayplan.dialects.api import Write

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
COUNTS = ("active", "succeeded", "failed")
"""Fields of a status that an API server leaves out when they are zero."""
DEFAULT_BACKOFF_LIMIT = 6
TAKEN_OVER = (
    ("metadata", "labels"),
    ("metadata", "annotations"),
    ("spec", "nodeSelector"),
    ("spec", "tolerations"),
    ("spec", "schedulingGates"),
)
"""Fields of a pod template that may change while its job is suspended."""


def reconcile_job(job: Object, pods: Sequence[Object], now: str) -> Iterator[Write]:
    """The writes that bring a job's pods and status a step further."""
    spec = job["spec"]
    if has_condition(job, "Complete", "Failed") or is_terminating(job):
        return
    active = [pod for pod in pods if phase_of(pod) in ("Pending", "Running") and not is_terminating(pod)]
    succeeded, failed = _count(pods, "Succeeded"), _count(pods, "Failed")
    parallelism = 1 if spec.get("parallelism") is None else int(spec["parallelism"])
    completions = spec.get("completions")
    wanted = parallelism if completions is None else min(parallelism, int(completions) - succeeded)
    status: Object = {"active": len(active), "succeeded": succeeded, "failed": failed}
    status["ready"] = sum(has_condition(pod, "Ready") for pod in active)
    if spec.get("suspend"):
        yield from (delete(PODS, pod) for pod in active)
        yield from _status_write(job, {**status, "active": 0, "ready": 0})
        return
    if completions is not None and succeeded >= int(completions):
        yield from _status_write(job, _ended(status, now, "Complete", "CompletionsReached"))
        return
    if failed > int(spec.get("backoffLimit", DEFAULT_BACKOFF_LIMIT)):
        yield from (delete(PODS, pod) for pod in active)
        yield from _status_write(job, _ended(status, now, "Failed", "BackoffLimitExceeded"))
        return
    if spec.get("completionMode") == "Indexed":
        yield from _indexed(job, pods, active, wanted, int(completions or parallelism))
    else:
        for _, ending in zip(range(len(active), wanted), free_endings(job, pods, ""), strict=False):
            yield create(PODS, _pod(job, ending))
    for pod in active[max(wanted, 0) :]:
        yield delete(PODS, pod)
    yield from _status_write(
        job, status if job.get("status", {}).get("startTime") else {**status, "startTime": now}
    )


def resumed(job: Object, fresh: Object) -> Iterator[Write]:
    """Resume an owned job with the current pod template of its owner."""
    known = job["spec"]["template"]
    change: Object = {"metadata": {}, "spec": {}}
    for place, key in TAKEN_OVER:
        new, old = ((one.get(place) or {}).get(key) for one in (fresh, known))
        if isinstance(new, dict) and isinstance(old, dict):
            own = {name: None for name in old if name not in new and "job-name" not in name}
            new = {**{name: gone for name, gone in own.items() if "controller-uid" not in name}, **new}
        change[place][key] = new
    if (job.get("status") or {}).get("startTime"):
        yield patch_status(JOBS, job, {"startTime": None})
    yield patch(JOBS, job, {"spec": {"suspend": False, "template": change}})


def _indexed(
    job: Object, pods: Sequence[Object], active: Sequence[Object], wanted: int, completions: int
) -> Iterator[Write]:
    busy = {_index(pod) for pod in active} | {_index(pod) for pod in pods if phase_of(pod) == "Succeeded"}
    free = [index for index in range(completions) if index not in busy]
    for index in free[: max(wanted - len(active), 0)]:
        pod = _pod(job, next(free_endings(job, pods, f"{index}-")))
        pod["metadata"]["labels"][COMPLETION_INDEX] = str(index)
        pod["metadata"]["annotations"][COMPLETION_INDEX] = str(index)
        yield create(PODS, pod)


def _pod(job: Object, ending: str) -> Object:
    name = name_of(job)[1]
    labels = {
        "batch.kubernetes.io/controller-uid": uid_of(job),
        "batch.kubernetes.io/job-name": name,
        "job-name": name,
    }
    made = pod_from_template(job, JOBS, ending, labels)
    return {**made, "spec": {"restartPolicy": "Never", **made["spec"]}}


def _index(pod: Object) -> int:
    text = annotations_of(pod).get(COMPLETION_INDEX) or labels_of(pod).get(COMPLETION_INDEX) or "-1"
    return int(text)


def _count(pods: Sequence[Object], phase: str) -> int:
    return sum(phase_of(pod) == phase for pod in pods)


def _ended(status: Object, now: str, kind: str, reason: str) -> Object:
    done = {"completionTime": now} if kind == "Complete" else {}
    return {**status, "active": 0, **done, "conditions": [condition(kind, now, reason)]}


def _status_write(job: Object, status: Object) -> Iterator[Write]:
    known = job.get("status") or {}
    if any(known.get(key, 0 if key in COUNTS else None) != value for key, value in status.items()):
        yield patch_status(JOBS, job, status)
