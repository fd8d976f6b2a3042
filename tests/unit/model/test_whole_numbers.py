"""Numbers in labels and annotations, of any length and in any script."""

from __future__ import annotations

import pytest

from bayplan.dialects.jobs.status import _distinct, _runs
from bayplan.dialects.kai.api.segments import WrongSegments, read_index
from bayplan.dialects.kueue.decode.scheduled_jobs import _number
from bayplan.dialects.nrt.hints import ASSUMED_ZONES, hinted_zones
from bayplan.model.node_rules import Requirement
from bayplan.model.whole_numbers import INT32_MAX, INT64_MAX, signed_number, whole_number
from bayplan.runtime.core.object_cache import version_of

LONG = "1" * 5000
SQUARE = "²"  # a digit, says Python, and not a number


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("0", 0),
        ("17", 17),
        ("0" * 5000 + "7", 7),
        (str(INT64_MAX), INT64_MAX),
        (str(INT64_MAX + 1), None),
        (LONG, None),
        (SQUARE, None),
        ("٣", None),
        ("", None),
        (None, None),
        ("-1", None),
        ("+1", None),
        (" 1", None),
        ("1_000", None),
    ],
)
def test_only_short_ascii_digits_are_a_whole_number(text: str | None, want: int | None) -> None:
    assert whole_number(text) == want


def test_a_number_above_its_bound_is_none() -> None:
    assert whole_number(str(INT32_MAX), INT32_MAX) == INT32_MAX
    assert whole_number(str(INT32_MAX + 1), INT32_MAX) is None


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("-5", -5),
        ("+5", 5),
        ("5", 5),
        ("--5", None),
        ("-", None),
        ("", None),
        ("-" + LONG, None),
        ("-²", None),
    ],
)
def test_a_sign_may_stand_in_front(text: str, want: int | None) -> None:
    assert signed_number(text) == want


@pytest.mark.parametrize("text", [LONG, SQUARE])
def test_every_reader_of_numbers_passes_over_what_is_none(text: str) -> None:
    assert _number(text) == 0
    assert version_of({"metadata": {"resourceVersion": text}}) == 0
    assert list(_runs(f"{text},2-{text},1")) == [(1, 1)]
    assert hinted_zones({ASSUMED_ZONES: f"main={text}"}) == {}
    assert not Requirement("cores", "Gt", (text,)).accepts("7")
    with pytest.raises(WrongSegments):
        read_index({"index": text}, "index", "p")


def test_runs_of_two_billion_indexes_are_counted_and_not_listed() -> None:
    assert _distinct(_runs("0-2147483646,5,7-9"), INT32_MAX) == INT32_MAX
    assert _distinct(_runs("1,3-5,4-6,9-7,99"), 8) == 5
