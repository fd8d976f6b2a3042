"""Gangs of several pod sets: leaders with workers, and sets that see each other."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bayplan.model.assignment import Code, Placement
from bayplan.model.gang import Gang, Group, Locality, Ref
from bayplan.model.profile import Profile, Remainder, Strategy
from bayplan.placement.gang.place import place
from tests.properties import oracle
from tests.properties.worlds import (
    GREEDY,
    SHAPES,
    THREE,
    Ask,
    World,
    asks,
    cluster_of,
    gang_of,
    led_gang,
    placed_leaves,
    pod_set_of,
    profiles,
    worlds,
)


@st.composite
def pairs(draw: st.DrawFn, layers: int = 1, rest: bool = True) -> tuple[World, Ask, Ask]:
    """A world, a leader with rules of its own, and its workers."""
    levels = draw(st.sampled_from(SHAPES))
    workers = draw(asks(levels, "workers", pods=7, layers=layers))
    workers["count"] += 1  # of two lone pods it is not clear who leads
    if not rest and workers["segments"]:
        workers["count"] += -workers["count"] % workers["segments"][0][0]
    leader = {**draw(asks(levels, "leader", layers=0)), "count": 1, "how": "", "level": ""}
    return draw(worlds(levels)), leader, workers


def placed(world: World, answer: Placement, *members: Ask) -> list[tuple[Ask, list[Any]]]:
    return [(ask, placed_leaves(world, answer.assignments[ask["name"]].shares)) for ask in members]


def leaves_out(profile: Profile) -> bool:
    return profile.remainder is Remainder.LEAVE_OUT


@given(pairs(layers=3), profiles((*GREEDY, Strategy.BALANCED)))
def test_a_leader_and_its_workers_break_nothing(case: tuple[World, Ask, Ask], profile: Profile) -> None:
    world, leader, workers = case
    answer = place(cluster_of(world).snapshot(), led_gang(leader, workers), profile)
    if not answer.ok:
        return
    both = placed(world, answer, leader, workers)
    assert len(both[0][1]) == 1
    assert oracle.wrongs(world, workers, both[1][1], leaves_out(profile)) == []
    assert list(oracle.overcommitted(world, both)) == []
    if workers["how"] == "required" and workers["level"] != "auto":
        together = [*both[0][1], *both[1][1]]
        assert not oracle.apart(together, oracle.depth_of(world, workers["level"])), together


@given(pairs(rest=False), profiles((*GREEDY, Strategy.BALANCED)))
def test_a_leader_and_its_workers_find_what_is_possible(
    case: tuple[World, Ask, Ask], profile: Profile
) -> None:
    world, leader, workers = case
    if world["levels"][-1] != oracle.HOST:  # who uses which node of a leaf is not decided here
        leader = {**leader, "select": workers["select"], "affinity": workers["affinity"]}
        leader["tolerates"] = workers["tolerates"]
    answer = place(cluster_of(world).snapshot(), led_gang(leader, workers), profile)
    assert answer.ok is oracle.feasible(world, workers, leaves_out(profile), leader), answer


@given(pairs(rest=False), profiles())
def test_a_leader_climbs_with_its_workers_only_as_far_as_it_must(
    case: tuple[World, Ask, Ask], profile: Profile
) -> None:
    world, leader, workers = case
    answer = place(cluster_of(world).snapshot(), led_gang(leader, workers), profile)
    if not workers["how"] or not answer.ok or world["levels"][-1] != oracle.HOST:
        return
    start = oracle.start_depth(world, workers)
    depth = oracle.lowest_depth(world, workers, start, leaves_out(profile), leader)
    leaves = [leaf for _, each in placed(world, answer, leader, workers) for leaf in each]
    assert depth is None or not oracle.apart(leaves, depth), (depth, leaves)


@given(pairs(), profiles())
def test_a_refused_pair_lacks_something(case: tuple[World, Ask, Ask], profile: Profile) -> None:
    world, leader, workers = case
    misfit = place(cluster_of(world).snapshot(), led_gang(leader, workers), profile).misfit
    if misfit is not None and misfit.code is Code.NO_ROOM:
        assert set(misfit.pod_sets) == {"leader", "workers"}
        assert misfit.nearest is not None and misfit.nearest.short > 0, misfit


@st.composite
def gangs(draw: st.DrawFn, layers: int = 2) -> tuple[World, list[Ask]]:
    levels = draw(st.sampled_from(SHAPES))
    names = ("one", "two", "three")[: draw(st.integers(2, 3))]
    return draw(worlds(levels)), [draw(asks(levels, name, pods=4, layers=layers)) for name in names]


@given(gangs(), profiles((*GREEDY, Strategy.BALANCED)))
def test_pod_sets_in_turn_break_nothing_together(case: tuple[World, list[Ask]], profile: Profile) -> None:
    world, members = case
    answer = place(cluster_of(world).snapshot(), gang_of(*members), profile)
    done = placed(world, answer, *[ask for ask in members if ask["name"] in answer.assignments])
    assert answer.ok == (len(done) == len(members))
    assert list(oracle.overcommitted(world, done)) == []
    for ask, leaves in done:
        assert oracle.wrongs(world, ask, leaves, leaves_out(profile)) == []


@given(gangs(layers=1), profiles())
def test_a_pod_set_is_refused_only_for_what_those_before_it_took(
    case: tuple[World, list[Ask]], profile: Profile
) -> None:
    """The same answer as if the earlier ones were in the world already."""
    world, members = case
    answer = place(cluster_of(world).snapshot(), gang_of(*members), profile)
    cluster = cluster_of(world)
    for ask in members:
        alone = place(cluster.snapshot(), gang_of(ask), profile)
        if ask["name"] not in answer.assignments:
            assert alone.misfit is not None and answer.misfit is not None
            assert alone.misfit.fit == answer.misfit.fit
            return
        assert alone.assignments[ask["name"]] == answer.assignments[ask["name"]]
        for share in alone.assignments[ask["name"]].shares:
            use = {name: amount * share.count for name, amount in oracle.pod_needs(ask).items()}
            cluster.use_domain(share.values, use)


@st.composite
def threesomes(draw: st.DrawFn) -> tuple[World, list[Ask]]:
    """Three pod sets with node rules and segments, and no locality of their own."""
    members = [draw(asks(THREE, name, pods=3)) for name in ("one", "two", "three")]
    return draw(worlds(THREE)), [{**ask, "how": "", "level": ""} for ask in members]


@given(threesomes(), profiles(), st.sampled_from(("block", "rack")))
def test_a_group_of_three_shares_one_domain(
    case: tuple[World, list[Ask]], profile: Profile, level: str
) -> None:
    world, members = case
    group = Group("trio", tuple(map(pod_set_of, members)), 3, Locality(required=level))
    gang = Gang(Ref("", "", "", "gang"), Group("gang", (group,), 1))
    answer = place(cluster_of(world).snapshot(), gang, profile)
    if not answer.ok:
        return
    everyone = placed(world, answer, *members)
    assert list(oracle.overcommitted(world, everyone)) == []
    assert not oracle.apart(
        [leaf for _, leaves in everyone for leaf in leaves], oracle.depth_of(world, level)
    )
    for ask, leaves in everyone:
        assert oracle.wrongs(world, ask, leaves, leaves_out(profile)) == []
