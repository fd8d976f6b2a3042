"""The node overlay: free amounts follow added and removed pods, and every step can be rolled back."""

from __future__ import annotations

from bayplan.model.node import Node
from bayplan.model.pod import PodKey
from bayplan.model.pod_spec import PodSignature
from bayplan.placement.cluster.node_index import NodeSnapshot, allocatable_of, node_index_of
from bayplan.placement.cluster.node_table import ABSENT, table_of
from bayplan.placement.cluster.pod_index import PodIndex
from bayplan.placement.cluster.topology_tree import objects
from bayplan.placement.filters.pipeline import FilterInput
from bayplan.placement.overlay.node_overlay import NodeOverlay

RESOURCES = {"cpu": 0, "pods": 1}
SMALL = PodSignature(amounts=(("cpu", 2), ("pods", 1)), score_requests=(2, 0))
LARGE = PodSignature(amounts=(("cpu", 3), ("pods", 1)), score_requests=(3, 0))


def filter_input_of(*names: str) -> FilterInput:
    index = PodIndex()
    table = table_of(objects([Node(name, {}, {"cpu": 4, "pods": 9}) for name in names]))
    allocatable = allocatable_of(table, RESOURCES)
    return FilterInput(
        NodeSnapshot(node_index_of(table, index.slots), RESOURCES, allocatable.copy(), allocatable), index
    )


def key(name: str) -> PodKey:
    return PodKey("default", name)


def test_an_added_pod_uses_capacity_until_it_is_removed() -> None:
    filter_input = filter_input_of("a", "b")
    with NodeOverlay(filter_input) as overlay:
        overlay.add_pod(key("p"), SMALL, 0)
        assert overlay.filter_input.node_snapshot.free.tolist() == [[2, 4], [8, 9]]
        assert overlay.run_filters(LARGE).fits.tolist() == [False, True]
        assert overlay.row_of(key("p")) == 0
        overlay.remove_pod(key("p"))
        assert overlay.filter_input.node_snapshot.free.tolist() == [[4, 4], [9, 9]]
        assert overlay.row_of(key("p")) == ABSENT
    assert filter_input.node_snapshot.free.tolist() == [[4, 4], [9, 9]]
    assert not filter_input.index.pods


def test_rollback_returns_to_the_checkpoint_and_its_cached_results() -> None:
    filter_input = filter_input_of("a", "b")
    overlay = NodeOverlay(filter_input)
    overlay.add_pod(key("first"), SMALL, 0)
    known, mark = overlay.run_filters(LARGE), overlay.checkpoint()
    overlay.add_pods(SMALL, [key("x"), key("y"), key("z")], [0, 1, 1])
    assert not overlay.run_filters(LARGE).fits.any()
    overlay.rollback(mark)
    assert overlay.run_filters(LARGE) is known
    assert set(filter_input.index.pods) == {key("first")}
    overlay.add_pod(key("other"), SMALL, 1)
    assert not overlay.run_filters(LARGE).fits.any()  # not the cached result of the step that was rolled back
    overlay.close()
    assert not filter_input.index.pods


def test_a_running_pod_is_removed_and_restored_as_it_was() -> None:
    filter_input = filter_input_of("a", "b")
    filter_input.index.add(key("old"), "b", SMALL, leaving=True)
    filter_input.index.add(key("elsewhere"), "gone", SMALL)
    filter_input.node_snapshot.free[0, 1] -= 2
    overlay = NodeOverlay(filter_input)
    overlay.remove_pods([key("old"), key("elsewhere"), key("old"), key("unknown")])
    assert overlay.filter_input.node_snapshot.free[0].tolist() == [4, 4]
    overlay.restore_pods([key("old"), key("unknown")])
    assert filter_input.index.pods[key("old")].leaving
    assert overlay.row_of(key("old")) == 1
    assert overlay.filter_input.node_snapshot.free[0].tolist() == [4, 2]
    assert key("elsewhere") not in filter_input.index.pods
    overlay.close()
    assert set(filter_input.index.pods) == {key("old"), key("elsewhere")}


def test_rows_and_masks_of_nodes_by_name() -> None:
    overlay = NodeOverlay(filter_input_of("a", "b", "c"))
    assert (overlay.row("b"), overlay.row("x"), overlay.node(2), len(overlay)) == (1, ABSENT, "c", 3)
    assert overlay.mask_of(["a", "x"]).tolist() == [True, False, False]
    assert overlay.mask_without(["a", "x"]).tolist() == [False, True, True]


def test_pods_that_differ_in_unselected_labels_keep_their_own() -> None:
    filter_input = filter_input_of("a")
    own = [PodSignature(labels=(("index", str(number)),), amounts=SMALL.amounts) for number in range(2)]
    with NodeOverlay(filter_input) as overlay:
        overlay.add_pods(SMALL, [key("p"), key("q")], [0, 0], own)
        assert [filter_input.index.pods[key(name)].shape for name in "pq"] == own
        overlay.remove_pods([key("p"), key("q")])
        overlay.restore_pods([key("q")])
        assert filter_input.index.pods[key("q")].shape == own[1]
    assert not filter_input.index.pods
