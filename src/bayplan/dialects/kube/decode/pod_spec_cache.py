"""Shapes of pods, worked out once for pods that are made alike: most pods of a cluster are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from bayplan.dialects.kube.decode.pod_spec import pod_shape
from bayplan.dialects.kube.decode.wire import PodWire, pod_amounts
from bayplan.model.pod_spec import Labels, PodSignature, Selector

REMEMBERED_MAX = 8192

_encode = msgspec.msgpack.Encoder().encode


@dataclass(slots=True)
class PodSpecTemplate:
    """What pods made alike have in common, and the shapes of it by labels, node selector and company."""

    shape: PodSignature
    amounts: Mapping[str, int]
    shapes: dict[tuple[Labels, Labels, Selector | None], PodSignature] = field(default_factory=dict)


class PodSpecCache:
    """Remembers what was worked out, and begins anew when that gets too much."""

    def __init__(self) -> None:
        self.moulds: dict[bytes, PodSpecTemplate] = {}
        self.remembered = 0

    def of(self, pod: PodWire, company: Selector | None = None) -> tuple[PodSignature, Mapping[str, int]]:
        """The shape and the amounts of a pod. Where it runs is no part of its shape."""
        mould = self._mould(pod)
        labels = tuple(sorted((pod.metadata.labels or {}).items()))
        chosen = tuple(sorted((pod.spec.node_selector or {}).items()))
        shape = mould.shapes.get((labels, chosen, company))
        if shape is None:
            rules = replace(mould.shape.rules, selector=chosen)
            shape = replace(mould.shape, labels=labels, rules=rules, company=company)
            mould.shapes[labels, chosen, company] = shape
            self._count()
        return shape, mould.amounts

    def _mould(self, pod: PodWire) -> PodSpecTemplate:
        spec, meta = pod.spec, pod.metadata
        telling: list[object] = [
            meta.namespace, spec.containers, spec.init_containers, spec.overhead, spec.resources,
            spec.affinity, spec.tolerations, spec.topology_spread_constraints, spec.volumes,
            pod.status.qos_class,
        ]  # fmt: skip  # pods that were told their host differ in nothing but the node selector
        if spec.affinity is not None or spec.topology_spread_constraints:
            telling.append(meta.labels)  # its terms may speak of its own labels
        if any(volume.ephemeral is not None for volume in spec.volumes or ()):
            telling += [meta.name, meta.uid]  # its claims are its own
        key = _encode(telling)
        mould = self.moulds.get(key)
        if mould is None:
            anywhere = msgspec.structs.replace(spec, node_name=None, node_selector=None)
            free = msgspec.structs.replace(pod, spec=anywhere)
            mould = self.moulds[key] = PodSpecTemplate(pod_shape(free), pod_amounts(spec))
            self._count()
        return mould

    def _count(self) -> None:
        self.remembered += 1
        if self.remembered > REMEMBERED_MAX:
            self.moulds, self.remembered = {}, 0
