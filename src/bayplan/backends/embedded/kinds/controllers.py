"""Kinds that make pods: Job, CronJob, Deployment, StatefulSet, ReplicaSet, DaemonSet."""

from __future__ import annotations

from typing import Any

from bayplan.backends.embedded.api.selectors import selector_matcher
from bayplan.backends.embedded.api.status import FieldProblem, required, unsupported, wrong
from bayplan.backends.embedded.kinds.pod_defaults import default_template
from bayplan.backends.embedded.kinds.pod_rules import check_spec
from bayplan.backends.embedded.storage.interface import ObjectStorage
from bayplan.backends.embedded.storage.kind_hooks import KindHooks

Object = dict[str, Any]

_NON_NEGATIVE = "must be greater than or equal to 0"
_IMMUTABLE = "field is immutable"
_UID_LABELS = ("batch.kubernetes.io/controller-uid", "controller-uid")
_NAME_LABELS = ("batch.kubernetes.io/job-name", "job-name")
_WHEN_SUSPENDED = ("nodeSelector", "tolerations", "schedulingGates", "affinity")
_MAX_INT32 = 2**31 - 1


def default_job(job: Object) -> None:
    """Fill in a Job."""
    spec = job["spec"]
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", _MAX_INT32 if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    spec.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")
    default_template(spec["template"])


def create_job(_: ObjectStorage, job: Object) -> None:
    """The selector that finds the Job's pods, and the labels that it selects."""
    job["status"] = {}
    metadata, spec = job["metadata"], job["spec"]
    if spec.get("manualSelector"):
        return
    labels = spec["template"]["metadata"].setdefault("labels", {})
    for key in _UID_LABELS:
        labels[key] = metadata["uid"]
    for key in _NAME_LABELS:
        labels[key] = metadata.get("name", "")
    spec["selector"] = {"matchLabels": {_UID_LABELS[0]: metadata["uid"]}}
    if not metadata.get("labels"):
        metadata["labels"] = dict(labels)


def check_job(job: Object, old: Object | None) -> list[FieldProblem]:
    """What is wrong with a Job, or with the change of one."""
    spec = job["spec"]
    problems = [
        wrong(f"spec.{key}", spec[key], _NON_NEGATIVE)
        for key in (
            "parallelism",
            "completions",
            "activeDeadlineSeconds",
            "backoffLimit",
            "ttlSecondsAfterFinished",
            "backoffLimitPerIndex",
        )
        if spec.get(key, 0) < 0
    ]
    modes = ("NonIndexed", "Indexed")
    if spec["completionMode"] not in modes:
        problems.append(unsupported("spec.completionMode", spec["completionMode"], modes))
    elif spec["completionMode"] == "Indexed" and "completions" not in spec:
        problems.append(required("spec.completions", "when completion mode is Indexed"))
    if old is None:
        problems += check_template(spec["template"], "spec.template", ("OnFailure", "Never"))
        return problems
    return problems + _job_change(spec, old["spec"], old)


def _job_change(spec: Object, before: Object, old: Object) -> list[FieldProblem]:
    problems = []
    if spec.get("completions") != before.get("completions"):
        indexed = spec.get("completionMode") == "Indexed"
        if not indexed or spec.get("completions") != spec.get("parallelism"):
            message = "can only be modified in tandem with spec.parallelism" if indexed else _IMMUTABLE
            problems.append(wrong("spec.completions", spec.get("completions"), message))
    fixed = ["selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex"]
    if not before.get("suspend"):
        fixed.append("managedBy")
    problems += [
        wrong(f"spec.{key}", spec.get(key), _IMMUTABLE) for key in fixed if spec.get(key) != before.get(key)
    ]
    template = spec["template"]
    if before.get("suspend") and not old.get("status", {}).get("startTime"):
        freed = {
            key: before["template"]["spec"][key]
            for key in _WHEN_SUSPENDED
            if key in before["template"]["spec"]
        }
        rest = {key: value for key, value in template["spec"].items() if key not in _WHEN_SUSPENDED}
        template = {**template, "metadata": before["template"]["metadata"], "spec": {**rest, **freed}}
    if template != before["template"]:
        problems.append(wrong("spec.template", spec["template"], _IMMUTABLE))
    return problems


def check_template(
    template: Object, path: str, policies: tuple[str, ...] = ("Always",)
) -> list[FieldProblem]:
    """What is wrong with a pod template of a kind that allows these restart policies."""
    spec = template["spec"]
    problems = check_spec(spec, f"{path}.spec")
    policy = spec.get("restartPolicy")
    if policy not in policies:
        if policies == ("Always",):
            problems.append(unsupported(f"{path}.spec.restartPolicy", policy, policies))
        else:
            known = ", ".join(f'"{one}"' for one in policies)
            problems.append(required(f"{path}.spec.restartPolicy", f"valid values: {known}"))
    return problems


def default_cron_job(cron_job: Object) -> None:
    """Fill in a CronJob."""
    spec = cron_job["spec"]
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    default_template(spec["jobTemplate"]["spec"]["template"])


def default_deployment(deployment: Object) -> None:
    """Fill in a Deployment."""
    spec = deployment["spec"]
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    strategy = spec["strategy"]
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    default_template(spec["template"])


def default_stateful_set(stateful_set: Object) -> None:
    """Fill in a StatefulSet."""
    spec = stateful_set["spec"]
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    strategy = spec["updateStrategy"]
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    retention.setdefault("whenDeleted", "Retain")
    retention.setdefault("whenScaled", "Retain")
    default_template(spec["template"])


def default_replica_set(replica_set: Object) -> None:
    """Fill in a ReplicaSet."""
    replica_set["spec"].setdefault("replicas", 1)
    default_template(replica_set["spec"]["template"])


def default_daemon_set(daemon_set: Object) -> None:
    """Fill in a DaemonSet."""
    spec = daemon_set["spec"]
    spec.setdefault("revisionHistoryLimit", 10)
    strategy = spec["updateStrategy"]
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    default_template(spec["template"])


def check_selecting(item: Object, old: Object | None) -> list[FieldProblem]:
    """What is wrong with a kind that selects the pods of its template by their labels."""
    spec = item["spec"]
    problems = []
    if spec.get("replicas", 0) < 0:
        problems.append(wrong("spec.replicas", spec["replicas"], _NON_NEGATIVE))
    selector = spec.get("selector")
    if not selector:
        problems.append(required("spec.selector"))
    elif old is not None and selector != old["spec"].get("selector"):
        problems.append(wrong("spec.selector", selector, _IMMUTABLE))
    labels = spec["template"].get("metadata", {}).get("labels", {})
    if selector is None or not selector_matcher(selector)(labels):
        message = "`selector` does not match template `labels`"
        problems.append(wrong("spec.template.metadata.labels", labels, message))
    if old is None or spec["template"] != old["spec"]["template"]:
        problems += check_template(spec["template"], "spec.template")
    return problems


def _clear_status(_: ObjectStorage, item: Object) -> None:
    item["status"] = {}


def _clear_replica_status(_: ObjectStorage, item: Object) -> None:
    item["status"] = {"replicas": 0}


def _clear_stateful_status(_: ObjectStorage, item: Object) -> None:
    item["status"] = {"replicas": 0, "availableReplicas": 0}


def _clear_daemon_status(_: ObjectStorage, item: Object) -> None:
    item["metadata"].setdefault("annotations", {})["deprecated.daemonset.template.generation"] = "1"
    counts = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")
    item["status"] = dict.fromkeys(counts, 0)


BEHAVIOURS = {
    "Job": KindHooks(default_job, create_job, check=check_job),
    "CronJob": KindHooks(default_cron_job, _clear_status),
    "Deployment": KindHooks(default_deployment, _clear_status, check=check_selecting),
    "StatefulSet": KindHooks(default_stateful_set, _clear_stateful_status, check=check_selecting),
    "ReplicaSet": KindHooks(default_replica_set, _clear_replica_status, check=check_selecting),
    "DaemonSet": KindHooks(default_daemon_set, _clear_daemon_status, check=check_selecting),
}
