"""Tiers: which run a test belongs to, in what order tests run, and which of them a machine cannot run."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import pytest

from tests.support.missing_parts import LACKING

FAST, REAL, LONG = "fast", "real", "long"
TIERS: Mapping[str, str] = {
    FAST: "make test: runs in minutes and needs Python only (kubectl, where there is one)",
    REAL: "make test-real: needs a real control plane, or another program that is built from source",
    LONG: "make test-long: takes too long for every change",
}
CONTROL_PLANE = "control_plane"
"""The fixture that starts a real control plane. A test that depends on it is in the tier `real`."""


def tier_of(marks: Iterable[str], fixtures: Iterable[str]) -> str:
    """The tier of a test with these marks that depends on these fixtures; long goes before real."""
    named = set(marks)
    if LONG in named:
        return LONG
    return REAL if REAL in named or CONTROL_PLANE in set(fixtures) else FAST


def tier_of_test(item: pytest.Item) -> str:
    """The tier of a test that was collected."""
    return tier_of((mark.name for mark in item.iter_markers()), getattr(item, "fixturenames", ()))


def sample(items: Sequence[pytest.Item], one_in: int) -> Sequence[pytest.Item]:
    """Each test of a number `one_in`, of those that need no control plane; with 1, all tests."""
    if one_in == 1:
        return items
    return [item for item in items if CONTROL_PLANE not in getattr(item, "fixturenames", ())][::one_in]


def longest_first(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Files with a mark `minutes` come first, the longest at the head: none of them starts last of all."""

    def weight(item: pytest.Item) -> float:
        mark = item.get_closest_marker("minutes")
        return -float(mark.args[0]) if mark else 0.0

    return sorted(items, key=weight)


def shuffled(items: Sequence[pytest.Item], seed: int) -> list[pytest.Item]:
    """Files in random order, and the tests of each file too. A file stays together: it shares fixtures."""
    dice = random.Random(seed)
    files: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        files[item.nodeid.partition("::")[0]].append(item)
    order = list(files.values())
    dice.shuffle(order)
    for tests in order:
        dice.shuffle(tests)
    return [item for tests in order for item in tests]


def not_run(skipped: Iterable[str]) -> list[str]:
    """One line for each thing that the machine lacks, from the reasons of the tests that were skipped."""
    reasons = Counter(told.partition(LACKING)[2] for told in skipped if LACKING in told)
    return [f"Tests that were not run: {count}. {reason}" for reason, count in reasons.items()]
