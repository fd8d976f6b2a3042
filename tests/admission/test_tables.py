"""Every case of the tables: victims, flavors of a queue, and whole cycles."""

from __future__ import annotations

import pytest

from tests.admission.tables import Case, as_far_as_asked, cases, what_happens, what_is_offered, who_yields


@pytest.mark.parametrize("case", cases("yielding"), ids=lambda case: case.name)
def test_victims(case: Case) -> None:
    assert who_yields(case) == case.want


@pytest.mark.parametrize("case", cases("offers"), ids=lambda case: case.name)
def test_the_flavors_that_a_queue_offers(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    assert as_far_as_asked(what_is_offered(case, monkeypatch), case.want) == case.want


@pytest.mark.parametrize("case", cases("rounds"), ids=lambda case: case.name)
def test_what_a_round_does(case: Case) -> None:
    assert what_happens(case) == case.want
