"""Errors thrown at the work on one gang: all others come out as if it did not exist, in every play."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from bayplan.simulator.__main__ import GANGS, JOBS, PLAYS, PODS, SHARED, SPLIT, TREES, _summary, run_seed
from bayplan.simulator.core.report import SeedReport
from bayplan.simulator.core.thrown_errors import DECIDE, DECODE, ENCODE, RECONCILE, SEAMS
from tests.simulation.trying import check_same_bytes, check_sound

SEEDS = {  # the numbers behind found something once
    GANGS: (6, 12, 46),
    JOBS: (5, 16, 29),
    PODS: range(2),
    TREES: range(2),
    SHARED: (0,),
    SPLIT: (0,),
}
RUNS = [(play, seed) for play, seeds in SEEDS.items() for seed in seeds]


@cache
def report_of(play: str, seed: int) -> SeedReport:
    return run_seed(seed, play, throw=True)


@pytest.mark.parametrize(("play", "seed"), RUNS)
def test_seed(play: str, seed: int) -> None:
    check_sound(report_of(play, seed))


def test_errors_are_thrown_everywhere() -> None:
    thrown: Counter[str] = Counter()
    for play, seed in RUNS:
        thrown.update(report_of(play, seed).faults)
        if all(thrown[f"thrown_{where}"] for where in (DECODE, DECIDE, ENCODE, RECONCILE)):
            break  # another process may have run the other seeds: they would be run again here
    assert all(thrown[f"thrown_{where}"] for where in (DECODE, DECIDE, ENCODE, RECONCILE))


@pytest.mark.parametrize("play", PLAYS)
def test_a_loop_that_does_not_contain_errors_is_found_out(play: str) -> None:
    reports = (run_seed(seed, play, throw=True, contained=False) for seed in range(3))
    assert any("Thrown" in one for report in reports for one in report.violations)


@pytest.mark.long
def test_a_seed_gives_the_same_bytes_whatever_the_hash_seed() -> None:
    check_same_bytes("pods", 3, "--throw")


def test_the_seams_that_errors_are_thrown_through_are_there() -> None:
    for role, seams in SEAMS.items():
        assert all(callable(getattr(role, method)) for _, method, _ in seams), role


@pytest.mark.parametrize("throw", [True, False])
def test_the_command_that_repeats_a_failing_seed_throws_as_the_run_did(
    throw: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _summary(JOBS, [SeedReport(7, violations=["something is wrong"])], throw) == 1
    again = "python -m bayplan.simulator --play jobs --seed 7" + (" --throw" if throw else "") + "\n"
    assert again in capsys.readouterr().out
