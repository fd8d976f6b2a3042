"""A cache of pod signatures: most pods of a cluster are created from few templates.

The controllers of a process share it. The template of a pod is then looked up once for each event, with
`event.once(pod_specs.template_of)`, and all of them refer to the same signature, spec and requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from bayplan.dialects.kube.decode.pod_spec import is_storage, pod_signature
from bayplan.dialects.kube.decode.wire import PodWire, pod_amounts
from bayplan.model.devices.claims import DeviceClaimKey, PodDevices
from bayplan.model.pod_spec import Labels, PodSignature, PodSpec, Selector

CACHED_MAX = 8192
Claims = tuple[tuple[DeviceClaimKey, ...], tuple[DeviceClaimKey, ...]]
"""The claims of a pod for devices, and those of them without any."""

_encode = msgspec.msgpack.Encoder().encode


@dataclass(slots=True)
class PodSpecTemplate:
    """What pods of one template share, and their signatures.

    The key of a signature is labels, node selector, spread selector and devices.
    """

    signature: PodSignature
    amounts: Mapping[str, int]
    signatures: dict[tuple[Labels, Labels, Selector | None, PodDevices | None], PodSignature] = field(
        default_factory=dict
    )


class PodSpecCache:
    """Caches signatures by template; it is cleared when it grows too large."""

    def __init__(self) -> None:
        self.templates: dict[bytes, PodSpecTemplate] = {}
        self.specs: dict[tuple[PodSignature, int, bool], PodSpec] = {}
        self.entries = 0

    def spec(
        self,
        pod: PodWire,
        company: Selector | None = None,
        unsupported: str = "",
        template: PodSpecTemplate | None = None,
        devices: PodDevices | None = None,
        claims: Claims = ((), ()),
    ) -> tuple[PodSpec, Mapping[str, int]]:
        """The spec and the requests of a pod. Pods without gates, nomination and claims share it."""
        signature, amounts = self.of(pod, company, template, devices)
        wire, nominated = pod.spec, pod.status.nominated_node_name or ""
        gates = tuple(gate.name for gate in wire.scheduling_gates or ())
        key = (signature, wire.priority or 0, wire.preemption_policy != "Never")
        if nominated or gates or unsupported or devices is not None:
            return PodSpec(*key, nominated, gates, unsupported, *claims), amounts
        return self._shared(key), amounts

    def spec_of_signature(self, pod: PodWire, template: PodSpecTemplate) -> tuple[PodSpec, Mapping[str, int]]:
        """The spec with nothing but the signature, and the requests."""
        signature, amounts = self.of(pod, template=template)
        return self._shared((signature, 0, True)), amounts

    def of(
        self,
        pod: PodWire,
        company: Selector | None = None,
        template: PodSpecTemplate | None = None,
        devices: PodDevices | None = None,
    ) -> tuple[PodSignature, Mapping[str, int]]:
        """The signature and the requests of a pod. The node it is bound to is not part of the signature."""
        template = template or self.template_of(pod)
        labels = tuple(sorted((pod.metadata.labels or {}).items()))
        node_selector = tuple(sorted((pod.spec.node_selector or {}).items()))
        signature = template.signatures.get((labels, node_selector, company, devices))
        if signature is None:
            rules = replace(template.signature.rules, selector=node_selector)
            signature = replace(
                template.signature, labels=labels, rules=rules, default_spread=company, devices=devices
            )
            template.signatures[labels, node_selector, company, devices] = signature
            self._count()
        return signature, template.amounts

    def template_of(self, pod: PodWire) -> PodSpecTemplate:
        """What the pod shares with others of its template."""
        spec, meta = pod.spec, pod.metadata
        fields: list[object] = [
            meta.namespace, spec.containers, spec.init_containers, spec.overhead, spec.resources,
            spec.affinity, spec.tolerations, spec.topology_spread_constraints,
            volumes := [one for one in spec.volumes or () if is_storage(one)], pod.status.qos_class,
        ]  # fmt: skip  # pods that differ only in the node selector share a template
        if spec.affinity is not None or spec.topology_spread_constraints:
            fields.append(meta.labels)  # terms may refer to the pod's own labels
        if any(volume.ephemeral is not None for volume in volumes):
            fields += [meta.name, meta.uid]  # ephemeral claims belong to one pod
        key = _encode(fields)
        template = self.templates.get(key)
        if template is None:
            unbound_spec = msgspec.structs.replace(spec, node_name=None, node_selector=None)
            unbound = msgspec.structs.replace(pod, spec=unbound_spec)
            template = self.templates[key] = PodSpecTemplate(pod_signature(unbound), pod_amounts(spec))
            self._count()
        return template

    def _shared(self, key: tuple[PodSignature, int, bool]) -> PodSpec:
        spec = self.specs.get(key)
        if spec is None:
            spec = self.specs[key] = PodSpec(*key)
            self._count()
        return spec

    def _count(self) -> None:
        self.entries += 1
        if self.entries > CACHED_MAX:
            self.templates, self.specs, self.entries = {}, {}, 0
