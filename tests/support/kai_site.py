"""A cluster in memory with racks, pod groups and queues, in virtual time."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from bayplan.backends.definitions import DEFINITIONS, define
from bayplan.backends.embedded.cluster import new_store
from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.backends.fake_controllers.definitions import schemaless_crd
from bayplan.dialects.api import Kind
from bayplan.dialects.kai.api.names import POD_GROUP, POD_GROUP_NAME, QUEUE, SUB_GROUP_NAME, TOPOLOGY
from bayplan.dialects.kai.grouper.owner_kinds import OWNER_KINDS
from bayplan.runtime.controllers.pod_grouper.controller import PodGrouperController
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.core.controller import Controller
from bayplan.runtime.core.journal import FileJournal, MemoryJournal
from bayplan.runtime.core.loop import Loop
from tests.support.pod_site import NODES, PODS, START, Object, PodSite

CLASSES = Kind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False)
OPERATED = ("PyTorchJob", "XGBoostJob")
ZONE, RACK = "example.com/zone", "example.com/rack"


class Site(PodSite):
    """Racks of nodes with 2 CPUs; `racks` gives their number in each rack, two racks to a zone."""

    def __init__(
        self,
        racks: Sequence[int] = (2, 2),
        *,
        defined: bool = True,
        grouper: PodGrouperController | None = None,
        journal: FileJournal | None = None,
    ) -> None:
        self.now = START
        numbers = itertools.count(1)
        self.store = new_store(
            lambda: self.now, lambda: f"uid-{next(numbers)}", lambda: f"{next(numbers):05d}"
        )
        if defined:
            define(self.store)
        for rack, count in enumerate(racks):
            for number in range(count):
                self.node(f"r{rack}-n{number}", f"r{rack}", f"z{rack // 2}")
        operated = [one for one in OWNER_KINDS if one.kind in OPERATED] if grouper else []
        for kind in operated:
            self.store.create(DEFINITIONS, schemaless_crd(kind))
        self.role = SchedulerController(awaits_grouper=grouper is not None)
        self.journal = journal or MemoryJournal()
        roles: tuple[Controller, ...] = (self.role,) if grouper is None else (grouper, self.role)
        self.loop = Loop(EmbeddedBackend(self.store), roles, self.journal)

    def node(self, name: str, rack: str, zone: str, cpu: int = 2) -> None:
        amounts = {"cpu": str(cpu), "memory": "64Gi", "pods": "110"}
        labels = {"kubernetes.io/hostname": name, RACK: rack, ZONE: zone}
        ready = [{"type": "Ready", "status": "True"}]
        status = {"allocatable": amounts, "capacity": amounts, "conditions": ready}
        self.store.create(NODES, {"metadata": {"name": name, "labels": labels}, "status": status})

    def topology(self, name: str = "hall", levels: Sequence[str] = (ZONE, RACK)) -> None:
        self._create(TOPOLOGY, name, {"levels": [{"nodeLabel": level} for level in levels]})

    def queue(self, name: str, **spec: Any) -> None:
        self._create(QUEUE, name, spec)

    def group(self, name: str, **spec: Any) -> None:
        self._create(POD_GROUP, name, spec)

    def pod(
        self, name: str, group: str = "", sub_group: str = "", cpu: int = 1,
        labels: Mapping[str, str] | None = None, owner: Object | None = None,
        notes: Mapping[str, str] | None = None, **spec: Any,
    ) -> None:  # fmt: skip
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": str(cpu)}}}
        meta: Object = {"name": name, "labels": dict(labels or {}), "annotations": dict(notes or {})}
        if group:
            meta["annotations"][POD_GROUP_NAME] = group
        if sub_group:
            meta["labels"][SUB_GROUP_NAME] = sub_group
        if owner:
            meta["ownerReferences"] = [owner]
        whole = {"schedulerName": "bayplan", "containers": [container], **spec}
        self.store.create(PODS, {"metadata": meta, "spec": whole}, "default")

    def phase(self, name: str, phase: str) -> None:
        self.store.patch(PODS, "default", name, {"status": {"phase": phase}}, subresource="status")

    def run(self, seconds: float = 2.0) -> None:
        super().run(seconds)

    def racks(self, *names: str) -> list[str]:
        return [node.partition("-")[0] for node in self.on(*names)]

    def status(self, name: str) -> Object:
        found: Object = self.store.get(POD_GROUP, "default", name).get("status") or {}
        return found

    def waits(self, name: str) -> tuple[str, str]:
        """Reason and message of why a group waits."""
        said = self.status(name).get("schedulingConditions") or [{}]
        return said[0].get("reason", ""), said[0].get("message", "")

    def said(self, name: str) -> str:
        """Why a pod waits."""
        conditions = self.get(name).get("status", {}).get("conditions") or ()
        return next((one["message"] for one in conditions if one["type"] == "PodScheduled"), "")

    def owner(self, kind: str, name: str, spec: Object, **meta: Any) -> Object:
        """Make a job of a kind; a reference to it, for its pods."""
        where = next(one for one in OWNER_KINDS if one.kind == kind)
        body = {"metadata": {"name": name, **meta}, "spec": spec}
        made = self.store.create(where, body, "default")
        uid = made["metadata"]["uid"]
        return {"apiVersion": where.api_version, "kind": kind, "name": name, "uid": uid, "controller": True}

    def _create(self, kind: Kind, name: str, spec: Object) -> None:
        namespace = "default" if kind.namespaced else ""
        self.store.create(kind, {"metadata": {"name": name}, "spec": spec}, namespace)
