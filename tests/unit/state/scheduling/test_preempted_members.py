"""A gang whose pods are being preempted is decided on once they terminate: if that fails, they stay."""

from __future__ import annotations

from bayplan.model.gang import Locality
from bayplan.model.plan import Plan
from bayplan.state.scheduling.state import SchedulingState
from tests.support.scheduling_scene import NOW, binds, board, displaced, gang, node, pod, step

LATER = NOW + 30.0


def two_racks() -> tuple[SchedulingState, Plan]:
    """One pod of gang `low` runs in rack r1, the other one is pending; both must be in one rack.

    Then a gang of higher priority, which fits in rack r1 only, has the pod that runs preempted.
    """
    state = board(
        node("n1", "r1", 2),
        node("n2", "r2", 2),
        gang("low", 1, locality=Locality(required="rack")),
        pod("low", 0, on="n1"),
        pod("low", 1),
        gang("high", 1, priority=10, locality=Locality(required="rack")),
        pod("high", 1, on="n1", gpus=0, priority=10),
    )
    assert not binds(step(state))
    state.apply(pod("high", 0, priority=10))
    plan = step(state)
    assert list(displaced(plan)) == ["low-0"]
    return state, plan


def test_it_waits_while_the_preemption_may_fail() -> None:
    state, _ = two_racks()
    for seconds in (0.0, 5.0, 20.0):
        assert not binds(step(state, NOW + seconds))


def test_it_goes_elsewhere_once_its_pod_terminates() -> None:
    state, _ = two_racks()
    step(state)
    state.apply(pod("low", 0, on="n1", terminating=True))
    assert binds(step(state, LATER)) == {"low-1": "n2"}


def test_it_stays_if_the_preemption_fails() -> None:
    state, plan = two_racks()
    for action in plan.actions:
        state.settle(action, "failed", NOW)
    assert not binds(step(state, LATER))
