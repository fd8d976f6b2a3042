"""The mixed load: queued Jobs and JobSets, groups of KAI, gangs of the gang API, plain pods; all as Jobs."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.end_to_end.admission_site import BLOCK, GPU, POOL, RACK, TOPOLOGY, flavor, gpu_queues, made
from tests.end_to_end.objects import kwok_node
from tests.end_to_end.storm import JOB_SETS, JOBS
from tests.support.api_objects import Object, api_object, container

QUEUED, JOB_SET, KAI, GANG, PLAIN = "queued", "jobset", "kai", "gang", "plain"
FAMILIES = (QUEUED, QUEUED, QUEUED, JOB_SET, KAI, KAI, GANG, GANG, PLAIN)
GPUS_OF_HOST, HOSTS_OF_RACK, RACKS_OF_BLOCK = 8, 10, 10
QUEUES = ("soak-a", "soak-b")
NAME, SIZE, RUN = "soak", "soak/pods", "bayplan.dev/run-seconds"
KUEUE = "kueue.x-k8s.io/"
GROUPS = "/apis/scheduling.run.ai/v2alpha2/namespaces/default/podgroups"
GANGS = "/apis/scheduling.k8s.io/v1alpha1/namespaces/default/workloads"


@dataclass(frozen=True, slots=True)
class Submission:
    """A gang: what is created for it, in order, and what it asks for."""

    name: str
    family: str
    pods: int
    gpus: int  # of all pods
    seconds: int  # that its pods run
    objects: tuple[tuple[str, Object], ...]  # path and object


def hosts(count: int) -> list[Object]:
    """Racks of ten hosts with eight GPUs."""
    found = []
    for number in range(count):
        rack, block = number // HOSTS_OF_RACK, number // HOSTS_OF_RACK // RACKS_OF_BLOCK
        labels = {POOL: NAME, BLOCK: f"b{block:02d}", RACK: f"b{block:02d}-r{rack:03d}"}
        found.append(kwok_node(f"soak-{number:04d}", GPUS_OF_HOST, **labels))
    return found


def rules(gpus: int) -> list[Object]:
    """The topology, two queues in a cohort that have all GPUs, and a queue of KAI."""
    yielding = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "LowerPriority"}
    queues = [
        one
        for name in QUEUES
        for one in gpu_queues(name, gpus // len(QUEUES), NAME, cohort=NAME, preemption=yielding)
    ]
    classes = [
        {
            key: value
            for key, value in made("WorkloadPriorityClass", f"soak-{name}", {}).items()
            if key != "spec"
        }
        | {"value": value}
        for name, value in (("low", 10), ("high", 1000))
    ]
    unlimited = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    kai = api_object(
        "scheduling.run.ai/v2", "Queue", NAME,
        spec={"resources": dict.fromkeys(("gpu", "cpu", "memory"), unlimited)},
    )  # fmt: skip
    return [TOPOLOGY, flavor(NAME), *classes, *queues, kai]


def submission(number: int, dice: random.Random, seconds: tuple[int, int]) -> Submission:
    """The next gang, drawn by chance."""
    family = dice.choice(FAMILIES)
    name = f"{NAME}-{family}-{number:06d}"
    pods = 1 if family == PLAIN else dice.choice((2, 2, 4, 4, 8, 16))
    each = dice.choice((1, 2, 4, 8)) if pods <= 8 else dice.choice((1, 2))
    run = str(dice.randint(*seconds))
    return _MAKERS[family](name, pods, each, run, dice)


def _template(each: int, run: str, pods: int, name: str, **spec: object) -> Object:
    asked = {GPU: str(each)}
    return {
        "metadata": {"annotations": {RUN: run}, "labels": {NAME: name, "soak-pods": str(pods)}},
        "spec": {
            "restartPolicy": "Never",
            "nodeSelector": {POOL: NAME},
            "containers": [container(asked, asked)],
            **spec,
        },
    }


def _job(name: str, pods: int, template: Object, **labels: str) -> Object:
    counts = {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "backoffLimit": 1000}
    spec = {**counts, "template": template}
    return api_object("batch/v1", "Job", name, namespace="default", labels={NAME: name, **labels}, spec=spec)


def _queue_labels(dice: random.Random) -> dict[str, str]:
    priority = "soak-high" if dice.random() < 0.1 else "soak-low"
    return {f"{KUEUE}queue-name": dice.choice(QUEUES), f"{KUEUE}priority-class": priority}


def _queued(name: str, pods: int, each: int, run: str, dice: random.Random) -> Submission:
    template = _template(each, run, pods, name, schedulerName="bayplan")
    wish = dice.choice(("required", "preferred"))
    template["metadata"]["annotations"][f"{KUEUE}podset-{wish}-topology"] = dice.choice((RACK, BLOCK))
    job = _job(name, pods, template, **_queue_labels(dice))
    return Submission(name, QUEUED, pods, pods * each, int(run), ((JOBS, job),))


def _job_set(name: str, pods: int, each: int, run: str, dice: random.Random) -> Submission:
    template = _template(each, run, pods, name, schedulerName="bayplan")
    template["metadata"]["annotations"][f"{KUEUE}podset-preferred-topology"] = BLOCK
    counts = {"parallelism": pods // 2, "completions": pods // 2, "completionMode": "Indexed"}
    inner = {"spec": {**counts, "backoffLimit": 1000, "template": template}}
    part = {"name": "workers", "replicas": 2, "template": inner}
    whole = api_object(
        "jobset.x-k8s.io/v1alpha2", "JobSet", name, namespace="default",
        labels={NAME: name, **_queue_labels(dice)}, spec={"replicatedJobs": [part]},
    )  # fmt: skip
    return Submission(name, JOB_SET, pods, pods * each, int(run), ((JOB_SETS, whole),))


def _kai(name: str, pods: int, each: int, run: str, _: random.Random) -> Submission:
    group = api_object(
        "scheduling.run.ai/v2alpha2", "PodGroup", name, namespace="default",
        labels={NAME: name}, spec={"minMember": pods, "queue": NAME},
    )  # fmt: skip
    template = _template(each, run, pods, name, schedulerName="bayplan")
    template["metadata"]["annotations"]["pod-group-name"] = name
    template["metadata"]["labels"]["kai.scheduler/queue"] = NAME
    job = _job(name, pods, template)
    return Submission(name, KAI, pods, pods * each, int(run), ((GROUPS, group), (JOBS, job)))


def _gang(name: str, pods: int, each: int, run: str, _: random.Random) -> Submission:
    parts = [{"name": "main", "policy": {"gang": {"minCount": pods}}}]
    group = api_object(
        "scheduling.k8s.io/v1alpha1", "Workload", name, namespace="default",
        labels={NAME: name}, spec={"podGroups": parts},
    )  # fmt: skip
    template = _template(
        each, run, pods, name, schedulerName="bayplan", workloadRef={"name": name, "podGroup": "main"}
    )
    return Submission(
        name, GANG, pods, pods * each, int(run), ((GANGS, group), (JOBS, _job(name, pods, template)))
    )


def _plain(name: str, pods: int, each: int, run: str, _: random.Random) -> Submission:
    template = _template(each, run, pods, name, schedulerName="bayplan")
    return Submission(name, PLAIN, pods, pods * each, int(run), ((JOBS, _job(name, pods, template)),))


_MAKERS: dict[str, Callable[[str, int, int, str, random.Random], Submission]] = {
    QUEUED: _queued, JOB_SET: _job_set, KAI: _kai, GANG: _gang, PLAIN: _plain,
}  # fmt: skip
