"""Submissions read from files: each document as the Workload it would become, validated as by the API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bayplan.assembly.webhooks import registry
from bayplan.backends.conversion import convert
from bayplan.cli.config.read_files import InputDocument, InputProblem
from bayplan.cli.live.scheduled_state import Scheduled
from bayplan.cli.live.state import RULES, Live, Object
from bayplan.cli.planning.planned_pods import DEVICE_KINDS
from bayplan.cli.planning.scheduled_submissions import DraftObjects, ScheduledSubmission, kind_of_group
from bayplan.dialects.api import Event, Happened, Kind
from bayplan.dialects.jobs.kinds import KINDS, copies, is_known, parts
from bayplan.dialects.jobs.part import Find
from bayplan.dialects.kube.fields.closest_name import closest
from bayplan.dialects.kube.fields.reader import Field, type_name
from bayplan.dialects.kueue.conversion.versions import CONVERSIONS
from bayplan.dialects.kueue.decode.events import decode
from bayplan.dialects.kueue.decode.workloads import decode_workload as read_demand
from bayplan.dialects.kueue.fields.job_gang import job_gang
from bayplan.dialects.kueue.fields.pod_rules import group_name
from bayplan.dialects.kueue.jobs.pod_group import group_size, group_workload
from bayplan.dialects.kueue.jobs.pod_sets import pod_sets
from bayplan.dialects.kueue.names.annotations import FAST_ADMISSION, PRIORITY_CLASS, QUEUE, has_queue
from bayplan.dialects.kueue.names.api_kinds import GROUP, LOCAL_QUEUES, VERSION
from bayplan.dialects.kueue.names.feature_switches import RULES as SWITCHES
from bayplan.dialects.reviews import LookUps
from bayplan.model.queued_gang import QueuedGang
from bayplan.runtime.webhooks.admission_review import Registry

CLASSES = {
    "WorkloadPriorityClass": Kind(
        GROUP, VERSION, "WorkloadPriorityClass", "workloadpriorityclasses", namespaced=False
    ),
    "PriorityClass": Kind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False),
}
COPIES_MAX = 1000
SET_UP = {kind.kind: kind for kind in (*RULES, *CLASSES.values(), *DEVICE_KINDS)}
"""Kinds that gangs refer to; such objects may be in the same files."""
BUILT_IN = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
API = f"{GROUP}/{VERSION}"
TICK = 0.001  # seconds between the creation of two submissions


@dataclass(frozen=True, slots=True)
class Submission:
    """One queued gang to plan."""

    title: str
    queued_gang: QueuedGang
    order: int = 0  # of the document that contains it
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Submitted:
    """Everything that the files contain."""

    gangs: tuple[Submission | ScheduledSubmission, ...]  # in their order
    problems: tuple[InputProblem, ...]
    scheduled: Scheduled | None = None  # if a gang names no queue
    skipped: tuple[str, ...] = ()  # objects that are not gangs


class InvalidSubmission(Exception):
    """A document that cannot be submitted; the message says why."""


def submissions(live: Live, documents: Iterable[InputDocument]) -> Submitted:
    """Every gang of every document in order, and all problems."""
    reader = SubmissionReader(live)
    problems: list[InputProblem] = []
    ordered = list(enumerate(documents))
    for is_rule in (True, False):  # queues and classes first, wherever they are in the files
        for order, document in ordered:
            where = f"line {document.line}" if document.line else ""
            try:
                if (document.kind in SET_UP) is is_rule:
                    reader.add(document, order)
            except (InvalidSubmission, ValueError) as trouble:
                problems += [InputProblem(document.file, where, line) for line in str(trouble).split("\n")]
    try:
        reader.add_groups()
    except (InvalidSubmission, ValueError) as trouble:
        problems += [InputProblem("", "", line) for line in str(trouble).split("\n")]
    gangs = [*reader.queued, *(() if problems else reader.drafts.gangs())]
    if not gangs and not problems:
        problems = [
            InputProblem(document.file, f"line {document.line}" if document.line else "", _no_gang(document))
            for _, document in ordered
        ]
    gangs.sort(key=lambda one: one.order)
    return Submitted(tuple(gangs), tuple(problems), reader.drafts.scheduled, tuple(reader.skipped))


class SubmissionReader:
    """Reads documents one by one: queued gangs, gangs of the scheduler, and objects that they refer to."""

    def __init__(self, live: Live) -> None:
        self.live = live
        self.queued: list[Submission] = []
        self.skipped: list[str] = []
        self.classes: dict[tuple[str, str], Object] = {}  # priority classes of the files, by kind and name
        self.groups: dict[tuple[str, str], list[tuple[int, Object]]] = {}  # pods of groups in queues
        self.find = _finder(live, self.classes)
        self.rules = registry(LookUps(self.find, levels=live.levels))
        self.drafts = DraftObjects(live, self.find)
        self.seen: set[tuple[str, str]] = set()

    def add(self, document: InputDocument, order: int) -> None:
        """Add one document. Raises InvalidSubmission or ValueError if it cannot be submitted."""
        if document.body.errors:
            raise InvalidSubmission("\n".join(str(error) for error in document.body.errors))
        obj: Any = document.body.value
        group = str(obj.get("apiVersion", "")).partition("/")[0]
        if document.kind in SET_UP and SET_UP[document.kind].group == group:
            self._set_up(obj, SET_UP[document.kind])
            return
        obj = _with_namespace(self.live, obj, order)
        meta = obj["metadata"]
        title = f"{document.kind} {meta['namespace']}/{meta['name']}"
        kind = kind_of_group(obj)
        if document.kind == "Workload" and group == GROUP:
            self._once(title, group)
            made = self._workload(obj, title)
            self._add(made, title, order, self.rules.advice((GROUP, "workloads", "CREATE"), made))
        elif kind is not None:
            self._once(title, group)
            self._check_place(obj, title)
            self.drafts.add_group(kind, obj, title, order)
        elif is_known(document.body):
            self._once(title, group)
            self._job(_accepted(self.rules, document.kind, obj, title), title, order)
        else:
            self.skipped.append(_no_gang(document))

    def add_groups(self) -> None:
        """Add the groups of pods that name a queue, each as one gang."""
        for (namespace, name), members in self.groups.items():
            pods = [Field(obj) for _, obj in members]
            title = f"pod group {namespace}/{name}"
            total = group_size(pods[0])
            fast = pods[0].at("metadata", "annotations", FAST_ADMISSION).text() == "true"
            if len(pods) < total and not fast:
                have = f"{len(pods)} of its {total} pods are in the files"
                raise InvalidSubmission(f"{title}: {have}; it is admitted when all exist: add the others")
            made = group_workload(pods, self.find)
            self._add(_with_priority(self.find, made), title, members[0][0])

    def _once(self, title: str, group: str) -> None:
        if (group, title) in self.seen:
            raise InvalidSubmission(f"{title} is in the files twice")
        self.seen.add((group, title))

    def _set_up(self, obj: Object, kind: Kind) -> None:
        """Add a queue or another object that gangs refer to, as if it existed in the cluster."""
        named = _with_namespace(self.live, obj, 0) if kind.namespaced else obj
        title = f"{kind.kind} {Field(named).at('metadata', 'name').text()}"
        if kind.kind in CLASSES:
            self.classes[kind.kind, title.partition(" ")[2]] = named
            return
        if kind in DEVICE_KINDS:
            self.drafts.add_device_object(kind, named)
            return
        if kind.group == GROUP and named["apiVersion"] != kind.api_version and kind.kind in CONVERSIONS:
            named = convert(named, kind.api_version)
        if kind.group == GROUP:
            self.live.require_queues()
            named = _checked(self.rules, (kind.group, kind.plural), named, title)
        self.live.state.apply_all(
            list(decode(Event(Happened.SEEN, kind, named), self.live.settings.resources))
        )

    def _workload(self, obj: Object, title: str) -> Object:
        asked = {key: value for key, value in obj.items() if key != "status"}
        _check_workload(asked, title)
        made = asked if obj["apiVersion"] == API else convert(asked, API)
        return _with_priority(self.find, _checked(self.rules, (GROUP, "workloads"), made, title))

    def _job(self, job: Object, title: str, order: int) -> None:
        """Add a queued job, a pod of a queued group, or a job that the scheduler places."""
        field = Field(job)
        _check_job(field, self.find, title)
        kind = KINDS[job["kind"]]
        notes = self.rules.advice((kind.group, kind.plural, "CREATE"), job)
        if has_queue(field):
            group = group_name(field, SWITCHES).text() if kind.is_pod else ""
            if group:
                self.groups.setdefault((job["metadata"]["namespace"], group), []).append((order, job))
                return
            for workload, shown in _of_job(self.find, job, title):
                self._add(workload, shown, order, notes)
            return
        self._check_place(job, title)
        self.drafts.add_job(job, title, order, notes)

    def _check_place(self, obj: Object, title: str) -> None:
        namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
        _check_namespace(self.live, namespace, title)
        kind = KINDS.get(obj["kind"])
        if kind is not None:
            known = Kind(kind.group, kind.version, obj["kind"], kind.plural)
            if self.live.get(known, namespace, name) is not None:
                raise InvalidSubmission(_exists_already(title, namespace, name))

    def _add(self, workload: Object, title: str, order: int, notes: Sequence[str] = ()) -> None:
        submission = _submission(self.live, workload, title, order, len(self.queued))
        self.queued.append(replace(submission, notes=tuple(notes)))


def _no_gang(document: InputDocument) -> str:
    known = ", ".join(KINDS)
    return f"{document.kind or 'this'} is not a gang; give a Workload, a PodGroup or one of {known}"


def _check_workload(obj: Object, title: str) -> None:
    field = Field(obj)
    read_demand(field)
    _reject_errors(field, title)


def _with_namespace(live: Live, obj: Object, order: int) -> Object:
    meta = obj.get("metadata") if isinstance(obj.get("metadata"), dict) else {}
    assert isinstance(meta, dict)
    name = meta.get("name") or (f"{meta['generateName']}x{order}" if meta.get("generateName") else "")
    if not name:
        raise InvalidSubmission(f"{obj.get('kind') or 'object'} has no name; set metadata.name")
    return {**obj, "metadata": {**meta, "name": name, "namespace": meta.get("namespace") or live.namespace}}


def _accepted(rules: Registry, kind: str, obj: Object, title: str) -> Object:
    """A job after the mutating and validating webhooks."""
    known = KINDS[kind]
    return _checked(rules, (known.group, known.plural), obj, title)


def _checked(rules: Registry, resource: tuple[str, str], obj: Object, title: str) -> Object:
    made = rules.mutated((*resource, "CREATE"), obj, None)
    errors = rules.problems((*resource, "CREATE"), made, None)
    if errors:
        raise InvalidSubmission("\n".join(f"{title}: {error}" for error in errors))
    return made


def _of_job(find: Find, job: Object, title: str) -> Iterator[tuple[Object, str]]:
    """The Workload of a job, or one for each of its replicas."""
    field, meta = Field(job), job["metadata"]
    queue = (meta.get("labels") or {}).get(QUEUE, "")
    spec: Object = {"queueName": queue, "active": True, "podSets": pod_sets(field, find)}
    if not spec["podSets"]:
        raise InvalidSubmission(f"{title} has no pods")
    spec["priority"] = _priority(find, job, spec["podSets"])
    count = min(copies(field), COPIES_MAX)
    for index in range(count):
        name = meta["name"] if count == 1 else f"{meta['name']}-{index}"
        made = {"name": f"{job['kind'].lower()}-{name}", "namespace": meta["namespace"]}
        made |= {"annotations": meta.get("annotations") or {}}
        shown = title if count == 1 else f"{title}, {index + 1} of {count}"
        yield {"apiVersion": API, "kind": "Workload", "metadata": made, "spec": spec}, shown


def _check_job(job: Field, find: Find, title: str) -> None:
    """Validate a job before it is copied into a Workload."""
    job_gang(job, find)
    for part in parts(job, find):
        for key in ("initContainers", "containers"):
            for container in part.template.at("spec", key).items():
                if not isinstance(container.value, dict):
                    container.error(f"must be a mapping, not {type_name(container.value)}")
    _reject_errors(job, title)


def _reject_errors(field: Field, title: str) -> None:
    if field.errors:
        raise InvalidSubmission("\n".join(f"{title}: {error}" for error in field.errors))


def _finder(live: Live, classes: Mapping[tuple[str, str], Object]) -> Find:
    """Look up objects that a job refers to: the default queue, priority classes, a TrainJob's runtime."""
    runtimes = {
        "TrainingRuntime": ("trainingruntimes", True),
        "ClusterTrainingRuntime": ("clustertrainingruntimes", False),
    }

    def find(kind: str, namespace: str, name: str) -> object:
        if kind == LOCAL_QUEUES.kind:
            return live.get(LOCAL_QUEUES, namespace, name)
        if kind in CLASSES:
            found = classes.get((kind, name)) or live.get(CLASSES[kind], "", name)
            if found is None and name not in BUILT_IN:
                raise InvalidSubmission(f"there is no {kind} {name}")
            return found or {"value": BUILT_IN[name]}
        if kind not in runtimes:
            return None
        plural, namespaced = runtimes[kind]
        known = Kind("trainer.kubeflow.org", "v1alpha1", kind, plural, namespaced=namespaced)
        return live.get(known, namespace if namespaced else "", name)

    return find


def _priority(find: Find, job: Object, sets: list[Object]) -> int:
    own = (job["metadata"].get("labels") or {}).get(PRIORITY_CLASS, "")
    if own:
        return _class_value(find, "WorkloadPriorityClass", own)
    of_pods = ((one["template"].get("spec") or {}).get("priorityClassName") for one in sets)
    name = next((found for found in of_pods if found), "")
    return _class_value(find, "PriorityClass", name) if name else 0


def _with_priority(find: Find, workload: Object) -> Object:
    spec = workload["spec"]
    named = spec.get("priorityClassRef") or {}
    if spec.get("priority") is not None or named.get("kind") not in CLASSES:
        return workload
    value = _class_value(find, named["kind"], named.get("name", ""))
    return {**workload, "spec": {**spec, "priority": value}}


def _class_value(find: Find, kind: str, name: str) -> int:
    found: Any = find(kind, "", name)
    return int(found.get("value") or 0)


def _submission(live: Live, workload: Object, title: str, order: int, number: int) -> Submission:
    field = Field(workload)
    queued_gang = read_demand(field, live.settings.resources)
    _reject_errors(field, title)
    source = queued_gang.gang.source
    _check_namespace(live, source.namespace, title)
    live.require_queues()
    _reject_existing(live, title)
    if queued_gang.namespace_queue not in live.state.config.namespace_queues:
        here = sorted(name for space, name in live.state.config.namespace_queues if space == source.namespace)
        known = f"there are {', '.join(here)}" if here else "there is none"
        named = (
            f"there is no LocalQueue {queued_gang.gang.queue}"
            if queued_gang.gang.queue
            else "names no LocalQueue"
        )
        raise InvalidSubmission(f"{title}: {named} in namespace {source.namespace}; {known}")
    gang = replace(queued_gang.gang, uid=f"planned-{number}")
    at = live.now + TICK * number
    planned = replace(queued_gang, gang=gang, created=at, queued=at, admission=None)
    return Submission(title, planned, order)


def _check_namespace(live: Live, namespace: str, title: str) -> None:
    if not live.has_namespace(namespace):
        near = closest(namespace, live.namespaces)
        meant = f"; did you mean {near}?" if near else ""
        raise InvalidSubmission(f"{title}: there is no namespace {namespace}{meant}")


def _exists_already(title: str, namespace: str, name: str) -> str:
    return f"{title} is in the cluster already; see: bayplan explain {namespace}/{name}"


def _reject_existing(live: Live, title: str) -> None:
    """Reject a gang that is in the cluster already."""
    kind, _, rest = title.partition(" ")
    namespace, _, name = rest.partition(",")[0].partition("/")
    for ref, one in live.workloads.items():
        if ref.namespace != namespace:
            continue
        owners = one.get("metadata", {}).get("ownerReferences") or []
        owned = any((o.get("kind"), o.get("name")) == (kind, name) for o in owners)
        if owned or (kind == "Workload" and ref.name == name):
            raise InvalidSubmission(_exists_already(title, namespace, name))
