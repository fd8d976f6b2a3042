"""Node and usage changes, one by one: the cluster always equals one that was loaded afresh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bayplan.model.node import Topology
from bayplan.model.node_rules import NodeRules, NodeSelectorTerm, Requirement, Toleration
from bayplan.placement.cluster.node_table import mask
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.gang.place import place
from bayplan.state.cluster.topology_state import TopologyState
from tests.properties import oracle
from tests.properties.worlds import NODE, THREE, cluster_of, gang_of, node_of, numbered_node, packed

NAMES = st.sampled_from([f"n{at}" for at in range(6)])
AMOUNTS: tuple[dict[str, int], ...] = ({"gpu": 1, "pods": 1}, {"cpu": 2, "pods": 1}, {"tpu": 1}, {"gpu": 3})
ASPECTS = ("labels", "labels", "free", "taints")
TOPOLOGIES = (THREE, ("block", "rack"), THREE[1:], ("rack",))
RULES = (
    NodeRules(),
    NodeRules(selector=(("kind", "a"),)),
    NodeRules(tolerations=(Toleration("t", "Exists"),)),
    NodeRules(affinity=(NodeSelectorTerm((Requirement("kind", "NotIn", ("a",)),)),)),
    NodeRules(affinity=(NodeSelectorTerm((Requirement("rack", "In", ("x", "z")),)),)),
)
PLAIN = {"how": "", "level": "", "segments": (), "select": {}, "affinity": (), "tolerates": ("t",)}
QUESTIONS = tuple(
    gang_of({**PLAIN, "name": "set", "count": count, "requests": requests})
    for count, requests in ((1, {"gpu": 1}), (5, {"gpu": 1}), (2, {"cpu": 3}), (1, {"tpu": 1}))
)


def picture(supply: CapacitySnapshot, resources: Sequence[str]) -> dict[str, Any]:
    """Everything a snapshot tells about these resources, so that two of them can be compared."""
    fresh = replace(supply, memory={})
    rows = [each.name for each in supply.tree.nodes]

    def by_name(table: Any) -> dict[str, list[int]]:
        return {name: table[supply.resources[name]].tolist() for name in resources}

    return {
        "rows": rows,
        "starts": [starts.tolist() for starts in supply.tree.starts],
        "children": [first.tolist() for first in supply.tree.children],
        "spans": [spans.tolist() for spans in supply.tree.spans],
        "free": by_name(supply.free),
        "claimed": {} if supply.claimed is None else by_name(supply.claimed),
        "active": supply.active.tolist(),
        "masks": [mask(supply.table, rules).tolist() for rules in RULES],
        "leaves": [supply.leaf((name,)) for name in rows],
        "answers": [place(fresh, question).assignments for question in QUESTIONS],
    }


class Changes(RuleBasedStateMachine):
    """Any sequence of changes, beside plain dicts that say what should be true."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: dict[str, dict[str, Any]] = {}
        self.used: dict[str, dict[str, int]] = {}
        self.held: dict[tuple[str, ...], dict[str, int]] = {}
        self.levels: tuple[str, ...] = ()
        self.cluster = TopologyState(Topology("none", ("rack",)))
        self.older: list[tuple[CapacitySnapshot, dict[str, Any], list[str]]] = []

    @initialize(levels=st.sampled_from(TOPOLOGIES), numbers=st.lists(packed(*NODE), max_size=4))
    def start(self, levels: tuple[str, ...], numbers: list[int]) -> None:
        self.levels = levels
        self.nodes = {f"n{at}": numbered_node(number, f"n{at}") for at, number in enumerate(numbers)}
        self.cluster = cluster_of({"levels": levels, "nodes": list(self.nodes.values())})

    @rule(name=NAMES, number=packed(*NODE))
    def upsert(self, name: str, number: int) -> None:
        """A new node, or one that is different in everything."""
        self._put(numbered_node(number, name))

    @precondition(lambda self: self.nodes)
    @rule(pick=st.integers(0, 5), number=packed(*NODE), key=st.sampled_from(ASPECTS))
    def change(self, pick: int, number: int, key: str) -> None:
        """One aspect of a node changes: it moves, is resized, tainted, or falls silent."""
        given = list(self.nodes.values())[pick % len(self.nodes)]
        self._put({**given, key: numbered_node(number, given["name"])[key]})

    @precondition(lambda self: self.nodes)
    @rule(pick=st.integers(0, 5), key=st.sampled_from(("ready", "schedulable")))
    def flip(self, pick: int, key: str) -> None:
        given = list(self.nodes.values())[pick % len(self.nodes)]
        self._put({**given, key: not given[key]})

    @precondition(lambda self: self.nodes)
    @rule(pick=st.integers(0, 5), amount=st.integers(0, 2))
    def grow_a_resource_nobody_had(self, pick: int, amount: int) -> None:
        given = list(self.nodes.values())[pick % len(self.nodes)]
        self._put({**given, "free": {**given["free"], "tpu": amount}})

    def _put(self, given: dict[str, Any]) -> None:
        self.nodes[given["name"]] = given
        self.cluster.upsert(node_of(given))

    @rule(name=NAMES)
    def remove(self, name: str) -> None:
        self.nodes.pop(name, None)
        self.cluster.remove(name)

    @rule(name=NAMES, amounts=st.sampled_from(AMOUNTS))
    def use_node(self, name: str, amounts: dict[str, int]) -> None:
        self.cluster.use_node(name, amounts)
        _count(self.used.setdefault(name, {}), amounts, 1)

    @rule(name=NAMES, amounts=st.sampled_from(AMOUNTS))
    def release_node(self, name: str, amounts: dict[str, int]) -> None:
        if all(self.used.get(name, {}).get(key, 0) >= amount for key, amount in amounts.items()):
            self.cluster.use_node(name, amounts, -1)
            _count(self.used[name], amounts, -1)

    @precondition(lambda self: self.nodes)
    @rule(pick=st.integers(0, 5), amounts=st.sampled_from(AMOUNTS))
    def use_domain(self, pick: int, amounts: dict[str, int]) -> None:
        given = list(self.nodes.values())[pick % len(self.nodes)]
        if all(level in given["labels"] for level in self.levels):
            leaf = oracle.leaf_of({"levels": self.levels}, given)
            key = leaf[-1:] if self.levels[-1] == oracle.HOST else leaf
            self.cluster.use_domain(key, amounts)
            _count(self.held.setdefault(key, {}), amounts, 1)

    @precondition(lambda self: self.held)
    @rule(pick=st.integers(0, 5))
    def release_domain(self, pick: int) -> None:
        """Also where the nodes are gone by now."""
        key = list(self.held)[pick % len(self.held)]
        self.cluster.use_domain(key, self.held.pop(key), -1)

    @rule(name=NAMES, number=packed(*NODE), amounts=st.sampled_from(AMOUNTS))
    def much_at_once(self, name: str, number: int, amounts: dict[str, int]) -> None:
        """Nobody looks in between, so nothing has to be copied for anybody."""
        self.use_node(name, amounts)
        self.upsert(name, number)
        self.use_domain(number, amounts)
        self.flip(number, "ready")

    @invariant()
    def equals_a_fresh_one(self) -> None:
        if not self.levels:
            return
        fresh = cluster_of({"levels": self.levels, "nodes": list(self.nodes.values())})
        for name, amounts in self.used.items():
            fresh.use_node(name, amounts)
        for key, amounts in self.held.items():
            fresh.use_domain(key, amounts)
        supply = self.cluster.snapshot()
        resources = sorted(fresh.resources)
        seen = picture(supply, resources)
        assert seen == picture(fresh.snapshot(), resources)
        for older, before, known in self.older:
            assert picture(older, known) == before, "a snapshot has changed"
        self.older = [*self.older[-1:], (supply, seen, resources)]


def _count(total: dict[str, int], amounts: dict[str, int], sign: int) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + sign * amount


TestChanges = Changes.TestCase
TestChanges.settings = settings(
    max_examples=max(settings.default.max_examples // 3, 1),  # type: ignore[union-attr]
    report_multiple_bugs=False,
    phases=(Phase.explicit, Phase.generate),  # to shrink 25 steps takes minutes; few of them matter
)
