"""Whatever is decided: nobody goes in vain, nor who matters as much, and nothing is given away twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from bayplan.model.plan import Bind, Nominate, Plan
from bayplan.model.profile import Profile
from bayplan.placement.filters.pipeline import run_filters
from bayplan.scheduling.attempt.nominations import priority_of
from bayplan.scheduling.binding.cycle import decide_gangs
from bayplan.scheduling.preemption.victim_units import VictimUnit, victim_units
from bayplan.state.scheduling.snapshot import SchedulingCandidate
from tests.properties.gang_worlds import World, crowded, seats, victims, world
from tests.support.gang_snapshots import NOW

SEEDS = st.integers(0, 2**32)
PEACEFUL = Profile(preemption=False)


def decide(made: World, profile: Profile | None = None) -> Plan:
    return decide_gangs(made.look(), profile or Profile(), NOW)


def units(made: World) -> list[VictimUnit]:
    return victim_units(made.running, {rules.source: rules for rules in made.charters}, 2**31)


@given(SEEDS)
def test_only_the_less_important_go_each_once_and_gangs_whole(seed: int) -> None:
    made = world(seed)
    plan = decide(made)
    gone = victims(plan)
    assert max(Counter(one.key for one in gone).values(), default=1) == 1
    assert not any(one.terminating for one in gone)
    priority = {candidate.spec.source: priority_of(candidate) for candidate in made.candidates}
    for gang, limit in priority.items():
        mine = {one.key for one in victims(plan, gang)}
        for unit in units(made):
            keys = {one.key for one in unit.pods}
            if keys & mine:
                assert keys <= mine
                assert unit.priority < limit


@given(SEEDS)
def test_seats_are_good_now_and_promises_once_the_victims_are_gone(seed: int) -> None:
    made = world(seed)
    plan = decide(made)
    bound, promised = seats(plan, Bind), seats(plan, Nominate)
    there = [(one, one.node) for one in made.running]
    guests = {key: where for key, (_, where) in bound.items()}
    assert crowded(made.nodes, [*there, *bound.values()], guests) == []
    gone = {one.key for one in victims(plan)} | {one.key for one in made.running if one.terminating}
    stay = [(one, one.node) for one in made.running if one.key not in gone]
    guests |= {key: where for key, (_, where) in promised.items()}
    assert crowded(made.nodes, [*stay, *bound.values(), *promised.values()], guests) == []


@given(SEEDS)
def test_a_gang_has_its_minimum_or_nothing(seed: int) -> None:
    made = world(seed)
    plan = decide(made)
    zone = {one.name: one.labels["zone"] for one in made.nodes}
    for candidate in made.candidates:
        rules = candidate.spec
        bound, promised = (seats(plan, kind, rules.source) for kind in (Bind, Nominate))
        assert not bound or len(bound) >= rules.minimum
        assert not victims(plan, rules.source) or promised
        assert not promised or len(bound) + len(promised) >= max(rules.minimum, 1)
        if rules.locality.required:
            assert len({zone[where] for _, where in (*bound.values(), *promised.values())}) <= 1


@given(SEEDS)
def test_nobody_goes_who_could_stay(seed: int) -> None:
    """One candidate: without the victims it has its places, with any one of them back it has fewer."""
    made = world(seed, most=1)
    plan = decide(made)
    (candidate,) = made.candidates
    gone = {one.key for one in victims(plan)}
    promised = seats(plan, Nominate)
    if not gone:
        return
    leaving = {one.key for one in made.running if one.terminating}
    emptied = made.without(gone | leaving)
    bound = seats(plan, Bind)
    assert len(seats(decide(emptied, PEACEFUL), Bind)) >= len(promised) + len(bound)
    for unit in units(made):
        keys = {one.key for one in unit.pods}
        if keys & gone:
            spared = made.without((gone | leaving) - keys)
            found = seats(decide(_rest(spared, candidate, plan), PEACEFUL), Bind)
            if len(candidate.pending) == 1 and candidate.pending[0].gang is None:
                assert found.keys() != promised.keys() or found != promised, unit
            else:
                assert len(found) < len(promised), unit


def _rest(made: World, candidate: SchedulingCandidate, plan: Plan) -> World:
    """The same, where those that were bound stand already."""
    bound = seats(plan, Bind)
    standing = tuple(replace(one, node=where) for one, where in bound.values())
    waiting = tuple(one for one in candidate.pending if one.key not in bound)
    return replace(made, candidates=(replace(candidate, pending=waiting, bound=standing),))


@given(SEEDS)
def test_the_victims_are_as_unimportant_as_can_be(seed: int) -> None:
    """If the gang has as many places with only less important ones gone, then only they go."""
    made = replace(world(seed, most=1), budgets=())
    plan = decide(made)
    (candidate,) = made.candidates
    gone = {one.key for one in victims(plan)}
    promised = seats(plan, Nominate)
    if not gone or candidate.spec.locality.required or candidate.pending[0].gang is None:
        return
    highest = max(unit.priority for unit in units(made) if {one.key for one in unit.pods} & gone)
    leaving = {one.key for one in made.running if one.terminating}
    lower = {one.key for unit in units(made) if unit.priority < highest for one in unit.pods}
    others = made.without(lower | leaving)
    assert len(seats(decide(_rest(others, candidate, plan), PEACEFUL), Bind)) < len(promised)


@given(SEEDS)
def test_deciding_changes_nothing(seed: int) -> None:
    made = world(seed)
    seen = made.look()
    shapes = [one.spec.signature for candidate in made.candidates for one in candidate.pending]
    before = [
        (run_filters(seen.filter_input, shape).fits.tolist(), run_filters(seen.filter_input, shape).why)
        for shape in shapes
    ]
    free = seen.filter_input.node_snapshot.free.copy()
    first = decide_gangs(seen, Profile(), NOW)
    assert free.tolist() == seen.filter_input.node_snapshot.free.tolist()
    seen.filter_input.node_snapshot.memory.clear()
    after = [
        (run_filters(seen.filter_input, shape).fits.tolist(), run_filters(seen.filter_input, shape).why)
        for shape in shapes
    ]
    assert before == after
    assert decide_gangs(seen, Profile(), NOW) == first
