"""One pod set: an answer is right, and there is one whenever the oracle finds one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bayplan.model.assignment import Code
from bayplan.model.profile import Profile, Remainder, Strategy
from bayplan.placement.gang.place import place
from tests.properties import oracle
from tests.properties.worlds import (
    GREEDY,
    SHAPES,
    Ask,
    World,
    asks,
    cluster_of,
    gang_of,
    placed_leaves,
    profiles,
    worlds,
)


@st.composite
def cases(draw: st.DrawFn, layers: int = 1) -> tuple[World, Ask]:
    levels = draw(st.sampled_from(SHAPES))
    return draw(worlds(levels)), draw(asks(levels, layers=layers))


def leaves_out(profile: Profile) -> bool:
    return profile.remainder is Remainder.LEAVE_OUT


@given(cases(layers=3), profiles((*GREEDY, Strategy.BALANCED)))
def test_an_answer_breaks_nothing(case: tuple[World, Ask], profile: Profile) -> None:
    world, ask = case
    answer = place(cluster_of(world).snapshot(), gang_of(ask), profile)
    if answer.ok:
        leaves = placed_leaves(world, answer.assignments["set"].shares)
        assert oracle.wrongs(world, ask, leaves, leaves_out(profile)) == []


@given(cases(layers=1), profiles((*GREEDY, Strategy.BALANCED)))
def test_what_is_possible_is_found(case: tuple[World, Ask], profile: Profile) -> None:
    world, ask = case
    answer = place(cluster_of(world).snapshot(), gang_of(ask), profile)
    assert answer.ok is oracle.feasible(world, ask, leaves_out(profile)), answer


@given(cases(layers=3), profiles())
def test_what_is_possible_in_layers_is_found_when_they_leave_no_rest(
    case: tuple[World, Ask], profile: Profile
) -> None:
    world, ask = case
    if ask["segments"]:
        ask["count"] += -ask["count"] % ask["segments"][0][0]
    answer = place(cluster_of(world).snapshot(), gang_of(ask), profile)
    assert answer.ok is oracle.feasible(world, ask, leaves_out(profile)), answer


@given(cases(layers=1), profiles())
def test_a_locality_is_as_low_as_can_be(case: tuple[World, Ask], profile: Profile) -> None:
    """Preferred climbs only as far as it must; so does auto, required or not."""
    world, ask = case
    answer = place(cluster_of(world).snapshot(), gang_of(ask), profile)
    if not ask["how"] or not answer.ok:
        return
    depth = oracle.lowest_depth(world, ask, oracle.start_depth(world, ask), leaves_out(profile))
    leaves = placed_leaves(world, answer.assignments["set"].shares)
    assert depth is None or not oracle.apart(leaves, depth), (depth, leaves)


@given(cases(layers=1), profiles())
def test_a_refusal_counts_what_fits(case: tuple[World, Ask], profile: Profile) -> None:
    world, ask = case
    answer = place(cluster_of(world).snapshot(), gang_of(ask), profile)
    misfit = answer.misfit
    if misfit is None or misfit.code is not Code.NO_ROOM:
        return
    size = ask["segments"][0][0] if ask["segments"] else 1
    pods_of_rest = 0 if leaves_out(profile) else ask["count"] % size
    assert misfit.unit == size
    assert misfit.asked == ask["count"] // size
    assert misfit.fit < misfit.asked or (pods_of_rest and misfit.fit <= misfit.asked), misfit
    near = misfit.nearest
    assert near is not None and near.short > 0, misfit
    if not pods_of_rest:
        assert misfit.fit == most_segments(world, ask, misfit.level), misfit
        assert near.fit == misfit.fit * size
        assert near.short == misfit.asked * size - near.fit


def most_segments(world: World, ask: Ask, level: str) -> int:
    """In the best domain of the level if it is required, else in all together."""
    depth = oracle.depth_of(world, level) if ask["how"] == "required" else 0
    caps = oracle.room(world, ask)
    best = 0
    for leaves in oracle.domains(caps, depth).values():
        here, count = {leaf: caps[leaf] for leaf in leaves}, 0
        size = ask["segments"][0][0] if ask["segments"] else 1
        while oracle.can_hold(here, (count + 1) * size, oracle.layers_of(world, ask)):
            count += 1
        best = max(best, count)
    return best


@given(cases(layers=1))
def test_a_refusal_counts_every_node_once(case: tuple[World, Ask]) -> None:
    world, ask = case
    answer = place(cluster_of(world).snapshot(), gang_of(ask))
    if answer.misfit is None or answer.misfit.code is not Code.NO_ROOM or world["levels"][-1] != oracle.HOST:
        return
    out, known = answer.misfit.excluded, [node for node in world["nodes"] if oracle.usable(world, node)]
    assert out.nodes == len(known)
    refused = [node for node in known if not oracle.accepts(ask, node)]
    assert out.selector + out.affinity + sum(out.taints.values()) == len(refused)
    empty = [count for count in oracle.room(world, ask).values() if not count]
    assert sum(out.resources.values()) == len(empty)


@given(cases(layers=3), profiles((*GREEDY, Strategy.BALANCED)), st.randoms(use_true_random=False))
def test_the_order_of_nodes_does_not_matter(
    case: tuple[World, Ask], profile: Profile, chance: object
) -> None:
    world, ask = case
    mixed = {**world, "nodes": list(world["nodes"])}
    chance.shuffle(mixed["nodes"])  # type: ignore[attr-defined]
    first = place(cluster_of(world).snapshot(), gang_of(ask), profile)
    assert place(cluster_of(mixed).snapshot(), gang_of(ask), profile) == first
