"""Binds whose result is unknown are assumed for a while, unless the API or a lost node tells otherwise."""

from __future__ import annotations

from bayplan.model.change import NodeLost
from bayplan.model.node import PODS
from bayplan.model.plan import Bind, Plan
from bayplan.state.scheduling.queue import EntryState
from bayplan.state.scheduling.state import ASSUMED_SECONDS
from tests.support.scheduling_scene import NOW, binds, board, node, place_of, pod, step, tree


def test_an_unconfirmed_bind_is_assumed_for_a_while() -> None:
    state = board(node("a"), tree("job", 1), pod("job", 0))
    state.settle(step(state).actions[0], "unknown", NOW)
    assert step(state, NOW + 1) == Plan()
    assert state.next_due(NOW + 1) == NOW + ASSUMED_SECONDS
    assert binds(step(state, NOW + ASSUMED_SECONDS)) == {"job-0": "a"}


def test_an_unconfirmed_bind_that_the_api_shows_later_counts() -> None:
    state = board(node("a"), tree("job", 1), pod("job", 0))
    state.settle(step(state).actions[0], "unknown", NOW)
    state.apply(pod("job", 0, on="a"))
    assert place_of(state, "job") is EntryState.RUNNING
    assert step(state, NOW + 2 * ASSUMED_SECONDS) == Plan()
    assert state.store.nodes.ledger.by_node() == {"a": {"gpu": 2, PODS: 1}}


def test_an_unconfirmed_bind_to_a_node_that_is_gone_did_not_happen() -> None:
    state = board(node("a"), tree("job", 1), pod("job", 0))
    state.settle(step(state).actions[0], "unknown", NOW)
    state.apply_all([NodeLost("a"), node("b")])
    assert binds(step(state, NOW + 1)) == {"job-0": "b"}


def test_a_bind_whose_node_goes_before_its_result_is_unknown_did_not_happen() -> None:
    state = board(node("a"), tree("job", 1), pod("job", 0))
    plan = step(state)
    state.apply_all([NodeLost("a"), node("b")])
    assert step(state, NOW + 1) == Plan()
    state.settle(plan.actions[0], "unknown", NOW + 1)
    assert binds(step(state, NOW + 2)) == {"job-0": "b"}


def test_slow_binds_do_not_expire_while_other_binds_end() -> None:
    state = board(node("a"), node("b"), tree("one", 1), pod("one", 0), tree("two", 1), pod("two", 0))
    plan = step(state)
    state.settle(plan.actions[0], "done", NOW + 20)
    assert step(state, NOW + ASSUMED_SECONDS) == Plan()
    assert step(state, NOW + 20 + ASSUMED_SECONDS) != Plan()


def test_an_unconfirmed_bind_expires_although_other_binds_end() -> None:
    state = board(node("a"), node("b"), tree("one", 1), pod("one", 0), tree("two", 1), pod("two", 0))
    plan = step(state)
    lost, other = (one for one in plan.actions if isinstance(one, Bind))
    state.settle(lost, "unknown", NOW + 1)
    state.settle(other, "done", NOW + 20)
    assert step(state, NOW + ASSUMED_SECONDS) == Plan()
    assert list(binds(step(state, NOW + 1 + ASSUMED_SECONDS))) == [lost.pod.key.name]
