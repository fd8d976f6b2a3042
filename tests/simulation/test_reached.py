"""Every play reaches the states and reasons of `reached.toml` within the number of seeds given there."""

from __future__ import annotations

import pytest

from bayplan.simulator.__main__ import PLAYS, run_seed
from bayplan.simulator.core import reach

FEW_SEEDS, SEEDS = 2, 20


def test_all_plays_have_something_to_reach_at_once_and_later() -> None:
    for play in PLAYS:
        numbers = reach.expected()[play].values()
        assert min(numbers) <= FEW_SEEDS < max(numbers) <= 2 * SEEDS + 10, play


@pytest.mark.parametrize("play", PLAYS)
def test_a_play_reaches_at_once_what_it_has_to(play: str) -> None:
    reports = [run_seed(seed, play) for seed in range(FEW_SEEDS)]
    assert reach.not_reached(play, reports, reach.expected()[play]) == []


@pytest.mark.long
@pytest.mark.parametrize("play", PLAYS)
def test_a_play_reaches_what_it_has_to(play: str) -> None:
    reports = [run_seed(seed, play) for seed in range(SEEDS)]
    assert reach.not_reached(play, reports, reach.expected()[play]) == []
