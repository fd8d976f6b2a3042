"""Gangs that run: nodes fail under them, they grow and shrink, and nothing that survives is moved."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from bayplan.model.assignment import Assignment, Placement
from bayplan.model.gang import Gang
from bayplan.model.profile import Profile, Remainder
from bayplan.placement.gang.place import place
from bayplan.placement.gang.replace import replace_nodes
from bayplan.placement.gang.resize import resize
from bayplan.state.cluster.topology_state import TopologyState
from tests.properties import oracle
from tests.properties.oracle import Leaf
from tests.properties.worlds import (
    THREE,
    Ask,
    World,
    asks,
    cluster_of,
    gang_of,
    led_gang,
    node_of,
    placed_leaves,
    profiles,
    worlds,
)

LEVELS = (THREE, THREE[1:])


@st.composite
def running(draw: st.DrawFn, layers: int = 1) -> tuple[World, Ask, list[int], bool]:
    """A world, a pod set, which of the nodes it gets will fail (in a circle), and whether they stay ready."""
    levels = draw(st.sampled_from(LEVELS))
    picks = draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
    return draw(worlds(levels)), draw(asks(levels, layers=layers)), picks, draw(st.booleans())


def hold(cluster: TopologyState, answer: Placement, *members: Ask) -> None:
    for ask in members:
        for share in answer.assignments[ask["name"]].shares:
            use = {name: amount * share.count for name, amount in oracle.pod_needs(ask).items()}
            cluster.use_domain(share.values, use)


def fail(cluster: TopologyState, world: World, failed: list[str], ready: bool) -> World:
    """The world after the failure; to the engine the nodes may still look ready."""
    after = [{**node, "ready": node["ready"] and node["name"] not in failed} for node in world["nodes"]]
    if not ready:
        for node in after:
            cluster.upsert(node_of(node))
    return {**world, "nodes": after}


def counted(world: World, found: Assignment) -> Counter[Leaf]:
    return Counter(placed_leaves(world, found.shares))


def survivors(world: World, found: Assignment, failed: list[str]) -> Counter[Leaf]:
    return Counter({leaf: n for leaf, n in counted(world, found).items() if leaf[-1] not in failed})


def mended(
    world: World, gang: Gang, members: tuple[Ask, ...], profile: Profile, picks: list[int], ready: bool
) -> tuple[World, list[str], Placement, Placement]:
    """The world after the failure, who failed, and the answers before and after."""
    cluster = cluster_of(world)
    before = place(cluster.snapshot(), gang, profile)
    used = sorted({share.values[-1] for found in before.assignments.values() for share in found.shares})
    assume(before.ok and used)
    failed = [used[pick % len(used)] for pick in picks]
    hold(cluster, before, *members)
    world = fail(cluster, world, failed, ready)
    return world, failed, before, replace_nodes(cluster.snapshot(), gang, before.assignments, failed, profile)


def leaves_out(profile: Profile) -> bool:
    return profile.remainder is Remainder.LEAVE_OUT


@given(running(layers=2), profiles())
def test_a_replacement_keeps_survivors_and_breaks_nothing(
    case: tuple[World, Ask, list[int], bool], profile: Profile
) -> None:
    world, ask, picks, ready = case
    world, failed, before, after = mended(world, gang_of(ask), (ask,), profile, picks, ready)
    kept = survivors(world, before.assignments["set"], failed)
    if not after.ok:
        return
    now = counted(world, after.assignments["set"])
    assert now & kept == kept, (before, after)
    assert not [leaf for leaf in now if leaf[-1] in failed], after
    leaves = placed_leaves(world, after.assignments["set"].shares)
    assert oracle.wrongs(world, ask, leaves, leaves_out(profile)) == [], (before, after)


@given(running(layers=1), profiles())
def test_nothing_changes_where_nothing_failed(
    case: tuple[World, Ask, list[int], bool], profile: Profile
) -> None:
    world, ask, _, _ = case
    cluster = cluster_of(world)
    before = place(cluster.snapshot(), gang_of(ask), profile)
    assume(before.ok)
    used = {share.values[-1] for share in before.assignments["set"].shares}
    idle = [node["name"] for node in world["nodes"] if node["name"] not in used]
    assert replace_nodes(cluster.snapshot(), gang_of(ask), before.assignments, idle, profile) == before


@given(running(layers=0), profiles())
def test_lost_pods_without_segments_find_what_is_possible(
    case: tuple[World, Ask, list[int], bool], profile: Profile
) -> None:
    world, ask, picks, ready = case
    world, failed, before, after = mended(world, gang_of(ask), (ask,), profile, picks, ready)
    kept = survivors(world, before.assignments["set"], failed)
    taken = {
        leaf: {name: n * count for name, n in oracle.pod_needs(ask).items()} for leaf, count in kept.items()
    }
    caps = oracle.room(world, ask, taken)
    lost = ask["count"] - kept.total()
    assert after.ok is any(
        sum(caps[leaf] for leaf in leaves) >= lost
        for domain, leaves in oracle.domains(caps, _bound(world, ask)).items()
        if all(leaf[: _bound(world, ask)] == domain for leaf in kept)
    ) or (not lost and after.ok), (before, after)


def _bound(world: World, ask: Ask) -> int:
    """How deep the domain is that all pods have to share."""
    if ask["how"] != "required":
        return 0
    return 1 if ask["level"] == "auto" else oracle.depth_of(world, ask["level"])


@st.composite
def running_pairs(draw: st.DrawFn) -> tuple[World, Ask, Ask, list[int], bool]:
    world, workers, picks, ready = draw(running(layers=1))
    leader = {**draw(asks(world["levels"], "leader", layers=0)), "count": 1, "how": "", "level": ""}
    return world, leader, {**workers, "name": "workers", "count": workers["count"] + 1}, picks, ready


@given(running_pairs(), profiles())
def test_a_leader_and_its_workers_stay_together(
    case: tuple[World, Ask, Ask, list[int], bool], profile: Profile
) -> None:
    world, leader, workers, picks, ready = case
    gang = led_gang(leader, workers)
    world, failed, before, after = mended(world, gang, (leader, workers), profile, picks, ready)
    if not after.ok:
        return
    both = [(ask, placed_leaves(world, after.assignments[ask["name"]].shares)) for ask in (leader, workers)]
    assert list(oracle.overcommitted(world, both)) == [], (before, after)
    assert len(both[0][1]) == 1
    assert oracle.wrongs(world, workers, both[1][1], leaves_out(profile)) == [], (before, after)
    for ask, leaves in both:
        kept = survivors(world, before.assignments[ask["name"]], failed)
        assert Counter(leaves) & kept == kept, (before, after)
    if workers["how"] == "required" and workers["level"] != "auto":
        everyone = [*both[0][1], *both[1][1]]
        assert not oracle.apart(everyone, oracle.depth_of(world, workers["level"])), (before, after)


@st.composite
def resizing(draw: st.DrawFn) -> tuple[World, Ask, int]:
    levels = draw(st.sampled_from(LEVELS))
    return draw(worlds(levels)), draw(asks(levels)), draw(st.integers(1, 8))


@given(resizing(), profiles())
def test_a_gang_that_grows_or_shrinks_keeps_running_pods(
    case: tuple[World, Ask, int], profile: Profile
) -> None:
    world, ask, count = case
    profile = replace(profile, remainder=Remainder.LAST_SEGMENT)
    before, after = resized(world, ask, count, profile)
    asked = {**ask, "count": count}
    if not after.ok:
        assert count > ask["count"], (before, after)
        return
    now, then = counted(world, after.assignments["set"]), counted(world, before.assignments["set"])
    assert now & then == (now if now.total() <= then.total() else then), (before, after)
    leaves = placed_leaves(world, after.assignments["set"].shares)
    assert oracle.wrongs(world, asked, leaves, leave_out=False) == [], (before, after)


@given(resizing(), profiles())
def test_a_gang_of_the_same_size_stays_as_it_is(case: tuple[World, Ask, int], profile: Profile) -> None:
    world, ask, _ = case
    before, after = resized(world, ask, ask["count"], profile)
    assert after == before


def resized(world: World, ask: Ask, count: int, profile: Profile) -> tuple[Placement, Placement]:
    """The answers before and after; nobody else is there."""
    cluster = cluster_of(world)
    before = place(cluster.snapshot(), gang_of(ask), profile)
    assume(before.ok)
    asked = gang_of({**ask, "count": count})
    return before, resize(cluster.snapshot(), asked, before.assignments, profile)
