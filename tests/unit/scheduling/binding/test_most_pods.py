"""A group in which each pod counts by itself starts the most pods, not the largest."""

from __future__ import annotations

from bayplan.model.gang import Locality
from tests.support.scheduling_scene import binds, board, gang, node, pod, step


def test_a_group_without_a_minimum_starts_two_small_pods_and_not_one_large_one() -> None:
    wants = [pod("g", rank, gpus=gpus) for rank, gpus in enumerate((3, 2, 2))]
    assert binds(step(board(node("n1"), gang("g", 0), *wants))) == {"g-1": "n1", "g-2": "n1"}


def test_a_group_that_stays_in_one_rack_starts_the_most_pods_there() -> None:
    wants = [pod("g", rank, gpus=gpus) for rank, gpus in enumerate((3, 2, 2))]
    nodes = [node("n1", "r1", gpus=3), node("n2", "r2", gpus=4)]
    group = gang("g", 0, locality=Locality(required="rack"))
    assert binds(step(board(*nodes, group, *wants))) == {"g-1": "n2", "g-2": "n2"}


def test_a_group_that_has_its_minimum_starts_the_most_of_the_others() -> None:
    wants = [pod("g", rank, gpus=gpus) for rank, gpus in enumerate((3, 2, 2))]
    running = pod("g", 3, on="n1", gpus=4, started=1.0)
    assert binds(step(board(node("n1"), node("n2"), gang("g", 1), running, *wants))) == {
        "g-1": "n2",
        "g-2": "n2",
    }
