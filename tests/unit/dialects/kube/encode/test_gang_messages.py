"""Why gangs and pods wait: the words that users know first, and what they can do."""

from __future__ import annotations

import pytest

from bayplan.dialects.kube.encode.gang_messages import UNSURE, reason, told
from bayplan.dialects.kueue.status.misfit_messages import sentence
from bayplan.model.assignment import Code, Misfit, NearMiss
from bayplan.model.filter_failure import FilterFailure, FilterReason
from bayplan.model.gang import Ref
from bayplan.model.pod import PodKey
from bayplan.model.scheduling_rejection import PreemptionSearchOutcome, RejectionReason, SchedulingRejection

GROUP = Ref("gang", "PodGroup", "ns", "pg")
WORKLOAD = Ref("gang", "Workload", "ns", "train/workers/0")
JOB = Ref("kueue", "Job", "ns", "j")
POD = Ref("kube", "Pod", "ns", "p")
FULL = FilterFailure(5, {(FilterReason.LACKING, "cpu"): 3, (FilterReason.CORDONED, ""): 2}, curable=3)


def said(gang: Ref, hindrance: RejectionReason, **facts: object) -> str:
    return told(SchedulingRejection(hindrance, **facts), gang, sentence)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("gang", "words"),
    [
        (WORKLOAD, 'waiting for pods\'s workload "train" to appear in scheduling queue'),
        (GROUP, 'waiting for pods\'s pod group "pg" to appear in scheduling queue'),
        (JOB, 'waiting for Job "j"'),
    ],
)
def test_rules_that_are_not_there_are_named(gang: Ref, words: str) -> None:
    assert said(gang, RejectionReason.NO_CHARTER).startswith(words)


def test_a_gang_that_is_not_complete_is_counted() -> None:
    assert said(GROUP, RejectionReason.TOO_FEW, minimum=5, there=3) == (
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
            PreemptionSearchOutcome.NOBODY,
            " no new claims to deallocate, preemption: 0/5 nodes are available: 2 Preemption is not helpful"
            " for scheduling, 3 No preemption victims found for incoming pod.",
        ),
        (
            PreemptionSearchOutcome.NO_HELP,
            " no new claims to deallocate, preemption: 0/5 nodes are available: 5 Preemption is not helpful"
            " for scheduling.",
        ),
        (
            PreemptionSearchOutcome.NEVER,
            " no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never.",
        ),
        (PreemptionSearchOutcome.NOTHING, ""),
    ],
)
def test_a_lone_pod_hears_what_it_always_heard(sought: PreemptionSearchOutcome, tail: str) -> None:
    assert said(POD, RejectionReason.NO_ROOM, minimum=1, unfit=FULL, sought=sought) == (
        f"0/5 nodes are available: 2 node(s) were unschedulable, 3 Insufficient cpu.{tail}"
    )


def test_a_gang_hears_how_many_fit_and_which_pod_does_not() -> None:
    facts = {"minimum": 8, "fit": 6, "unfit": FULL, "pod": PodKey("ns", "w-6")}
    text = said(GROUP, RejectionReason.NO_ROOM, **facts)
    assert text.startswith("pod group is unschedulable: 6 of 8 pods fit (pod w-6): 0/5 nodes are available: ")
    assert UNSURE not in text
    assert said(GROUP, RejectionReason.NO_ROOM, **facts, unsure=True).endswith(UNSURE)


def test_a_job_hears_the_sentence_of_its_topology() -> None:
    misfit = Misfit(Code.NO_ROOM, ("main",), "dc", fit=1, asked=2)
    assert said(JOB, RejectionReason.NO_ROOM, minimum=2, misfit=misfit, unfit=FULL) == sentence(misfit)


def test_a_gang_that_is_to_share_a_label_hears_which_value_comes_closest() -> None:
    nearest = NearMiss(("r2",), "rack", fit=2, short=1)
    misfit = Misfit(Code.NO_ROOM, (), level="rack", fit=2, asked=3, nearest=nearest)
    assert said(GROUP, RejectionReason.NO_ROOM, minimum=3, misfit=misfit, unfit=FULL).startswith(
        'pod group is unschedulable: the best value of node label "rack", r2, has room for 2 of 3 pods: '
        "0/5 nodes are available: "
    )
    misfit = Misfit(Code.NO_DOMAINS, (), level="rack", asked=3)
    assert said(GROUP, RejectionReason.NO_ROOM, minimum=3, misfit=misfit, unfit=FULL) == (
        'pod group is unschedulable: no node that it may use has the label "rack"'
    )


def test_room_that_is_made_or_kept() -> None:
    assert said(POD, RejectionReason.MAKING_ROOM).endswith("other pods are on the way out")
    assert said(GROUP, RejectionReason.MAKING_ROOM, displaced=2) == (
        "pod group is waiting for preemption to complete: 2 pods are on the way out"
    )
    assert said(POD, RejectionReason.MAKING_ROOM, displaced=1).startswith(
        "waiting for preemption to complete: 1 pod"
    )
    assert "kept free" in said(POD, RejectionReason.KEPT_FREE)
    assert "taken back" in said(GROUP, RejectionReason.TAKEN_BACK, minimum=3, fit=2)


def test_only_who_more_nodes_may_help_is_unschedulable() -> None:
    reasons = {hindrance: reason(SchedulingRejection(hindrance)) for hindrance in RejectionReason}
    assert {found for found, word in reasons.items() if word == "Unschedulable"} == {
        RejectionReason.NO_ROOM,
        RejectionReason.MAKING_ROOM,
        RejectionReason.KEPT_FREE,
    }
    assert reasons[RejectionReason.FLAWED] == "SchedulerError"
    assert reasons[RejectionReason.TOO_FEW] == "WaitingForGang"


@pytest.mark.parametrize("hindrance", RejectionReason)
@pytest.mark.parametrize("gang", [GROUP, WORKLOAD, JOB, POD])
def test_every_hindrance_has_words(gang: Ref, hindrance: RejectionReason) -> None:
    assert said(gang, hindrance)
