"""Random arrivals in a simulated cluster: when objects are created, and the jobs of all plays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from bayplan.backends.fake_controllers.manifests import NAMESPACE, Object
from bayplan.dialects.api import Kind
from bayplan.dialects.jobs.start_stop import resource
from bayplan.dialects.kueue.decode.scheduled_jobs import SCHEDULER

Generate = Callable[[str, float], None]
"""Adds the objects of an arrival, given its name and its time."""


@dataclass(frozen=True, slots=True)
class TimedObject:
    """An object that is created at a given time."""

    when: float
    kind: Kind
    obj: Object


def generate_arrivals(
    rng: Random, until: float, counts: tuple[int, int], generators: Sequence[tuple[float, str, Generate]]
) -> None:
    """Generate arrivals; a random number picks the first generator whose upper bound is above it."""
    for number in range(rng.randint(*counts)):
        when, choice = rng.uniform(0, until), rng.random()
        name, generate = next(
            (name, generate) for upper_bound, name, generate in generators if choice < upper_bound
        )
        generate(f"{name}-{number}", when)


def random_job(
    rng: Random, pod: Object, notes: Mapping[str, str], pods: int, sets: float
) -> tuple[Kind, Object]:
    """The kind and spec of an indexed Job of such pods or, with probability `sets`, of a JobSet of them."""
    spec = {**pod["spec"], "schedulerName": SCHEDULER, "restartPolicy": "Never"}
    template = {"metadata": {"labels": pod["metadata"]["labels"], "annotations": notes}, "spec": spec}
    inner: Object = {
        "parallelism": pods, "completions": pods, "completionMode": "Indexed", "backoffLimit": 3,
        "template": template,
    }  # fmt: skip
    if rng.random() >= sets:
        return resource("Job"), inner
    part = {"name": "part", "replicas": rng.randint(1, 2), "template": {"spec": inner}}
    return resource("JobSet"), {"replicatedJobs": [part]}


def timed_job(when: float, kind: Kind, name: str, spec: Object, **meta: Object) -> TimedObject:
    """The creation of a job with this spec at a given time."""
    metadata = {"name": name, "namespace": NAMESPACE, **meta}
    obj = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}
    return TimedObject(when, kind, obj)
