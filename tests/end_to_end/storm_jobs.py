"""What flows through a storm: a hall of small racks, queues with too little quota, jobs of many shapes."""

from __future__ import annotations

import random
from typing import NamedTuple

from tests.end_to_end.admission_site import BLOCK, GPU, HOST, POOL, RACK, flavor, gpu_queues, made
from tests.end_to_end.objects import Object, kwok_node
from tests.end_to_end.storm import JOB_SETS, JOBS

KUEUE = "kueue.x-k8s.io/"


class Shape(NamedTuple):
    """How big a job is and how close its pods have to be."""

    pods: int
    gpus: int
    notes: dict[str, str]


REQUIRED, PREFERRED = f"{KUEUE}podset-required-topology", f"{KUEUE}podset-preferred-topology"
SEGMENT, SIZE = f"{KUEUE}podset-slice-required-topology", f"{KUEUE}podset-slice-size"
SHAPES = (
    Shape(1, 2, {REQUIRED: HOST}),
    Shape(1, 1, {f"{KUEUE}podset-unconstrained-topology": "true"}),
    Shape(2, 1, {REQUIRED: HOST}),
    Shape(2, 2, {PREFERRED: RACK}),
    Shape(3, 1, {REQUIRED: RACK}),
    Shape(4, 2, {REQUIRED: RACK}),
    Shape(4, 1, {PREFERRED: HOST}),
    Shape(6, 1, {REQUIRED: RACK}),
    Shape(8, 1, {REQUIRED: BLOCK, SEGMENT: RACK, SIZE: "4"}),
    Shape(9, 1, {PREFERRED: BLOCK, SEGMENT: RACK, SIZE: "3"}),
    Shape(12, 1, {PREFERRED: BLOCK, SEGMENT: HOST, SIZE: "2"}),
    Shape(16, 1, {REQUIRED: BLOCK}),
)
WEIGHTS = (3, 3, 3, 3, 3, 3, 3, 2, 1, 1, 1, 1)
QUOTAS = {"storm-a": 60, "storm-b": 44}
POOL_NAME, COHORT = "storm", "storm"


def hall(blocks: int = 4, racks: int = 4, each: int = 4) -> list[Object]:
    """Hosts of two GPUs."""
    return [
        kwok_node(f"storm-b{block}-r{rack}-h{number}", 2, **_labels(f"b{block}", f"b{block}-r{rack}"))
        for block in range(blocks)
        for rack in range(racks)
        for number in range(each)
    ]


def _labels(block: str, rack: str) -> dict[str, str]:
    return {POOL: POOL_NAME, BLOCK: block, RACK: rack}


def queues() -> list[Object]:
    """Who may borrow from one another, and makes room for what matters more."""
    yielding = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "LowerPriority"}
    found = [
        one
        for name, gpus in QUOTAS.items()
        for one in gpu_queues(name, gpus, POOL_NAME, cohort=COHORT, preemption=yielding)
    ]
    classes = [
        {key: value for key, value in made("WorkloadPriorityClass", name, {}).items() if key != "spec"}
        | {"value": value}
        for name, value in (("storm-low", 10), ("storm-high", 1000))
    ]
    return [flavor(POOL_NAME), *classes, *found]


def jobs(count: int, sets: int, dice: random.Random) -> list[tuple[str, Object]]:
    """Jobs and a few JobSets between them, each with the path it is created at."""
    plain = [(JOBS, _job(f"storm-{number:03}", dice)) for number in range(count - sets)]
    joint = [(JOB_SETS, _job_set(f"storms-{number}", dice)) for number in range(sets)]
    everything = [*plain, *joint]
    dice.shuffle(everything)
    return everything


def _job(name: str, dice: random.Random) -> Object:
    shape = dice.choices(SHAPES, WEIGHTS)[0]
    counts = {"parallelism": shape.pods, "completions": shape.pods, "completionMode": "Indexed"}
    spec = {**counts, "backoffLimit": 50, "template": _template(shape.gpus, shape.notes, dice)}
    return _queued("batch/v1", "Job", name, spec, dice)


def _job_set(name: str, dice: random.Random) -> Object:
    counts = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "backoffLimit": 50}
    inner = {"spec": {**counts, "template": _template(1, {SEGMENT: RACK, PREFERRED: BLOCK}, dice)}}
    part = {"name": "workers", "replicas": dice.choice((2, 3)), "template": inner}
    return _queued("jobset.x-k8s.io/v1alpha2", "JobSet", name, {"replicatedJobs": [part]}, dice)


def _template(gpus: int, notes: dict[str, str], dice: random.Random) -> Object:
    limits = {GPU: str(gpus)}
    container = {"name": "main", "image": "none", "resources": {"requests": limits, "limits": limits}}
    played = {"bayplan.dev/run-seconds": str(dice.choice((1, 2, 2, 4)))}
    spec = {"restartPolicy": "Never", "containers": [container]}
    return {"metadata": {"annotations": notes | played}, "spec": spec}


def _queued(version: str, kind: str, name: str, spec: Object, dice: random.Random) -> Object:
    priority = "storm-high" if dice.random() < 0.1 else "storm-low"
    labels = {f"{KUEUE}queue-name": dice.choice([*QUOTAS]), f"{KUEUE}priority-class": priority}
    meta = {"name": name, "namespace": "default", "labels": labels}
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}
