"""The cache of the jobs controller: jobs, Workloads, pods and their owners, as last seen in the API."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from bayplan.dialects.api import Event, Happened, Kind
from bayplan.dialects.jobs.kinds import AHEAD, KINDS, RECONCILED
from bayplan.dialects.kube.decode.wire import PODS_KIND, PodWire
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.job_rules import prebuilt_name
from bayplan.dialects.kueue.fields.pod_rules import group_name
from bayplan.dialects.kueue.jobs.reconcile_pods import PODS
from bayplan.dialects.kueue.jobs.reconcile_serving import parent_kind
from bayplan.dialects.kueue.jobs.writes import controller, owners
from bayplan.dialects.kueue.names.annotations import IS_GROUP_WORKLOAD, QUEUE, WORKLOAD_NAME
from bayplan.dialects.kueue.names.api_kinds import FLAVORS, WORKLOADS
from bayplan.dialects.kueue.names.feature_switches import RULES
from bayplan.runtime.controllers.jobs.memory import JobKey, JobMemory
from bayplan.runtime.core.object_cache import DELETED_MAX, Key, Object, is_newer, key_of, uid_of

GROUP = "PodGroup"
"""The kind of a unit that is a group of pods."""
JOINING = "Joining"
"""The kind of a unit that is a pod joining the Workload of its owner."""
OVER = ("Succeeded", "Failed")

_FOLLOWING: dict[str, tuple[str, ...]] = {}
"""Kinds whose jobs follow the size of a child, by the kind of the child."""
for _entry in KINDS.values():
    if _entry.resizing is not None and _entry.resizing.child:
        _child = _entry.resizing.child
        _FOLLOWING[_child] = (*_FOLLOWING.get(_child, ()), _entry.kind)
CLASSES = (
    Kind("kueue.x-k8s.io", "v1beta2", "WorkloadPriorityClass", "workloadpriorityclasses", namespaced=False),
    Kind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False),
)
_REFERRED_BY = {entry.kind: [kind.kind for kind in entry.references] for entry in KINDS.values()}
REFERRED = tuple(dict.fromkeys(kind for entry in KINDS.values() for kind in entry.references))
LOOKED_UP = (FLAVORS, *CLASSES, *REFERRED)
WATCHED = (*RECONCILED, WORKLOADS, PODS, PODS_KIND, *LOOKED_UP)


class JobsCache:
    """Objects by name; a unit is what is reconciled at once."""

    def __init__(self) -> None:
        self.jobs: dict[JobKey, Object] = {}
        self.workloads: dict[Key, Object] = {}
        self.pods: dict[Key, Object] = {}
        self.joining: dict[Key, PodWire] = {}
        self.others: dict[JobKey, Object] = {}
        self.bound_pods: dict[
            Key, set[str]
        ] = {}  # by Workload: pods that are bound to nodes and not finished
        self._bound_for: dict[Key, str] = {}  # the same by pod
        self.groups: dict[Key, dict[Key, None]] = {}
        self.owned: dict[JobKey, dict[Key, None]] = {}  # Workloads by kind and name of their owner
        self.flavors: dict[str, Object] = {}
        self.known_kinds: set[str] = set()  # kinds whose initial list is complete
        self.memory = JobMemory()
        self._deleted: deque[str] = deque(maxlen=DELETED_MAX)  # uids

    def note(self, event: Event) -> Iterator[JobKey]:
        """Apply an event; returns the units it affects."""
        if event.happened is Happened.SYNCED:
            self.known_kinds.add(event.kind.kind)
            if event.kind in RECONCILED:
                yield from list(self.owned)
            return
        gone = event.happened is Happened.GONE
        if event.kind == PODS_KIND:
            yield from self._note_joining(event.object, gone)
            yield from self._count_bound(event.object, gone)
        elif event.kind in LOOKED_UP:
            yield from self._note_other(event.kind.kind, event.object, gone)
        elif gone or self._find(event.kind, key_of(event.kind, event.object)) != event.object:
            yield from self.put(event.kind, event.object, gone=gone)

    def take_answer(self, kind: Kind, answer: object, *, created: bool) -> list[JobKey]:
        """Take the response of a write as the newest object, unless a newer one is known.

        Returns the units it affects; the watch event that repeats it affects none.
        """
        if isinstance(answer, dict) and "metadata" in answer:
            known = self._find(kind, key_of(kind, answer))
            if is_newer(answer, known, self._deleted if created else None):
                return list(self.put(kind, answer))
        return []

    def mark_terminating(self, kind: Kind, key: Key, when: str) -> None:
        """Mark an object as terminating, before the watch reports it."""
        known = self._find(kind, key)
        if known is not None and not known["metadata"].get("deletionTimestamp"):
            meta = {**known["metadata"], "deletionTimestamp": when}
            list(self.put(kind, {**known, "metadata": meta}))

    def put(self, kind: Kind, obj: Object, *, gone: bool = False) -> Iterator[JobKey]:
        """Cache a job, a Workload or a pod."""
        key = key_of(kind, obj)
        if gone:
            self._deleted.append(uid_of(obj))
        if kind == WORKLOADS:
            yield from self._note_workload(key, obj, gone)
        elif kind == PODS:
            yield from self._note_pod(key, obj, gone)
        else:
            unit = (kind.kind, *key)
            if gone:
                self.jobs.pop(unit, None)
                self.memory.forget(unit)
            else:
                self.jobs[unit] = {**obj, "apiVersion": kind.api_version, "kind": kind.kind}
            yield unit
            boss = controller(obj) if kind.kind in _FOLLOWING else None
            if boss is not None and boss.get("kind") in _FOLLOWING[kind.kind]:
                yield (boss["kind"], key[0], boss.get("name", ""))
            if kind.kind in AHEAD:
                yield from self._joining_to(unit)

    def find(self, kind: str, namespace: str, name: str) -> object:
        """An object that jobs refer to by name."""
        return self.others.get((kind, namespace, name)) or self.jobs.get((kind, namespace, name))

    def has_bound_pods(self, namespace: str, name: str) -> bool:
        """Whether a Workload has pods that are bound to nodes and not finished."""
        return (namespace, name) in self.bound_pods

    def workloads_of(self, unit: JobKey) -> list[Object]:
        """The Workloads of this owner, by name."""
        return [self.workloads[key] for key in sorted(self.owned.get(unit, ()))]

    def top(self, job: Object) -> Object | None:
        """The topmost owner of a job that has a queue."""
        found, seen = None, set()
        while (boss := controller(job)) is not None and boss.get("uid") not in seen:
            seen.add(boss.get("uid"))
            unit = (boss.get("kind", ""), job["metadata"].get("namespace", "default"), boss.get("name", ""))
            above = self.jobs.get(unit)
            if above is None or above["metadata"].get("uid") != boss.get("uid"):
                break
            if (above["metadata"].get("labels") or {}).get(QUEUE):
                found = above
            job = above
        return found

    def parent(self, pod: PodWire) -> Object | None:
        """The object whose Workload a pod has yet to join."""
        kind, meta = parent_kind(pod), pod.metadata
        serving = KINDS[kind].serving if kind else None
        if serving is None:
            return None
        if serving.owner_label:
            name = (meta.labels or {}).get(serving.owner_label, "")
        else:
            refs = [one for one in meta.owner_references or () if one.kind == kind and one.controller]
            name = refs[0].name if refs else ""
        return self.jobs.get((kind, meta.namespace or "default", name))

    def _find(self, kind: Kind, key: Key) -> Object | None:
        if kind == WORKLOADS:
            return self.workloads.get(key)
        return self.pods.get(key) if kind == PODS else self.jobs.get((kind.kind, *key))

    def _note_workload(self, key: Key, workload: Object, gone: bool) -> Iterator[JobKey]:
        before = self.workloads.pop(key, None)
        for unit in owner_units(before) if before is not None else ():
            self.owned.get(unit, {}).pop(key, None)
            if not self.owned.get(unit, True):
                del self.owned[unit]
            yield unit
        for unit in owner_units(workload):
            if not gone:
                self.owned.setdefault(unit, {})[key] = None
            yield unit
        if not gone:
            self.workloads[key] = {**workload, "spec": workload.get("spec") or {}}  # the API requires no spec
        notes = workload["metadata"].get("annotations") or {}
        if notes.get(IS_GROUP_WORKLOAD) == "true" or key in self.groups:
            yield (GROUP, *key)

    def _note_pod(self, key: Key, pod: Object, gone: bool) -> Iterator[JobKey]:
        """Index a pod; it may name another group than before, even in its deletion event."""
        before = self.pods.pop(key, None)
        then = "" if before is None else group_name(Field(before), RULES).text()
        group = group_name(Field(pod), RULES).text()
        if then and (gone or then != group):
            below = self.groups.get((key[0], then), {})
            below.pop(key, None)
            if not below:
                self.groups.pop((key[0], then), None)
        if not gone:
            self.pods[key] = {**pod, "apiVersion": "v1", "kind": "Pod"}
            if group:
                self.groups.setdefault((key[0], group), {})[key] = None
        for name in dict.fromkeys((then, group) if before is not None else (group,)):
            yield (GROUP, key[0], name) if name else ("Pod", *key)

    def _note_joining(self, pod: PodWire, gone: bool) -> Iterator[JobKey]:
        key = (pod.metadata.namespace or "default", pod.metadata.name)
        if gone or not parent_kind(pod):
            self.joining.pop(key, None)
        else:
            self.joining[key] = pod
            yield (JOINING, *key)

    def _count_bound(self, pod: PodWire, gone: bool) -> Iterator[JobKey]:
        """Count a pod for the Workload that it names now, whatever it named before."""
        namespace, name = pod.metadata.namespace or "default", pod.metadata.name
        over = gone or pod.metadata.deletion_timestamp is not None or pod.status.phase in OVER
        stands = not over and not pod.spec.scheduling_gates
        workload = (pod.metadata.annotations or {}).get(WORKLOAD_NAME, "") if stands else ""
        before = self._bound_for.pop((namespace, name), "")
        if workload:
            self._bound_for[namespace, name] = workload
            self.bound_pods.setdefault((namespace, workload), set()).add(name)
        if before and before != workload:
            key = (namespace, before)
            self.bound_pods[key].discard(name)
            if not self.bound_pods[key]:
                del self.bound_pods[key]
                yield from owner_units(self.workloads[key]) if key in self.workloads else ()

    def _joining_to(self, unit: JobKey) -> Iterator[JobKey]:
        for key, pod in self.joining.items():
            if key[0] == unit[1] and parent_kind(pod) == unit[0]:
                yield (JOINING, *key)

    def _note_other(self, kind: str, obj: Object, gone: bool) -> Iterator[JobKey]:
        meta = obj["metadata"]
        objects: dict[Any, Object] = self.flavors if kind == FLAVORS.kind else self.others
        name = meta["name"] if kind == FLAVORS.kind else (kind, meta.get("namespace", ""), meta["name"])
        if gone:
            objects.pop(name, None)
            return
        news = name not in objects
        objects[name] = obj
        if news and kind == FLAVORS.kind:  # a job may wait for the flavor to start
            yield from list(self.owned)
            yield from ((GROUP, *key) for key in list(self.groups))
        elif news:
            yield from (unit for unit in list(self.jobs) if kind in _REFERRED_BY.get(unit[0], ()))


def named_workload(job: Object) -> str:
    """The Workload that a job names itself."""
    return prebuilt_name(Field(job), RULES).text()


def owner_units(workload: Object) -> list[JobKey]:
    """The jobs that own a Workload."""
    namespace = workload["metadata"].get("namespace", "default")
    found = []
    for one in owners(workload):
        entry = KINDS.get(one.get("kind", ""))
        if entry is not None and str(one.get("apiVersion", "")).rpartition("/")[0] == entry.group:
            found.append((str(one["kind"]), namespace, str(one.get("name", ""))))
    return found
