"""The NUMA overlay: every step can be rolled back, and no zone is used twice."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bayplan.model.node import Node
from bayplan.model.numa import NumaRequest
from bayplan.model.pod import PodKey
from bayplan.model.pod_spec import PodSignature
from bayplan.placement.cluster.node_index import NodeSnapshot, allocatable_of, node_index_of
from bayplan.placement.cluster.node_table import table_of
from bayplan.placement.cluster.pod_index import PodIndex
from bayplan.placement.filters.pipeline import FilterInput
from bayplan.placement.numa.columns import zone_columns
from bayplan.placement.numa.snapshot import NumaSnapshot
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.counting import capacity_for
from tests.support.numa_nodes import GPU, amounts, container, report, request_of

ZONE = amounts(cpu=8, memory=32, gpu=2)
SMALL, LARGE = (request_of(container(cpu=2, memory=4, gpu=gpus)) for gpus in (1, 2))


def filter_input_of(nodes: int = 3) -> FilterInput:
    node_array = np.empty(nodes, dtype=object)
    for at in range(nodes):
        node_array[at] = Node(f"n{at}", {}, {"cpu": 16000, "memory": 64 << 30, GPU: 4, "pods": 110})
    index = PodIndex()
    table = table_of(node_array)
    resources = {"cpu": 0, "memory": 1, GPU: 2, "pods": 3}
    allocatable = allocatable_of(table, resources)
    reports = {f"n{at}": report(ZONE, ZONE, name=f"n{at}") for at in range(nodes)}
    columns = zone_columns(node_array.tolist(), reports)
    zones = NumaSnapshot(columns, reports=reports)
    return FilterInput(
        NodeSnapshot(node_index_of(table, index.slots), resources, allocatable, allocatable),
        index,
        zones=zones,
    )


def shape(request: NumaRequest) -> PodSignature:
    asked = {name: amount for one in request.containers for name, amount in one.requests}
    return PodSignature("default", amounts=tuple(sorted((asked | {"pods": 1}).items())), zones=request)


def fitting(overlay: NodeOverlay, request: NumaRequest) -> list[int]:
    """By node, how many such pods fit."""
    rows, counts = capacity_for(overlay.filter_input, shape(request), np.ones(len(overlay), dtype=bool), 99)
    by_row = np.zeros(len(overlay), dtype=np.int64)
    by_row[rows] = counts
    return by_row.tolist()


def test_zones_of_equal_pods_are_known_and_those_of_other_pods_are_not() -> None:
    with NodeOverlay(filter_input_of(1)) as overlay:
        assert (fitting(overlay, SMALL), fitting(overlay, LARGE)) == ([4], [2])
        overlay.add_pod(PodKey("default", "a"), shape(SMALL), 0)
        assert fitting(overlay, SMALL) == [3]
        assert fitting(overlay, LARGE) == [0], "the pod may be in either zone"
        with overlay.in_order():
            assert fitting(overlay, LARGE) == [1]
        assert fitting(overlay, LARGE) == [0]


def test_a_pod_that_is_removed_again_frees_its_zone() -> None:
    with NodeOverlay(filter_input_of(1)) as overlay:
        overlay.add_pod(PodKey("default", "a"), shape(LARGE), 0)
        assert fitting(overlay, LARGE) == [1]
        overlay.remove_pod(PodKey("default", "a"))
        assert fitting(overlay, LARGE) == [2]


Step = tuple[str, int, int, bool]
VERBS = st.sampled_from(["seat", "lift", "mark", "undo"])
STEPS = st.lists(st.tuples(VERBS, st.integers(0, 5), st.integers(0, 2), st.booleans()), max_size=20)


@given(STEPS)
def test_rollback_is_exact(steps: list[Step]) -> None:
    overlay = NodeOverlay(filter_input_of())
    zones = overlay.filter_input.zones
    assert zones is not None
    start = zones.columns.available.copy()
    marks: list[tuple[int, list[list[int]]]] = []
    for what, number, row, small in steps:
        key = PodKey("default", str(number))
        present = key in overlay.filter_input.index.pods
        if what == "seat" and not present:
            overlay.add_pod(key, shape(SMALL if small else LARGE), row)
        elif what == "lift" and present:
            overlay.remove_pod(key)
        elif what == "mark":
            marks.append((overlay.checkpoint(), [fitting(overlay, SMALL), fitting(overlay, LARGE)]))
        elif what == "undo" and marks:
            mark, before = marks.pop()
            overlay.rollback(mark)
            assert [fitting(overlay, SMALL), fitting(overlay, LARGE)] == before
    overlay.close()
    assert (zones.columns.available == start).all()
    assert [fitting(overlay, SMALL), fitting(overlay, LARGE)] == [[4] * 3, [2] * 3]
