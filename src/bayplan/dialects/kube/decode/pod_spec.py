"""The scheduling-relevant part of a pod spec, as values that equal pods share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from bayplan.dialects.kube.decode.numa_request import pod_numa_request
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

DEFAULT_CPU, DEFAULT_MEMORY = "100m", str(200 << 20)
"""Requests that scoring assumes for containers without any, as kube-scheduler does."""
_NO_SIGNATURE = PodSignature()


def pod_spec(pod: PodWire, company: Selector | None = None) -> PodSpec:
    """The pod spec as scheduling uses it; `company` selects the pods of its services and owner."""
    spec, status = pod.spec, pod.status
    return PodSpec(
        pod_signature(pod, company),
        priority=spec.priority or 0,
        preempts=spec.preemption_policy != "Never",
        nominated=status.nominated_node_name or "",
        gates=tuple(gate.name for gate in spec.scheduling_gates or ()),
    )


def pod_signature(pod: PodWire, company: Selector | None = None) -> PodSignature:
    """The part of a pod spec that decides on which nodes the pod fits."""
    spec, meta = pod.spec, pod.metadata
    namespace, labels = meta.namespace or "default", meta.labels or {}
    amounts = pod_amounts(spec)
    return PodSignature(
        namespace=namespace,
        labels=tuple(sorted(labels.items())),
        amounts=tuple(sorted((name, amount) for name, amount in amounts.items() if amount)),
        score_requests=_scoring_requests(spec, amounts),
        rules=wire_rules(spec),
        node=spec.node_name or "",
        ports=tuple(dict.fromkeys(_ports(spec))),
        affinity=_pod_affinity(spec, namespace, labels),
        spread=tuple(_spread(one, labels) for one in spec.topology_spread_constraints or ()),
        default_spread=company,
        images=tuple(image_name(one.image or "") for one in _containers(spec)),
        claims=tuple(_claims(pod)),
        disks=tuple(disk for volume in spec.volumes or () for disk in _disks(volume)),
        zones=pod_numa_request(spec, pod.status.qos_class),
    )


def template_signature(template: Any) -> PodSignature | None:
    """What of a pod template decides, beside requests and node rules, on which nodes its pods fit.

    The namespace is empty: a template has none. Ephemeral claims are left out, as each belongs to a pod that
    does not exist yet. None if there is nothing, or if the template is invalid, which is reported elsewhere.
    """
    try:
        pod = msgspec.convert(template or {}, PodWire, strict=False)
        labels, spec = pod.metadata.labels or {}, pod.spec
        affinity = _pod_affinity(spec, "", labels)
        signature = PodSignature(
            labels=tuple(sorted(labels.items())),
            node=spec.node_name or "",
            ports=tuple(dict.fromkeys(_ports(spec))),
            affinity=PodAffinity(affinity.required, affinity.required_anti),
            spread=tuple(one for wire in spec.topology_spread_constraints or ()
                         if (one := _spread(wire, labels)).required),
            claims=tuple(use for use in _claims(pod) if not use.owner),
            disks=tuple(disk for volume in spec.volumes or () for disk in _disks(volume)),
        )  # fmt: skip
    except (msgspec.ValidationError, ValueError):
        return None
    return None if signature == _NO_SIGNATURE else signature


def selector(wire: LabelSelector | None) -> Selector:
    """A label selector. A missing one selects nothing, an empty one everything."""
    if wire is None:
        return NOTHING
    requirements = [
        Requirement(key, "In", (value,)) for key, value in sorted((wire.match_labels or {}).items())
    ]
    requirements += [_requirement(one) for one in wire.match_expressions or ()]
    return Selector(tuple(requirements)) if requirements else EVERYTHING


def default_spread_selector(
    labels: Mapping[str, str], services: Iterable[Mapping[str, str] | None], owner: Selector | None = None
) -> Selector | None:
    """The default spread selector of a pod: the pods that its services and its owner select; None if none."""
    merged: dict[str, str] = {}
    for service in services:
        if service is not None and service.items() <= labels.items():
            merged |= service
    combined = Selector(tuple(Requirement(key, "In", (value,)) for key, value in sorted(merged.items())))
    if owner is not None and owner.requirements is not None:
        combined = combined.narrowed(owner.requirements)
    return combined if combined.requirements else None


def wire_rules(spec: PodSpecWire) -> NodeRules:
    """The node constraints of a pod."""
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
    """A node selector term."""
    labels = [_requirement(one) for one in wire.match_expressions or ()]
    fields = [_requirement(one, on_field=True) for one in wire.match_fields or ()]
    return NodeSelectorTerm(tuple(labels + fields))


def image_name(name: str) -> str:
    """An image name, with the default tag if it has none."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def _requirement(wire: RequirementWire, *, on_field: bool = False) -> Requirement:
    return Requirement(wire.key, wire.operator, tuple(wire.values or ()), on_field)


def _toleration(wire: TolerationWire) -> Toleration:
    return Toleration(wire.key or "", wire.operator or "Equal", wire.value or "", wire.effect or "")


def _containers(spec: PodSpecWire) -> Iterator[ContainerWire]:
    yield from spec.init_containers or ()
    yield from spec.containers or ()


def _ports(spec: PodSpecWire) -> Iterator[HostPort]:
    """Host ports that are in use while the pod runs: those of containers and sidecars."""
    sidecars = [one for one in spec.init_containers or () if one.restart_policy == "Always"]
    for container in (*sidecars, *(spec.containers or ())):
        for port in container.ports or ():
            if port.host_port:
                yield HostPort(port.host_port, port.protocol or "TCP", port.host_ip or ANY_ADDRESS)


def _scoring_requests(spec: PodSpecWire, amounts: Mapping[str, int]) -> tuple[int, int]:
    incomplete = any(not _has_all_requests(one) for one in _containers(spec))
    if incomplete:
        completed = msgspec.structs.replace(
            spec,
            containers=[_with_default_requests(one) for one in spec.containers or ()],
            init_containers=[_with_default_requests(one) for one in spec.init_containers or ()],
        )
        amounts = pod_amounts(completed)
    return amounts.get("cpu", 0), amounts.get("memory", 0)


def _has_all_requests(container: ContainerWire) -> bool:
    resources = container.resources or ContainerResources()
    names = (resources.limits or {}).keys() | (resources.requests or {}).keys()
    return "cpu" in names and "memory" in names


def _with_default_requests(container: ContainerWire) -> ContainerWire:
    resources = container.resources or ContainerResources()
    defaults: dict[str, str | int | float] = {"cpu": DEFAULT_CPU, "memory": DEFAULT_MEMORY}
    requests = defaults | (resources.limits or {}) | (resources.requests or {})
    return msgspec.structs.replace(container, resources=ContainerResources(requests=requests))


def _pod_affinity(spec: PodSpecWire, namespace: str, labels: Mapping[str, str]) -> PodAffinity:
    if spec.affinity is None:
        return PodAffinity()
    affinity = spec.affinity.pod_affinity or PodAffinityWire()
    anti_affinity = spec.affinity.pod_anti_affinity or PodAffinityWire()

    def term(wire: PodTerm) -> PodAffinityTerm:
        return _affinity_term(wire, namespace, labels)

    return PodAffinity(
        required=tuple(term(one) for one in affinity.required or ()),
        required_anti=tuple(term(one) for one in anti_affinity.required or ()),
        preferred=tuple((one.weight, term(one.pod_affinity_term)) for one in affinity.preferred or ()),
        preferred_anti=tuple(
            (one.weight, term(one.pod_affinity_term)) for one in anti_affinity.preferred or ()
        ),
    )


def _affinity_term(wire: PodTerm, namespace: str, labels: Mapping[str, str]) -> PodAffinityTerm:
    namespaces = tuple(sorted(wire.namespaces or ()))
    if not namespaces and wire.namespace_selector is None:
        namespaces = (namespace,)
    selected = selector(wire.label_selector).narrowed(
        (
            *_own_label_values(wire.match_label_keys, labels, "In"),
            *_own_label_values(wire.mismatch_label_keys, labels, "NotIn"),
        )
    )
    return PodAffinityTerm(wire.topology_key, selected, namespaces, selector(wire.namespace_selector))


def _own_label_values(
    keys: list[str] | None, labels: Mapping[str, str], operator: str
) -> Iterator[Requirement]:
    """The pod's own values of label keys, as requirements on other pods. Missing labels require nothing."""
    for key in keys or ():
        if key in labels:
            yield Requirement(key, operator, (labels[key],))


def _spread(wire: SpreadConstraint, labels: Mapping[str, str]) -> TopologySpread:
    return TopologySpread(
        key=wire.topology_key,
        max_skew=wire.max_skew,
        selector=selector(wire.label_selector).narrowed(
            _own_label_values(wire.match_label_keys, labels, "In")
        ),
        required=wire.when_unsatisfiable == "DoNotSchedule",
        min_domains=wire.min_domains or 1,
        honor_affinity=wire.node_affinity_policy != "Ignore",
        honor_taints=wire.node_taints_policy == "Honor",
    )


def is_storage(volume: VolumeWire) -> bool:
    """Whether a volume decides on which nodes a pod fits.

    Others do not, such as the token of the service account, whose name is another one in every pod.
    """
    return volume != VolumeWire(volume.name)


def _claims(pod: PodWire) -> Iterator[ClaimUse]:
    for volume in pod.spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            yield ClaimUse(volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral is not None:
            name = f"{pod.metadata.name}-{volume.name}"
            yield ClaimUse(name, pod.metadata.uid or pod.metadata.name or volume.name, pod.metadata.name)


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
    """The names under which a disk conflicts: an RBD image is the same disk through any shared monitor."""
    match kind:
        case "gce":
            return [disk.pd_name]
        case "aws":
            return [disk.volume_id]
        case "iscsi":
            return [disk.iqn]
        case _:
            return [f"{monitor} {disk.pool or 'rbd'} {disk.image}" for monitor in disk.monitors or ()]
