"""Which gang of `list gangs` a pod is shown in: its Workload, its pod group, its job, or its controller."""

from __future__ import annotations

from typing import Any

from bayplan.cli.live.scheduled_state import Scheduled
from bayplan.cli.live.state import Live
from bayplan.dashboard.host_map import GangKey
from bayplan.dialects.jobs.batch_jobs import JOB_SET, JOB_SET_NAME
from bayplan.dialects.kueue.names.annotations import POD_GROUP, WORKLOAD_NAME
from bayplan.dialects.kueue.status.conditions import FINISHED, is_true
from bayplan.explanation.text import shown_name
from bayplan.model.pod import Pod


class GangOwners:
    """Looks up the gangs of pods. Made once for each state of the cluster."""

    def __init__(self, live: Live, scheduled: Scheduled) -> None:
        self._live, self._scheduled = live, scheduled
        self.known: frozenset[GangKey] | None = None  # gangs that are listed; None: any
        self._workloads: dict[tuple[str, str, str], GangKey] = {}  # by kind, namespace and name of the owner
        for ref, one in live.workloads.items():
            if is_true(one, FINISHED):
                continue
            key = GangKey(ref.namespace, "Workload", ref.name)
            for owner in one.get("metadata", {}).get("ownerReferences") or []:
                self._workloads[str(owner.get("kind")), ref.namespace, str(owner.get("name"))] = key

    def key_of(self, pod: Pod) -> GangKey | None:
        """The gang that a pod is shown in; None if it belongs to none that is listed."""
        key = self._key(pod)
        return key if self.known is None or key in self.known else None

    def pods(self, key: GangKey) -> list[dict[str, Any]]:
        """The unfinished pods of a gang by rank: name, pod set, rank and node."""
        store = self._scheduled.controller.state.store
        pods = [store.placed.get(name, pod) for name, pod in store.pods.items() if not pod.finished]
        mine = [pod for pod in pods if self._key(pod) == key]
        mine.sort(key=lambda pod: (pod.pod_set, pod.rank, pod.key.name))
        return [
            {"name": pod.key.name, "podSet": pod.pod_set, "rank": pod.rank, "node": pod.node or None}
            for pod in mine
        ]

    def _key(self, pod: Pod) -> GangKey | None:
        namespace = pod.key.namespace
        if pod.slot is not None:
            return GangKey(pod.slot.gang.namespace, pod.slot.gang.kind, pod.slot.gang.name)
        if pod.gang is not None:
            gang = pod.gang
            found = self._workloads.get((gang.kind, namespace, gang.name))
            if found is not None:
                return found
            if gang.kind != "Pod":
                return GangKey(namespace, gang.kind, shown_name(gang))
        return self._by_objects(pod)

    def _by_objects(self, pod: Pod) -> GangKey | None:
        """By what the pod itself names: a Workload, a group in a queue, a JobSet, or the controller."""
        wire = self._scheduled.pods.get(pod.key)
        namespace = pod.key.namespace
        meta = wire.metadata if wire is not None else None
        labels, notes = (meta.labels or {}, meta.annotations or {}) if meta is not None else ({}, {})
        for name in (notes.get(WORKLOAD_NAME), notes.get(POD_GROUP), labels.get(POD_GROUP)):
            key = GangKey(namespace, "Workload", name or "")
            if name and (self.known is None or key in self.known):
                return key
        if (job_set := labels.get(JOB_SET_NAME)) and (JOB_SET.kind, namespace, job_set) in self._workloads:
            return self._workloads[JOB_SET.kind, namespace, job_set]
        owner = self._scheduled.owner(pod.key)
        kind, name = ("Pod", pod.key.name) if owner is None else (owner.kind, owner.name)
        return self._workloads.get((kind, namespace, name), GangKey(namespace, kind, name))
