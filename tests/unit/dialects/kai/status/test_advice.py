"""What people are told to do for a group that waits."""

from __future__ import annotations

from fractions import Fraction

import pytest

from bayplan.dialects.kai.api.pod_group import Owner, PodGroup
from bayplan.dialects.kai.status.advice import advice
from bayplan.model.assignment import Code, Misfit
from bayplan.model.scheduling_rejection import QuotaExcess, RejectionReason, SchedulingRejection

GROUP = PodGroup("g", "ns")
NOT_ENOUGH_LEFT = QuotaExcess("team", "nvidia.com/gpu", Fraction(8), 6, 4)
FOUR_PER_RACK = Misfit(Code.NO_ROOM, ("a",), "hall", "rack", asked=2, unit=4)


@pytest.mark.parametrize(
    ("why", "words"),
    [
        (SchedulingRejection(RejectionReason.OVER_LIMIT, excess=NOT_ENOUGH_LEFT), "others in queue team end, or raise spec"),
        (SchedulingRejection(RejectionReason.OVER_QUOTA, excess=NOT_ENOUGH_LEFT), "spec.resources.gpu.quota of queue team"),
        (SchedulingRejection(RejectionReason.NO_ROOM, misfit=FOUR_PER_RACK), "each segment finds one rack with room for 4"),
        (SchedulingRejection(RejectionReason.NO_ROOM), "add nodes"),
        (SchedulingRejection(RejectionReason.FLAWED, about="cycle detected"), "correct that in the PodGroup; it is look"),
        (SchedulingRejection(RejectionReason.TOO_FEW), "minMember"),
        (SchedulingRejection(RejectionReason.MAKING_ROOM), "nothing"),
    ],
)  # fmt: skip
def test_what_to_do(why: SchedulingRejection, words: str) -> None:
    assert words in advice(why, GROUP)


def test_everything_in_the_way_has_advice_but_for_what_says_it_itself() -> None:
    silent = [
        one for one in RejectionReason if not advice(SchedulingRejection(one, excess=NOT_ENOUGH_LEFT), None)
    ]
    assert silent == [RejectionReason.NO_QUEUE]
    assert not advice(SchedulingRejection(RejectionReason.NO_ROOM, misfit=Misfit(Code.NO_DOMAINS, ())), GROUP)


def test_who_had_a_group_made_is_named() -> None:
    made = PodGroup("g", "ns", owner=Owner("batch/v1", "Job", "train", "u"))
    assert "in Job ns/train, which the group was made for" in advice(
        SchedulingRejection(RejectionReason.FLAWED), made
    )
