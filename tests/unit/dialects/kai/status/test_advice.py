"""Advice for people whose PodGroup is pending."""

from __future__ import annotations

from fractions import Fraction

import pytest

from bayplan.dialects.kai.api.pod_group import Owner, PodGroup
from bayplan.dialects.kai.status.advice import advice
from bayplan.model.assignment import Code, Misfit
from bayplan.model.rejection import QuotaExcess, Rejection, RejectionReason
from tests.support.reasons import BINDING_REASONS

GROUP = PodGroup("g", "ns")
NOT_ENOUGH_LEFT = QuotaExcess("team", "nvidia.com/gpu", Fraction(8), 6, 4)
FOUR_PER_RACK = Misfit(Code.NO_ROOM, ("a",), "hall", "rack", asked=2, unit=4)


@pytest.mark.parametrize(
    ("why", "words"),
    [
        (
            Rejection(RejectionReason.OVER_LIMIT, excess=NOT_ENOUGH_LEFT),
            "groups in queue team finish, or raise spec",
        ),
        (
            Rejection(RejectionReason.OVER_QUOTA, excess=NOT_ENOUGH_LEFT),
            "spec.resources.gpu.quota of queue team",
        ),
        (
            Rejection(RejectionReason.NO_CAPACITY, misfit=FOUR_PER_RACK),
            "each segment has one rack with capacity for 4",
        ),
        (Rejection(RejectionReason.NO_CAPACITY), "add nodes"),
        (
            Rejection(RejectionReason.INVALID, about="cycle detected"),
            "correct that in the PodGroup; the group is",
        ),
        (Rejection(RejectionReason.TOO_FEW), "minMember"),
        (Rejection(RejectionReason.PREEMPTING), "nothing"),
    ],
)
def test_advice_for_a_reason(why: Rejection, words: str) -> None:
    assert words in advice(why, GROUP)


def test_every_reason_has_advice_unless_its_message_is_sufficient() -> None:
    silent = [one for one in BINDING_REASONS if not advice(Rejection(one, excess=NOT_ENOUGH_LEFT), None)]
    assert silent == [RejectionReason.NO_QUEUE]
    assert not advice(Rejection(RejectionReason.NO_CAPACITY, misfit=Misfit(Code.NO_DOMAINS, ())), GROUP)


def test_the_owner_of_a_group_is_named() -> None:
    made = PodGroup("g", "ns", owner=Owner("batch/v1", "Job", "train", "u"))
    assert "in Job ns/train, which the group was created for" in advice(
        Rejection(RejectionReason.INVALID), made
    )
