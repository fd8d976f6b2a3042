"""A gang pauses when several preemptions in a row got it no node."""

from __future__ import annotations

import pytest

from bayplan.model.change import Change, PodLost, PodSeen
from bayplan.model.gang import GangSpec
from bayplan.model.pod import PodKey
from bayplan.model.rejection import PreemptionSearchOutcome
from bayplan.state.scheduling.gang_state import FRUITLESS_MAX, PAUSE_FIRST, PAUSE_MAX
from bayplan.state.scheduling.queue import EntryState
from bayplan.state.scheduling.state import SchedulingState, single_pod_ref
from tests.support.scheduling_scene import (
    NOW,
    binds,
    board,
    displaced,
    ends,
    gang,
    node,
    place_of,
    pod,
    queue,
    ref,
    refusals,
    step,
)

MEANS = pytest.mark.parametrize("queues", [(), (queue("q"),)], ids=["by priority", "in a queue"])


def stage(*queues: Change) -> SchedulingState:
    """A gang has a high priority and needs the whole node, which pods of a low priority use."""
    name = "q" if queues else ""
    high = gang("high", 1, priority=9, queue=name)
    low = gang("low", 1, queue=name)
    return board(*queues, node("n1"), high, low, pod("high", 0, gpus=4, priority=9))


def preempts(state: SchedulingState, now: float, rank: int) -> bool:
    """Whether the gang has a pod preempted; another one takes its node before the gang gets it."""
    state.apply(PodSeen(pod("low", rank, on="n1").pod))
    state.heads(now)
    plan = step(state, now)
    victims = displaced(plan)
    ends(state, plan, now)
    state.apply(PodSeen(pod("low", rank + 1, on="n1").pod))
    for name in victims:
        state.apply(PodLost(PodKey("ns", name)))
    state.apply(PodLost(PodKey("ns", f"low-{rank}")))
    return bool(victims)


def exhausted(*queues: Change) -> SchedulingState:
    state = stage(*queues)
    assert all(preempts(state, NOW, 2 * turn) for turn in range(FRUITLESS_MAX))
    return state


@MEANS
def test_a_gang_that_got_no_node_several_times_pauses_longer_each_time(
    queues: tuple[Change, ...],
) -> None:
    state, now, rank = exhausted(*queues), NOW, 100
    for pause in (PAUSE_FIRST, 2 * PAUSE_FIRST, 4 * PAUSE_FIRST):
        assert not preempts(state, now, rank), "it pauses, whatever happens"
        for refused in refusals(step(state, now)):
            assert refused.rejection.preemption is PreemptionSearchOutcome.PAUSED
        assert place_of(state, "high") is EntryState.UNSCHEDULABLE
        now += pause
        assert state.next_due(now) <= now, "time alone wakes it"
        assert preempts(state, now, rank + 2)
        rank += 4


def test_a_pause_is_reported_and_has_an_end() -> None:
    state = exhausted()
    (rejected,) = refusals(step(state))
    assert rejected.rejection.preemption is PreemptionSearchOutcome.PAUSED
    assert rejected.rejection.retry_at == NOW + PAUSE_FIRST


def test_a_pause_has_a_limit() -> None:
    state = exhausted()
    for _ in range(2000):
        state.store.gang_states[ref("high")].note_preemption(NOW)
    assert state.store.gang_states[ref("high")].paused_until == NOW + PAUSE_MAX


@MEANS
def test_a_gang_that_pauses_is_bound_as_soon_as_it_fits(queues: tuple[Change, ...]) -> None:
    state = exhausted(*queues)
    step(state)
    for key in list(state.store.placed):
        state.apply(PodLost(key))
    assert binds(step(state)) == {"high-0": "n1"}


def test_a_gang_that_got_a_node_preempts_at_once_again() -> None:
    state = exhausted()
    for key in list(state.store.placed):
        state.apply(PodLost(key))
    plan = step(state)
    assert binds(plan)
    ends(state, plan)
    state.apply_all([node("n2"), PodSeen(pod("low", 200, on="n2", gpus=4).pod)])
    state.apply(PodSeen(pod("high", 1, gpus=4, priority=9).pod))
    assert list(displaced(step(state))) == ["low-200"]
    assert state.store.gang_states[ref("high")].fruitless == 1


def test_pods_like_one_that_pauses_do_not_pause() -> None:
    def single(name: str) -> PodSeen:
        return PodSeen(pod(name, 0, gpus=4, priority=9, gang=None).pod)

    state = board(node("n1"), single("first"))
    for turn in range(FRUITLESS_MAX):
        preempts(state, NOW, 2 * turn)
    assert not preempts(state, NOW, 100)
    first, second = (single_pod_ref(PodKey("ns", f"{name}-0")) for name in ("first", "second"))
    state.apply(single("second"))
    alike = [state.gangs.equivalence_key(state.store.gang_states[one]) for one in (first, second)]
    assert alike[0] != alike[1], "a rejection of the first one would be one of the second"
    assert list(displaced(step(state))), "it has preempted nothing yet"


def test_gangs_without_preemption_in_their_spec_are_not_affected() -> None:
    state = stage()
    state.apply(PodSeen(pod("low", 0, on="n1").pod))
    spec = GangSpec(ref("high"), 1, priority=9, created=1.0, preempts=False)
    state.store.gang_states[ref("high")].spec = spec
    assert not displaced(step(state))
    assert state.store.gang_states[ref("high")].fruitless == 0
