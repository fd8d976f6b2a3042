"""Random queues on a small cluster, and the jobs that arrive there, generated from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from bayplan.backends.fake_controllers.manifests import BLOCK, GPU, NAMESPACE, RACK, Object, node
from bayplan.dialects.api import Kind
from bayplan.dialects.jobs.running import resource
from bayplan.dialects.kueue.jobs.status import PodsReadyPolicy
from bayplan.dialects.kueue.names import api_kinds
from bayplan.dialects.kueue.names.annotations import (
    MINIMUM,
    PREFERRED,
    PRIORITY_CLASS,
    QUEUE,
    REQUIRED,
    SEGMENT_LEVEL,
    SEGMENT_SIZE,
    SYNCED,
    UNCONSTRAINED,
)
from bayplan.dialects.kueue.pods.node_health import HealthRules
from bayplan.model.node import HOSTNAME
from bayplan.model.profile import Profile
from bayplan.runtime.controllers.jobs.cache import CLASSES
from bayplan.simulator.core.world import Arrival

POOL, TROUBLE = "example.com/pool", "example.com/trouble"
PRIORITIES = {"low": -10, "high": 100}
JOBS, JOB_SETS = resource("Job"), resource("JobSet")
TOLERATIONS = {
    "nothing": [],
    "trouble": [{"key": TROUBLE, "operator": "Exists", "effect": "NoSchedule"}],
    "trouble for a while": [
        {"key": TROUBLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 15}
    ],
}


@dataclass(frozen=True, slots=True)
class SeedSettings:
    """The settings of Bayplan in a seed."""

    profile: Profile
    health: HealthRules
    pods_ready: PodsReadyPolicy | None
    batch_seconds: float


@dataclass(frozen=True, slots=True)
class JobsWorld:
    """The objects at the start, and the jobs that are created later."""

    nodes: list[Object]
    rules: list[tuple[Kind, Object]]
    arrivals: list[Arrival]
    settings: SeedSettings


def jobs_world(rng: Random, until: float) -> JobsWorld:
    """Hosts in one or two pools, one to three queues, and jobs with random topology requests."""
    nodes = _nodes(rng)
    pools = sorted({host["metadata"]["labels"][POOL] for host in nodes})
    levels = [{"nodeLabel": level} for level in (BLOCK, RACK, HOSTNAME)]
    rules = [_named(api_kinds.TOPOLOGIES, "hall", {"levels": levels})]
    for pool in pools:
        spec: Object = {"nodeLabels": {POOL: pool}, "topologyName": "hall"}
        if rng.random() < 0.3:
            spec["tolerations"] = [{"key": "example.com/new", "operator": "Exists", "effect": "NoSchedule"}]
        rules.append(_named(api_kinds.FLAVORS, pool, spec))
    rules += [_priority_class(name, value) for name, value in PRIORITIES.items()]
    local_queues = []
    shared_cohort = rng.random() < 0.5
    for number in range(rng.randint(1, 3)):
        rules.append(_queue(rng, f"queue-{number}", pools, shared=shared_cohort))
        local_queues.append(f"door-{number}")
        rules.append(_named(api_kinds.LOCAL_QUEUES, local_queues[-1], {"clusterQueue": f"queue-{number}"}))
    arrivals = [
        Arrival(rng.uniform(0, until * 0.8), _job(rng, f"job-{number}", local_queues))
        for number in range(rng.randint(3, 9))
    ]
    return JobsWorld(nodes, rules, sorted(arrivals, key=lambda arrival: arrival.when), _settings(rng))


def _settings(rng: Random) -> SeedSettings:
    health = HealthRules(
        not_ready_seconds=rng.choice((5.0, 30.0)),
        replace_together=rng.random() < 0.7,
        fail_pods_at_once=rng.random() < 0.3,
    )
    pods_ready = None
    if rng.random() < 0.25:
        pods_ready = PodsReadyPolicy(30.0, rng.choice((None, 20.0)), 5.0, 20.0, rng.choice((None, None, 2)))
    profile = Profile(fair_sharing=rng.random() < 0.2, replace_fast=rng.random() < 0.5)
    return SeedSettings(profile, health, pods_ready, rng.choice((0.0, 1.0, 1.0)))


def _named(kind: Kind, name: str, spec: Object) -> tuple[Kind, Object]:
    meta = {"name": name} | ({"namespace": NAMESPACE} if kind.namespaced else {})
    return kind, {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": spec}


def _priority_class(name: str, value: int) -> tuple[Kind, Object]:
    kind = CLASSES[0]
    return kind, {
        "apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, "value": value,
    }  # fmt: skip


def _nodes(rng: Random) -> list[Object]:
    """One or two blocks of one to three racks of two or three hosts."""
    found: list[Object] = []
    several = rng.random() < 0.3
    for block in range(rng.randint(1, 2)):
        for rack in range(rng.randint(2 - block, 3)):
            pool = rng.choice(("gold", "silver")) if several else "gold"
            for _ in range(rng.randint(2, 3)):
                host = node(f"n{len(found):03d}", f"b{block}", f"b{block}r{rack}", rng.choice((4, 4, 8)))
                host["metadata"]["labels"][POOL] = pool
                found.append(host)
    return found


def _queue(rng: Random, name: str, pools: list[str], *, shared: bool) -> tuple[Kind, Object]:
    flavors = [
        {
            "name": pool,
            "resources": [
                {"name": "cpu", "nominalQuota": rng.choice(("64", "256"))},
                {"name": GPU, "nominalQuota": rng.choice(("8", "12", "16", "24", "32"))},
            ],
        }
        for pool in rng.sample(pools, len(pools))
    ]
    spec: Object = {
        "namespaceSelector": {},
        "queueingStrategy": rng.choice(("BestEffortFIFO", "BestEffortFIFO", "StrictFIFO")),
        "resourceGroups": [{"coveredResources": ["cpu", GPU], "flavors": flavors}],
        "preemption": {
            "withinClusterQueue": rng.choice(("Never", "LowerPriority", "LowerPriority")),
            "reclaimWithinCohort": rng.choice(("Never", "LowerPriority", "Any")),
        },
    }
    return _named(api_kinds.CLUSTER_QUEUES, name, {**spec, **({"cohortName": "all"} if shared else {})})


# ── what people bring ──────────────────────────────────────────────────────────────────────────────


def _job(rng: Random, name: str, local_queues: list[str]) -> Object:
    labels = {QUEUE: rng.choice(local_queues), "example.com/team": "blue"}
    if rng.random() < 0.35:
        labels[PRIORITY_CLASS] = rng.choice(sorted(PRIORITIES))
    kind = rng.random()
    if kind < 0.3:
        return _job_set(rng, name, labels)
    pods = rng.choice((1, 2, 3, 4, 4, 6, 8))
    spec: Object = {
        "parallelism": pods,
        "completions": pods,
        "completionMode": "Indexed",
        "backoffLimit": rng.choice((6, 20)),
        "template": _template(rng, pods),
    }
    annotations: dict[str, str] = {}
    if kind < 0.4:
        del spec["completionMode"]  # pods without numbers
    elif kind < 0.46:
        spec["completions"] = pods + 2  # some come later
    elif kind < 0.56 and pods > 1 and SEGMENT_SIZE not in spec["template"]["metadata"]["annotations"]:
        annotations = {MINIMUM: str(rng.randint(1, pods - 1)), SYNCED: "true"}
    meta: Object = {"name": name, "namespace": NAMESPACE, "labels": labels}
    if annotations or rng.random() < 0.3:
        meta["annotations"] = {"example.com/note": "mine", **annotations}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def _job_set(rng: Random, name: str, labels: dict[str, str]) -> Object:
    parts: list[Object] = []
    for part in ("workers", "drivers")[: rng.randint(1, 2)]:
        pods, replicas = rng.choice((1, 2, 2, 3)), rng.choice((1, 2, 2, 3))
        inner = {
            "parallelism": pods,
            "completions": pods,
            "backoffLimit": 20,
            "template": _template(rng, pods * replicas, pods),
        }
        parts.append({"name": part, "replicas": replicas, "template": {"spec": inner}})
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {"replicatedJobs": parts},
    }


def _template(rng: Random, pods: int, segment: int = 2) -> Object:
    amounts = {"cpu": "4"}
    gpus = rng.choice((0, 1, 1, 2, 2, 4))
    container: dict[str, Any] = {
        "name": "main",
        "image": "example.invalid/trainer",
        "resources": {"requests": amounts} | ({"limits": {GPU: str(gpus)}} if gpus else {}),
    }
    if gpus:
        amounts[GPU] = str(gpus)
    annotations = {"bayplan.dev/run-seconds": str(rng.choice((3, 10, 25, 60)))} | _topology_annotations(
        rng, pods, segment
    )
    spec: Object = {"restartPolicy": "Never", "containers": [container]}
    if rng.random() < 0.3:
        spec["tolerations"] = TOLERATIONS[rng.choice(sorted(TOLERATIONS))]
    if rng.random() < 0.15:
        spec["nodeSelector"] = {POOL: "gold"}
    return {"metadata": {"labels": {"example.com/app": "train"}, "annotations": annotations}, "spec": spec}


def _topology_annotations(rng: Random, pods: int, segment: int) -> dict[str, str]:
    kind, level = rng.random(), rng.choice((BLOCK, RACK))
    annotations: dict[str, str] = {}
    if kind < 0.3:
        annotations[REQUIRED] = level
    elif kind < 0.5:
        annotations[PREFERRED] = level
    elif kind < 0.65:
        annotations[UNCONSTRAINED] = "true"
    if pods >= 4 and pods % segment == 0 and segment < pods and rng.random() < 0.3:
        outer = rng.choice((REQUIRED, PREFERRED))
        annotations = {outer: BLOCK, SEGMENT_LEVEL: RACK, SEGMENT_SIZE: str(segment)}
    return annotations
