"""Pods tried on nodes: what is free follows, and whatever was done is undone."""

from __future__ import annotations

from bayplan.model.node import Node
from bayplan.model.pod import PodKey
from bayplan.model.pod_spec import PodSignature
from bayplan.placement.cluster.node_index import NodeSnapshot, allocatable_of, land_of
from bayplan.placement.cluster.node_table import ABSENT, table_of
from bayplan.placement.cluster.pod_index import PodIndex
from bayplan.placement.cluster.topology_tree import objects
from bayplan.placement.filters.pipeline import FilterInput
from bayplan.placement.overlay.node_overlay import NodeOverlay

RESOURCES = {"cpu": 0, "pods": 1}
SMALL = PodSignature(amounts=(("cpu", 2), ("pods", 1)), weighs=(2, 0))
LARGE = PodSignature(amounts=(("cpu", 3), ("pods", 1)), weighs=(3, 0))


def scene(*names: str) -> FilterInput:
    index = PodIndex()
    table = table_of(objects([Node(name, {}, {"cpu": 4, "pods": 9}) for name in names]))
    room = allocatable_of(table, RESOURCES)
    return FilterInput(NodeSnapshot(land_of(table, index.slots), RESOURCES, room.copy(), room), index)


def key(name: str) -> PodKey:
    return PodKey("default", name)


def test_a_seated_pod_takes_room_and_gives_it_back() -> None:
    here = scene("a", "b")
    with NodeOverlay(here) as floor:
        floor.seat(key("p"), SMALL, 0)
        assert floor.scene.ground.free.tolist() == [[2, 4], [8, 9]]
        assert floor.judge(LARGE).fits.tolist() == [False, True]
        assert floor.place_of(key("p")) == 0
        floor.lift(key("p"))
        assert floor.scene.ground.free.tolist() == [[4, 4], [9, 9]]
        assert floor.place_of(key("p")) == ABSENT
    assert here.ground.free.tolist() == [[4, 4], [9, 9]]
    assert not here.index.pods


def test_undo_goes_back_to_the_mark_and_what_was_known_then_is_known_again() -> None:
    here = scene("a", "b")
    floor = NodeOverlay(here)
    floor.seat(key("first"), SMALL, 0)
    known, mark = floor.judge(LARGE), floor.mark()
    floor.seat_many(SMALL, [key("x"), key("y"), key("z")], [0, 1, 1])
    assert not floor.judge(LARGE).fits.any()
    floor.undo(mark)
    assert floor.judge(LARGE) is known
    assert set(here.index.pods) == {key("first")}
    floor.seat(key("other"), SMALL, 1)
    assert not floor.judge(LARGE).fits.any()  # and not what was known of another third step
    floor.close()
    assert not here.index.pods


def test_a_running_pod_is_lifted_and_put_back_as_it_was() -> None:
    here = scene("a", "b")
    here.index.add(key("old"), "b", SMALL, leaving=True)
    here.index.add(key("elsewhere"), "gone", SMALL)
    here.ground.free[0, 1] -= 2
    floor = NodeOverlay(here)
    floor.lift_many([key("old"), key("elsewhere"), key("old"), key("unheard of")])
    assert floor.scene.ground.free[0].tolist() == [4, 4]
    floor.put_back([key("old"), key("unheard of")])
    assert here.index.pods[key("old")].leaving
    assert floor.place_of(key("old")) == 1
    assert floor.scene.ground.free[0].tolist() == [4, 2]
    assert key("elsewhere") not in here.index.pods
    floor.close()
    assert set(here.index.pods) == {key("old"), key("elsewhere")}


def test_nodes_by_name() -> None:
    floor = NodeOverlay(scene("a", "b", "c"))
    assert (floor.row("b"), floor.row("x"), floor.node(2), len(floor)) == (1, ABSENT, "c", 3)
    assert floor.only(["a", "x"]).tolist() == [True, False, False]
    assert floor.all_but(["a", "x"]).tolist() == [False, True, True]


def test_pods_that_differ_in_labels_nobody_looks_at_keep_their_own() -> None:
    here = scene("a")
    own = [PodSignature(labels=(("index", str(number)),), amounts=SMALL.amounts) for number in range(2)]
    with NodeOverlay(here) as floor:
        floor.seat_many(SMALL, [key("p"), key("q")], [0, 0], own)
        assert [here.index.pods[key(name)].shape for name in "pq"] == own
        floor.lift_many([key("p"), key("q")])
        floor.put_back([key("q")])
        assert here.index.pods[key("q")].shape == own[1]
    assert not here.index.pods
