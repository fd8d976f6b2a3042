"""The complete search finds what exists, for several pod sets at once, and never less than the greedy way."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayplan.model.profile import Profile, Remainder, Strategy
from bayplan.placement.gang.place import place
from tests.properties import oracle
from tests.properties.worlds import THREE, Ask, World, asks, cluster_of, gang_of, placed_leaves, worlds

pytest.importorskip("highspy")

FEW = settings(max_examples=max(settings.default.max_examples // 3, 1))  # type: ignore[union-attr]
EXACT = Profile(Strategy.EXACT, Strategy.EXACT, Strategy.EXACT)
LEVELS = (THREE, THREE[1:])


@st.composite
def gangs(draw: st.DrawFn, members: int, layers: int, pods: int) -> tuple[World, list[Ask]]:
    levels = draw(st.sampled_from(LEVELS))
    names = ("one", "two", "three")[: draw(st.integers(1, members))]
    world = draw(worlds(levels, hosts=5))
    return world, [draw(asks(levels, name, pods=pods, layers=layers)) for name in names]


@FEW
@given(gangs(members=3, layers=2, pods=4), st.sampled_from(tuple(Remainder)))
def test_an_exact_answer_breaks_nothing(case: tuple[World, list[Ask]], remainder: Remainder) -> None:
    world, members = case
    answer = place(cluster_of(world).snapshot(), gang_of(*members), replace(EXACT, remainder=remainder))
    if not answer.ok:
        return
    done = [(ask, placed_leaves(world, answer.assignments[ask["name"]].shares)) for ask in members]
    assert list(oracle.overcommitted(world, done)) == []
    for ask, leaves in done:
        assert oracle.wrongs(world, ask, leaves, remainder is Remainder.LEAVE_OUT) == []


@FEW
@given(gangs(members=2, layers=2, pods=3))
def test_whatever_exists_is_found(case: tuple[World, list[Ask]]) -> None:
    world, members = case
    answer = place(cluster_of(world).snapshot(), gang_of(*members), EXACT)
    assert answer.ok is oracle.all_fit(world, members, leave_out=False), answer


@FEW
@given(gangs(members=1, layers=1, pods=6))
def test_no_more_domains_than_the_greedy_way(case: tuple[World, list[Ask]]) -> None:
    world, members = case
    supply, gang = cluster_of(world).snapshot(), gang_of(*members)
    exact, greedy = place(supply, gang, EXACT), place(supply, gang)
    assert exact.ok is greedy.ok
    if exact.ok and exact.assignments["one"].proven:
        for depth in range(1, len(world["levels"]) + 1):
            used, would = (
                {leaf[:depth] for leaf in placed_leaves(world, found.assignments["one"].shares)}
                for found in (exact, greedy)
            )
            assert len(used) <= len(would), (depth, exact, greedy)
            if len(used) < len(would):
                return
