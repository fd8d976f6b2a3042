"""A group without a minimum starts the most pods that fit, whichever they are."""

from __future__ import annotations

from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from tests.support.scheduling_scene import binds, board, gang, node, pod, step


def most_of(rooms: tuple[int, ...], sizes: tuple[int, ...]) -> int:
    """The most pods of these sizes that the nodes hold, by trying everything."""

    @cache
    def best(at: int, left: tuple[int, ...]) -> int:
        if at == len(sizes):
            return 0
        found = best(at + 1, left)
        for number, room in enumerate(left):
            if room >= sizes[at]:
                rest = tuple(sorted((*left[:number], room - sizes[at], *left[number + 1 :])))
                found = max(found, 1 + best(at + 1, rest))
        return found

    return best(0, tuple(sorted(rooms)))


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=3), st.lists(st.integers(1, 6), min_size=1, max_size=7)
)
def test_a_group_without_a_minimum_starts_the_most_pods(rooms: list[int], sizes: list[int]) -> None:
    nodes = [node(f"n{at}", gpus=room) for at, room in enumerate(rooms)]
    pods = [pod("g", rank, gpus=size) for rank, size in enumerate(sizes)]
    started = binds(step(board(*nodes, gang("g", 0), *pods)))
    assert len(started) == most_of(tuple(rooms), tuple(sizes))
    for at, room in enumerate(rooms):
        assert (
            sum(sizes[int(name.rpartition("-")[2])] for name, on in started.items() if on == f"n{at}") <= room
        )
