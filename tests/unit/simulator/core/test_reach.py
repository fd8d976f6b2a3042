"""What plays have to reach: kept in a file, and missed when a play does not reach it any more."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path

import pytest

from bayplan.simulator import __main__ as command
from bayplan.simulator.core import reach
from bayplan.simulator.core.report import SeedReport


def report(seed: int, *names: str, play: str = "pods") -> SeedReport:
    return SeedReport(seed, play, reached=Counter(names))


def test_what_was_reached_is_expected_within_twice_as_many_seeds(tmp_path: Path) -> None:
    path = tmp_path / "reached.toml"
    reach.write_expected([report(0, "filter taint"), report(3, "filter port", "filter taint")], path)
    reach.write_expected([report(1, "action Bind", play="jobs")], path)
    assert reach.expected(path) == {
        "pods": {"filter port": 10, "filter taint": 2},
        "jobs": {"action Bind": 5},
    }


def test_only_what_is_due_within_the_seeds_that_were_run_is_missed() -> None:
    within = {"filter taint": 2, "filter port": 2, "filter disk": 5}
    reports = [report(0, "filter taint"), report(1), report(1, "filter port", play="jobs")]
    assert reach.not_reached("pods", reports, within) == ["filter port"]
    assert reach.not_reached("pods", reports[:1], within) == []
    from_elsewhere = [report(seed) for seed in range(1, 9)]
    assert reach.not_reached("pods", from_elsewhere, within) == [], "the list is about seeds from 0 on"


def test_the_table_has_a_column_for_each_play_and_names_what_none_reached() -> None:
    lines = list(reach.table(["pods", "jobs"], [report(0, "action Bind"), report(1, "action Bind")]))
    assert [line.split() for line in lines[:2]] == [["pods", "jobs"], ["action", "Bind", "2", "-"]]
    assert "action Admit, " in lines[2] and "filter taint, " in lines[2] and "action Bind" not in lines[2]


def test_a_play_that_reaches_something_no_more_fails_and_says_what(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = tmp_path / "reached.toml"
    expected.write_text('[gangs]\n"filter no such thing" = 1\n', encoding="utf-8")
    monkeypatch.setattr(reach, "expected", lambda: tomllib.loads(expected.read_text(encoding="utf-8")))
    record = tmp_path / "seeds.csv"
    asked = ["--play", "gangs", "--seeds", "1", "--processes", "1", "--record", str(record)]
    assert command.main(asked) == 0
    assert command.main([*asked, "--coverage"]) == 1
    out = capsys.readouterr().out
    assert "gangs: filter no such thing was to be reached within 1 seeds, and was not" in out
    recorded = (tmp_path / "seeds-coverage.csv").read_text(encoding="utf-8").splitlines()
    assert recorded[0] == "commit,play,throw,first,last,name,times"
    assert any(line.startswith(",gangs,no,0,0,Pod phase Running,") for line in recorded)
