"""Gangs with minima: a place is found whenever there is one, and nothing that is required is ever broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from bayplan.model.gang import Group, Locality, PodSet
from bayplan.model.node import HOSTNAME, Node
from bayplan.model.pod import PodKey
from bayplan.model.profile import Profile
from bayplan.placement.pods.batches import NodeAssignment
from bayplan.placement.subgroups.minimums import assign_minimums
from tests.properties.amounts import seeds
from tests.properties.minima_worlds import Judge, World, needed, open_overlay, pods_of, world

SEEDS, CHUNK = seeds(400, 1200), 100
FOUND = (6591, 7716, 11975, 16690, 17417)  # each broke something once


def answer(found: World) -> dict[PodKey, str] | None:
    """The nodes of those who got one; None if the gang was refused."""
    overlay, snapshot = open_overlay(found)
    before = overlay.checkpoint()
    seated = assign_minimums(overlay, snapshot, found.wanted(), profile=Profile())
    if isinstance(seated, NodeAssignment):
        assert not seated.unsure
        assert all(overlay.row_of(key) == row for key, row in seated.rows.items())
        return {key: overlay.node(row) for key, row in seated.rows.items()}
    assert not seated.unsure
    assert overlay.checkpoint() == before
    return None


def check(found: World) -> dict[PodKey, str] | None:
    """Compare the answer with the reference."""
    judge, required = Judge(found), needed(found)
    assigned = answer(found)
    if assigned is None:
        tried = required or [pod.key for pod in found.pending][:1]
        assert not judge.can_seat(dict(found.bound), tried) or not required, "there is a place"
        return None
    assert set(required) <= set(assigned), "a pod of a minimum is not assigned"
    both = {**found.bound, **assigned}
    assert judge.allows(both)
    beyond = len(assigned) - len(required)
    assert found.extra is None or beyond <= found.extra
    if found.extra is None or beyond < found.extra:
        for pod in found.pending:
            if pod.key not in assigned:
                assert not judge.can_seat(dict(both), [pod.key]), f"{pod.key} has a place"
    return assigned


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_all_minimums_or_nothing_and_then_as_many_as_fit(first: int) -> None:
    outcomes = set()
    for seed in range(first, first + CHUNK):
        outcomes.add(check(world(Random(seed))) is None)
    assert outcomes == {False, True}


def after_losses(seed: int) -> World | None:
    """A gang that got its places and then lost some of its pods, and perhaps a node; None if it got none."""
    random = Random(seed)
    found = world(random)
    assigned = answer(found)
    if not assigned:
        return None
    lost_nodes = random.sample(found.nodes, random.randint(0, min(1, len(found.nodes) - 1)))
    found.nodes = [node for node in found.nodes if node not in lost_nodes]
    alive = {node.name for node in found.nodes}
    found.bound = {key: name for key, name in assigned.items() if name in alive and random.random() < 0.6}
    return found


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_replaced_pods_join_the_bound_pods(first: int) -> None:
    """The bound pods of a gang fix the domains of the others."""
    left = [found for seed in range(first, first + CHUNK) if (found := after_losses(seed)) is not None]
    assert sum(check(found) is not None for found in left) > 10


@pytest.mark.parametrize("seed", FOUND)
def test_what_went_wrong_once(seed: int) -> None:
    check(world(Random(seed)))
    if (found := after_losses(seed)) is not None:
        check(found)


def fill(sizes: Sequence[int], racks: Sequence[int]) -> bool:
    """Whether parts go into racks, by trying everything; the largest part first."""
    if not sizes:
        return True
    tried = set()
    for at, room in enumerate(racks):
        if room >= sizes[0] and room not in tried:
            tried.add(room)
            if fill(sizes[1:], [*racks[:at], room - sizes[0], *racks[at + 1 :]]):
                return True
    return False


@pytest.mark.parametrize("first", range(0, SEEDS, 2 * CHUNK))
def test_equal_parts_fill_racks_whenever_they_fit(first: int) -> None:
    """Many parts that are alike, and hardly a device to spare."""
    outcomes = Counter[bool]()
    for seed in range(first, first + 2 * CHUNK):
        random = Random(seed)
        sizes = [random.choice((2, 3, 3, 4, 5)) for _ in range(random.randint(4, 9))]
        racks: list[int] = []
        while sum(racks) < sum(sizes):
            racks.append(random.randint(4, 9))
        racks[-1] -= max(sum(racks) - sum(sizes) - random.randint(0, 1), 0)
        members = tuple(
            PodSet(f"p{at}-", size, size, {"gpu": 1}, Locality(required="rack"))
            for at, size in enumerate(sizes)
        )
        tree = Group("root", members, len(members))
        labels = [{"zone": "A", "rack": f"r{at}", HOSTNAME: f"n{at}"} for at in range(len(racks))]
        nodes = [
            Node(f"n{at}", labels[at], {"gpu": room, "cpu": 9, "pods": 99}) for at, room in enumerate(racks)
        ]
        found = answer(World(nodes, tree, pods_of(tree)))
        assert (found is not None) == fill(sorted(sizes, reverse=True), racks), f"seed {seed}"
        outcomes[found is not None] += 1
    assert min(outcomes.values()) > 40 and len(outcomes) == 2
