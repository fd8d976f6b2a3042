"""Validation of jobs by their kind, beyond the rules for all kinds; every violation is recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bayplan.dialects.jobs.part import pods_at_once
from bayplan.dialects.kube.fields.metadata_rules import IMMUTABLE
from bayplan.dialects.kube.fields.reader import Field, FieldErrorType
from bayplan.dialects.kueue.fields.job_rules import check_minimum
from bayplan.dialects.kueue.fields.pod_rules import check_pod, check_pod_update
from bayplan.dialects.kueue.fields.topology_request import parse_bool
from bayplan.dialects.kueue.names.annotations import (
    ELASTIC,
    ELASTIC_GATE,
    MINIMUM,
    PREFERRED,
    REQUIRED,
    SYNCED,
    has_queue,
    is_elastic,
    read_annotations,
)
from bayplan.dialects.kueue.names.feature_switches import FeatureSwitches
from bayplan.dialects.kueue.webhooks.serving_rules import (
    check_leader_worker_set,
    check_leader_worker_update,
    check_stateful_set_update,
)

PARTS_MAX = 18

Check = Callable[[Field, FeatureSwitches], None]
CheckUpdate = Callable[[Field, Field, FeatureSwitches], None]


def check_kind(job: Field, rules: FeatureSwitches) -> None:
    """Validate a job by the rules of its kind."""
    if check := _CHECKS.get(job.at("kind").text()):
        check(job, rules)


def check_kind_update(new: Field, old: Field, rules: FeatureSwitches) -> None:
    """Validate an update of a job by the rules of its kind."""
    if check := _UPDATES.get(new.at("kind").text()):
        check(new, old, rules)


def check_partial(job: Field, rules: FeatureSwitches) -> None:
    """Validate partial admission of a Job; checked when it is requested, not when its size was reduced."""
    minimum = job.at("metadata", "annotations", MINIMUM)
    if not minimum.present:
        return
    check_minimum(minimum, pods_at_once(job.at("spec")))
    if is_elastic(job) and rules.elastic:
        minimum.error("partial admission and elastic job cannot be used together", FieldErrorType.INVALID)


def _check_batch_job(job: Field, rules: FeatureSwitches) -> None:
    spec, synced = job.at("spec"), job.at("metadata", "annotations", SYNCED)
    if synced.present and _flag(synced):
        if spec.at("completionMode").text("NonIndexed") == "NonIndexed":
            synced.error("should not be enabled for NonIndexed jobs", FieldErrorType.INVALID)
        completions = spec.at("completions")
        if spec.at("parallelism").integer(default=1) != completions.integer(default=1):
            why = f"should be equal to parallelism when {SYNCED} annotation is true"
            completions.error(why, FieldErrorType.INVALID)
    if is_elastic(job) and rules.elastic:
        annotations = spec.at("template", "metadata", "annotations")
        for name, word in ((REQUIRED, "required"), (PREFERRED, "preferred")):
            if name in read_annotations(spec.at("template", "metadata")):
                where = annotations.derived(None, f"{annotations.path}.{name}")
                where.error(f"{word} topology is not supported with elastic jobs", FieldErrorType.FORBIDDEN)


def _check_batch_job_update(new: Field, old: Field, rules: FeatureSwitches) -> None:
    minimum = new.at("metadata", "annotations", MINIMUM)
    minimum_before, is_running = (
        old.at("metadata", "annotations", MINIMUM),
        not old.at("spec", "suspend").flag(),
    )
    if minimum.value != minimum_before.value:
        check_partial(new, rules)
    parallelism = new.at("spec", "parallelism")
    before = old.at("spec", "parallelism").integer(default=1)
    if minimum_before.present and is_running and parallelism.integer(default=1) != before:
        why = "cannot change when partial admission is enabled and the job is not suspended"
        parallelism.error(why, FieldErrorType.FORBIDDEN)
    synced, synced_before = (job.at("metadata", "annotations", SYNCED) for job in (new, old))
    if is_running and not new.at("spec", "suspend").flag() and _flag(synced) != _flag(synced_before):
        synced.error(f"{IMMUTABLE} while the job is not suspended", FieldErrorType.FORBIDDEN)


def _flag(field: Field) -> bool:
    if not field.present:
        return False
    try:
        return parse_bool(field.text())
    except ValueError as wrong:
        field.error(str(wrong), FieldErrorType.INVALID)
        return False


def _check_ray_cluster(cluster: Field, rules: FeatureSwitches) -> None:
    if not (has_queue(cluster) or rules.jobs_without_queue):
        return
    spec = cluster.at("spec")
    if is_elastic(cluster) and rules.elastic:
        for group in (*spec.at("workerGroupSpecs").items(), spec.at("headGroupSpec")):
            _check_elastic_gate(group.at("template", "spec", "schedulingGates"))
    elif spec.at("enableInTreeAutoscaling").flag():
        why = (
            "a kueue-managed RayCluster can use autoscaling only as an elastic job: enable the "
            f'ElasticJobsViaWorkloadSlices feature gate and set the "{ELASTIC}": "true" annotation'
        )
        spec.at("enableInTreeAutoscaling").error(why, FieldErrorType.INVALID)
    _check_ray_groups(spec)


def _check_elastic_gate(gates: Field) -> None:
    if all(gate.at("name").text() != ELASTIC_GATE for gate in gates.items()):
        gates.error("an elastic job must have the ElasticJobSchedulingGate", FieldErrorType.INVALID)


def _check_ray_job(job: Field, rules: FeatureSwitches) -> None:
    if not (has_queue(job) or rules.jobs_without_queue):
        return
    spec = job.at("spec")
    selector, cluster = spec.at("clusterSelector"), spec.at("rayClusterSpec")
    if selector.value and cluster.present:
        selector.error("a kueue managed job should not use an existing cluster", FieldErrorType.INVALID)
    elif not selector.value and not cluster.present:
        why = "rayClusterSpec is required for Kueue-managed jobs that don't use clusterSelector"
        cluster.error(why, FieldErrorType.REQUIRED)
    if selector.value or not cluster.present:
        return
    finish = spec.at("shutdownAfterJobFinishes")
    if not finish.flag():
        finish.error(
            "a kueue managed job should delete the cluster after finishing", FieldErrorType.INVALID, False
        )
    _check_wrapped_cluster(job, cluster)


def _check_ray_service(service: Field, rules: FeatureSwitches) -> None:
    if has_queue(service) or rules.jobs_without_queue:
        _check_wrapped_cluster(service, service.at("spec", "rayClusterConfig"))


def _check_wrapped_cluster(job: Field, cluster: Field) -> None:
    scaling = cluster.at("enableInTreeAutoscaling")
    if scaling.flag() and not is_elastic(job):
        why = "a kueue managed job should only use autoscaling when workload slicing is enabled"
        scaling.error(why, FieldErrorType.INVALID)
    _check_ray_groups(cluster)


def _check_ray_groups(spec: Field) -> None:
    groups = spec.at("workerGroupSpecs")
    count = len(groups.items()) + 1
    if count > PARTS_MAX:
        groups.error(f"must have at most {PARTS_MAX} items", FieldErrorType.TOO_MANY, count)
    for group in groups.items():
        if group.at("groupName").text() == "head":
            group.at("groupName").error('"head" is reserved for the head group', FieldErrorType.FORBIDDEN)


def _check_spark(app: Field, rules: FeatureSwitches) -> None:
    if not (has_queue(app) or rules.jobs_without_queue):
        return
    mode = app.at("spec", "mode")
    if mode.text() != "cluster":
        mode.error("only Cluster mode is supported for a kueue managed job", FieldErrorType.INVALID)
    scaling = app.at("spec", "dynamicAllocation", "enabled")
    if scaling.flag() and not (is_elastic(app) and rules.elastic):
        why = (
            "a kueue managed job can use dynamicAllocation only when the ElasticJobsViaWorkloadSlices "
            "feature gate is on and the job is an elastic job"
        )
        scaling.error(why, FieldErrorType.INVALID)


_CHECKS: Mapping[str, Check] = {
    "Job": _check_batch_job,
    "LeaderWorkerSet": check_leader_worker_set,
    "RayCluster": _check_ray_cluster,
    "RayJob": _check_ray_job,
    "RayService": _check_ray_service,
    "SparkApplication": _check_spark,
    "Pod": check_pod,
}
_UPDATES: Mapping[str, CheckUpdate] = {
    "Job": _check_batch_job_update,
    "LeaderWorkerSet": check_leader_worker_update,
    "StatefulSet": check_stateful_set_update,
    "Pod": check_pod_update,
}
