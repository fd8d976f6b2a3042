"""The words of seating: parties of equal pods, and who got which seat."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bayplan.model.filter_failure import FilterFailure
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import PodSignature
from bayplan.placement.overlay.node_overlay import NodeOverlay


@dataclass(frozen=True, slots=True)
class PodBatch:
    """Equal pods, in the order in which they get their seats."""

    shape: PodSignature
    keys: tuple[PodKey, ...]
    own: tuple[PodSignature, ...] = ()  # by key, if they differ in labels that nobody looks at

    def part(self, first: int, stop: int | None = None) -> PodBatch:
        """Some of them."""
        return PodBatch(self.shape, self.keys[first:stop], self.own[first:stop])


@dataclass(frozen=True, slots=True)
class NodeAssignment:
    """Who sits where (rows of the floor), who was left over and why, in the order of the parties."""

    seats: Mapping[PodKey, int] = field(default_factory=dict)
    left: Mapping[PodKey, FilterFailure] = field(default_factory=dict)
    unsure: bool = False  # there are fewer than needed, yet more might have been possible: not all was tried


def parties_of(overlay: NodeOverlay, pods: Iterable[Pod]) -> tuple[PodBatch, ...]:
    """Pods by shape, in the order in which the shapes first appear. Labels nobody looks at do not count."""
    pending = tuple(pods)
    exact: dict[PodSignature, list[PodKey]] = {}
    for pod in pending:
        exact.setdefault(pod.wants.shape, []).append(pod.key)
    if len(exact) <= 1:
        return tuple(PodBatch(shape, tuple(keys)) for shape, keys in exact.items())
    telling = _signatures(overlay, exact)
    alike: dict[PodSignature, list[tuple[PodKey, PodSignature]]] = {}
    for pod in pending:
        shape = pod.wants.shape
        alike.setdefault(telling[shape], []).append((pod.key, shape))
    return tuple(_batch(shape, members) for shape, members in alike.items())


def _signatures(overlay: NodeOverlay, shapes: Iterable[PodSignature]) -> Mapping[PodSignature, PodSignature]:
    """Shapes without labels that nobody looks at. One floor is asked about the same pods again and again."""
    known: dict[PodSignature, frozenset[str]] = overlay.remembered.setdefault("labels looked at", {})
    for shape in shapes:
        if shape not in known:
            known[shape] = shape.own_keys()
    looked_at = frozenset(overlay.scene.index.keys).union(*set(map(known.__getitem__, shapes)))
    telling: dict[PodSignature, PodSignature] = overlay.remembered.setdefault(("signatures", looked_at), {})
    for shape in shapes:
        if shape not in telling:
            telling[shape] = shape.signature(looked_at)
    return telling


def _batch(signature: PodSignature, members: list[tuple[PodKey, PodSignature]]) -> PodBatch:
    keys, own = tuple(key for key, _ in members), tuple(shape for _, shape in members)
    return PodBatch(own[0], keys) if len(set(own)) == 1 else PodBatch(signature, keys, own)
