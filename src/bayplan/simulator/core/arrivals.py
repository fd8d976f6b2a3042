"""What people bring to a world of pods: how often, when, and jobs as every world makes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from bayplan.backends.fake_controllers.manifests import NAMESPACE, Object
from bayplan.dialects.api import Kind
from bayplan.dialects.jobs.running import resource
from bayplan.dialects.kueue.decode.scheduled_jobs import SCHEDULER

Bring = Callable[[str, float], None]
"""Brings something of a name at a moment."""


@dataclass(frozen=True, slots=True)
class TimedObject:
    """An object that somebody creates at a moment."""

    when: float
    kind: Kind
    obj: Object


def some_arrivals(
    rng: Random, until: float, times: tuple[int, int], ways: Sequence[tuple[float, str, Bring]]
) -> None:
    """Bring something again and again, the first way whose bound is above what the dice say."""
    for number in range(rng.randint(*times)):
        when, what = rng.uniform(0, until), rng.random()
        name, bring = next((name, bring) for below, name, bring in ways if what < below)
        bring(f"{name}-{number}", when)


def some_job(
    rng: Random, pod: Object, notes: Mapping[str, str], pods: int, sets: float
) -> tuple[Kind, Object]:
    """The spec of an indexed Job of such pods, or, as often as `sets` says, of a JobSet of such."""
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


def job_coming(when: float, kind: Kind, name: str, spec: Object, **meta: Object) -> TimedObject:
    """Such a job, as somebody creates it."""
    about = {"name": name, "namespace": NAMESPACE, **meta}
    made = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": about, "spec": spec}
    return TimedObject(when, kind, made)
