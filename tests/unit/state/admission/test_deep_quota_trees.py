"""A chain of cohorts or queues that is too long makes its own queues inactive, and no others."""

from __future__ import annotations

from fractions import Fraction

import pytest

from bayplan.dialects.kai.status.messages import queue_fault
from bayplan.dialects.kueue.status.queue_status import cluster_queue
from bayplan.model.change import QueueSeen, QuotaNodeSeen
from bayplan.model.quota import (
    QUEUE_DEPTH_MAX,
    Entitlement,
    FairQueue,
    Queue,
    Quota,
    QuotaNode,
    ResourceGroup,
)
from bayplan.scheduling.fair_share.accounts import Accounts
from bayplan.state.admission.state import AdmissionState
from bayplan.state.reports.summaries import summaries
from bayplan.state.scheduling.fair_usage import FairView

CELL = ("f", "cpu")
LONG = 3000


def chain(count: int) -> list[QuotaNode]:
    """Cohorts, each below the one before."""
    return [QuotaNode(f"c{at}", f"c{at - 1}" * (at > 1), {CELL: Quota(1)}) for at in range(1, count + 1)]


def queue_below(name: str, parent: str) -> Queue:
    group = ResourceGroup(("cpu",), ("f",))
    return Queue(QuotaNode(name, parent, {CELL: Quota(1)}), (group,))


def state_of(cohorts: list[QuotaNode], *queues: Queue) -> AdmissionState:
    state = AdmissionState()
    state.apply_all([*(QuotaNodeSeen(one) for one in cohorts), *(QueueSeen(one) for one in queues)])
    return state


def test_queues_share_quota_in_the_deepest_tree_that_is_allowed() -> None:
    state = state_of(chain(QUEUE_DEPTH_MAX), queue_below("q", f"c{QUEUE_DEPTH_MAX}"))
    account = state.usage.quota_tree().queues["q"]
    assert account.available(CELL) == QUEUE_DEPTH_MAX + 1
    assert [flaw for flaw, _ in state.flaws(state.config.queues["q"])] == ["flavor_missing"]


@pytest.mark.parametrize("length", [QUEUE_DEPTH_MAX + 1, LONG])
def test_a_queue_below_a_chain_of_too_many_cohorts_is_inactive_and_the_others_are_not(length: int) -> None:
    state = state_of(chain(length), queue_below("deep", f"c{length}"), queue_below("flat", "c1"))
    faults = {name: [fault.flaw for fault in one.faults] for name, one in summaries(state).queues.items()}
    assert faults == {"deep": ["flavor_missing", "too_deep"], "flat": ["flavor_missing"]}
    tree = state.usage.quota_tree()
    assert tree.queues["deep"].parent is None and tree.queues["flat"].parent is tree.shared["c1"]
    assert tree.queues["flat"].available(CELL) >= 2
    told = cluster_queue({"metadata": {"name": "deep"}}, summaries(state).queues["deep"], 0.0)
    assert told is not None
    assert f"Cohort c{length} is more than {QUEUE_DEPTH_MAX} levels deep" in told["conditions"][0]["message"]


@pytest.mark.parametrize("length", [QUEUE_DEPTH_MAX, QUEUE_DEPTH_MAX + 1, LONG])
def test_a_chain_of_too_many_fair_queues_has_no_share_and_says_so(length: int) -> None:
    said = {"cpu": Entitlement(Fraction(0), None, Fraction(1))}
    queues = {
        f"q{at}": FairQueue(f"q{at}", f"q{at - 1}" if at > 1 else "", 0, said, 0.0)
        for at in range(1, length + 1)
    }
    leaf = f"q{length}"
    accounts = Accounts(FairView(queues, {}, {}, {leaf: {"cpu": 4}}, {"cpu": 4}))
    fits = length <= QUEUE_DEPTH_MAX
    assert (accounts.missing(leaf) is None) == fits
    assert accounts.shares[leaf].get("cpu", 0) == (4 if fits else 0)
    fault = queue_fault(leaf, {name: one.parent for name, one in queues.items()})
    assert fault is None if fits else fault is not None and f"more than {QUEUE_DEPTH_MAX} levels" in fault[1]
