"""Whoever is seated may sit there, whoever can be seated is, and whatever was tried can be undone."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayplan.model.pod import PodKey
from bayplan.model.pod_spec import PodSignature
from bayplan.model.profile import NodeChoice, Profile
from bayplan.placement.cluster.pod_index import PodIndex
from bayplan.placement.filters.pipeline import FilterInput, judge
from bayplan.placement.filters.score import rank
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods import exact_assign
from bayplan.placement.pods.assign import seat_all
from bayplan.placement.pods.batches import PodBatch
from bayplan.placement.pods.one_domain import seat_in_domain
from tests.properties.assign_worlds import faults, key, most_seats, parties, scene, shape

SEEDS = st.integers(0, 2**32)
PROFILES = (Profile(), Profile(gang_nodes=NodeChoice.SPREAD))


def answers(here: FilterInput, shapes: list[PodSignature]) -> list[Any]:
    """All that can be asked of a scene, worked out anew."""
    index, ground = here.index, replace(here.ground, memory={})
    fresh = replace(here, ground=ground)
    found: list[Any] = [ground.free.tolist(), sorted(map(str, index.pods)), index.keys]
    found.append({str(one): (pod.node, pod.shape, pod.leaving) for one, pod in index.pods.items()})
    found += [{stance: dict(tally.few) for stance, tally in index.stances.items()}]
    found += [{port: dict(tally.few) for port, tally in index.ports.items()}]
    for one in shapes:
        verdict = judge(fresh, one)
        found += [verdict.fits.tolist(), verdict.curable.tolist(), verdict.why]
        found += [rank(fresh, one, verdict.fits).tolist()]
    return found


def rebuilt(index: PodIndex) -> PodIndex:
    """The same pods, put in afresh."""
    names = {slot: name for name, slot in index.slots.numbers.items()}
    made = PodIndex()
    made.slots = index.slots
    for name, labels in index.namespaces.items():
        made.name_space(name, labels)
    for one, pod in index.pods.items():
        made.add(one, names[pod.node], pod.shape, leaving=pod.leaving)
    return made


@given(SEEDS)
def test_whatever_is_done_is_undone_exactly(seed: int) -> None:
    random = Random(seed)
    here = scene(random)
    shapes = [shape(random, interacting=True) for _ in range(3)]
    floor = NodeOverlay(here)
    start = answers(here, shapes)
    marks = [(floor.mark(), answers(floor.scene, shapes))]
    for number in range(random.randint(1, 12)):
        known = [one for one in floor.scene.index.pods if isinstance(one, PodKey)]
        match random.randrange(6):
            case 0 | 1:
                count = random.randint(1, 3)
                keys = [key(f"s{number}-{at}") for at in range(count)]
                rows = [random.randrange(len(floor)) for _ in keys]
                mine = random.choice(shapes)
                own = [replace(mine, labels=(*mine.labels, ("n", str(at)))) for at in range(count)]
                floor.seat_many(mine, keys, rows, own if random.random() < 0.3 else ())
            case 2 if known:
                floor.lift_many(random.sample(known, random.randint(1, len(known))))
            case 3:
                floor.put_back([key(f"r{at}") for at in range(3)])
            case 4:
                marks.append((floor.mark(), answers(floor.scene, shapes)))
            case 5:
                mark, before = random.choice(marks)
                floor.undo(mark)
                marks = [one for one in marks if one[0] <= mark]
                assert answers(floor.scene, shapes) == before
        same = replace(floor.scene, index=rebuilt(here.index))
        assert answers(floor.scene, shapes) == answers(same, shapes)
        for one in shapes:  # what is remembered is what would be found now
            anew = judge(replace(floor.scene, ground=replace(floor.scene.ground, memory={})), one)
            assert floor.judge(one).fits.tolist() == anew.fits.tolist()
    floor.close()
    assert answers(here, shapes) == start
    assert answers(floor.scene, shapes) == start


def check_seats(floor: NodeOverlay, gang: list[PodBatch], mark: int, seats: dict[Any, int]) -> None:
    """Everybody fitted at the moment of sitting down, and in the end nobody is in anybody's way."""
    steps = floor.steps[mark:]
    assert {one: floor.place_of(one) for party in gang for one in party.keys if one in seats} == seats
    assert sum(len(step.keys) for step in steps) == len(seats)
    assert faults(floor, gang, seats) == []
    floor.undo(mark)
    for step in steps:
        for one, row in zip(step.keys, step.rows.tolist(), strict=True):
            assert floor.judge(step.shape).fits[row], (one, row)
            floor.seat(one, step.shape, row)


def bounds(random: Random, floor: NodeOverlay) -> Any:
    if random.random() < 0.7:
        return None
    return np.array([random.random() < 0.6 for _ in range(len(floor))], dtype=bool)


@given(SEEDS)
def test_whoever_is_seated_may_sit_there_and_nobody_is_left_out_for_sure_who_could_sit(seed: int) -> None:
    random = Random(seed)
    here, gang = scene(random), parties(random, interacting=random.random() < 0.7, most=5)
    asked = sum(len(party.keys) for party in gang)
    need = asked if random.random() < 0.7 else random.randint(0, asked)
    with NodeOverlay(here) as floor:
        within = bounds(random, floor)
        found = seat_all(
            floor, gang, need=need, profile=random.choice(PROFILES), within=within, lone=seed % 2 == 0
        )
        assert len(found.seats) + len(found.left) == asked
        assert not (set(found.seats) & set(found.left))
        assert within is None or all(within[row] for row in found.seats.values())
        check_seats(floor, gang, 0, dict(found.seats))
        floor.undo(0)
        assert not (found.unsure and len(found.seats) >= need)
        if len(found.seats) < need and not found.unsure:
            assert most_seats(floor, gang, within) < need


@given(SEEDS)
def test_pods_that_only_take_room_are_seated_whenever_they_can_be(seed: int) -> None:
    random = Random(seed)
    here, gang = scene(random), parties(random, interacting=False)
    asked = sum(len(party.keys) for party in gang)
    with NodeOverlay(here) as floor:
        found = seat_all(floor, gang, need=asked, profile=random.choice(PROFILES))
        check_seats(floor, gang, 0, dict(found.seats))
        floor.undo(0)
        assert not found.unsure
        if found.left:
            assert most_seats(floor, gang, None) < asked


@given(SEEDS)
def test_without_the_search_it_is_either_right_or_unsure(seed: int) -> None:
    random = Random(seed)
    here, gang = scene(random), parties(random, interacting=False)
    asked = sum(len(party.keys) for party in gang)
    with NodeOverlay(here) as floor, pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact_assign, "solver", lambda: None)
        found = seat_all(floor, gang, need=asked, profile=Profile())
        check_seats(floor, gang, 0, dict(found.seats))
        floor.undo(0)
        if found.left and not found.unsure:
            assert most_seats(floor, gang, None) < asked


@given(SEEDS)
def test_those_who_stay_together_share_a_value_and_the_best_one_is_taken(seed: int) -> None:
    random = Random(seed)
    here, gang = scene(random), parties(random, interacting=random.random() < 0.4, most=4)
    asked = sum(len(party.keys) for party in gang)
    with NodeOverlay(here) as floor:
        land = floor.scene.ground.land
        values = [node.labels.get("zone") for node in land.table.nodes]
        standing = [row for row in range(len(floor)) if random.random() < 0.15]
        need = random.randint(0, asked)
        found = seat_in_domain(floor, gang, "zone", standing, need=need, profile=Profile())
        seated = found.seated
        assert {values[row] for row in seated.seats.values()} <= {found.domain}
        check_seats(floor, gang, 0, dict(seated.seats))
        floor.undo(0)
        assert (found.misfit is None) == (len(seated.seats) >= need and bool(found.domain))
        stands = {values[row] for row in standing} - {None}
        open_to = sorted(stands or {value for value in values if value})
        assert (found.domain in open_to) if open_to else found.domain == ""
        if len(seated.seats) < need and not seated.unsure:
            for value in open_to:
                mask = np.array([mine == value for mine in values])
                assert most_seats(floor, gang, mask) < need
