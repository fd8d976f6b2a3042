"""Messages on pending gangs and pods: kube-scheduler's messages first, then what to do."""

from __future__ import annotations

import pytest

from bayplan.dialects.kube.encode.gang_messages import NOT_EXHAUSTIVE, message_for, reason
from bayplan.dialects.kueue.status.misfit_messages import misfit_message
from bayplan.model.assignment import Code, Misfit, NearMiss
from bayplan.model.filter_failure import FilterFailure, FilterReason
from bayplan.model.gang import Ref
from bayplan.model.pod import PodKey
from bayplan.model.rejection import PreemptionSearchOutcome, Rejection, RejectionReason
from tests.support.reasons import BINDING_REASONS

GROUP = Ref("gang", "PodGroup", "ns", "pg")
WORKLOAD = Ref("gang", "Workload", "ns", "train/workers/0")
JOB = Ref("kueue", "Job", "ns", "j")
POD = Ref("kube", "Pod", "ns", "p")
FULL = FilterFailure(
    5, {(FilterReason.INSUFFICIENT, "cpu"): 3, (FilterReason.CORDONED, ""): 2}, preemptible_nodes=3
)


def said(gang: Ref, hindrance: RejectionReason, **facts: object) -> str:
    return message_for(Rejection(hindrance, **facts), gang, misfit_message)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("gang", "words"),
    [
        (WORKLOAD, 'waiting for pods\'s workload "train" to appear in scheduling queue'),
        (GROUP, 'waiting for pods\'s pod group "pg" to appear in scheduling queue'),
        (JOB, 'waiting for Job "j"'),
    ],
)
def test_a_missing_gang_spec_is_named(gang: Ref, words: str) -> None:
    assert said(gang, RejectionReason.NO_SPEC).startswith(words)


def test_the_pods_of_an_incomplete_gang_are_counted() -> None:
    assert said(GROUP, RejectionReason.TOO_FEW, minimum=5, existing=3) == (
        "waiting for minCount pods from a gang to appear in scheduling queue: 3 of 5 are there"
    )
    assert said(WORKLOAD, RejectionReason.NO_GROUP) == (
        'pod group "workers" doesn\'t exist for a workload "train"'
    )
    assert said(GROUP, RejectionReason.GATED, pod=PodKey("ns", "a")).endswith("such as a")


@pytest.mark.parametrize(
    ("sought", "tail"),
    [
        (
            PreemptionSearchOutcome.NO_CANDIDATES,
            " no new claims to deallocate, preemption: 0/5 nodes are available: 2 Preemption is not helpful"
            " for scheduling, 3 No preemption victims found for incoming pod.",
        ),
        (
            PreemptionSearchOutcome.INSUFFICIENT,
            " no new claims to deallocate, preemption: 0/5 nodes are available: 5 Preemption is not helpful"
            " for scheduling.",
        ),
        (
            PreemptionSearchOutcome.NOT_ALLOWED,
            " no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never.",
        ),
        (
            PreemptionSearchOutcome.PAUSED,
            " no new claims to deallocate, preemption: paused for up to five minutes, because several in a"
            " row got it no node.",
        ),
        (PreemptionSearchOutcome.NOT_SEARCHED, ""),
    ],
)
def test_a_single_pod_has_the_messages_of_kube_scheduler(sought: PreemptionSearchOutcome, tail: str) -> None:
    assert said(POD, RejectionReason.NO_CAPACITY, minimum=1, filter_failure=FULL, preemption=sought) == (
        f"0/5 nodes are available: 2 node(s) were unschedulable, 3 Insufficient cpu.{tail}"
    )


def test_a_gang_message_has_the_number_of_pods_that_fit_and_the_pod_that_does_not() -> None:
    facts = {"minimum": 8, "fit": 6, "filter_failure": FULL, "pod": PodKey("ns", "w-6")}
    text = said(GROUP, RejectionReason.NO_CAPACITY, **facts)
    assert text.startswith("pod group is unschedulable: 6 of 8 pods fit (pod w-6): 0/5 nodes are available: ")
    assert NOT_EXHAUSTIVE not in text
    assert said(GROUP, RejectionReason.NO_CAPACITY, **facts, incomplete=True).endswith(NOT_EXHAUSTIVE)


def test_a_job_has_the_message_of_its_topology() -> None:
    misfit = Misfit(Code.NO_ROOM, ("main",), "dc", fit=1, asked=2)
    assert said(
        JOB, RejectionReason.NO_CAPACITY, minimum=2, misfit=misfit, filter_failure=FULL
    ) == misfit_message(misfit)


def test_a_gang_that_requires_one_label_value_has_the_nearest_value_in_its_message() -> None:
    nearest = NearMiss(("r2",), "rack", fit=2, short=1)
    misfit = Misfit(Code.NO_ROOM, (), level="rack", fit=2, asked=3, nearest=nearest)
    assert said(GROUP, RejectionReason.NO_CAPACITY, minimum=3, misfit=misfit, filter_failure=FULL).startswith(
        'pod group is unschedulable: the best value of node label "rack", r2, has room for 2 of 3 pods: '
        "0/5 nodes are available: "
    )
    misfit = Misfit(Code.NO_DOMAINS, (), level="rack", asked=3)
    assert said(GROUP, RejectionReason.NO_CAPACITY, minimum=3, misfit=misfit, filter_failure=FULL) == (
        'pod group is unschedulable: no node that it may use has the label "rack"'
    )


def test_messages_for_preemption_and_reserved_capacity() -> None:
    assert said(POD, RejectionReason.PREEMPTING).endswith("other pods are terminating")
    assert said(GROUP, RejectionReason.PREEMPTING, victims=2) == (
        "pod group is waiting for preemption to complete: 2 pods are terminating"
    )
    assert said(POD, RejectionReason.PREEMPTING, victims=1).startswith(
        "waiting for preemption to complete: 1 pod"
    )
    assert "capacity is reserved" in said(POD, RejectionReason.RESERVED)
    assert "evicted" in said(GROUP, RejectionReason.UNDONE, minimum=3, fit=2)


def test_only_pods_that_more_nodes_may_help_are_unschedulable() -> None:
    reasons = {hindrance: reason(Rejection(hindrance)) for hindrance in BINDING_REASONS}
    assert {found for found, word in reasons.items() if word == "Unschedulable"} == {
        RejectionReason.NO_CAPACITY,
        RejectionReason.PREEMPTING,
        RejectionReason.RESERVED,
    }
    assert reasons[RejectionReason.INVALID] == "SchedulerError"
    assert reasons[RejectionReason.TOO_FEW] == "WaitingForGang"


@pytest.mark.parametrize("hindrance", BINDING_REASONS)
@pytest.mark.parametrize("gang", [GROUP, WORKLOAD, JOB, POD])
def test_every_reason_has_a_message(gang: Ref, hindrance: RejectionReason) -> None:
    assert said(gang, hindrance)
