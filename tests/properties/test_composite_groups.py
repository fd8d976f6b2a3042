"""Groups of groups: what is told of them bit by bit is what a list of everything tells at once."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import msgspec
import pytest

from bayplan.dialects.api import Event, Happened, Kind
from bayplan.dialects.kube.decode.wire import PODS_KIND
from bayplan.dialects.kube.gang.composite_groups import CompositeGroups
from bayplan.dialects.kube.gang.events import SchedulingDecoder
from bayplan.dialects.kube.gang.objects import COMPOSITES, CONDITIONS, DIALECT, POD_GROUPS
from bayplan.dialects.kube.gang_api.gates import V1BETA1
from bayplan.model.change import (
    Change,
    GangSpecLost,
    GangSpecSeen,
    PodLost,
    PodSeen,
    TopologyLost,
    TopologySeen,
)
from bayplan.model.gang import Ref
from tests.properties.amounts import seeds

SEEDS, CHUNK, STEPS = seeds(100, 200), 50, 30
GROUPS = POD_GROUPS[V1BETA1]
NAMES = {COMPOSITES: "abcd", GROUPS: "wxyz", PODS_KIND: "012345"}
Key = tuple[Kind, str]
Object = dict[str, Any]


class Hearer:
    """What somebody knows who hears every change."""

    def __init__(self) -> None:
        self.reading = SchedulingDecoder(["bayplan"], lambda pod: None)
        self.known: dict[object, object] = {}

    def take(self, events: Iterable[Event]) -> None:
        for event in events:
            self._fold(self.reading.decode(event))
        self._fold(self.reading.flush())

    def _fold(self, changes: Iterable[Change]) -> None:
        for change in changes:
            match change:
                case GangSpecSeen(charter):
                    self.known[charter.source] = charter
                case TopologySeen(topology):
                    self.known[topology.name] = topology
                case PodSeen(pod):
                    self.known[pod.key] = pod
                case GangSpecLost(gone) | TopologyLost(gone) | PodLost(gone):
                    self.known.pop(gone, None)


class Cluster:
    """Objects that come, change and go."""

    def __init__(self, dice: Random) -> None:
        self.dice, self.made = dice, 0
        self.there: dict[Key, Object] = {}
        self.last: dict[Key, Object] = {}  # also of what is gone

    def happens(self) -> Iterable[Event]:
        for _ in range(self.dice.choice((1, 2, 3, 8))):
            kind = self.dice.choice(tuple(NAMES))
            key = kind, self.dice.choice(NAMES[kind])
            if key not in self.there:
                self.there[key] = self._new(*key)
            elif self.dice.random() < 0.6:
                yield event(Happened.GONE, kind, self.there.pop(key))
                continue
            else:
                self.there[key] = {**self.there[key], "status": self._status(kind)}
            self.last[key] = self.there[key]
            yield event(Happened.SEEN, kind, self.there[key])

    def _new(self, kind: Kind, name: str) -> Object:
        self.made += 1
        meta = {"name": name, "namespace": "default", "uid": f"uid-{self.made}"}
        spec: Object = {"priority": self.dice.choice((0, 0, 5))}
        if kind is PODS_KIND:
            spec |= {"schedulerName": "bayplan", "containers": []}
            spec["schedulingGroup"] = {"podGroupName": self.dice.choice(NAMES[GROUPS])}
            return {"metadata": meta, "spec": spec}
        least = "minCount" if kind is GROUPS else "minGroupCount"
        spec["schedulingPolicy"] = {"gang": {least: self.dice.choice((1, 2))}}
        if self.dice.random() < 0.65:  # perhaps itself, or one below it
            spec["parentCompositePodGroupName"] = self.dice.choice(NAMES[COMPOSITES])
        if self.dice.random() < 0.3:
            spec["schedulingConstraints"] = {"topology": [{"key": self.dice.choice(("rack", "block"))}]}
        return {"metadata": meta, "spec": spec}

    def _status(self, kind: Kind) -> Object:
        if kind is PODS_KIND:
            return {"phase": "Failed"}
        return {"conditions": [{"type": CONDITIONS[V1BETA1], "status": self.dice.choice(("True", "False"))}]}

    def told_at_once(self, forest: CompositeGroups) -> Hearer:
        """Somebody who hears of everything in any order, and of those gone whose place is remembered."""
        found, order = Hearer(), list(self.there)
        self.dice.shuffle(order)
        gone = [key for key in self.last if key not in self.there and _is_remembered(forest, *key)]
        found.take(event(Happened.SEEN, key[0], self.last[key]) for key in (*gone, *order))
        found.take(event(Happened.GONE, key[0], self.last[key]) for key in gone)
        return found


def event(happened: Happened, kind: Kind, item: Object) -> Event:
    return Event(happened, kind, msgspec.convert(item, kind.wire, strict=False), "1")


def _is_remembered(forest: CompositeGroups, kind: Kind, name: str) -> bool:
    node = forest.nodes.get(Ref(DIALECT, kind.kind, "default", name))
    return node is not None and bool(node.parent)


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_what_is_told_bit_by_bit_is_what_a_list_tells(first: int) -> None:
    for seed in range(first, first + CHUNK):
        cluster, heard = Cluster(Random(f"forest {seed}")), Hearer()
        forest = heard.reading.composites
        for step in range(STEPS):
            heard.take(cluster.happens())
            assert heard.known == cluster.told_at_once(forest).known, f"seed {seed}, step {step}"
        heard.take(event(Happened.GONE, kind, item) for (kind, _), item in cluster.there.items())
        assert heard.known == {}, f"seed {seed}"
        assert not (
            forest.nodes or forest.published or forest.pod_groups or forest.positions or forest.mismatched
        ), f"seed {seed}"
