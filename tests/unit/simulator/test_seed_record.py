"""Seeds that were run are added to a table, a line for each play."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayplan.simulator import __main__ as command
from bayplan.simulator.core.report import SeedReport


def test_lines_of_several_runs_add_up_in_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ran(seed_run: tuple[str, int, bool]) -> SeedReport:
        play, seed, _ = seed_run
        return SeedReport(seed, play, steps=10, violations=["broken"] if seed == 4 else [])

    class InThisProcess:
        def __enter__(self) -> InThisProcess:
            return self

        def __exit__(self, *_: object) -> None: ...

        imap_unordered = staticmethod(lambda work, runs, chunksize: map(ran, runs))

    monkeypatch.setattr("multiprocessing.Pool", lambda processes, prepare: InThisProcess())
    table = tmp_path / "seeds.csv"
    given = ["--play", "pods", "--record", str(table), "--commit", "abc"]
    assert command.main([*given, "--seeds", "3"]) == 0
    assert command.main([*given, "--first", "3", "--seeds", "2"]) == 1
    assert table.read_text(encoding="utf-8").splitlines() == [
        "commit,play,throw,first,last,steps,faults,violations",
        "abc,pods,no,0,2,30,0,0",
        "abc,pods,no,3,4,20,0,1",
    ]
