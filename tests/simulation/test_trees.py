"""The play of groups with sub-groups: some seeds, equal bytes, and mutations that the checkers detect."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache

import pytest

from bayplan.dialects.kai.api import wire
from bayplan.dialects.kai.api.pod_group import PodGroup
from bayplan.dialects.kai.decode.group_statuses import GroupStatuses
from bayplan.model.plan import Bind, Plan, PreemptPod, ReportUnschedulable
from bayplan.model.profile import Profile
from bayplan.model.rejection import PreemptionSearchOutcome, RejectionReason
from bayplan.model.watchdog import Watchdog
from bayplan.scheduling.attempt.nominations import priority_of
from bayplan.scheduling.binding.cycle import decide_gangs
from bayplan.scheduling.fair_share.accounts import Accounts
from bayplan.scheduling.fair_share.preemption import FairPreemptionSearch
from bayplan.simulator.core.report import SeedReport
from bayplan.simulator.subgroups.run import TreesSimulation
from bayplan.state.cluster.ledger import Ledger
from bayplan.state.scheduling.fair_usage import FairUsage
from bayplan.state.scheduling.gang_state import GangState
from bayplan.state.scheduling.queue import SchedulingQueue
from bayplan.state.scheduling.snapshot import SchedulingSnapshot
from bayplan.state.scheduling.state_machine import GangStateMachine
from tests.simulation.trying import assert_all_happen, check_same_bytes, check_sound, violations

SEEDS, MORE_SEEDS = (*range(5), 40036, 50029, 300282, 520301), range(5, 10)  # `make sim` runs a thousand
DECIDE = "bayplan.runtime.controllers.scheduler.controller.decide_gangs"
READ = wire.pod_group


@cache
def report_of(seed: int) -> SeedReport:
    return TreesSimulation(seed).run()


@pytest.mark.parametrize("seed", SEEDS)
def test_seed(seed: int) -> None:
    check_sound(report_of(seed))


@pytest.mark.long
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_another_seed(seed: int) -> None:
    test_seed(seed)


@pytest.mark.parametrize("seed", [20011, 20081])
def test_a_seed_that_had_a_violation(seed: int) -> None:
    """20011: the limit of a queue is reserved. 20081: what got nodes in the same cycle can be moved later."""
    check_sound(report_of(seed))


def test_faults_and_actions_of_many_kinds_happen() -> None:
    kinds = {
        "conflict", "crash", "delay_events", "delay_outcome", "duplicate", "relist", "timeout_done",
        "timeout_lost", "cordoned", "displaced", "group_ranked", "node_lost", "pod_deleted", "queue_changed",
    }  # fmt: skip
    assert_all_happen(kinds, map(report_of, (*SEEDS, *MORE_SEEDS)))


@pytest.mark.long
def test_a_seed_gives_the_same_bytes_whatever_the_hash_seed() -> None:
    check_same_bytes("trees", 1)


# ── broken one way after the other ─────────────────────────────────────────────────────────────────


def first_violation(words: str, *first: int, seeds: Iterable[int] = range(40), calm: bool = True) -> str:
    """The first violation that says so, or all there were; those seeds come first that showed it once."""
    return violations(TreesSimulation, words, dict.fromkeys((*first, *seeds)), calm=calm)


def test_a_scheduler_that_forgets_what_it_decided_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ledger, "hold", lambda self, preemption: [])
    assert "cpu of" in first_violation("cpu of")


@pytest.mark.long
def test_a_scheduler_that_starts_groups_in_part_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def most(snapshot: SchedulingSnapshot, profile: Profile, now: float, watchdog: Watchdog) -> Plan:
        """The second pod of each leaf is never bound."""
        plan = decide_gangs(snapshot, profile, now, watchdog)
        actions = [a for a in plan.actions if not (isinstance(a, Bind) and a.pod.key.name.endswith("-1"))]
        return Plan(tuple(actions))

    monkeypatch.setattr(DECIDE, most)
    assert "would start while it lacks" in first_violation("would start while it lacks")


@pytest.mark.long
def test_parts_of_a_tree_that_are_in_two_domains_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def anywhere(found: wire.KaiPodGroupWire) -> PodGroup:
        """The group itself stays in its domain, its sub-groups do not."""
        group = READ(found)
        return replace(group, sub_groups=tuple(replace(one, constraint=None) for one in group.sub_groups))

    monkeypatch.setattr(wire, "pod_group", anywhere)
    assert "worker-0 must be in one" in first_violation("worker-0 must be in one", 8)


@pytest.mark.long
def test_a_group_in_two_domains_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "pod_group", lambda found: replace(READ(found), constraint=None))
    found = first_violation("must be in one", 3)
    assert any(f"tree-{number} must be in one" in found for number in range(16))


@pytest.mark.long
def test_elastic_segments_that_hold_up_their_group_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def eager(found: wire.KaiPodGroupWire) -> PodGroup:
        """Every sub-group needs a pod."""
        group = READ(found)
        parts = (replace(one, minimum=max(one.minimum, 1)) for one in group.sub_groups)
        return replace(group, sub_groups=tuple(parts))

    monkeypatch.setattr(wire, "pod_group", eager)
    assert "though it fits on free nodes" in first_violation("though it fits on free nodes")


@pytest.mark.long
def test_a_scheduler_that_never_requeues_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SchedulingQueue, "wake", lambda self, hints, now: None)
    assert "though it fits on free nodes" in first_violation("though it fits on free nodes")


@pytest.mark.long
def test_a_scheduler_that_misses_new_preemption_candidates_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bayplan.state.scheduling.store.more_preemptible", lambda before, after: False)
    assert "preempted but is pending" in first_violation("preempted but is pending", 13)


@pytest.mark.long
def test_a_scheduler_that_misses_growing_queues_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither when a queue grows, nor after gangs of the same cycle got nodes, is a gang tried again."""
    monkeypatch.setattr(FairUsage, "shares_exceeded", lambda self: False)
    monkeypatch.setattr(FairPreemptionSearch, "retry_for", lambda self, gang: self.retry_at)
    assert "preempted but is pending" in first_violation("preempted but is pending", 19)


@pytest.mark.long
def test_a_queue_above_its_limit_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Accounts, "beyond_limit", lambda self, queue, amounts: None)
    assert "more than its limit" in first_violation("more than its limit")


@pytest.mark.long
def test_non_preemptible_usage_above_quota_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Accounts, "beyond_quota", lambda self, queue, amounts: None)
    assert "more than its quota" in first_violation("more than its quota")


@pytest.mark.long
def test_preemption_of_an_equal_priority_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    for where in ("fair_share.preemption", "binding.cycle", "binding.fair_cycle"):
        monkeypatch.setattr(
            f"bayplan.scheduling.{where}.priority_of", lambda candidate: priority_of(candidate) + 200
        )
    assert "of priority" in first_violation("of priority", 9)


@pytest.mark.long
def test_a_queue_that_preempts_within_the_quota_of_another_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FairPreemptionSearch, "_is_reclaimable", lambda self, turn, queue, left: True)
    monkeypatch.setattr(FairPreemptionSearch, "_is_fair", lambda self, turn, go: True)
    assert "cpu of its" in first_violation("cpu of its", 22)


@pytest.mark.long
def test_preemption_of_a_non_preemptible_pod_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PodGroup, "is_preemptible", lambda self, priority: True)
    monkeypatch.setattr(
        "bayplan.simulator.subgroups.queue_view.QueueUsageView.over_limit",
        lambda self, queue, *, non_preemptible: iter(()),
    )
    assert "it is not preemptible" in first_violation("it is not preemptible")


@pytest.mark.long
def test_a_group_that_is_broken_up_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one = "bayplan.scheduling.fair_share.victims.beyond_minimum"
    monkeypatch.setattr(one_by_one, lambda charter, pods: (list(pods), []))
    assert "and its other pods stay" in first_violation("and its other pods stay", 12)


@pytest.mark.long
def test_useless_preemption_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(snapshot: SchedulingSnapshot, profile: Profile, now: float, watchdog: Watchdog) -> Plan:
        """A gang that does not fit preempts a gang of lower priority, whether that helps or not."""
        plan = decide_gangs(snapshot, profile, now, watchdog)
        more: list[PreemptPod] = []
        for action in plan.actions:
            if (
                isinstance(action, ReportUnschedulable)
                and action.rejection.reason is RejectionReason.NO_CAPACITY
                and action.rejection.preemption is not PreemptionSearchOutcome.PAUSED
            ):
                mine = snapshot.specs[action.gang]
                weak = [
                    ref
                    for ref, rules in snapshot.specs.items()
                    if rules.queue == mine.queue and not rules.non_preemptible
                    and (rules.priority or 0) < (mine.priority or 0)
                    and any(key in snapshot.pods for key in snapshot.members.get(ref, ()))
                ]  # fmt: skip
                pods = (snapshot.pods.get(key) for ref in weak[:1] for key in snapshot.members[ref])
                more += [
                    PreemptPod(pod, action.gang, action.uid) for pod in pods if pod and not pod.terminating
                ]
        return Plan((*plan.actions, *more))

    monkeypatch.setattr(DECIDE, hasty)
    assert "was preempted for" in first_violation("was preempted for", 13)


@pytest.mark.long
def test_a_group_that_stays_below_its_minimum_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GangStateMachine, "_note_partial", lambda self, fake_controllers, now: None)
    assert "lacks {" in first_violation("lacks {", 20, calm=False)


@pytest.mark.long
def test_unbinding_a_group_that_has_its_minimums_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GangState, "is_below_minimum", property(lambda gang: bool(gang.bound)))
    assert "is unbound, though" in first_violation("is unbound, though")


@pytest.mark.long
def test_groups_that_do_not_say_why_they_wait_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupStatuses, "set_pending", lambda self, *_: False)
    assert "is pending without a reason" in first_violation("is pending without a reason")


@pytest.mark.long
def test_queues_that_say_nothing_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupStatuses, "_queue", lambda self, ref, now: None)
    assert "reports" in first_violation("reports")


@pytest.mark.long
def test_a_scheduler_that_never_gives_back_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ledger, "release", lambda self, owner: [])
    assert "the ledger is not" in first_violation("the ledger is not")


@pytest.mark.long
def test_shares_that_are_never_given_back_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FairUsage, "remove_pod", lambda self, key: False)
    assert "usage of the queues" in first_violation("usage of the queues")
