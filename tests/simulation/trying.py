"""Helpers for the tests of every play: compare processes, and find the violation of a mutation."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable

from bayplan.simulator.core.faults import NONE, Chances
from bayplan.simulator.core.report import SeedReport
from bayplan.simulator.core.simulation import SimulationRun

HASH_SEEDS = ("0", "2", "4711")


def check_sound(report: SeedReport) -> None:
    """Something happened, and nothing went wrong."""
    assert report.violations == []
    assert report.steps > 0


def assert_all_happen(kinds: Collection[str], reports: Iterable[SeedReport]) -> None:
    """Faults and actions of all these kinds happen. Reports are made one by one, until all were seen."""
    missing = set(kinds)
    for report in reports:
        missing -= {kind for kind, count in report.faults.items() if count}
        if not missing:
            return
    raise AssertionError(f"these did not happen: {sorted(missing)}")


def check_same_bytes(play: str, seed: int, *options: str) -> None:
    """A seed prints the same in every process, whatever its hash seed."""
    first, *others = (_output(play, seed, hash_seed, *options) for hash_seed in HASH_SEEDS)
    assert "journal: " in first
    assert others == [first] * len(others)


def _output(play: str, seed: int, hash_seed: str, *options: str) -> str:
    command = [sys.executable, "-m", "bayplan.simulator", "--play", play, "--seed", str(seed)]
    command += options
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def violations(
    play: Callable[[int, Chances | None], SimulationRun],
    words: str,
    seeds: Iterable[int],
    *,
    calm: bool = False,
) -> str:
    """All that went wrong up to the first seed where a violation says so; without faults if calm."""
    found: list[str] = []
    for seed in seeds:
        found += play(seed, NONE if calm else None).run().violations
        if any(words in line for line in found):
            break
    return "\n".join(found)
