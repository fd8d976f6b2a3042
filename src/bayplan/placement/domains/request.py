"""A pod set's wishes resolved against a topology: level numbers instead of names, or why that fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from bayplan.model.assignment import Code, Misfit
from bayplan.model.gang import AUTO, Locality, PodSet
from bayplan.model.node import Topology
from bayplan.model.profile import Profile, Remainder, Strategy


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """A resolved request for one pod set. Levels are indices, 0 at the top."""

    count: int  # pods to place in whole segments
    level: int  # where the search starts
    required: bool
    unconstrained: bool
    strategy: Strategy
    segment_level: int
    size: int  # pods per outermost segment; 1 without segments
    inner: Mapping[int, int] = field(default_factory=dict)  # level → size of the inner layer counted there
    layers: tuple[tuple[str, int, int], ...] = ()  # (name, level, size), only with inner layers
    remainder: int = 0  # pods of the last, smaller segment
    leader: bool = False
    affinity: bool = False
    packs: bool = True  # below the segment level: most capacity first (else the smallest remaining)
    climbs: bool = False  # required at the lowest level that holds the pods

    @property
    def units(self) -> int:
        """How many whole segments (single pods without segments) to place."""
        return self.count // self.size


def resolve(
    pod_set: PodSet, locality: Locality, topology: Topology, profile: Profile
) -> PlacementRequest | Misfit:
    """Resolve level names; a misfit for names that the topology lacks and layers that do not nest."""
    levels = {name: index for index, name in enumerate(topology.levels)}
    misfit = partial(Misfit, pod_sets=(pod_set.name,), topology=topology.name)
    segments = pod_set.segments
    size = segments[0].size if segments else 1
    if size <= 0:
        return misfit(Code.SEGMENT_SIZE_MISSING, level=segments[0].level)

    level_name = locality.required or locality.preferred
    segment_name = segments[0].level if segments else topology.levels[-1]
    if level_name == AUTO:
        level_name = segment_name if segment_name in levels else topology.levels[-1]
    elif level_name is None and segments and profile.unconstrained is not Strategy.PACK_RACKS:
        level_name = topology.levels[0]
    elif level_name is None:
        level_name = segment_name if segment_name in levels else topology.levels[-1]
    if level_name not in levels:
        return misfit(Code.UNKNOWN_LEVEL, level=level_name)
    if segment_name not in levels:
        return misfit(Code.UNKNOWN_SEGMENT_LEVEL, level=segment_name)
    level, segment_level = levels[level_name], levels[segment_name]
    if level > segment_level:
        return misfit(Code.SEGMENT_ABOVE_LOCALITY, level=segment_name, other_level=level_name)

    inner: dict[int, int] = {}
    above, parent = segment_level, size
    for layer in segments[1:]:
        if layer.level not in levels:
            return misfit(Code.UNKNOWN_INNER_LEVEL, level=layer.level)
        if levels[layer.level] <= above:
            return misfit(Code.INNER_LEVEL_NOT_LOWER, level=layer.level, other_level=topology.levels[above])
        if layer.size <= 0 or parent % layer.size:
            return misfit(Code.INNER_SIZE_NOT_DIVISOR, level=layer.level, sizes=(layer.size, parent))
        inner.update(dict.fromkeys(range(above + 1, levels[layer.level] + 1), layer.size))
        above, parent = levels[layer.level], layer.size

    unconstrained = locality.required is None and locality.preferred is None
    rest = pod_set.count % size
    keep_rest = profile.remainder is Remainder.LAST_SEGMENT
    return PlacementRequest(
        count=pod_set.count - rest,
        level=level,
        required=locality.required is not None,
        unconstrained=unconstrained,
        strategy=_strategy(locality, profile),
        segment_level=segment_level,
        size=size,
        inner=inner,
        layers=tuple((s.level, levels[s.level], s.size) for s in segments) if inner else (),
        remainder=rest if keep_rest else 0,
        affinity=profile.preferred_affinity and bool(pod_set.rules.preferred),
        packs=profile.pack_segments,
        climbs=locality.required == AUTO,
    )


def _strategy(locality: Locality, profile: Profile) -> Strategy:
    if locality.required is not None:
        return profile.required
    return profile.preferred if locality.preferred is not None else profile.unconstrained
