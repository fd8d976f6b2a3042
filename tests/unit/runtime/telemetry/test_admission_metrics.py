"""Metrics of admission: known names, bounded labels, and what decisions did."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from math import inf, isnan
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from bayplan.model.plan import Admit, EvictGang, EvictionReason, Plan, ReportNotAdmitted
from bayplan.model.queued_gang import CheckState, CheckStatus, Delayed
from bayplan.model.quota import Quota
from bayplan.model.rejection import (
    AdmissionRemark,
    FlavorAttempt,
    FlavorMode,
    PodSetAttempts,
    Rejection,
    RejectionReason,
)
from bayplan.model.summary import (
    CellUse,
    GangCounts,
    LevelCapacity,
    LevelSummary,
    NamespaceQueueSummary,
    QueueSummary,
    SharedSummary,
    Summaries,
)
from bayplan.runtime.core.clock import VirtualClock
from bayplan.runtime.telemetry.admission_metrics import (
    NAMES_MAX,
    PRIORITY_CLASS,
    SETS_MAX,
    AdmissionMetrics,
    bounded,
    samples,
)
from bayplan.runtime.telemetry.metrics import OTHER, Metrics
from bayplan.state.reports.summaries import summaries
from tests.support.admission_worlds import demand, queue, racks, see, share_quota, world

REFERENCE = Path(__file__).parents[4] / "docs" / "reference" / "metrics.md"
NOW = 1000.0


class Shown:
    """Metrics, and what they say."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = AdmissionMetrics(self.registry, "1.2.3", clock=VirtualClock(wall=NOW))

    def __call__(self, name: str, /, role: str = "standalone", **labels: str) -> float | None:
        full = {**labels, "replica_role": role} if name.startswith("kueue_") else labels
        return self.registry.get_sample_value(name, full)

    def sets(self, name: str) -> list[Mapping[str, str]]:
        families = self.registry.collect()
        return [one.labels for family in families for one in family.samples if one.name == name]


@pytest.fixture
def shown() -> Shown:
    return Shown()


# ── decisions ──────────────────────────────────────────────────────────────────────────────────────


def admit(name: str, **more: object) -> Admit:
    wanted = demand(name, queued=NOW - 30, labels={PRIORITY_CLASS: "high"}, **more)  # type: ignore[arg-type]
    given = demand(name, given="q").admission
    assert given is not None
    return Admit(wanted, given)


def test_an_admission_counts_for_queue_entrance_and_every_cohort_above(shown: Shown) -> None:
    paths = {"q": QueueSummary("q", path=("team", "company"))}
    shown.metrics.summarised(Summaries(paths))
    shown.metrics.decided(Plan((admit("a"), admit("b"))), 0.004)
    labels = {"cluster_queue": "q", "priority_class": "high"}
    local = {"name": "main", "namespace": "ns", "priority_class": "high"}
    assert shown("kueue_admission_attempts_total", result="success") == 1
    assert shown("kueue_admission_attempt_duration_seconds_sum", result="success") == 0.004
    for what in ("quota_reserved_workloads_total", "admitted_workloads_total"):
        assert shown(f"kueue_{what}", **labels) == shown(f"kueue_local_queue_{what}", **local) == 2
    for what in ("quota_reserved_wait_time_seconds_sum", "admission_wait_time_seconds_sum"):
        assert shown(f"kueue_{what}", **labels) == shown(f"kueue_local_queue_{what}", **local) == 60
    for cohort in ("team", "company"):
        name = "kueue_cohort_subtree_admitted_workloads_total"
        assert shown(name, cohort=cohort, priority_class="high") == 2


def test_quota_alone_is_no_admission_yet(shown: Shown) -> None:
    later = demand("b", given="q", delayed=Delayed.PENDING).admission
    assert later is not None
    plan = Plan((replace(admit("a"), checks=("check",)), replace(admit("b"), admission=later)))
    shown.metrics.decided(plan, 0.1)
    assert shown("kueue_quota_reserved_workloads_total", cluster_queue="q", priority_class="high") == 2
    assert shown("kueue_admitted_workloads_total", cluster_queue="q", priority_class="high") is None


def test_a_place_that_was_found_later_ends_the_wait_for_checks(shown: Shown) -> None:
    held = demand(
        "a",
        given="q",
        queued=NOW - 30,
        reserved=NOW - 10,
        delayed=Delayed.PENDING,
        verdicts=(CheckStatus("check", CheckState.READY),),
    )
    given = demand("a", given="q").admission
    assert given is not None
    shown.metrics.decided(Plan((Admit(held, given, ("check",)),)), 0.1)
    labels = {"cluster_queue": "q", "priority_class": ""}
    assert shown("kueue_quota_reserved_workloads_total", **labels) is None
    assert shown("kueue_admitted_workloads_total", **labels) == 1
    assert shown("kueue_admission_wait_time_seconds_sum", **labels) == 30
    assert shown("kueue_admission_checks_wait_time_seconds_sum", **labels) == 10


def test_other_nodes_for_a_running_gang_are_no_admission(shown: Shown) -> None:
    running = demand("a", given="q", admitted=True, failed_nodes=("n",))
    assert running.admission is not None
    shown.metrics.decided(Plan((Admit(running, running.admission),)), 0.1)
    assert shown.sets("kueue_admitted_workloads_total") == []


def test_evicted_gangs_are_counted_by_reason_and_preemptor(shown: Shown) -> None:
    victim = demand("a", given="lender", labels={PRIORITY_CLASS: "low"})
    plan = Plan(
        (
            EvictGang(victim, EvictionReason.RECLAIM, demand("b"), ("top", "lender"), ("top", "q")),
            EvictGang(victim, EvictionReason.NODES_FAILED),
        )
    )
    shown.metrics.decided(plan, 0.1)
    shown.metrics.evicted(victim, "ClusterQueueStopped")
    for reason in ("Preempted", "NodeFailures", "ClusterQueueStopped"):
        labels = {"reason": reason, "underlying_cause": "", "priority_class": "low"}
        assert shown("kueue_evicted_workloads_total", cluster_queue="lender", **labels) == 1
        local = shown("kueue_local_queue_evicted_workloads_total", name="main", namespace="ns", **labels)
        assert local == 1
    who = {"preempting_cluster_queue": "q", "reason": "InCohortReclamation"}
    assert shown("kueue_preempted_workloads_total", **who) == 1
    assert len(shown.sets("kueue_preempted_workloads_total")) == 1
    assert shown("kueue_admission_attempts_total", result="inadmissible") == 1


@pytest.mark.parametrize(
    ("remark", "chances", "skipped"),
    [
        (AdmissionRemark.SAME_VICTIMS, (), True),
        (AdmissionRemark.SAME_VICTIMS_WILL_FIT, (), True),
        (AdmissionRemark.OVERTAKEN, (FlavorMode.NONE, FlavorMode.PREEMPT), True),
        (AdmissionRemark.OVERTAKEN, (FlavorMode.PREEMPT, FlavorMode.FIT), False),
        (AdmissionRemark.OVERTAKEN, (), False),
        (AdmissionRemark.TRIED, (FlavorMode.PREEMPT,), False),
    ],
)
def test_skips_are_those_of_the_last_round(
    shown: Shown, remark: AdmissionRemark, chances: tuple[FlavorMode, ...], skipped: bool
) -> None:
    tried = PodSetAttempts("main", attempts=tuple(FlavorAttempt("f", chance) for chance in chances))
    refusal = Rejection(RejectionReason.NO_QUOTA_NOW, remark=remark, tried=(tried,), queue="q")
    shown.metrics.decided(Plan((ReportNotAdmitted(demand("a"), refusal),)), 0.1)
    name = "kueue_admission_cycle_preemption_skips"
    assert shown(name, cluster_queue="q") == (1 if skipped else None)
    shown.metrics.decided(Plan(), 0.1)
    assert shown.sets(name) == []


# ── queue state ────────────────────────────────────────────────────────────────────────────────────


def test_a_queue_shows_what_its_summary_says(shown: Shown) -> None:
    counts = GangCounts(
        3, 2, 5, 4, 1, 0, {RejectionReason.NO_QUOTA_NOW: 2, RejectionReason.TO_BE_EVALUATED: 3}
    )
    cell = CellUse("f", "cpu", Quota(4000, None, 500), 6500, 6000, can_borrow=True)
    told = QueueSummary("q", counts, (cell,), {"cpu": 2500}, 2, 1, (), ("team", "company"), inf)
    shown.metrics.summarised(Summaries({"q": told}))
    assert shown("kueue_pending_workloads", cluster_queue="q", status="active") == 3
    assert shown("kueue_pending_workloads", cluster_queue="q", status="inadmissible") == 2
    assert shown("kueue_pending_scheduling_hashes", cluster_queue="q", status="active") == 2
    assert shown("kueue_reserving_active_workloads", cluster_queue="q") == 5
    assert shown("kueue_admitted_active_workloads", cluster_queue="q") == 4
    why = {"reason": "NoReservation", "underlying_cause": "WaitingForQuota"}
    assert shown("kueue_unadmitted_workloads", cluster_queue="q", **why) == 2
    checks = {"reason": "UnsatisfiedAdmissionChecks", "underlying_cause": ""}
    assert shown("kueue_unadmitted_workloads", cluster_queue="q", **checks) == 1
    for status, value in (("active", 1), ("pending", 0), ("terminating", 0)):
        assert shown("kueue_cluster_queue_status", cluster_queue="q", status=status) == value
    where = {"cohort": "team", "cluster_queue": "q", "flavor": "f", "resource": "cpu"}
    for name, amount in (
        ("resource_reservation", 6.5),
        ("resource_usage", 6),
        ("nominal_quota", 4),
        ("borrowing_limit", inf),
        ("lending_limit", 0.5),
    ):
        assert shown(f"kueue_cluster_queue_{name}", **where) == amount, name
    assert shown("kueue_cluster_queue_resource_pending", cluster_queue="q", resource="cpu") == 2.5
    place = {"cluster_queue": "q", "parent_cohort": "team", "root_cohort": "company"}
    assert shown("kueue_cluster_queue_info", **place) == 1
    share = shown("kueue_cluster_queue_weighted_share", cluster_queue="q", cohort="team")
    assert share is not None and isnan(share)


def test_a_live_state_is_shown_as_it_stands(shown: Shown) -> None:
    state = world(queue("q", "team", 1000), topology="t")
    share_quota(state, "team", "company", 4000)
    racks(state, {"r1": 2})
    see(state, demand("a", given="q", cpu=3000, admitted=True, host="r1-0"), demand("b"))
    shown.metrics.summarised(summaries(state))
    way = {"name": "main", "namespace": "ns"}
    assert shown("kueue_local_queue_pending_workloads", status="active", **way) == 1
    assert shown("kueue_local_queue_admitted_active_workloads", **way) == 1
    assert shown("kueue_local_queue_status", active="True", **way) == 1
    assert shown("kueue_local_queue_resource_usage", flavor="f", resource="cpu", **way) == 3
    assert shown("kueue_cluster_queue_weighted_share", cluster_queue="q", cohort="team") == 400
    cell = {"flavor": "f", "resource": "cpu"}
    assert shown("kueue_cohort_subtree_quota", cohort="company", **cell) == 5
    assert shown("kueue_cohort_subtree_resource_reservations", cohort="team", **cell) == 3
    assert shown("kueue_cohort_subtree_admitted_active_workloads", cohort="company") == 1
    assert shown("kueue_cohort_info", cohort="team", parent_cohort="company", root_cohort="company") == 1
    assert shown("kueue_cohort_info", cohort="company", parent_cohort="", root_cohort="company") == 1
    assert shown("bayplan_topology_domains", topology="t", level="rack") == 1
    at = {"topology": "t", "level": "kubernetes.io/hostname", "resource": "cpu"}
    assert shown("bayplan_topology_free", **at) == 5
    assert shown("bayplan_topology_largest_gang", **at) == 4
    assert shown("bayplan_topology_fragmentation", **at) == 0


def test_what_is_gone_is_no_longer_shown(shown: Shown) -> None:
    shown.metrics.summarised(Summaries({"a": QueueSummary("a"), "b": QueueSummary("b")}))
    shown.metrics.summarised(Summaries({"b": QueueSummary("b")}))
    assert {labels["cluster_queue"] for labels in shown.sets("kueue_pending_workloads")} == {"b"}


def test_who_leads_shows_and_who_follows_does_not(shown: Shown) -> None:
    told = Summaries({"q": QueueSummary("q")}, levels=(LevelSummary("t", "rack", 3),))
    shown.metrics.summarised(told)
    shown.metrics.leads(True)
    shown.metrics.summarised(told)
    assert [labels["replica_role"] for labels in shown.sets("kueue_reserving_active_workloads")] == ["leader"]
    shown.metrics.leads(False)
    for name in ("kueue_reserving_active_workloads", "bayplan_topology_domains"):
        assert shown.sets(name) == []


def test_of_many_queues_the_busiest_go_by_name_and_no_gang_is_left_out(shown: Shown) -> None:
    number = NAMES_MAX + 50
    cell = CellUse("f", "cpu", Quota(1000), 500)
    queues = {
        f"q{n}": QueueSummary(f"q{n}", GangCounts(ready=n), (cell,), path=("team",), share=1.0)
        for n in range(number)
    }
    ways = {
        ("ns", f"w{n}"): NamespaceQueueSummary("ns", f"w{n}", f"q{n}", GangCounts(ready=n), (cell,))
        for n in range(number)
    }
    shared = {f"c{n}": SharedSummary(f"c{n}", admitted=n, share=1.0) for n in range(number)}
    shown.metrics.summarised(Summaries(queues, ways, shared))
    found = [labels for labels in shown.sets("kueue_pending_workloads") if labels["status"] == "active"]
    assert len(found) == NAMES_MAX + 1
    assert sum(shown("kueue_pending_workloads", **_plain(labels)) or 0 for labels in found) == sum(
        range(number)
    )
    assert shown("kueue_pending_workloads", cluster_queue="q0", status="active") is None
    assert shown("kueue_pending_workloads", cluster_queue=OTHER, status="active") == sum(range(50))
    hidden = {"cohort": OTHER, "cluster_queue": OTHER, "flavor": "f", "resource": "cpu"}
    assert shown("kueue_cluster_queue_nominal_quota", **hidden) == 50
    assert len(shown.sets("kueue_cluster_queue_weighted_share")) == NAMES_MAX, "shares do not add up"
    assert len(shown.sets("kueue_cohort_weighted_share")) == NAMES_MAX
    assert len(shown.sets("kueue_local_queue_status")) == 3 * (NAMES_MAX + 1)


def test_no_gauge_has_more_label_sets_than_it_may() -> None:
    cells = tuple(CellUse(f"f{n}", "cpu", Quota(n)) for n in range(SETS_MAX + 9))
    found = samples(Summaries({"q": QueueSummary("q", cells=cells)}))["cluster_queue_nominal_quota"]
    assert len(found) == SETS_MAX
    assert found["", "q", f"f{SETS_MAX}", "cpu"] == SETS_MAX / 1000
    assert sum(found.values()) == pytest.approx(sum(cell.quota.nominal for cell in cells) / 1000)
    assert bounded({("a",): 1.0, ("b",): 2.0, ("c",): 3.0}, adds=False, limit=2) == {("c",): 3.0}


def test_of_many_levels_some_are_left_out() -> None:
    shown = Shown()
    rooms = tuple(LevelCapacity(f"r{n}", n, n, 0.0) for n in range(SETS_MAX + 5))
    shown.metrics.summarised(Summaries(levels=(LevelSummary("t", "rack", 3, rooms),)))
    assert len(shown.sets("bayplan_topology_free")) == SETS_MAX
    assert len(shown.sets("bayplan_topology_largest_gang")) == SETS_MAX - 1


def _plain(labels: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in labels.items() if name != "replica_role"}


# ── the reference ──────────────────────────────────────────────────────────────────────────────────────


def test_the_registry_may_be_that_of_all_other_metrics() -> None:
    metrics = Metrics("1.2.3")
    AdmissionMetrics(metrics.registry, "1.2.3").decided(Plan(), 0.1)
    assert b'kueue_build_info{build_date="",compiler="",git_commit="",git_version="1.2.3"' in metrics.text()


def test_every_metric_of_admission_is_in_the_reference(shown: Shown) -> None:
    text = REFERENCE.read_text(encoding="utf-8").partition("## Admission\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `((?:kueue|bayplan)_\w+)` \| \w+ \| (.*?) ?\| (.*?) \|$", text, re.MULTILINE)
    told = {name: (tuple(re.findall(r"`(\w+)`", labels)), says) for name, labels, says in rows}
    assert told == described(shown.registry)
    words = " ".join(text.split())
    assert f"{NAMES_MAX} queues" in words and f"{SETS_MAX:,} label sets" in words


def described(registry: CollectorRegistry) -> dict[str, tuple[tuple[str, ...], str]]:
    """Names, labels without the replica role, and help texts."""
    found = {}
    for family in registry.collect():
        collector = registry._names_to_collectors[family.name]
        labels = tuple(name for name in collector._labelnames if name != "replica_role")  # type: ignore[attr-defined]
        suffix = "_total" if family.type == "counter" else ""
        found[family.name + suffix] = (labels, family.documentation)
    return found
