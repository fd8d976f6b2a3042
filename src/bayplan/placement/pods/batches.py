"""The words of seating: parties of equal pods, and who got which seat."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bayplan.model.filter_failure import Unfit
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import Shape
from bayplan.placement.overlay.node_overlay import Floor


@dataclass(frozen=True, slots=True)
class Party:
    """Equal pods, in the order in which they get their seats."""

    shape: Shape
    keys: tuple[PodKey, ...]
    own: tuple[Shape, ...] = ()  # by key, if they differ in labels that nobody looks at

    def part(self, first: int, stop: int | None = None) -> Party:
        """Some of them."""
        return Party(self.shape, self.keys[first:stop], self.own[first:stop])


@dataclass(frozen=True, slots=True)
class Seated:
    """Who sits where (rows of the floor), who was left over and why, in the order of the parties."""

    seats: Mapping[PodKey, int] = field(default_factory=dict)
    left: Mapping[PodKey, Unfit] = field(default_factory=dict)
    unsure: bool = False  # there are fewer than needed, yet more might have been possible: not all was tried


def parties_of(floor: Floor, pods: Iterable[Pod]) -> tuple[Party, ...]:
    """Pods by shape, in the order in which the shapes first appear. Labels nobody looks at do not count."""
    waiting = tuple(pods)
    exact: dict[Shape, list[PodKey]] = {}
    for pod in waiting:
        exact.setdefault(pod.wants.shape, []).append(pod.key)
    if len(exact) <= 1:
        return tuple(Party(shape, tuple(keys)) for shape, keys in exact.items())
    telling = _signatures(floor, exact)
    alike: dict[Shape, list[tuple[PodKey, Shape]]] = {}
    for pod in waiting:
        shape = pod.wants.shape
        alike.setdefault(telling[shape], []).append((pod.key, shape))
    return tuple(_party(shape, members) for shape, members in alike.items())


def _signatures(floor: Floor, shapes: Iterable[Shape]) -> Mapping[Shape, Shape]:
    """Shapes without labels that nobody looks at. One floor is asked about the same pods again and again."""
    known: dict[Shape, frozenset[str]] = floor.remembered.setdefault("labels looked at", {})
    for shape in shapes:
        if shape not in known:
            known[shape] = shape.own_keys()
    looked_at = frozenset(floor.scene.index.keys).union(*set(map(known.__getitem__, shapes)))
    telling: dict[Shape, Shape] = floor.remembered.setdefault(("signatures", looked_at), {})
    for shape in shapes:
        if shape not in telling:
            telling[shape] = shape.signature(looked_at)
    return telling


def _party(signature: Shape, members: list[tuple[PodKey, Shape]]) -> Party:
    keys, own = tuple(key for key, _ in members), tuple(shape for _, shape in members)
    return Party(own[0], keys) if len(set(own)) == 1 else Party(signature, keys, own)
