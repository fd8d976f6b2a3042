"""Nothing that a decision tries is visible in the state, also if it raises half-way, wherever that is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping
from inspect import CO_GENERATOR
from random import Random
from types import FrameType
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bayplan.model.plan import Plan
from bayplan.model.watchdog import Watchdog
from bayplan.placement.cluster.counters import NodeCounter, NodeIds
from bayplan.placement.cluster.node_table import NodeTable
from bayplan.placement.cluster.pod_index import PodIndex
from bayplan.placement.overlay.topology_overlay import KnownRows
from bayplan.scheduling.admission.cycle import decide_admissions
from bayplan.scheduling.binding.cycle import decide_gangs
from bayplan.state.admission.state import AdmissionState
from bayplan.state.scheduling.state import SchedulingState
from tests.properties import fair_worlds, numa_states
from tests.properties.admission_worlds import gangs, queues_of, random_world
from tests.properties.amounts import seeds

SEEDS = st.integers(0, 2**32)
CACHES = frozenset({"memory", "cache", "_view", "_rows", "_land"})
"""Attributes that hold what was computed from the rest."""
CLEANUP = ("__exit__", "close")  # what runs after an exception has to begin


class Thrown(Exception):
    """The injected exception."""


# ── what a state holds ─────────────────────────────────────────────────────────────────────────────


def digest(value: Any, seen: dict[int, tuple[Any, Hashable]] | None = None) -> Hashable:
    """All that a value holds, without caches. Orders of mappings and sets do not count."""
    known = {} if seen is None else seen
    if isinstance(value, str | int | float | bytes | bool | type(None) | type):
        return value
    if id(value) in known:
        return known[id(value)][1]
    known[id(value)] = value, "…"  # a cycle; the value is kept, so that no other gets its id
    found = _digest(value, known)
    known[id(value)] = value, found
    return found


def _digest(value: Any, seen: dict[int, tuple[Any, Hashable]]) -> Hashable:
    match value:
        case KnownRows():
            return None
        case PodIndex():
            return _index(value, seen)
        case NodeCounter():
            return hash(frozenset(value.sparse.items()))
        case NodeIds():
            return digest(value.numbers, seen)
        case NodeTable():
            rows = [
                (value.taint_sets[code], node) for code, node in zip(value.taints, value.nodes, strict=True)
            ]
            return digest(rows, seen)
        case np.ndarray() if value.dtype == object:
            return digest(value.tolist(), seen)
        case np.ndarray():
            return hash((value.shape, value.dtype.str, value.tobytes()))
        case Mapping():
            return hash(frozenset((digest(key, seen), digest(one, seen)) for key, one in value.items()))
        case set() | frozenset():
            return hash(frozenset(digest(one, seen) for one in value))
        case list() | tuple():
            return hash(tuple(digest(one, seen) for one in value))
        case _ if type(value).__module__.startswith("bayplan."):
            names = _attributes(value)
            return hash(tuple((name, digest(getattr(value, name), seen)) for name in names))
    return None


def _index(index: PodIndex, seen: dict[int, tuple[Any, Hashable]]) -> Hashable:
    pods = {key: (pod.node, pod.shape, pod.leaving) for key, pod in index.pods.items()}
    counted = (index.pod_counts, index.keys, index.affinity_terms, index.ports, index.disks, index.claims)
    for query in list(index.queries):
        fresh = index.columns.count(query.pairs, len(index.slots), leaving=query.leaving)
        assert index.count(query).tolist()[: len(fresh)] == fresh.tolist(), query
    weight = {slot: index.weight[:, slot].tolist() for slot in index.pod_counts}
    parts = (pods, *counted, index.namespaces, index.damaged, index.version, weight)
    return hash(tuple(digest(one, seen) for one in parts))


def _attributes(value: object) -> list[str]:
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    names = {*getattr(value, "__dict__", ()), *slots} - CACHES
    return sorted(name for name in names if not name.startswith("__") and hasattr(value, name))


# ── decisions that are interrupted ─────────────────────────────────────────────────────────────────


class Impatient(Watchdog):
    """Raises when it is asked for the n-th time."""

    def __init__(self, patience: int) -> None:
        super().__init__()
        self.patience = patience

    def check(self) -> None:
        self.patience -= 1
        if self.patience < 0:
            raise Thrown


def raising_at(call: int, work: Callable[[], Plan]) -> int:
    """Raise at the n-th call of a function of the product; returns how many calls there were."""
    calls = 0

    def trace(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        code = frame.f_code
        ends = code.co_name in CLEANUP or code.co_flags & CO_GENERATOR  # one may be closed by the call
        if event == "call" and "/bayplan/" in code.co_filename and not ends:
            calls += 1
            if calls == call:
                raise Thrown

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except Thrown:
        pass
    finally:
        sys.settrace(before)
    return calls


def interrupted(decide: Callable[[Watchdog], Plan], random: Random) -> None:
    """Decide, with an exception at a random point: where the watchdog is asked, or in any function."""
    if random.random() < 0.3:
        try:
            decide(Impatient(random.randrange(60)))
        except Thrown:
            return
    calls = raising_at(0, lambda: decide(Watchdog()))
    raising_at(random.randint(1, max(calls, 1)), lambda: decide(Watchdog()))


def check_binding(state: SchedulingState, decide: Callable[[Watchdog], Plan], random: Random) -> None:
    expected, before = decide(Watchdog()), digest(state)
    for _ in range(3):
        interrupted(decide, random)
        assert digest(state) == before
    assert decide(Watchdog()) == expected


@settings(max_examples=seeds(25, 500))
@given(SEEDS)
def test_an_interrupted_decision_on_gangs_of_queues_leaves_the_state_as_it_was(seed: int) -> None:
    state = SchedulingState(heal_seconds=1e9)
    state.apply_all(fair_worlds.world(seed).changes())
    heads = state.heads(fair_worlds.NOW)

    def decide(watchdog: Watchdog) -> Plan:
        look = state.snapshot(heads, fair_worlds.NOW)
        return decide_gangs(look, fair_worlds.PROFILE, fair_worlds.NOW, watchdog)

    check_binding(state, decide, Random(seed))


@settings(max_examples=seeds(5, 200))
@given(SEEDS)
@example(3_628_995_981)  # between the entry of a step in the undo log and the step itself
def test_an_interrupted_decision_on_gangs_in_zones_leaves_the_state_as_it_was(seed: int) -> None:
    problem = numa_states.problem(seed)

    def decide(watchdog: Watchdog) -> Plan:
        return decide_gangs(problem.state.snapshot(problem.gangs, 1.0), problem.profile, 1000.0, watchdog)

    check_binding(problem.state, decide, Random(seed))


@settings(max_examples=seeds(20, 500))
@given(SEEDS)
def test_an_interrupted_admission_leaves_the_state_as_it_was(seed: int) -> None:
    random = Random(seed)
    world = random_world(random, topology=random.random() < 0.7, fair=random.random() < 0.5, flavors=2)
    world.settle()
    topology = bool(world.state.usage.topologies)
    world.draw(gangs(random, queues_of(world), 6, start=100, topology=topology))
    state: AdmissionState = world.state
    heads = state.heads(world.now)

    def decide(watchdog: Watchdog) -> Plan:
        return decide_admissions(state.snapshot(heads), world.profile, world.now, watchdog)

    expected, before = decide(Watchdog()), digest(state)
    for _ in range(3):
        interrupted(decide, random)
        assert digest(state) == before
    assert decide(Watchdog()) == expected
