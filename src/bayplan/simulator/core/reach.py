"""What each play has to reach, kept in `reached.toml` of the simulator, and the table of what was reached.

The file says for each play within how many seeds, from seed 0 on, it reaches each state and reason.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from bayplan.simulator.core.coverage import all_reasons
from bayplan.simulator.core.report import SeedReport

EXPECTED = Path(__file__).parents[1] / "reached.toml"
WITHIN = (2, 5, 10, 20, 50, 100, 200)
"""Numbers of seeds. What was reached is expected within twice as many: most changes change all runs."""
_HEADER = """\
# Within how many seeds, from 0 on, a play reaches a state or a reason. Written by
#   python -m bayplan.simulator --seeds 20 --coverage --expect-reached
# A line that goes away is a decision: say in the commit why the play need not reach it.
"""


def expected(path: Path = EXPECTED) -> dict[str, dict[str, int]]:
    """By play and name: within how many seeds it is reached."""
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def not_reached(play: str, reports: Iterable[SeedReport], within: Mapping[str, int]) -> list[str]:
    """What a play has to reach within these seeds and did not. Only seeds from 0 on without a gap count."""
    by_seed = {report.seed: report for report in reports if report.play == play}
    seeds = next(number for number in range(len(by_seed) + 1) if number not in by_seed)
    reached: set[str] = set()
    for seed in range(seeds):
        reached |= by_seed[seed].reached.keys()
    return sorted(name for name, number in within.items() if number <= seeds and name not in reached)


def write_expected(reports: Sequence[SeedReport], path: Path = EXPECTED) -> None:
    """Expect what these seeds reached; plays that were not run keep what they have."""
    plays = expected(path)
    for play in dict.fromkeys(report.play for report in reports):
        first: dict[str, int] = {}
        for report in sorted((one for one in reports if one.play == play), key=lambda one: one.seed):
            for name in report.reached:
                first.setdefault(name, report.seed + 1)
        plays[play] = {name: _within(number) for name, number in first.items()}
    lines = [_HEADER]
    for play, names in plays.items():
        lines += [f"\n[{play}]\n", *(f'"{name}" = {number}\n' for name, number in sorted(names.items()))]
    path.write_text("".join(lines), encoding="utf-8")


def table(plays: Sequence[str], reports: Sequence[SeedReport]) -> Iterator[str]:
    """A line for each name with how often each play reached it, and the reasons that none reached."""
    reached: dict[str, Counter[str]] = {play: Counter() for play in plays}
    for report in reports:
        reached[report.play] += report.reached
    names = sorted({name for counts in reached.values() for name in counts})
    wide = max((len(name) for name in names), default=0)
    yield " ".join([" " * wide, *(f"{play:>7}" for play in plays)])
    for name in names:
        yield " ".join([f"{name:<{wide}}", *(f"{reached[play][name] or '-':>7}" for play in plays)])
    unknown = [name for name in all_reasons() if name not in names]
    yield f"not reached by any of these plays: {', '.join(unknown) or 'nothing'}"


def _within(first: int) -> int:
    return next((number for number in WITHIN if number >= 2 * first), WITHIN[-1])
