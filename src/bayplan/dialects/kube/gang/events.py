"""Decoding of watch events for scheduling: nodes, pods, gangs, budgets, volumes, services, namespaces."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from sys import intern

from bayplan.dialects.api import Event, Happened, Kind
from bayplan.dialects.dialect import Membership
from bayplan.dialects.kube.decode import volumes
from bayplan.dialects.kube.decode.disruption_budget import BUDGETS, budget_of
from bayplan.dialects.kube.decode.pod_identity import node_name, pod_key
from bayplan.dialects.kube.decode.pod_spec import default_spread_selector
from bayplan.dialects.kube.decode.pod_spec_cache import PodSpecCache, PodSpecTemplate
from bayplan.dialects.kube.decode.wire import NODES, PODS_KIND, Metadata, NodeWire, PodWire, Struct, node_of
from bayplan.dialects.kube.devices import objects as device_objects
from bayplan.dialects.kube.devices.objects import NO_NEED, DeviceNeed, DeviceObjects
from bayplan.dialects.kube.fields.times import seconds
from bayplan.dialects.kube.gang.composite_groups import CompositeGroups
from bayplan.dialects.kube.gang.objects import (
    GANG_KINDS,
    WORKLOAD,
    CompositeWire,
    PodGroupWire,
    WorkloadWire,
    composite_spec,
    gang_of,
    pending_message,
    pod_group_spec,
    workload_group_spec,
)
from bayplan.dialects.kube.gang_api.gates import V1BETA1, VERSIONS
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
)
from bayplan.model.gang import GangSpec, Ref
from bayplan.model.pod import Pod, PodKey, Slot
from bayplan.model.pod_spec import Selector

SUCCEEDED = "Succeeded"
FINISHED = (SUCCEEDED, "Failed")
NOT_STARTED = (None, "", "Pending")
SCHEDULED = "PodScheduled"
"""The gang, the pod set and the rank of a pod."""
Name = tuple[str, str]
"""Namespace and name."""


class ServiceSpec(Struct, frozen=True):
    """The spec of a Service."""

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
KINDS = (
    *(NODES, PODS_KIND, *GANG_KINDS, BUDGETS, *volumes.KINDS, SERVICES, NAMESPACES),
    *device_objects.KINDS,
)


class SchedulingDecoder:
    """Turns watch events into changes; keeps the objects that depend on each other.

    `names` are our scheduler names; `job_of` returns the job of a pod, `slot_of` its slot.
    """

    def __init__(
        self,
        names: Collection[str],
        job_of: Callable[[PodWire], Membership | None],
        slot_of: Callable[[PodWire], Slot | None] = lambda wire: None,
        pod_specs: PodSpecCache | None = None,
    ) -> None:
        self.names, self.job_of, self.slot_of = frozenset(names), job_of, slot_of
        self.pod_specs = pod_specs or PodSpecCache()
        self.pods: dict[PodKey, Pod] = {}  # as last published
        self.pending: dict[str, dict[PodKey, PodWire]] = {}  # our pods without a node, by namespace
        self.services: dict[str, dict[str, Mapping[str, str] | None]] = {}  # by namespace
        self.workloads: dict[Name, WorkloadWire] = {}
        self.replicas: dict[
            Name, dict[Ref, set[PodKey]]
        ] = {}  # replicas of groups of a Workload, as pods name them
        self.groups: dict[Ref, dict[str, GangSpec]] = {}  # by version: several may be served
        self.pending_messages: dict[Ref, str] = {}  # of PodGroups: what their scheduling condition says
        self.composites = CompositeGroups()
        self.claim_uids: dict[Name, str] = {}
        self.volume_versions: dict[str, str] = {}
        self.images: dict[str, Mapping[str, int]] = {}  # by node, as last published
        self.devices = DeviceObjects()

    def decode(self, event: Event) -> Iterator[Change]:
        """The changes that an event means."""
        return self.composites.position_pods(self._decode(event))

    def flush(self) -> Iterator[Change]:
        """The changes that depend on several objects. Called once after a batch of events."""
        return self.composites.flush()

    def _decode(self, event: Event) -> Iterator[Change]:
        if event.happened is Happened.SYNCED:
            if self.devices.synced(event):
                yield from self._pods_again(sorted(self.devices.waiting, key=str))
            return
        gone, obj, meta = event.happened is Happened.GONE, event.object, event.object.metadata
        match event.kind.kind:
            case "Pod":
                key = event.once(pod_key)
                if gone:
                    yield from self._pod_gone(key)
                else:
                    yield from self._pod(key, obj, event.once(self.pod_specs.template_of))
            case "Node":
                yield from self._node(event, gone)
            case "Workload":
                yield from self._workload(obj, gone)
            case "PodGroup":
                yield from self._group(obj, event.kind.version, gone)
            case "CompositePodGroup":
                self._composite(obj, gone)
            case "PodDisruptionBudget":
                budget = budget_of(obj)
                yield BudgetLost(budget.namespace, budget.name) if gone else BudgetSeen(budget)
            case "Service":
                yield from self._service(obj, gone)
            case "Namespace":
                yield NamespaceLost(meta.name) if gone else NamespaceSeen(meta.name, meta.labels or {})
            case "ResourceClaim" | "DeviceClass" | "ResourceSlice" | "DeviceTaintRule":
                yield from self._device_object(event)
            case kind:
                self._keep_for_writes(kind, meta, gone)
                yield from volumes.storage_changes(kind, obj, gone)

    def newest(self, ref: Ref) -> str:
        """The newest version in which a PodGroup is served; empty if there is none."""
        return max(self.groups.get(ref, ()), key=VERSIONS.index, default="")

    def _keep_for_writes(self, kind: str, meta: Metadata, gone: bool) -> None:
        """Keep what is needed to write to claims and volumes."""
        if kind == volumes.CLAIMS.kind:
            self.claim_uids[meta.namespace or "default", meta.name] = meta.uid
            if gone:
                del self.claim_uids[meta.namespace or "default", meta.name]
        elif kind == volumes.VOLUMES.kind:
            self.volume_versions[meta.name] = meta.resource_version
            if gone:
                del self.volume_versions[meta.name]

    def _node(self, event: Event, gone: bool) -> Iterator[Change]:
        wire: NodeWire = event.object
        name = wire.metadata.name
        if gone:
            self.images.pop(name, None)
            yield NodeLost(name)
            return
        yield NodeSeen(event.once(node_of))
        images = {n: one.size_bytes or 0 for one in wire.status.images or () for n in one.names or ()}
        if self.images.get(name, {}) != images:
            self.images[name] = images
            yield ImagesSeen(name, images)

    def _pod(self, key: PodKey, wire: PodWire, template: PodSpecTemplate | None = None) -> Iterator[Change]:
        over = wire.status.phase in FINISHED
        concerned = self.devices.name(key, None if over else wire) if wire.spec.resource_claims else ()
        yield from self._published(key, wire, template)
        yield from self._pods_again(concerned)

    def _published(self, key: PodKey, wire: PodWire, template: PodSpecTemplate | None) -> Iterator[Change]:
        pod, before = self._decode_pod(key, wire, template), self.pods.get(key)
        if before == pod:
            if key in self.devices.waiting:  # which claims are its own may have changed
                self._pending(key, wire)
            return
        if before is not None and before.uid != pod.uid:
            yield from self._lost(key)
        elif before is not None and before.gang != pod.gang:
            yield from self._leave_replica(before)
        self.pods[key] = pod
        if pod.pending:
            self._pending(key, wire)
        else:
            self._not_pending(key)
        if pod.gang is not None and pod.gang.kind == WORKLOAD:
            yield from self._join_replica(pod.gang, key)
        yield PodSeen(pod)

    def _pending(self, key: PodKey, wire: PodWire) -> None:
        self.pending.setdefault(key.namespace, {})[key] = wire
        if wire.spec.resource_claims:
            self.devices.watch(key, wire)

    def _pod_gone(self, key: PodKey) -> Iterator[Change]:
        yield from self._lost(key)
        yield from self._pods_again(self.devices.name(key, None))

    def _lost(self, key: PodKey) -> Iterator[Change]:
        self._not_pending(key)
        pod = self.pods.pop(key, None)
        yield PodLost(key)
        if pod is not None:
            yield from self._leave_replica(pod)

    def _device_object(self, event: Event) -> Iterator[Change]:
        """Claims and classes decide which pending pods wait for their claims."""
        yield from self.devices.changes(event)
        yield from self._pods_again(self.devices.dependents(event.kind.kind, event.object))

    def _pods_again(self, keys: Iterable[PodKey]) -> Iterator[Change]:
        """Pending pods, for which the objects that they depend on mean something else now."""
        for key in keys:
            yield from self._pod(key, self.pending[key.namespace][key])

    def _device_need(self, key: PodKey, wire: PodWire) -> DeviceNeed:
        """What a pending pod needs. A pod that is bound needed what it needed before."""
        before = self.pods.get(key)
        if not node_name(wire):
            return self.devices.need(key, wire, shares=self.slot_of(wire) is not None)
        if before is None or before.uid != wire.metadata.uid:
            return NO_NEED
        return DeviceNeed(before.spec.signature.devices, before.spec.device_claims, before.spec.new_claims)

    def _not_pending(self, key: PodKey) -> None:
        self.devices.forget(key)
        pending = self.pending.get(key.namespace, {})
        pending.pop(key, None)
        if not pending:
            self.pending.pop(key.namespace, None)

    def _leave_replica(self, pod: Pod) -> Iterator[Change]:
        """A pod no longer names its replica of a group; the spec goes with the last pod."""
        if pod.gang is None or pod.gang.kind != WORKLOAD:
            return
        name = _workload_name(pod.gang)
        replicas = self.replicas.get(name, {})
        pods = replicas.get(pod.gang, set())
        pods.discard(pod.key)
        if not pods and replicas.pop(pod.gang, None) is not None:
            if not replicas:
                del self.replicas[name]
            yield GangSpecLost(pod.gang)

    def _decode_pod(self, key: PodKey, wire: PodWire, template: PodSpecTemplate | None) -> Pod:
        meta, spec, status = wire.metadata, wire.spec, wire.status
        ours, node, phase = spec.scheduler_name in self.names, node_name(wire), status.phase
        gang, pod_set, rank = gang_of(wire), "", 0
        if gang is None and ours:
            gang, pod_set, rank = self.job_of(wire) or (None, "", 0)
        company = self._company(wire) if ours and not node else None
        need = self._device_need(key, wire) if ours and spec.resource_claims else NO_NEED
        wants, amounts = self.pod_specs.spec(
            wire, company, need.reason, template, need.devices, (need.claims, need.new)
        )
        return Pod(
            key=key,
            uid=meta.uid,
            amounts=amounts,
            node=node,
            finished=phase in FINISHED,
            succeeded=phase == SUCCEEDED,
            terminating=meta.deletion_timestamp is not None,
            gang=gang,
            pod_set=pod_set,
            rank=rank,
            spec=wants,
            ours=ours,
            created=seconds(meta.creation_timestamp or ""),
            started=seconds(status.start_time or ""),
            message=_message_of(wire) if ours and not node else "",
            was_started=bool(node) and phase not in NOT_STARTED,
            scheduler=intern(spec.scheduler_name or "") if ours else "",
            slot=self.slot_of(wire),
            foreign_claims=bool(spec.resource_claims) and not ours and not node,
        )

    def _company(self, wire: PodWire) -> Selector | None:
        services = self.services.get(wire.metadata.namespace or "default")
        if not services or wire.spec.topology_spread_constraints:
            return None
        return default_spread_selector(wire.metadata.labels or {}, services.values())

    def _join_replica(self, ref: Ref, key: PodKey) -> Iterator[Change]:
        """A pod names a replica of a group; the first pod publishes its spec."""
        name = _workload_name(ref)
        replicas = self.replicas.setdefault(name, {})
        if ref not in replicas and name in self.workloads:
            yield GangSpecSeen(workload_group_spec(self.workloads[name], ref))
        replicas.setdefault(ref, set()).add(key)

    def _workload(self, wire: WorkloadWire, gone: bool) -> Iterator[Change]:
        name = (wire.metadata.namespace or "default", wire.metadata.name)
        if gone:
            self.workloads.pop(name, None)
        else:
            self.workloads[name] = wire
        for ref in self.replicas.get(name, ()):
            yield GangSpecLost(ref) if gone else GangSpecSeen(workload_group_spec(wire, ref))

    def _group(self, wire: PodGroupWire, version: str, gone: bool) -> Iterator[Change]:
        spec = pod_group_spec(wire)
        ref = spec.source
        before, known = self._newest_spec(ref), self.groups.setdefault(ref, {})
        if gone:
            known.pop(version, None)
        else:
            known[version] = spec
            self.pending_messages[ref] = pending_message(wire)
        now, parent = self._newest_spec(ref), wire.spec.parent_composite_pod_group_name or ""
        if now is None:
            del self.groups[ref]
            self.pending_messages.pop(ref, None)
            self.composites.lost(ref)
            yield GangSpecLost(ref)
            return
        if version == self.newest(ref):
            self.composites.seen(ref, parent, now, exact=version == V1BETA1)
        if self.composites.root_of(ref) != ref:
            yield GangSpecLost(ref)  # it is part of another gang
        elif now != before:
            yield GangSpecSeen(now)

    def _composite(self, wire: CompositeWire, gone: bool) -> None:
        spec = composite_spec(wire)
        if gone:
            self.composites.lost(spec.source)
        else:
            self.composites.seen(spec.source, wire.spec.parent_composite_pod_group_name or "", spec)

    def _newest_spec(self, ref: Ref) -> GangSpec | None:
        return self.groups.get(ref, {}).get(self.newest(ref))

    def _service(self, wire: ServiceWire, gone: bool) -> Iterator[Change]:
        """The default spread selector of pending pods may change with a service."""
        namespace = wire.metadata.namespace or "default"
        services = self.services.setdefault(namespace, {})
        if gone:
            services.pop(wire.metadata.name, None)
        elif services.get(wire.metadata.name, {}) != wire.spec.selector:
            services[wire.metadata.name] = wire.spec.selector
        else:
            return
        for key, pod in list(self.pending.get(namespace, {}).items()):
            yield from self._pod(key, pod)


def _workload_name(ref: Ref) -> Name:
    return ref.namespace, ref.name.partition("/")[0]


def _message_of(wire: PodWire) -> str:
    for one in wire.status.conditions or ():
        if one.type == SCHEDULED and one.status == "False":
            return one.message or ""
    return ""
