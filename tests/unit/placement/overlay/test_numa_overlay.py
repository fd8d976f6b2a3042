"""What is tried on a floor with zones: everything can be undone, and nobody gets a zone twice."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bayplan.model.node import Node
from bayplan.model.numa import NumaRequest
from bayplan.model.pod import PodKey
from bayplan.model.pod_spec import PodSignature
from bayplan.placement.cluster.node_index import NodeSnapshot, allocatable_of, land_of
from bayplan.placement.cluster.node_table import table_of
from bayplan.placement.cluster.pod_index import PodIndex
from bayplan.placement.filters.pipeline import FilterInput
from bayplan.placement.numa.columns import zone_columns
from bayplan.placement.numa.snapshot import NumaSnapshot
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.counting import room_for
from tests.support.numa_nodes import GPU, amounts, container, pod, report

ZONE = amounts(cpu=8, memory=32, gpu=2)
SMALL, LARGE = (pod(container(cpu=2, memory=4, gpu=gpus)) for gpus in (1, 2))


def scene(nodes: int = 3) -> FilterInput:
    found = np.empty(nodes, dtype=object)
    for at in range(nodes):
        found[at] = Node(f"n{at}", {}, {"cpu": 16000, "memory": 64 << 30, GPU: 4, "pods": 110})
    index = PodIndex()
    table = table_of(found)
    resources = {"cpu": 0, "memory": 1, GPU: 2, "pods": 3}
    room = allocatable_of(table, resources)
    reports = {f"n{at}": report(ZONE, ZONE, name=f"n{at}") for at in range(nodes)}
    columns = zone_columns(found.tolist(), reports)
    zones = NumaSnapshot(columns, believed=reports)
    return FilterInput(NodeSnapshot(land_of(table, index.slots), resources, room, room), index, zones=zones)


def shape(wants: NumaRequest) -> PodSignature:
    asked = {name: amount for one in wants.containers for name, amount in one.requests}
    return PodSignature("default", amounts=tuple(sorted((asked | {"pods": 1}).items())), zones=wants)


def fitting(floor: NodeOverlay, wants: NumaRequest) -> list[int]:
    """By node, how many such pods it takes."""
    rows, counts = room_for(floor.scene, shape(wants), np.ones(len(floor), dtype=bool), 99)
    found = np.zeros(len(floor), dtype=np.int64)
    found[rows] = counts
    return found.tolist()


def test_equals_know_what_they_take_and_others_do_not() -> None:
    with NodeOverlay(scene(1)) as floor:
        assert (fitting(floor, SMALL), fitting(floor, LARGE)) == ([4], [2])
        floor.seat(PodKey("default", "a"), shape(SMALL), 0)
        assert fitting(floor, SMALL) == [3]
        assert fitting(floor, LARGE) == [0], "it may lie in either zone"
        with floor.in_order():
            assert fitting(floor, LARGE) == [1]
        assert fitting(floor, LARGE) == [0]


def test_who_was_seated_and_left_gives_its_zone_back() -> None:
    with NodeOverlay(scene(1)) as floor:
        floor.seat(PodKey("default", "a"), shape(LARGE), 0)
        assert fitting(floor, LARGE) == [1]
        floor.lift(PodKey("default", "a"))
        assert fitting(floor, LARGE) == [2]


Step = tuple[str, int, int, bool]
VERBS = st.sampled_from(["seat", "lift", "mark", "undo"])
STEPS = st.lists(st.tuples(VERBS, st.integers(0, 5), st.integers(0, 2), st.booleans()), max_size=20)


@given(STEPS)
def test_undoing_is_exact(steps: list[Step]) -> None:
    floor = NodeOverlay(scene())
    zones = floor.scene.zones
    assert zones is not None
    start = zones.columns.available.copy()
    marks: list[tuple[int, list[list[int]]]] = []
    for what, number, row, small in steps:
        key = PodKey("default", str(number))
        there = key in floor.scene.index.pods
        if what == "seat" and not there:
            floor.seat(key, shape(SMALL if small else LARGE), row)
        elif what == "lift" and there:
            floor.lift(key)
        elif what == "mark":
            marks.append((floor.mark(), [fitting(floor, SMALL), fitting(floor, LARGE)]))
        elif what == "undo" and marks:
            mark, before = marks.pop()
            floor.undo(mark)
            assert [fitting(floor, SMALL), fitting(floor, LARGE)] == before
    floor.close()
    assert (zones.columns.available == start).all()
    assert [fitting(floor, SMALL), fitting(floor, LARGE)] == [[4] * 3, [2] * 3]
