"""Watch events of Kueue objects, nodes and pods as changes of the admission state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from bayplan.dialects.api import Event, Happened, InvalidInUse
from bayplan.dialects.kube.decode import volumes
from bayplan.dialects.kube.decode.numa_request import pod_numa_request
from bayplan.dialects.kube.decode.pod_identity import node_name, pod_key
from bayplan.dialects.kube.decode.pod_spec_cache import PodSpecCache
from bayplan.dialects.kube.decode.wire import PodWire, node_of, pod_amounts
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.decode.workload_devices import WorkloadDevices
from bayplan.dialects.kueue.decode.workloads import (
    admitted_gang,
    decode_workload,
    has_quota,
    is_finished,
)
from bayplan.dialects.kueue.fields import queues
from bayplan.dialects.kueue.fields.counting import NO_TRANSFORMATIONS, Counting
from bayplan.dialects.kueue.fields.pod_sets import source
from bayplan.dialects.kueue.fields.topology_and_flavor import flavor, topology
from bayplan.dialects.kueue.fields.workload import KIND
from bayplan.dialects.kueue.names.annotations import (
    POD_SET,
    SLICE_NAME,
    TOPOLOGY_GATE,
    WORKLOAD_NAME,
    is_topology_aware,
)
from bayplan.model.change import (
    Change,
    CheckLost,
    CheckSeen,
    FlavorLost,
    FlavorSeen,
    NamespaceLost,
    NamespaceQueueLost,
    NamespaceQueueSeen,
    NamespaceSeen,
    NodeLost,
    NodeSeen,
    PodLost,
    PodSeen,
    QueuedGangLost,
    QueuedGangSeen,
    QueueLost,
    QueueSeen,
    QuotaNodeLost,
    QuotaNodeSeen,
    TopologyLost,
    TopologySeen,
)
from bayplan.model.gang import Ref
from bayplan.model.node import HOSTNAME
from bayplan.model.numa import NumaRequest
from bayplan.model.pod import Pod
from bayplan.model.pod_spec import PodSignature, PodSpec

OVER = ("Succeeded", "Failed")
WAITING = (None, "", "Pending")
POD_SPECS_MAX = 1024  # cache entries
TEMPLATE_BYTES_MAX = 16 * 1024  # longer templates are not cached

_encode = msgspec.msgpack.Encoder().encode
_known_requests: dict[bytes, tuple[Mapping[str, int], PodSpec]] = {}  # by template


def decode(
    event: Event, counting: Counting = NO_TRANSFORMATIONS, *, protects: bool = False,
    pod_specs: PodSpecCache | None = None, devices: WorkloadDevices | None = None,
) -> Iterator[Change]:  # fmt: skip
    """The changes of the admission state that an event causes.

    An invalid object causes none. `InvalidInUse` is raised for one that holds quota.
    With `protects`, ClusterQueues that still lack the finalizer are marked as unprotected. With `pod_specs`,
    pods have their whole signature, for the filters of binding; without it only their NUMA request. With
    `devices`, Workloads count the devices that their pods claim.
    """
    gone = event.happened is Happened.GONE
    if event.happened is Happened.SYNCED:
        return
    match event.kind.kind:
        case "Node":
            yield NodeLost(event.object.metadata.name) if gone else NodeSeen(event.once(node_of))
        case "Pod":
            yield from _pod(event, gone, pod_specs)
        case "Workload":
            yield from _workload(event.object, gone, counting, devices)
        case kind if kind in _DECODERS:
            yield from _other_object(kind, Field(event.object), gone, protects)
        case kind if event.kind in volumes.KINDS:
            yield from volumes.storage_changes(kind, event.object, gone)


def decode_usage(event: Event) -> Iterator[Change]:
    """The quota and the nodes that an admitted Workload holds, if nothing else of it can be decoded."""
    if event.kind.kind == "Workload" and event.happened is Happened.SEEN:
        queued_gang = admitted_gang(Field(event.object))
        if queued_gang is not None:
            yield QueuedGangSeen(queued_gang)


def assumed_pod(pod: Pod, node: str) -> Change:
    """A pod as it will be on a node; without a node it uses nothing."""
    if not node:
        return PodLost(pod.key)
    gang, pod_set = (pod.slot.gang, pod.slot.pod_set) if pod.slot is not None else (None, "")
    return PodSeen(
        Pod(pod.key, pod.uid, pod.amounts, node, gang=gang, pod_set=pod_set, spec=pod.spec, unbound=True)
    )


def _pod(event: Event, gone: bool, pod_specs: PodSpecCache | None) -> Iterator[Change]:
    """Pods that are bound, assigned or nominated. Those of a placed gang are counted by its slots."""
    key, wire = event.once(pod_key), event.object
    meta = wire.metadata
    annotations = meta.annotations or {}
    placed = is_topology_aware(annotations)
    node = (
        node_name(wire) or (_assigned_host(wire) if placed else "") or wire.status.nominated_node_name or ""
    )
    if gone:
        yield PodLost(key)
    elif node:
        amounts: Mapping[str, int]
        if pod_specs is not None:
            spec, amounts = pod_specs.spec_of_signature(wire, event.once(pod_specs.template_of))
        else:
            amounts, spec = _requests(wire)
        named = (annotations.get(SLICE_NAME) or annotations.get(WORKLOAD_NAME)) if placed else ""
        yield PodSeen(
            Pod(
                key=key,
                uid=meta.uid,
                amounts=amounts,
                node=node,
                finished=wire.status.phase in OVER,
                terminating=meta.deletion_timestamp is not None,
                gang=Ref("kueue", KIND, key.namespace, named) if named else None,
                pod_set=(meta.labels or {}).get(POD_SET, "") if named else "",
                spec=spec,
                was_started=bool(wire.spec.node_name) and wire.status.phase not in WAITING,
                unbound=not wire.spec.node_name,
            )
        )


def _requests(wire: PodWire) -> tuple[Mapping[str, int], PodSpec]:
    """The requests of a pod and its spec for admission; pods of one template share them."""
    spec, qos = wire.spec, wire.status.qos_class
    key = _encode((spec.containers, spec.init_containers, spec.overhead, spec.resources, qos))
    found = _known_requests.get(key)
    if found is None:
        found = pod_amounts(spec), _pod_spec(pod_numa_request(spec, qos))
        if len(key) <= TEMPLATE_BYTES_MAX:
            if len(_known_requests) >= POD_SPECS_MAX:
                _known_requests.clear()
            _known_requests[key] = found
    return found


@lru_cache(maxsize=POD_SPECS_MAX)
def _pod_spec(zones: NumaRequest | None) -> PodSpec:
    """The pod spec without the filters of binding: only the NUMA request."""
    return PodSpec(PodSignature(zones=zones))


def _assigned_host(wire: PodWire) -> str:
    """The host in the node selector of an ungated pod: it may be bound there at any moment."""
    gated = any(gate.name == TOPOLOGY_GATE for gate in wire.spec.scheduling_gates or ())
    return "" if gated else (wire.spec.node_selector or {}).get(HOSTNAME, "")


def _workload(
    obj: dict[str, Any], gone: bool, counting: Counting, devices: WorkloadDevices | None
) -> Iterator[Change]:
    workload = Field(obj)
    if gone or is_finished(workload):
        ref = source(workload, "Workload")
        if devices is not None:
            devices.forget(ref)
        yield QueuedGangLost(ref)
        return
    queued_gang = decode_workload(workload, counting)
    if devices is not None:
        devices.forget(queued_gang.gang.source)
        queued_gang = queued_gang if workload.errors else devices.seen(queued_gang, obj)
    if not workload.errors:
        yield QueuedGangSeen(queued_gang)
    elif has_quota(workload):
        raise InvalidInUse(f"a Workload with quota is invalid: {workload.errors[0]}")


def _namespace(obj: Field) -> Change:
    return NamespaceSeen(obj.at("metadata", "name").text(), obj.at("metadata", "labels").texts())


def _topology(obj: Field) -> Change | None:
    decoded = topology(obj)
    return None if decoded is None else TopologySeen(decoded)


_Seen = Callable[[Field], Change | None]
_DECODERS: dict[str, tuple[_Seen, Callable[[str], Change]]] = {
    "Namespace": (_namespace, NamespaceLost),
    "Topology": (_topology, TopologyLost),
    "ResourceFlavor": (lambda obj: FlavorSeen(flavor(obj)), FlavorLost),
    "Cohort": (lambda obj: QuotaNodeSeen(queues.quota_node(obj)), QuotaNodeLost),
    "ClusterQueue": (lambda obj: QueueSeen(queues.queue(obj)), QueueLost),
    "LocalQueue": (
        lambda obj: NamespaceQueueSeen(queues.namespace_queue(obj)),
        lambda name: NamespaceQueueLost("", name),
    ),
    "AdmissionCheck": (lambda obj: CheckSeen(queues.check(obj)), CheckLost),
}


def _other_object(kind: str, obj: Field, gone: bool, protects: bool) -> Iterator[Change]:
    seen, lost = _DECODERS[kind]
    meta = obj.at("metadata")
    if gone and kind == "LocalQueue":
        yield NamespaceQueueLost(meta.at("namespace").text("default"), meta.at("name").text())
    elif gone:
        yield lost(meta.at("name").text())
    else:
        queue = protects and kind == "ClusterQueue"
        change = QueueSeen(queues.queue(obj, protects=True)) if queue else seen(obj)
        if change is not None and not obj.errors:
            yield change
