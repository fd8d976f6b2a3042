"""A frozen view for deciding which gangs get nodes: who asks, and everything they are held against."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from bayplan.model.charter import Budget, Charter
from bayplan.model.gang import Ref
from bayplan.model.pod import Pod, PodKey
from bayplan.model.standstill import Standstill
from bayplan.placement.fit_filters import Scene
from bayplan.placement.supply import Supply
from bayplan.state.fair_book import FairView


@dataclass(frozen=True, slots=True)
class Candidate:
    """A gang, or a lone pod, whose turn it is."""

    charter: Charter
    waiting: tuple[Pod, ...]  # want a node, in the order in which they are tried
    standing: tuple[Pod, ...] = ()  # have a node, or did their part
    nominated: Mapping[PodKey, str] = field(default_factory=dict)
    making_room: frozenset[PodKey] = frozenset()  # who is on the way out for it
    hindrance: Standstill | None = None  # not to be tried at all, only told
    refused: Standstill | None = None  # what it was told last
    stale: bool = False  # it has stood in part for too long
    since: float = 0.0  # it waits since then
    topology: str = ""  # whose levels its tree names; key of `Look.supplies`


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """One moment. The index inside the scene is the live one: whoever tries something undoes it."""

    scene: Scene
    supply: Supply  # every node, by name; rows as in the scene
    supplies: Mapping[str, Supply] = field(default_factory=dict)  # by topology
    candidates: tuple[Candidate, ...] = ()
    pods: Mapping[PodKey, Pod] = field(default_factory=dict)  # everything that takes room
    charters: Mapping[Ref, Charter] = field(default_factory=dict)
    members: Mapping[Ref, Collection[PodKey]] = field(default_factory=dict)
    budgets: tuple[Budget, ...] = ()
    nominations: Mapping[PodKey, tuple[Pod, str]] = field(default_factory=dict)  # room promised to others
    kept: tuple[Ref, frozenset[str]] | None = None  # nodes whose room is kept, and for whom
    kept_priority: int | None = None  # how important that one is
    fair: FairView | None = None  # the queues that share the nodes
