"""What somebody is about to submit: each document as the Workload it would become, checked as by the API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from bayplan.backends.conversion import convert
from bayplan.cli.live_state import Live, Object
from bayplan.cli.read import Document, Problem
from bayplan.cli.webhooks import LookUps, registry
from bayplan.dialects.api import Kind
from bayplan.dialects.jobs.kinds import KINDS, Find, copies, is_known, parts
from bayplan.dialects.kube.fields import Field, type_name
from bayplan.dialects.kueue.admitting import GROUP, LOCAL_QUEUES, VERSION
from bayplan.dialects.kueue.annotations import PRIORITY_CLASS, QUEUE
from bayplan.dialects.kueue.demands import demand as read_demand
from bayplan.dialects.kueue.job_pod_sets import pod_sets
from bayplan.dialects.kueue.jobs import job_gang
from bayplan.model.demand import Demand
from bayplan.runtime.reviews import Registry

CLASSES = {
    "WorkloadPriorityClass": Kind(
        GROUP, VERSION, "WorkloadPriorityClass", "workloadpriorityclasses", namespaced=False
    ),
    "PriorityClass": Kind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False),
}
COPIES_MAX = 1000
API = f"{GROUP}/{VERSION}"
TICK = 0.001  # seconds between two submissions of one file


@dataclass(frozen=True, slots=True)
class Submission:
    """One gang to try."""

    title: str
    demand: Demand


class Unwelcome(Exception):
    """A document that cannot be submitted; the message says why."""


def submissions(live: Live, documents: Iterable[Document]) -> tuple[list[Submission], list[Problem]]:
    """Every gang of every document in their order, and everything that is wrong."""
    found: list[Submission] = []
    problems: list[Problem] = []
    rules = registry(LookUps(_finder(live)))
    for document in documents:
        where = f"line {document.line}" if document.line else ""
        try:
            for workload, title in _workloads(live, document, rules):
                found.append(_submission(live, workload, title, len(found)))
        except (Unwelcome, ValueError) as trouble:
            problems += [Problem(document.file, where, line) for line in str(trouble).split("\n")]
    seen: set[tuple[str, str]] = set()
    for one in found:
        source = one.demand.gang.source
        if (source.namespace, source.name) in seen:
            problems.append(Problem("", one.title, "is there twice"))
        seen.add((source.namespace, source.name))
    return found, problems


def _workloads(live: Live, document: Document, rules: Registry) -> Iterator[tuple[Object, str]]:
    if document.body.errors:
        raise Unwelcome("\n".join(str(error) for error in document.body.errors))
    obj: Any = document.body.value
    group = str(obj.get("apiVersion", "")).partition("/")[0]
    obj = _with_namespace(live, obj)
    meta = obj["metadata"]
    title = f"{document.kind} {meta['namespace']}/{meta['name']}"
    if document.kind == "Workload" and group == GROUP:
        asked = {key: value for key, value in obj.items() if key != "status"}
        _check_workload(asked, title)
        made = asked if obj["apiVersion"] == API else convert(asked, API)
        made = _accepted(rules, (GROUP, "workloads"), made, title)
        yield _with_priority(live, made), title
    elif is_known(document.body):
        kind = KINDS[document.kind]
        job = _accepted(rules, (kind.group, kind.plural), obj, title)
        yield from _of_job(live, job, title)
    else:
        known = ", ".join(KINDS)
        raise Unwelcome(f"{document.kind or 'this'} is no gang; give a Workload or one of {known}")


def _check_workload(obj: Object, title: str) -> None:
    field = Field(obj)
    read_demand(field)
    _refuse_errors(field, title)


def _with_namespace(live: Live, obj: Object) -> Object:
    meta = obj.get("metadata") if isinstance(obj.get("metadata"), dict) else {}
    assert isinstance(meta, dict)
    name = meta.get("name") or (f"{meta['generateName']}x" if meta.get("generateName") else "")
    if not name:
        raise Unwelcome(f"{obj.get('kind') or 'object'} has no name; set metadata.name")
    return {**obj, "metadata": {**meta, "name": name, "namespace": meta.get("namespace") or live.namespace}}


def _accepted(rules: Registry, resource: tuple[str, str], obj: Object, title: str) -> Object:
    """The object as the webhooks would let it pass."""
    made = rules.mutated((*resource, "CREATE"), obj, None)
    errors = rules.problems((*resource, "CREATE"), made, None)
    if errors:
        raise Unwelcome("\n".join(f"{title}: {error}" for error in errors))
    return made


def _of_job(live: Live, job: Object, title: str) -> Iterator[tuple[Object, str]]:
    """One Workload, or as many as the job is gangs."""
    field, meta = Field(job), job["metadata"]
    queue = (meta.get("labels") or {}).get(QUEUE, "")
    if not queue:
        raise Unwelcome(f"{title} names no queue; set the label {QUEUE}")
    find = _finder(live)
    _check_job(field, find, title)
    spec: Object = {"queueName": queue, "active": True, "podSets": pod_sets(field, find)}
    if not spec["podSets"]:
        raise Unwelcome(f"{title} has no pods")
    spec["priority"] = _priority(live, job, spec["podSets"])
    count = min(copies(field), COPIES_MAX)
    for index in range(count):
        name = meta["name"] if count == 1 else f"{meta['name']}-{index}"
        made = {"name": f"{job['kind'].lower()}-{name}", "namespace": meta["namespace"]}
        made |= {"annotations": meta.get("annotations") or {}}
        shown = title if count == 1 else f"{title}, {index + 1} of {count}"
        yield {"apiVersion": API, "kind": "Workload", "metadata": made, "spec": spec}, shown


def _check_job(job: Field, find: Find, title: str) -> None:
    """What a job says must be readable before it is copied into a Workload."""
    job_gang(job, find)
    for part in parts(job, find):
        for key in ("initContainers", "containers"):
            for container in part.template.at("spec", key).items():
                if not isinstance(container.value, dict):
                    container.error(f"must be a mapping, not {type_name(container.value)}")
    _refuse_errors(job, title)


def _refuse_errors(field: Field, title: str) -> None:
    if field.errors:
        raise Unwelcome("\n".join(f"{title}: {error}" for error in field.errors))


def _finder(live: Live) -> Find:
    """Objects that a job refers to: the runtime of a TrainJob, the queue for jobs that name none."""
    runtimes = {
        "TrainingRuntime": ("trainingruntimes", True),
        "ClusterTrainingRuntime": ("clustertrainingruntimes", False),
    }

    def find(kind: str, namespace: str, name: str) -> object:
        if kind == LOCAL_QUEUES.kind:
            return live.get(LOCAL_QUEUES, namespace, name)
        if kind not in runtimes:
            return None
        plural, namespaced = runtimes[kind]
        known = Kind("trainer.kubeflow.org", "v1alpha1", kind, plural, namespaced=namespaced)
        return live.get(known, namespace if namespaced else "", name)

    return find


def _priority(live: Live, job: Object, sets: list[Object]) -> int:
    own = (job["metadata"].get("labels") or {}).get(PRIORITY_CLASS, "")
    if own:
        return _class_value(live, "WorkloadPriorityClass", own)
    of_pods = ((one["template"].get("spec") or {}).get("priorityClassName") for one in sets)
    name = next((found for found in of_pods if found), "")
    return _class_value(live, "PriorityClass", name) if name else 0


def _with_priority(live: Live, workload: Object) -> Object:
    spec = workload["spec"]
    named = spec.get("priorityClassRef") or {}
    if spec.get("priority") is not None or named.get("kind") not in CLASSES:
        return workload
    value = _class_value(live, named["kind"], named.get("name", ""))
    return {**workload, "spec": {**spec, "priority": value}}


def _class_value(live: Live, kind: str, name: str) -> int:
    found = live.get(CLASSES[kind], "", name)
    if found is None:
        raise Unwelcome(f"there is no {kind} {name}")
    return int(found.get("value") or 0)


def _submission(live: Live, workload: Object, title: str, number: int) -> Submission:
    field = Field(workload)
    found = read_demand(field, live.settings.resources)
    _refuse_errors(field, title)
    source = found.gang.source
    if not live.has_namespace(source.namespace):
        raise Unwelcome(f"{title}: there is no namespace {source.namespace}")
    _refuse_known(live, title)
    if found.entrance not in live.state.rules.entrances:
        here = sorted(name for space, name in live.state.rules.entrances if space == source.namespace)
        known = f"there are {', '.join(here)}" if here else "there is none"
        named = f"there is no LocalQueue {found.gang.queue}" if found.gang.queue else "names no LocalQueue"
        raise Unwelcome(f"{title}: {named} in namespace {source.namespace}; {known}")
    gang = replace(found.gang, uid=f"planned-{number}")
    at = live.now + TICK * number
    return Submission(title, replace(found, gang=gang, created=at, queued=at, admission=None))


def _refuse_known(live: Live, title: str) -> None:
    """What is in the cluster already need not be planned."""
    kind, _, rest = title.partition(" ")
    namespace, _, name = rest.partition(",")[0].partition("/")
    for ref, one in live.workloads.items():
        if ref.namespace != namespace:
            continue
        owners = one.get("metadata", {}).get("ownerReferences") or []
        owned = any((o.get("kind"), o.get("name")) == (kind, name) for o in owners)
        if owned or (kind == "Workload" and ref.name == name):
            raise Unwelcome(f"{title} is in the cluster already; see: bayplan explain {namespace}/{name}")
