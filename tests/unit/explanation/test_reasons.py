"""There are words for everything that can stand in a gang's way."""

from __future__ import annotations

import pytest

from bayplan.cli.live.gangs import FLAWS
from bayplan.cli.render.tables import age, table
from bayplan.explanation.reasons import detail_text, few_words
from bayplan.model.assignment import Code, Misfit, NearMiss
from bayplan.model.node_rules import Taint
from bayplan.model.rejection import (
    AdmissionRemark,
    Obstacle,
    ObstacleKind,
    Rejection,
    RejectionReason,
)
from bayplan.model.summary import Flaw


def test_every_obstacle_has_words() -> None:
    for what in ObstacleKind:
        told = detail_text(Obstacle(what, "f", "cpu", Taint("k"), (1000, 1000, 1000), ("f",)))
        assert told and "{" not in told


def test_every_remark_has_words() -> None:
    for remark in AdmissionRemark:
        told = few_words(Rejection(RejectionReason.TO_BE_EVALUATED, remark=remark, queue="q", victims=2))
        assert told and "{" not in told


def test_a_decision_that_failed_is_explained_by_its_fault_whatever_was_tried_before() -> None:
    assert "bug in Bayplan: search its log for e1" in few_words(
        Rejection(RejectionReason.INTERNAL, about="e1")
    )
    assert "longer than 5 seconds" in few_words(Rejection(RejectionReason.OUT_OF_TIME, about="5"))


def test_every_flaw_of_a_queue_has_words() -> None:
    assert set(FLAWS) == set(Flaw)


def test_a_misfit_names_the_closest_domain_if_there_is_one() -> None:
    near = NearMiss(("b1", "r1"), "example.com/topology-rack", 3, 1)
    assert detail_text(Misfit(Code.NO_ROOM, ("main",), nearest=near)).startswith(
        "no room: 3 of 4 pods fit in rack b1/r1"
    )
    assert "no usable node is in topology hall" in detail_text(Misfit(Code.NO_DOMAINS, ("main",), "hall"))


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "0s"),
        (59, "59s"),
        (61, "1m1s"),
        (600, "10m"),
        (3600, "1h"),
        (5400, "1h30m"),
        (90000, "1d1h"),
        (-5, "0s"),
    ],
)
def test_ages_are_short(seconds: float, told: str) -> None:
    assert age(seconds) == told


def test_tables_are_aligned_and_harmless() -> None:
    assert table(("A", "N"), [("x\x1b[2J", 1), ("", 100)], ("N",)) == [
        "A            N",
        "x\\x1b[2J     1",
        "-          100",
    ]
