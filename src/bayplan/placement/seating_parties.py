"""The words of seating: parties of equal pods, and who got which seat."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bayplan.model.pod import Pod, PodKey
from bayplan.model.unfit import Unfit
from bayplan.model.wants import Shape


@dataclass(frozen=True, slots=True)
class Party:
    """Equal pods, in the order in which they get their seats."""

    shape: Shape
    keys: tuple[PodKey, ...]


@dataclass(frozen=True, slots=True)
class Seated:
    """Who sits where (rows of the floor), who was left over and why, in the order of the parties."""

    seats: Mapping[PodKey, int] = field(default_factory=dict)
    left: Mapping[PodKey, Unfit] = field(default_factory=dict)
    unsure: bool = False  # there are fewer than needed, yet more might have been possible: not all was tried


def parties_of(pods: Iterable[Pod]) -> tuple[Party, ...]:
    """Pods by shape, in the order in which the shapes first appear."""
    alike: dict[Shape, list[PodKey]] = {}
    for pod in pods:
        alike.setdefault(pod.wants.shape, []).append(pod.key)
    return tuple(Party(shape, tuple(keys)) for shape, keys in alike.items())
