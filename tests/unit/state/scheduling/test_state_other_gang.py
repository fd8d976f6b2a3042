"""Pods that move to another gang while a bind or preemption is in flight."""

from __future__ import annotations

import pytest

from bayplan.model.change import GangSpecLost, PodLost
from bayplan.model.node import PODS
from bayplan.model.plan import Plan, PreemptPod
from bayplan.model.pod import PodKey
from bayplan.state.scheduling.queue import EntryState
from bayplan.state.scheduling.state import ASSUMED_SECONDS, SchedulingState, single_pod_ref
from tests.support.scheduling_scene import NOW, binds, board, gang, node, place_of, pod, pods, ref, step

TAKEN = {"a": {"gpu": 4, PODS: 2}}
OTHER = [ref("other"), None]


def being_bound() -> tuple[SchedulingState, Plan]:
    """Two pods are being bound to the whole node, and one more waits for capacity."""
    state = board(node("a"), gang("job", 2), *pods("job", 2))
    plan = step(state)
    state.apply(pod("late", 0, gang=None))
    assert binds(plan) == {"job-0": "a", "job-1": "a"} and state.store.nodes.ledger.by_node() == TAKEN
    return state, plan


def change_gang(state: SchedulingState, to: object, on: str = "") -> None:
    state.apply_all([gang("other", 2), GangSpecLost(ref("job")), *pods("job", 2, gang=to, on=on)])


@pytest.mark.parametrize("to", OTHER, ids=["another gang", "no gang"])
def test_capacity_is_held_for_pods_that_change_their_gang_during_binds(to: object) -> None:
    state, plan = being_bound()
    change_gang(state, to)
    assert state.store.nodes.ledger.by_node() == TAKEN
    assert binds(step(state, NOW + 1)) == {}
    for action in plan.actions:
        state.settle(action, "done", NOW + 1)
    change_gang(state, to, on="a")
    assert state.store.nodes.ledger.by_node() == TAKEN and place_of(state, "job") is None
    assert state.state_of(ref("other")) is (EntryState.INCOMPLETE if to is None else EntryState.RUNNING)


@pytest.mark.parametrize("to", OTHER, ids=["another gang", "no gang"])
def test_a_failed_bind_frees_capacity_though_the_pod_changed_its_gang(to: object) -> None:
    state, plan = being_bound()
    change_gang(state, to)
    assert binds(step(state, NOW + 0.5)) == {}
    for action in plan.actions:
        state.settle(action, "failed", NOW + 1)
    assert state.store.nodes.ledger.by_node() == {}
    assert binds(step(state, NOW + 1)) == {"late-0": "a"}  # the others are in backoff


@pytest.mark.parametrize("ended", ["unknown", ""])
def test_an_unconfirmed_bind_expires_in_the_other_gang(ended: str) -> None:
    state, plan = being_bound()
    for action in plan.actions if ended else ():
        state.settle(action, ended, NOW)
    change_gang(state, ref("other"))
    assert binds(step(state, NOW + 1)) == {} and place_of(state, "other") is EntryState.BINDING
    assert state.store.nodes.ledger.by_node() == TAKEN
    assert set(binds(step(state, NOW + ASSUMED_SECONDS + 2))) == {"late-0"}


def test_a_pod_being_preempted_stays_so_in_another_gang() -> None:
    state = board(
        node("a"), *pods("low", 2, on="a", gang=None), gang("high", 2), *pods("high", 2, priority=9)
    )
    plan = step(state)
    assert sum(isinstance(action, PreemptPod) for action in plan.actions) == 2
    state.apply(pod("low", 0, on="a", gang=ref("other")))
    assert state.store.placed[PodKey("ns", "low-0")].terminating
    assert place_of(state, "high") is EntryState.PREEMPTING
    state.apply(PodLost(PodKey("ns", "low-0")))
    assert binds(step(state, NOW + 1.5)) == {}
    state.apply(PodLost(PodKey("ns", "low-1")))
    assert set(binds(step(state, NOW + 3))) == {"high-0", "high-1"}


def test_a_single_pod_that_joins_a_gang_during_its_bind_is_bound_once() -> None:
    state = board(node("a"), node("b"), pod("job", 0, gang=None))
    plan = step(state)
    assert binds(plan) == {"job-0": "a"}
    state.apply_all([gang("job", 1), pod("job", 0)])
    assert binds(step(state, NOW + 1)) == {} and place_of(state, "job") is EntryState.BINDING
    assert state.state_of(single_pod_ref(PodKey("ns", "job-0"))) is None
    state.settle(plan.actions[0], "done", NOW + 1)
    assert place_of(state, "job") is EntryState.RUNNING
