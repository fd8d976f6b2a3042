"""Gangs that may start with some members: a quorum is found if one exists, and no member is split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain, combinations
from random import Random

import pytest

from bayplan.model.gang import Group, Locality, PodSet, has_minimum
from bayplan.model.node import HOSTNAME, Node
from bayplan.model.pod import PodKey
from bayplan.model.profile import Profile
from bayplan.placement.pods.batches import NodeAssignment
from bayplan.placement.subgroups.quorum import assign_quorum
from tests.properties.amounts import seeds
from tests.properties.minima_worlds import Judge, World, open_overlay, pods_of, world

SEEDS, CHUNK, LEAVES_MAX = seeds(200, 400), 100, 5
Parts = frozenset[str]


def drawn(random: Random) -> World:
    """A small world whose groups do with some of their members; so small that everything can be tried."""
    found = world(random)
    names = iter("abcdefghijklmnopqrstuvwxyz")
    needs = [dict(one.requests) for one in found.tree.pod_sets()] + [{"gpu": 4}]
    members = tuple(_member(random, names, needs, 2) for _ in range(random.randint(1, 3)))
    tree = Group("root", members, random.randint(1, len(members)), _locality(random, 0.3))
    made = World(found.nodes, tree, pods_of(tree))
    return made if len(list(tree.pod_sets())) <= LEAVES_MAX else drawn(random)


def _member(random: Random, names: Iterator[str], needs: list[dict[str, int]], depth: int) -> Group | PodSet:
    if depth and random.random() < 0.4:
        inner = tuple(_member(random, names, needs, depth - 1) for _ in range(random.randint(1, 3)))
        return Group(f"of {inner[0].name}", inner, random.randint(1, len(inner)), _locality(random, 0.4))
    minimum = random.randint(1, 2)
    count = minimum + (random.random() < 0.3)
    return PodSet(next(names), count, minimum, random.choice(needs), _locality(random, 0.4))


def _locality(random: Random, often: float) -> Locality:
    return Locality(required=random.choice(("zone", "rack"))) if random.random() < often else Locality()


def coming(member: Group | PodSet, parts: Parts) -> set[str]:
    """Of these pod sets, those that come if no member comes in part."""
    if isinstance(member, PodSet):
        return {member.name} & parts
    inner = [found for one in member.members if (found := coming(one, parts))]
    return set().union(*inner) if len(inner) >= member.minimum else set()


def ways(tree: Group) -> list[Parts]:
    """Every choice of pod sets with which the gang is whole, and no member is assigned in vain."""
    names = [one.name for one in tree.pod_sets()]
    some = chain.from_iterable(combinations(names, size) for size in range(1, len(names) + 1))
    return [parts for one in some if coming(tree, parts := frozenset(one)) == parts]


def fits(found: World, parts: Parts) -> bool:
    required = [
        PodKey("ns", f"{one.name}{rank}")
        for one in found.tree.pod_sets()
        if one.name in parts
        for rank in range(one.minimum)
    ]
    return Judge(found).can_seat({}, required)


def check(found: World) -> bool:
    """Compare the answer with the reference; whether any pod was assigned."""
    overlay, snapshot = open_overlay(found)
    before = overlay.checkpoint()
    seated = assign_quorum(overlay, snapshot, found.wanted(), profile=Profile())
    possible = [parts for parts in ways(found.tree) if fits(found, parts)]
    if not isinstance(seated, NodeAssignment) or not seated.rows:
        assert not isinstance(seated, NodeAssignment) and not seated.unsure
        assert overlay.checkpoint() == before
        assert not possible, "there is a quorum"
        return False
    assigned = {key: overlay.node(row) for key, row in seated.rows.items()}
    assert Judge(found).allows(assigned)
    counts = Counter(pod.pod_set for pod in found.pods if pod.key in assigned)
    chosen = frozenset(counts)
    assert has_minimum(found.tree, counts)
    assert all(counts[one.name] >= one.minimum for one in found.tree.pod_sets() if one.name in chosen)
    assert coming(found.tree, chosen) == chosen, "a member was assigned in vain"
    more = [parts for parts in possible if parts > chosen and len(parts) == len(chosen) + 1]
    assert not more, f"there is a place for {sorted(more[0] - chosen)} too"
    return True


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_a_quorum_or_nothing_and_then_further_members_that_fit(first: int) -> None:
    outcomes = Counter(check(drawn(Random(seed))) for seed in range(first, first + CHUNK))
    assert min(outcomes[True], outcomes[False]) > CHUNK // 20, outcomes


def test_a_quorum_is_found_even_if_the_smallest_members_of_a_group_are_all_in_the_way() -> None:
    """Only the last and largest member of the group leaves room for the pod set beside it."""
    small = tuple(PodSet(name, 1, 1, {"gpu": 1}) for name in "abcdefgh")
    group = Group("some", (*small, PodSet("i", 2, 2, {"cpu": 1})), 1)
    tree = Group("root", (group, PodSet("j", 1, 1, {"gpu": 4})), 2)
    nodes = [
        Node(name, {HOSTNAME: name, "zone": "A", "rack": "x"}, {"gpu": gpus, "cpu": 4, "pods": 9})
        for name, gpus in (("n1", 4), ("n2", 0))
    ]
    assert check(World(nodes, tree, pods_of(tree)))
