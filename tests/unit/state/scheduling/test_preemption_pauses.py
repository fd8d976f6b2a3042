"""A gang pauses when several preemptions in a row got it no node."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.model.change import Change, PodLost, PodSeen
from bayplan.model.gang import GangSpec
from bayplan.model.node import HOSTNAME, PODS
from bayplan.model.node_rules import Requirement
from bayplan.model.pod import PodKey
from bayplan.model.pod_spec import NO_POD_AFFINITY, PodAffinity, PodAffinityTerm, PodSignature, Selector
from bayplan.model.rejection import PreemptionSearchOutcome, RejectionReason
from bayplan.state.scheduling.gang_state import FRUITLESS_MAX, PAUSE_FIRST, PAUSE_MAX
from bayplan.state.scheduling.queue import EntryState
from bayplan.state.scheduling.state import SchedulingState, single_pod_ref
from tests.support import model_objects
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


# ── pods that would undo a preemption ──────────────────────────────────────────────────────────────


def beside(*labels: str) -> PodAffinity:
    """Affinity to the pods with one of these labels, on the same host."""
    selector = Selector((Requirement("app", "In", labels),))
    return PodAffinity(required=(PodAffinityTerm(HOSTNAME, selector, ("ns",)),))


def labelled(name: str, app: str, on: str = "", **more: Any) -> PodSeen:
    amounts, affinity = (("gpu", 4), (PODS, 1)), more.pop("affinity", NO_POD_AFFINITY)
    shape = PodSignature("ns", labels=(("app", app),), amounts=amounts, affinity=affinity)
    priority = more.pop("priority", 0)
    known = model_objects.pod(f"{name}-0", shape, on, priority, gang=ref(name), pod_set="main", **more)
    return PodSeen(known)


def following(app: str, tries: int, *queues: Change) -> SchedulingState:
    """A gang must be beside pods with the label "a"; so many preemptions got it no node yet.

    The node of a victim is free again, and another pod is pending.
    """
    of = {"queue": "q"} if queues else {}
    gangs = gang("high", 1, priority=9, **of), gang("low", 1, **of), gang("other", 1, **of)
    state = board(*queues, node("n1"), *gangs)
    state.apply(labelled("high", "a", affinity=beside("a"), priority=9))
    state.apply(labelled("low", "a", on="n1", started=1.0))
    for _ in range(tries):
        state.store.gang_states[ref("high")].note_preemption(NOW - 100.0 * PAUSE_MAX)
    assert list(displaced(step(state))) == ["low-0"]
    state.apply_all([node("n2"), labelled("other", app)])
    return state


@MEANS
def test_pods_that_a_preemptor_follows_wait_until_it_has_started(queues: tuple[Change, ...]) -> None:
    state = following("a", 1, *queues)
    (refused,) = [one for one in refusals(step(state)) if one.gang == ref("other")]
    assert refused.rejection.reason is RejectionReason.HELD_BACK
    assert refused.rejection.about == "ns/high"
    state.apply(PodLost(PodKey("ns", "low-0")))
    assert binds(step(state)) == {"high-0": "n1"}
    assert binds(step(state, NOW + 2.0)) == {"other-0": "n2"}, "nothing but time wakes it"


def test_the_first_preemption_and_other_pods_hold_nobody_back() -> None:
    assert binds(step(following("a", 0))) == {"other-0": "n2"}
    assert binds(step(following("b", 1))) == {"other-0": "n2"}


def test_pods_of_the_same_priority_are_not_held_back() -> None:
    state = following("a", 1)
    state.apply_all([gang("other", 1, priority=9), labelled("other", "a", priority=9)])
    assert binds(step(state)) == {"other-0": "n2"}
