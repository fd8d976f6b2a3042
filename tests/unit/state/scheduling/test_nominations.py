"""Nominations of pods, in the state and in the API."""

from __future__ import annotations

from dataclasses import replace

from bayplan.model.change import PodSeen
from bayplan.model.plan import Nominate
from tests.support.scheduling_scene import NOW, binds, board, ends, gang, node, pod, step


def test_a_pod_that_was_not_bound_has_its_nomination_again_until_that_is_cleared() -> None:
    """The API still shows it: a scheduler that starts would keep the place for the pod."""
    bare = pod("job", 0, gpus=4).pod
    waiting = PodSeen(replace(bare, spec=replace(bare.spec, nominated="a")))
    state = board(node("a"), gang("job", 1), waiting)
    plan = step(state)
    assert binds(plan) == {"job-0": "a"}
    assert not state.store.nominations
    ends(state, plan, ended="failed")
    assert [where for _, where in state.store.nominations.values()] == ["a"]
    state.apply_all([gang("other", 1), pod("other", 0, on="a")])
    cleared = [action for action in step(state, NOW + 5).actions if isinstance(action, Nominate)]
    assert [action.node for action in cleared] == [""]
