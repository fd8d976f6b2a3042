"""When a gang of groups with optional members has its minimum, and what it lacks."""

from __future__ import annotations

import pytest

from bayplan.model.gang import Group, PodSet, has_minimum, part_below_minimum, pods_to_minimum
from bayplan.state.scheduling.gang_state import MemberState, PodSetCounts

A, B, C = PodSet("a", 2, 2), PodSet("b", 1, 1), PodSet("c", 3, 3)
INNER = Group("inner", (A, B), 1)
TREE = Group("tree", (INNER, C), 2)


@pytest.mark.parametrize(
    ("counts", "short", "more"),
    [
        ({}, "a", 4),
        ({"b": 1}, "c", 3),
        ({"a": 1, "c": 3}, "a", 1),
        ({"a": 2, "c": 3}, None, 0),
        ({"a": 9, "b": 9}, "c", 3),
    ],
)
def test_a_group_has_its_minimum_with_that_many_members(
    counts: dict[str, int], short: str | None, more: int
) -> None:
    part = part_below_minimum(TREE, counts)
    assert (None if part is None else part.name) == short
    assert has_minimum(TREE, counts) == (short is None)
    assert pods_to_minimum(TREE, counts) == more


def test_a_group_that_has_too_few_members_is_itself_what_is_short() -> None:
    lonely = Group("lonely", (A,), 2)
    part = part_below_minimum(Group("top", (lonely,), 1), {"a": 2})
    assert part is lonely
    assert pods_to_minimum(lonely, {"a": 2}) is None


def test_optional_members_are_not_waited_for() -> None:
    pods = [(("b", 0), MemberState.PENDING)] + [(("c", 0), MemberState.PENDING)] * 3
    assert PodSetCounts.of(TREE, pods, quorum=True).too_small() is None
    assert PodSetCounts.of(TREE, pods).too_small() == "a"


def test_gated_pods_count_only_where_the_others_are_not_enough() -> None:
    there = [(("c", 0), MemberState.PENDING)] * 3 + [(("b", 0), MemberState.GATED)]
    assert PodSetCounts.of(TREE, there, quorum=True).lacks_ungated() == "b"
    enough = [*there, (("a", 0), MemberState.PENDING), (("a", 0), MemberState.PENDING)]
    assert PodSetCounts.of(TREE, enough, quorum=True).lacks_ungated() is None


def test_a_gang_has_its_minimum_with_a_quorum() -> None:
    stands = [(("b", 0), MemberState.BOUND)] + [(("c", 0), MemberState.BOUND)] * 3
    assert PodSetCounts.of(TREE, stands, quorum=True).has_minimum
    assert not PodSetCounts.of(TREE, stands[:-1], quorum=True).has_minimum
