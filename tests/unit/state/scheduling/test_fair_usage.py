"""When a queue newly exceeds its quota."""

from __future__ import annotations

from fractions import Fraction

import pytest

from bayplan.model.gang import GangSpec
from bayplan.model.node import Node
from bayplan.model.quota import Entitlement, FairQueue
from bayplan.state.scheduling.fair_usage import FairUsage, UsageKind
from tests.support.scheduling_scene import pod, ref


def book(has: int) -> FairUsage:
    """A queue whose quota is two, on a node with eight."""
    state = FairUsage()
    state.set_node("n1", Node("n1", {}, {"gpu": 8}))
    state.queue_seen(FairQueue("q", entitlements={"gpu": Entitlement(Fraction(2))}))
    state.start_tracking({ref("g"): GangSpec(ref("g"), 1, queue="q")}, ())
    state.set_pod(pod("g", 0, on="n1", gpus=has).pod, UsageKind.USED)
    state.shares_exceeded()
    return state


@pytest.mark.parametrize(
    ("now", "less"),
    [
        (None, True),
        (Node("n1", {}, {"gpu": 6}), True),
        (Node("n1", {}, {"gpu": 8}, ready=False), True),
        (Node("n1", {"zone": "z"}, {"gpu": 8}), False),
        (Node("n1", {}, {"gpu": 9}), False),
    ],
)
def test_with_less_to_share_a_queue_may_have_to_give_back_more(now: Node | None, less: bool) -> None:
    state = book(has=3)
    assert not state.shares_exceeded()
    state.set_node("n1", now)
    assert state.shares_exceeded() == less
    within = book(has=2)
    within.set_node("n1", now)
    assert not within.shares_exceeded(), "that is its own"
