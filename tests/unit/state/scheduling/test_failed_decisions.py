"""What the state makes of decisions that failed."""

from __future__ import annotations

import pytest

from bayplan.model.plan import Plan, ReportUnschedulable
from bayplan.model.rejection import Rejection, RejectionReason
from bayplan.state.pending_queue import NEVER
from tests.support.scheduling_scene import NOW, board, node, pods, refusals, step


@pytest.mark.parametrize("reported", [True, False], ids=["as an error", "not at all"])
def test_what_blocks_a_gang_is_reported_again_after_a_decision_that_failed(reported: bool) -> None:
    """An error in the decision came between the snapshot and the report."""
    state = board(node("a"), *pods("job", 2))
    step(state)
    now = state.next_due(NOW)
    (head,) = state.heads(now)
    state.snapshot([head], now)
    failed = ReportUnschedulable(head, Rejection(RejectionReason.INTERNAL, about="id"))
    state.assume(Plan((failed,)) if reported else Plan(undecided=(head,)), now)
    later = state.next_due(now)
    assert later < NEVER
    (told,) = refusals(step(state, later))
    assert told.rejection.reason is RejectionReason.NO_SPEC
    assert state.next_due(later) == NEVER
