"""Everything a scheduler reads besides jobs: nodes, pods, gangs, budgets, volumes, services, namespaces."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from bayplan.dialects.api import Event, Happened, Kind
from bayplan.dialects.kube.decode import volumes
from bayplan.dialects.kube.decode.disruption_budget import BUDGETS, budget_of
from bayplan.dialects.kube.decode.pod_spec import company_of
from bayplan.dialects.kube.decode.pod_spec_cache import PodSpecCache
from bayplan.dialects.kube.decode.wire import NODES, PODS_KIND, Metadata, NodeWire, PodWire, Struct, node_of
from bayplan.dialects.kube.fields.times import seconds
from bayplan.dialects.kube.gang.composite_groups import CompositeGroups
from bayplan.dialects.kube.gang.objects import (
    GANG_KINDS,
    WORKLOAD,
    CompositeWire,
    PodGroupWire,
    WorkloadWire,
    composite_charter,
    gang_of,
    group_charter,
    workload_charter,
)
from bayplan.dialects.kube.gang_api.gates import THIRD, VERSIONS
from bayplan.model.change import (
    BudgetLost,
    BudgetSeen,
    Change,
    GangSpecLost,
    GangSpecSeen,
    ImagesSeen,
    NamespaceLost,
    NamespaceSeen,
    NodeLost,
    NodeSeen,
    PodLost,
    PodSeen,
    StorageLost,
    StorageSeen,
)
from bayplan.model.gang import GangSpec, Ref
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import PodSpec, Selector
from bayplan.model.storage import NodeVolumes

SUCCEEDED = "Succeeded"
OVER = (SUCCEEDED, "Failed")
WAITING = (None, "", "Pending")
SCHEDULED = "PodScheduled"
Membership = tuple[Ref, str, int]
"""The gang, the pod set and the rank of a pod."""
Name = tuple[str, str]
"""Namespace and name."""


class ServiceSpec(Struct, frozen=True):
    """Whom a service stands for."""

    selector: dict[str, str] | None = None


class ServiceWire(Struct, frozen=True):
    """A Service."""

    metadata: Metadata = Metadata()
    spec: ServiceSpec = ServiceSpec()


class NamespaceWire(Struct, frozen=True):
    """A Namespace."""

    metadata: Metadata = Metadata()


SERVICES = Kind("", "v1", "Service", "services", wire=ServiceWire)
NAMESPACES = Kind("", "v1", "Namespace", "namespaces", namespaced=False, wire=NamespaceWire)
STORAGE_KINDS = (volumes.CLAIMS, volumes.VOLUMES, volumes.CLASSES, volumes.CSI_NODES, volumes.STORE_ROOMS)
KINDS = (NODES, PODS_KIND, *GANG_KINDS, BUDGETS, *STORAGE_KINDS, SERVICES, NAMESPACES)


class SchedulingDecoder:
    """Turns events into changes. Remembers what several objects say together: gangs, services.

    `names` are the schedulers that we are; `job_of` says which job a pod belongs to.
    """

    def __init__(self, names: Collection[str], job_of: Callable[[PodWire], Membership | None]) -> None:
        self.names, self.job_of = frozenset(names), job_of
        self.shapes = PodSpecCache()
        self.pods: dict[PodKey, Pod] = {}  # as last told
        self.waiting: dict[str, dict[PodKey, PodWire]] = {}  # ours without a node, by namespace
        self.services: dict[str, dict[str, Mapping[str, str] | None]] = {}  # by namespace
        self.workloads: dict[Name, WorkloadWire] = {}
        self.copies: dict[Name, dict[Ref, set[PodKey]]] = {}  # of groups of a Workload, as pods name them
        self.groups: dict[Ref, dict[str, GangSpec]] = {}  # by version: more than one may be served
        self.forest = CompositeGroups()
        self.claim_uids: dict[Name, str] = {}
        self.volume_versions: dict[str, str] = {}
        self.images: dict[str, Mapping[str, int]] = {}  # by node, as last told

    def decode(self, event: Event) -> Iterator[Change]:
        """What an event means to us."""
        return self.forest.follow(self._decode(event))

    def gathered(self) -> Iterator[Change]:
        """What only all that happened says together. Asked once after many events."""
        return self.forest.gathered()

    def _decode(self, event: Event) -> Iterator[Change]:
        if event.happened is Happened.SYNCED:
            return
        gone, found, meta = event.happened is Happened.GONE, event.object, event.object.metadata
        match event.kind.kind:
            case "Pod":
                yield from self._pod_gone(found) if gone else self._pod(found)
            case "Node":
                yield from self._node(found, gone)
            case "Workload":
                yield from self._workload(found, gone)
            case "PodGroup":
                yield from self._group(found, event.kind.version, gone)
            case "CompositePodGroup":
                self._composite(found, gone)
            case "PodDisruptionBudget":
                budget = budget_of(found)
                yield BudgetLost(budget.namespace, budget.name) if gone else BudgetSeen(budget)
            case "Service":
                yield from self._service(found, gone)
            case "Namespace":
                yield NamespaceLost(meta.name) if gone else NamespaceSeen(meta.name, meta.labels or {})
            case kind:
                self._note(kind, meta, gone)
                yield from _storage(kind, found, gone)

    def newest(self, ref: Ref) -> str:
        """The newest version in which a PodGroup is served; empty if it is in none."""
        return max(self.groups.get(ref, ()), key=VERSIONS.index, default="")

    def _note(self, kind: str, meta: Metadata, gone: bool) -> None:
        """What is needed to write to claims and volumes."""
        if kind == volumes.CLAIMS.kind:
            self.claim_uids[meta.namespace or "default", meta.name] = meta.uid
            if gone:
                del self.claim_uids[meta.namespace or "default", meta.name]
        elif kind == volumes.VOLUMES.kind:
            self.volume_versions[meta.name] = meta.resource_version
            if gone:
                del self.volume_versions[meta.name]

    def _node(self, wire: NodeWire, gone: bool) -> Iterator[Change]:
        name = wire.metadata.name
        if gone:
            self.images.pop(name, None)
            yield NodeLost(name)
            return
        yield NodeSeen(node_of(wire))
        images = {n: one.size_bytes or 0 for one in wire.status.images or () for n in one.names or ()}
        if self.images.get(name, {}) != images:
            self.images[name] = images
            yield ImagesSeen(name, images)

    def _pod(self, wire: PodWire) -> Iterator[Change]:
        key = _key(wire)
        pod, before = self._read(key, wire), self.pods.get(key)
        if before == pod:
            return
        if before is not None and before.uid != pod.uid:
            yield from self._pod_gone(wire)
        elif before is not None and before.gang != pod.gang:
            yield from self._copy_left(before)
        self.pods[key] = pod
        if pod.waits:
            self.waiting.setdefault(key.namespace, {})[key] = wire
        else:
            self._waits_no_more(key)
        if pod.gang is not None and pod.gang.kind == WORKLOAD:
            yield from self._copy(pod.gang, key)
        yield PodSeen(pod)

    def _pod_gone(self, wire: PodWire) -> Iterator[Change]:
        key = _key(wire)
        self._waits_no_more(key)
        pod = self.pods.pop(key, None)
        yield PodLost(key)
        if pod is not None:
            yield from self._copy_left(pod)

    def _waits_no_more(self, key: PodKey) -> None:
        there = self.waiting.get(key.namespace, {})
        there.pop(key, None)
        if not there:
            self.waiting.pop(key.namespace, None)

    def _copy_left(self, pod: Pod) -> Iterator[Change]:
        """A pod names its copy of a group no more; the last one to do so takes the rules with it."""
        if pod.gang is None or pod.gang.kind != WORKLOAD:
            return
        name = _workload_name(pod.gang)
        copies = self.copies.get(name, {})
        pods = copies.get(pod.gang, set())
        pods.discard(pod.key)
        if not pods and copies.pop(pod.gang, None) is not None:
            if not copies:
                del self.copies[name]
            yield GangSpecLost(pod.gang)

    def _read(self, key: PodKey, wire: PodWire) -> Pod:
        meta, spec, status = wire.metadata, wire.spec, wire.status
        ours, node, phase = spec.scheduler_name in self.names, spec.node_name or "", status.phase
        gang, pod_set, rank = gang_of(wire), "", 0
        if gang is None and ours:
            gang, pod_set, rank = self.job_of(wire) or (None, "", 0)
        company = self._company(wire) if ours and not node else None
        shape, amounts = self.shapes.of(wire, company)
        wants = PodSpec(
            shape,
            spec.priority or 0,
            spec.preemption_policy != "Never",
            status.nominated_node_name or "",
            tuple(gate.name for gate in spec.scheduling_gates or ()),
        )
        return Pod(
            key=key,
            uid=meta.uid,
            amounts=amounts,
            node=node,
            over=phase in OVER,
            succeeded=phase == SUCCEEDED,
            leaving=meta.deletion_timestamp is not None,
            gang=gang,
            pod_set=pod_set,
            rank=rank,
            wants=wants,
            ours=ours,
            created=seconds(meta.creation_timestamp or ""),
            started=seconds(status.start_time or ""),
            told=_told(wire) if ours and not node else "",
            up=bool(node) and phase not in WAITING,
            scheduler=spec.scheduler_name or "" if ours else "",
        )

    def _company(self, wire: PodWire) -> Selector | None:
        services = self.services.get(wire.metadata.namespace or "default")
        if not services or wire.spec.topology_spread_constraints:
            return None
        return company_of(wire.metadata.labels or {}, services.values())

    def _copy(self, ref: Ref, key: PodKey) -> Iterator[Change]:
        """A pod names a copy of a group; the first one to do so brings its rules to light."""
        name = _workload_name(ref)
        copies = self.copies.setdefault(name, {})
        if ref not in copies and name in self.workloads:
            yield GangSpecSeen(workload_charter(self.workloads[name], ref))
        copies.setdefault(ref, set()).add(key)

    def _workload(self, wire: WorkloadWire, gone: bool) -> Iterator[Change]:
        name = (wire.metadata.namespace or "default", wire.metadata.name)
        if gone:
            self.workloads.pop(name, None)
        else:
            self.workloads[name] = wire
        for ref in self.copies.get(name, ()):
            yield GangSpecLost(ref) if gone else GangSpecSeen(workload_charter(wire, ref))

    def _group(self, wire: PodGroupWire, version: str, gone: bool) -> Iterator[Change]:
        charter = group_charter(wire)
        ref = charter.source
        before, known = self._charter(ref), self.groups.setdefault(ref, {})
        if gone:
            known.pop(version, None)
        else:
            known[version] = charter
        now, parent = self._charter(ref), wire.spec.parent_composite_pod_group_name or ""
        if now is None:
            del self.groups[ref]
            self.forest.lost(ref)
            yield GangSpecLost(ref)
            return
        if version == self.newest(ref):
            self.forest.seen(ref, parent, now, exact=version == THIRD)
        if self.forest.root_of(ref) != ref:
            yield GangSpecLost(ref)  # it is a part of another gang
        elif now != before:
            yield GangSpecSeen(now)

    def _composite(self, wire: CompositeWire, gone: bool) -> None:
        charter = composite_charter(wire)
        if gone:
            self.forest.lost(charter.source)
        else:
            self.forest.seen(charter.source, wire.spec.parent_composite_pod_group_name or "", charter)

    def _charter(self, ref: Ref) -> GangSpec | None:
        return self.groups.get(ref, {}).get(self.newest(ref))

    def _service(self, wire: ServiceWire, gone: bool) -> Iterator[Change]:
        """Whom a service puts together may change for every pod that still waits there."""
        namespace = wire.metadata.namespace or "default"
        services = self.services.setdefault(namespace, {})
        if gone:
            services.pop(wire.metadata.name, None)
        elif services.get(wire.metadata.name, {}) != wire.spec.selector:
            services[wire.metadata.name] = wire.spec.selector
        else:
            return
        for waiting in list(self.waiting.get(namespace, {}).values()):
            yield from self._pod(waiting)


def _key(wire: PodWire) -> PodKey:
    return PodKey(wire.metadata.namespace or "default", wire.metadata.name)


def _workload_name(ref: Ref) -> Name:
    return ref.namespace, ref.name.partition("/")[0]


def _told(wire: PodWire) -> str:
    for one in wire.status.conditions or ():
        if one.type == SCHEDULED and one.status == "False":
            return one.message or ""
    return ""


def _storage(kind: str, wire: Any, gone: bool) -> Iterator[Change]:
    name = wire.metadata.name
    own = f"{wire.metadata.namespace or 'default'}/{name}"
    match kind:
        case "PersistentVolumeClaim":
            yield StorageLost("VolumeClaim", own) if gone else StorageSeen(volumes.claim_of(wire))
        case "PersistentVolume":
            yield StorageLost("Volume", name) if gone else StorageSeen(volumes.volume_of(wire))
        case "StorageClass":
            yield StorageLost("StorageClass", name) if gone else StorageSeen(volumes.class_of(wire))
        case "CSINode":
            limits = NodeVolumes(name, volumes.limits_of(wire))
            yield StorageLost("NodeVolumes", name) if gone else StorageSeen(limits)
        case "CSIStorageCapacity":
            room = volumes.store_room_of(wire)
            yield StorageLost("StoreRoom", own) if gone else StorageSeen(room, own)
