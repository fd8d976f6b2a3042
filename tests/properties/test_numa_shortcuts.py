"""What is worked out for all nodes with zones at once is what trying it one by one on a floor would give."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bayplan.model.plan import Plan, PreemptPod
from bayplan.model.profile import NodeChoice
from bayplan.placement.pods import assign
from bayplan.scheduling.preemption import trial
from tests.properties.numa_states import question

SEEDS = st.integers(0, 1 << 30)


def the_long_way(seed: int) -> Plan:
    """Every pod chooses by itself, and everybody who could go is lifted from the floor and put back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assign, "best_rows", lambda *_: None)
        patch.setattr(trial, "leavers", lambda *_: None)
        return question(seed).answer()


@given(SEEDS)
@example(200122)  # with one more who stays the gang has too few seats, with two more it has enough again
def test_the_plan_is_the_same(seed: int) -> None:
    assert question(seed).answer() == the_long_way(seed)


@settings(max_examples=50)
@given(SEEDS)
@example(400387)
def test_the_plan_is_the_same_if_there_are_too_many_to_try_one_by_one(seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trial, "TRIES_MAX", 3)
        assert question(seed).answer() == the_long_way(seed)


def test_the_worlds_ask_for_both() -> None:
    """Otherwise it would prove nothing."""
    plans = [(question(seed).profile.gang_nodes, question(seed).answer()) for seed in range(60)]
    for choice in NodeChoice:
        made = [plan for how, plan in plans if how is choice]
        displaced = [plan for plan in made if any(isinstance(one, PreemptPod) for one in plan.actions)]
        assert len(made) > 20
        assert len(displaced) > 10
