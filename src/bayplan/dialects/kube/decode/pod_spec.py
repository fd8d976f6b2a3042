"""What a pod's spec asks of a node, read off the wire into one value that equal pods share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from bayplan.dialects.kube.decode.numa_request import pod_zone_wants
from bayplan.dialects.kube.decode.wire import (
    ContainerResources,
    ContainerWire,
    InlineDisk,
    LabelSelector,
    NodeTerm,
    PodAffinityWire,
    PodSpecWire,
    PodTerm,
    PodWire,
    RequirementWire,
    SpreadConstraint,
    TolerationWire,
    VolumeWire,
    pod_amounts,
)
from bayplan.model.node_rules import NodeRules, NodeSelectorTerm, Requirement, Toleration
from bayplan.model.pod_spec import (
    ANY_ADDRESS,
    EVERYTHING,
    NOTHING,
    ClaimUse,
    Disk,
    HostPort,
    PodAffinity,
    PodAffinityTerm,
    PodSignature,
    PodSpec,
    Selector,
    TopologySpread,
)

CPU_UNSAID, MEMORY_UNSAID = "100m", str(200 << 20)
"""What a container that does not say is taken to use, as far as nodes are ranked."""


def pod_wants(pod: PodWire, company: Selector | None = None) -> PodSpec:
    """All that scheduling needs to know of a pod; `company` is whom its services and owner put it with."""
    spec, status = pod.spec, pod.status
    return PodSpec(
        pod_shape(pod, company),
        priority=spec.priority or 0,
        preempts=spec.preemption_policy != "Never",
        nominated=status.nominated_node_name or "",
        gates=tuple(gate.name for gate in spec.scheduling_gates or ()),
    )


def pod_shape(pod: PodWire, company: Selector | None = None) -> PodSignature:
    """What decides where a pod fits."""
    spec, meta = pod.spec, pod.metadata
    namespace, labels = meta.namespace or "default", meta.labels or {}
    amounts = pod_amounts(spec)
    return PodSignature(
        namespace=namespace,
        labels=tuple(sorted(labels.items())),
        amounts=tuple(sorted((name, amount) for name, amount in amounts.items() if amount)),
        weighs=_weighs(spec, amounts),
        rules=wire_rules(spec),
        node=spec.node_name or "",
        ports=tuple(dict.fromkeys(_ports(spec))),
        neighbours=_neighbours(spec, namespace, labels),
        spread=tuple(_spread(one, labels) for one in spec.topology_spread_constraints or ()),
        company=company,
        images=tuple(image_name(one.image or "") for one in _containers(spec)),
        claims=tuple(_claims(pod)),
        disks=tuple(disk for volume in spec.volumes or () for disk in _disks(volume)),
        zones=pod_zone_wants(spec, pod.status.qos_class),
    )


def selector(wire: LabelSelector | None) -> Selector:
    """A label selector. Absent it selects nothing, empty it selects everything."""
    if wire is None:
        return NOTHING
    found = [Requirement(key, "In", (value,)) for key, value in sorted((wire.match_labels or {}).items())]
    found += [_requirement(one) for one in wire.match_expressions or ()]
    return Selector(tuple(found)) if found else EVERYTHING


def company_of(
    labels: Mapping[str, str], services: Iterable[Mapping[str, str] | None], owner: Selector | None = None
) -> Selector | None:
    """The pods that one belongs with: those its services select and its owner looks after."""
    merged: dict[str, str] = {}
    for wanted in services:
        if wanted is not None and wanted.items() <= labels.items():
            merged |= wanted
    found = Selector(tuple(Requirement(key, "In", (value,)) for key, value in sorted(merged.items())))
    if owner is not None and owner.requirements is not None:
        found = found.narrowed(owner.requirements)
    return found if found.requirements else None


def wire_rules(spec: PodSpecWire) -> NodeRules:
    """What a pod says about nodes."""
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    preferred = affinity.preferred if affinity is not None else None
    return NodeRules(
        selector=tuple(sorted((spec.node_selector or {}).items())),
        affinity=None if required is None else tuple(map(node_term, required.node_selector_terms or ())),
        preferred=tuple((one.weight, node_term(one.preference)) for one in preferred or ()),
        tolerations=tuple(_toleration(one) for one in spec.tolerations or ()),
    )


def node_term(wire: NodeTerm) -> NodeSelectorTerm:
    """Requirements on one node."""
    labels = [_requirement(one) for one in wire.match_expressions or ()]
    fields = [_requirement(one, on_field=True) for one in wire.match_fields or ()]
    return NodeSelectorTerm(tuple(labels + fields))


def image_name(name: str) -> str:
    """An image's name, with the tag that goes without saying."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def _requirement(wire: RequirementWire, *, on_field: bool = False) -> Requirement:
    return Requirement(wire.key, wire.operator, tuple(wire.values or ()), on_field)


def _toleration(wire: TolerationWire) -> Toleration:
    return Toleration(wire.key or "", wire.operator or "Equal", wire.value or "", wire.effect or "")


def _containers(spec: PodSpecWire) -> Iterator[ContainerWire]:
    yield from spec.init_containers or ()
    yield from spec.containers or ()


def _ports(spec: PodSpecWire) -> Iterator[HostPort]:
    """Ports of the node that are held for as long as the pod runs: not those of passing init containers."""
    lasting = [one for one in spec.init_containers or () if one.restart_policy == "Always"]
    for container in (*lasting, *(spec.containers or ())):
        for port in container.ports or ():
            if port.host_port:
                yield HostPort(port.host_port, port.protocol or "TCP", port.host_ip or ANY_ADDRESS)


def _weighs(spec: PodSpecWire, amounts: Mapping[str, int]) -> tuple[int, int]:
    silent = any(not _says_all(one) for one in _containers(spec))
    if silent:
        full = msgspec.structs.replace(
            spec,
            containers=[_filled(one) for one in spec.containers or ()],
            init_containers=[_filled(one) for one in spec.init_containers or ()],
        )
        amounts = pod_amounts(full)
    return amounts.get("cpu", 0), amounts.get("memory", 0)


def _says_all(container: ContainerWire) -> bool:
    resources = container.resources or ContainerResources()
    said = (resources.limits or {}).keys() | (resources.requests or {}).keys()
    return "cpu" in said and "memory" in said


def _filled(container: ContainerWire) -> ContainerWire:
    resources = container.resources or ContainerResources()
    unsaid: dict[str, str | int | float] = {"cpu": CPU_UNSAID, "memory": MEMORY_UNSAID}
    said = unsaid | (resources.limits or {}) | (resources.requests or {})
    return msgspec.structs.replace(container, resources=ContainerResources(requests=said))


def _neighbours(spec: PodSpecWire, namespace: str, labels: Mapping[str, str]) -> PodAffinity:
    if spec.affinity is None:
        return PodAffinity()
    near = spec.affinity.pod_affinity or PodAffinityWire()
    apart = spec.affinity.pod_anti_affinity or PodAffinityWire()

    def term(wire: PodTerm) -> PodAffinityTerm:
        return _neighbour_term(wire, namespace, labels)

    return PodAffinity(
        near=tuple(term(one) for one in near.required or ()),
        apart=tuple(term(one) for one in apart.required or ()),
        rather_near=tuple((one.weight, term(one.pod_affinity_term)) for one in near.preferred or ()),
        rather_apart=tuple((one.weight, term(one.pod_affinity_term)) for one in apart.preferred or ()),
    )


def _neighbour_term(wire: PodTerm, namespace: str, labels: Mapping[str, str]) -> PodAffinityTerm:
    namespaces = tuple(sorted(wire.namespaces or ()))
    if not namespaces and wire.namespace_selector is None:
        namespaces = (namespace,)
    wanted = selector(wire.label_selector).narrowed(
        (
            *_as_own(wire.match_label_keys, labels, "In"),
            *_as_own(wire.mismatch_label_keys, labels, "NotIn"),
        )
    )
    return PodAffinityTerm(wire.topology_key, wanted, namespaces, selector(wire.namespace_selector))


def _as_own(keys: list[str] | None, labels: Mapping[str, str], operator: str) -> Iterator[Requirement]:
    """The pod's own values of some labels, as requirements on others. Labels it lacks ask for nothing."""
    for key in keys or ():
        if key in labels:
            yield Requirement(key, operator, (labels[key],))


def _spread(wire: SpreadConstraint, labels: Mapping[str, str]) -> TopologySpread:
    return TopologySpread(
        key=wire.topology_key,
        max_skew=wire.max_skew,
        selector=selector(wire.label_selector).narrowed(_as_own(wire.match_label_keys, labels, "In")),
        must=wire.when_unsatisfiable == "DoNotSchedule",
        min_domains=wire.min_domains or 1,
        heed_affinity=wire.node_affinity_policy != "Ignore",
        heed_taints=wire.node_taints_policy == "Honor",
    )


def _claims(pod: PodWire) -> Iterator[ClaimUse]:
    for volume in pod.spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            yield ClaimUse(volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral is not None:
            name = f"{pod.metadata.name}-{volume.name}"
            yield ClaimUse(name, pod.metadata.uid or pod.metadata.name, pod.metadata.name)


def _disks(volume: VolumeWire) -> Iterator[Disk]:
    for kind, disk in (
        ("gce", volume.gce_persistent_disk),
        ("aws", volume.aws_elastic_block_store),
        ("iscsi", volume.iscsi),
        ("rbd", volume.rbd),
    ):
        if disk is not None:
            yield from (Disk(kind, name, bool(disk.read_only)) for name in _disk_names(kind, disk))


def _disk_names(kind: str, disk: InlineDisk) -> list[str]:
    """What conflicts is one name: an image of one pool is the same disk through any monitor two share."""
    match kind:
        case "gce":
            return [disk.pd_name]
        case "aws":
            return [disk.volume_id]
        case "iscsi":
            return [disk.iqn]
        case _:
            return [f"{monitor} {disk.pool or 'rbd'} {disk.image}" for monitor in disk.monitors or ()]
