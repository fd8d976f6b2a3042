"""Validation of queued LeaderWorkerSets and StatefulSets and of their updates."""

from __future__ import annotations

from bayplan.dialects.jobs.kind import QueuedJob
from bayplan.dialects.kube.fields.metadata_rules import IMMUTABLE, check_unchanged
from bayplan.dialects.kube.fields.reader import Field, FieldErrorType

GROUPS_MAX = 10_000
"""The most replicas of a queued LeaderWorkerSet: each is a gang with a Workload of its own."""
_REQUIREMENTS = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "runtimeClassName",
    "priority",
    "topologySpreadConstraints",
    "overhead",
    "resourceClaims",
)
"""Fields of a pod spec that decide where the pod can run."""


def check_leader_worker_set(job: Field, queue: QueuedJob) -> None:
    """Validate the number of replicas: each is a gang, and their number is limited."""
    del queue
    field = job.at("spec", "replicas")
    count = 1 if field.value is None else field.value
    bounds = f"must be >= 0, got {count}" if isinstance(count, int) and count < 0 else ""
    if isinstance(count, int) and count > GROUPS_MAX:
        bounds = f"must be <= {GROUPS_MAX}, got {count}; each replica is a gang: divide it into several sets"
    if bounds:
        field.error(f"invalid LeaderWorkerSet replicas: {bounds}", FieldErrorType.INVALID)


def check_leader_worker_update(new: Field, old: Field, queue: QueuedJob) -> None:
    """Validate an update of a LeaderWorkerSet: pod requirements and group size are immutable."""
    if not queue.queued:
        return
    group, before = (job.at("spec", "leaderWorkerTemplate") for job in (new, old))
    for name in ("leaderTemplate", "workerTemplate"):
        spec, spec_before = group.at(name, "spec"), before.at(name, "spec")
        if spec.present and spec_before.present:
            check_requirements(spec, spec_before)
        elif spec.present or spec_before.present:  # a leader that came or went changes the group
            group.at(name).error(IMMUTABLE, FieldErrorType.INVALID)
    size = group.at("size")
    if size.integer(default=1) != before.at("size").integer(default=1):
        size.error(IMMUTABLE, FieldErrorType.INVALID)


def check_stateful_set_update(new: Field, old: Field, queue: QueuedJob) -> None:
    """Validate an update of a StatefulSet: all pods are one gang, which only scales to and from zero."""
    owned = any(owner.at("controller").flag() for owner in new.at("metadata", "ownerReferences").items())
    if owned or not queue.queued:
        return
    check_requirements(new.at("spec", "template", "spec"), old.at("spec", "template", "spec"))
    replicas = new.at("spec", "replicas")
    count, before = replicas.integer(default=1), old.at("spec", "replicas").integer(default=1)
    if count and before and count != before:
        replicas.error(IMMUTABLE, FieldErrorType.INVALID)
    if count and not before and new.at("status", "replicas").integer():
        replicas.error("scaling down is still in progress", FieldErrorType.FORBIDDEN)


def check_requirements(spec: Field, before: Field) -> None:
    """Validate that the scheduling requirements of a pod spec are unchanged."""
    for key in ("initContainers", "containers"):
        containers, containers_before = spec.at(key).items(), before.at(key).items()
        if len(containers) != len(containers_before):
            spec.at(key).error(IMMUTABLE, FieldErrorType.INVALID, None)
            continue
        for container, container_before in zip(containers, containers_before, strict=True):
            check_unchanged(
                container.at("resources", "requests"), container_before.at("resources", "requests")
            )
            check_unchanged(container.at("ports"), container_before.at("ports"))
    for key in _REQUIREMENTS:
        check_unchanged(spec.at(key), before.at(key))
    check_unchanged(spec.at("resources", "requests"), before.at("resources", "requests"))
