"""Batches of identical pods, and the result of an assignment: which pod got which node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bayplan.model.filter_failure import FilterFailure
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import PodSignature
from bayplan.placement.overlay.node_overlay import NodeOverlay


@dataclass(frozen=True, slots=True)
class PodBatch:
    """Identical pods, in the order in which they are assigned."""

    shape: PodSignature
    keys: tuple[PodKey, ...]
    own: tuple[PodSignature, ...] = ()  # by key, if they differ in labels that no selector uses

    def part(self, first: int, stop: int | None = None) -> PodBatch:
        """The pods in a range of positions."""
        return PodBatch(self.shape, self.keys[first:stop], self.own[first:stop])


@dataclass(frozen=True, slots=True)
class NodeAssignment:
    """The row (in the overlay) of each assigned pod, and why the others fit nowhere, in batch order."""

    rows: Mapping[PodKey, int] = field(default_factory=dict)
    unassigned: Mapping[PodKey, FilterFailure] = field(default_factory=dict)
    unsure: bool = False  # fewer than needed, but not every way was tried: more might fit


def batch_pods(overlay: NodeOverlay, pods: Iterable[Pod]) -> tuple[PodBatch, ...]:
    """Group pods by signature, in the order in which signatures first appear.

    Labels that no selector uses do not count.
    """
    pods_given = tuple(pods)
    by_shape: dict[PodSignature, list[PodKey]] = {}
    for pod in pods_given:
        by_shape.setdefault(pod.spec.signature, []).append(pod.key)
    if len(by_shape) <= 1:
        return tuple(PodBatch(shape, tuple(keys)) for shape, keys in by_shape.items())
    signatures = _signatures(overlay, by_shape)
    by_signature: dict[PodSignature, list[tuple[PodKey, PodSignature]]] = {}
    for pod in pods_given:
        shape = pod.spec.signature
        by_signature.setdefault(signatures[shape], []).append((pod.key, shape))
    return tuple(_batch(shape, members) for shape, members in by_signature.items())


def _signatures(overlay: NodeOverlay, shapes: Iterable[PodSignature]) -> Mapping[PodSignature, PodSignature]:
    """Signatures without the labels that no selector uses; cached, as an overlay sees the same pods often."""
    known: dict[PodSignature, frozenset[str]] = overlay.cache.setdefault("own selector labels", {})
    for shape in shapes:
        if shape not in known:
            known[shape] = shape.own_keys()
    used_labels = frozenset(overlay.filter_input.index.keys).union(*set(map(known.__getitem__, shapes)))
    signatures: dict[PodSignature, PodSignature] = overlay.cache.setdefault(("signatures", used_labels), {})
    for shape in shapes:
        if shape not in signatures:
            signatures[shape] = shape.reduced(used_labels)
    return signatures


def _batch(signature: PodSignature, members: list[tuple[PodKey, PodSignature]]) -> PodBatch:
    keys, own = tuple(key for key, _ in members), tuple(shape for _, shape in members)
    return PodBatch(own[0], keys) if len(set(own)) == 1 else PodBatch(signature, keys, own)
