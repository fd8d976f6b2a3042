"""The cases from outside, one test per file; and the runner itself, on cases made up for it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.__main__ import CASES, main
from tests.conformance.case_files import CaseFile, find_case_files
from tests.conformance.known_differences import KNOWN_DIFFERENCES, Known, read_known
from tests.conformance.registry import Check, ForFile, NothingToRun, Registry, discover
from tests.conformance.runner import outdated, run, run_file

REGISTRY = discover()
KNOWN_FILES = [file for file in find_case_files(CASES) if REGISTRY.check_of(file.name)]


@pytest.mark.skipif(not CASES.is_dir(), reason=f"no cases from outside here: {CASES} is not there")
@pytest.mark.parametrize("file", KNOWN_FILES, ids=lambda file: file.label)
def test_cases_from_outside(file: CaseFile, record_property: Callable[[str, object], None]) -> None:
    check = REGISTRY.check_of(file.name)
    assert check is not None
    tally = run_file(file, check, read_known(KNOWN_DIFFERENCES))
    record_property("cases", [tally.passed, tally.failed])
    failed = [difference for difference in tally.differences if difference.known is None]
    first = "".join(f"\n{d.case}: {d.details[0]}" for d in failed[:3])
    assert not failed, f"{len(failed)} of {tally.passed + len(failed)} cases fail; the first of them:{first}"
    assert outdated([tally]) == [], "no longer different: take them off the list"


def test_every_check_module_can_be_imported() -> None:
    assert REGISTRY.broken == {}


# ── the runner ─────────────────────────────────────────────────────────────────────────────────────


def check(case: dict[str, Any]) -> list[str]:
    """A case of ours says itself what is wrong with it."""
    if case.get("raise"):
        raise RuntimeError(case["raise"])
    return list(case.get("wrong", []))


def beside(path: Path) -> Check:
    """What the cases of a file should hold stands in another one."""
    wanted = json.loads(path.with_name("wanted.txt").read_text())

    def check(case: dict[str, Any]) -> list[str]:
        if case["id"] not in wanted:
            raise NothingToRun
        return [] if case["is"] == wanted[case["id"]] else ["other"]

    return check


MADE_UP = Registry(
    {"fam/good*": check, "fam/*_special": lambda case: ["special"], "fam/leaning": ForFile(beside)}
)


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    (tmp_path / "cases" / "fam").mkdir(parents=True)
    return tmp_path / "cases"


@pytest.fixture
def go(
    cases: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, list[str], str]]:
    """Run it over the directory: exit status, lines printed, report."""

    def run_it(only: str = "*", known: tuple[Known, ...] = ()) -> tuple[int, list[str], str]:
        report = tmp_path / "build" / "report.txt"
        status = run(cases, only, MADE_UP, known, report)
        return status, capsys.readouterr().out.splitlines(), report.read_text() if report.exists() else ""

    return run_it


def write(path: Path, *entries: dict[str, Any]) -> None:
    path.write_text(json.dumps(entries))


def test_all_pass(cases: Path, go: Any) -> None:
    write(cases / "fam" / "good.json", {"id": "a"}, {"id": "b"})
    assert go() == (0, ["fam/good.json: 2 passed, 0 failed", "2 passed, 0 failed"], "")


def test_a_failing_case_is_counted_reported_and_makes_the_exit_status_1(cases: Path, go: Any) -> None:
    write(cases / "fam" / "good.json", {"id": "a"}, {"id": "b", "wrong": ["want 1", "got 2"]})
    status, lines, report = go()
    assert (status, lines[0], lines[-1]) == (1, "fam/good.json: 1 passed, 1 failed", "1 passed, 1 failed")
    assert "fam/good.json :: b" in report
    assert "want 1" in report
    assert "got 2" in report


def test_an_exception_is_a_failed_case_with_its_traceback(cases: Path, go: Any) -> None:
    write(cases / "fam" / "good.json", {"id": "a", "raise": "oh dear"}, {"id": "b"})
    status, lines, report = go()
    assert (status, lines[-1]) == (1, "1 passed, 1 failed")
    assert "Traceback" in report
    assert "RuntimeError: oh dear" in report


def test_cases_that_lean_on_another_file_are_run_with_it_or_counted_apart(cases: Path, go: Any) -> None:
    (cases / "fam" / "wanted.txt").write_text(json.dumps({"a": 1, "b": 2}))
    write(cases / "fam" / "leaning.json", {"id": "a", "is": 1}, {"id": "b", "is": 3}, {"id": "c", "is": 4})
    status, lines, _ = go()
    assert (status, lines[0]) == (1, "fam/leaning.json: 1 passed, 1 failed (1 with nothing to run)")
    assert lines[-1] == "1 passed, 1 failed"


def test_tables_are_lists_or_mappings_of_cases(cases: Path, go: Any) -> None:
    tables = [
        {"func": "One", "cases": [{"name": "a"}, {"name": "b", "wrong": ["x"]}]},
        {"func": "Two", "cases": {"c": {"wrong": ["y"]}}},
    ]
    (cases / "fam" / "good.json").write_text(json.dumps({"tables": tables}))
    _, lines, report = go()
    assert lines[0] == "fam/good.json: 1 passed, 2 failed"
    assert "fam/good.json :: One/b" in report and "fam/good.json :: Two/c" in report


def test_files_of_names_never_seen_are_run_by_their_pattern(cases: Path, go: Any) -> None:
    write(cases / "fam" / "good_extra.json", {"id": "a"})
    (cases / "fam" / "good_lines.jsonl").write_text('{"id": "b"}\n\n{"id": "c"}\n')
    with gzip.open(cases / "fam" / "good_packed.jsonl.gz", "wt") as out:
        out.write('{"id": "d"}\n{"name": "e", "wrong": ["x"]}\n')
    (cases / "fam" / "good_wrapped.json").write_text(json.dumps({"count": 1, "cases": [{"id": "f"}]}))
    status, lines, report = go()
    assert status == 1
    assert lines[:4] == [
        "fam/good_extra.json: 1 passed, 0 failed",
        "fam/good_lines.jsonl: 2 passed, 0 failed",
        "fam/good_packed.jsonl.gz: 1 passed, 1 failed",
        "fam/good_wrapped.json: 1 passed, 0 failed",
    ]
    assert "fam/good_packed.jsonl.gz :: e" in report


def test_the_longest_pattern_decides(cases: Path, go: Any) -> None:
    write(cases / "fam" / "good_special.json", {"id": "a"})
    assert go()[1][0] == "fam/good_special.json: 0 passed, 1 failed"


def test_a_file_nobody_knows_is_named_and_not_counted(cases: Path, go: Any) -> None:
    write(cases / "fam" / "other.json", {"id": "a", "wrong": ["x"]})
    (cases / "README.md").write_text("no case")
    assert go()[:2] == (0, ["fam/other.json: not known yet", "0 passed, 0 failed"])


@pytest.mark.parametrize("only", ["fam/good_a*", "fam/good_a", "fam/good_a.json", "*_a*"])
def test_only_some_files(cases: Path, go: Any, only: str) -> None:
    write(cases / "fam" / "good_a.json", {"id": "a"})
    write(cases / "fam" / "good_b.json", {"id": "b"})
    write(cases / "fam" / "good_b_c.json", {"id": "b"})
    assert go(only)[1] == ["fam/good_a.json: 1 passed, 0 failed", "1 passed, 0 failed"]


def test_the_directory_of_one_family_will_do(cases: Path, tmp_path: Path) -> None:
    write(cases / "fam" / "good.json", {"id": "a"})
    assert [file.label for file in find_case_files(cases / "fam")] == ["fam/good.json"]


@pytest.mark.parametrize(
    ("name", "text", "where"),
    [
        ("good.json", '[{"id": "a"},\n oops]', "fam/good.json line 2"),
        ("good.jsonl", '{"id": "a"}\n{"id": \n{"id": "c"}\n', "fam/good.jsonl line 2"),
        ("good.json", '{"count": 3}', "fam/good.json line 1"),
        ("good.json", '[{"id": "a"}, 7]', "fam/good.json case 2"),
        ("good.jsonl.gz", "not packed", "fam/good.jsonl.gz"),
    ],
)
def test_what_is_not_a_case_fails_with_file_and_line(
    cases: Path, go: Any, name: str, text: str, where: str
) -> None:
    (cases / "fam" / name).write_text(text)
    status, lines, report = go()
    assert status == 1
    assert lines[-1].endswith("passed, 1 failed")
    assert f"{where}\n" in report


def test_a_known_difference_does_not_fail_and_is_counted_apart(cases: Path, go: Any) -> None:
    write(
        cases / "fam" / "good.json", {"id": "T/a", "wrong": ["x"]}, {"id": "T/b"}, {"id": "U", "wrong": ["y"]}
    )
    known = (Known("fam/goo*", "T/*", "no counterpart"), Known("fam/good", "U", "better so"))
    status, lines, report = go(known=known)
    assert (status, lines[0], lines[-2:]) == (
        0,
        "fam/good.json: 1 passed, 0 failed",
        ["2 known differences", "1 passed, 0 failed"],
    )
    assert "known: no counterpart" in report


def test_a_known_difference_that_is_none_any_more_is_told(cases: Path, go: Any) -> None:
    write(cases / "fam" / "good.json", {"id": "T/a"}, {"id": "T/b"})
    elsewhere = Known("other/*", "*", "not run today")
    status, lines, _ = go(known=(Known("fam/*", "T/*", "once"), elsewhere))
    assert status == 0
    assert "no longer differs, take it off the list: fam/* T/*" in lines
    assert not any("other/" in line for line in lines)


def test_a_module_that_cannot_be_imported_fails(
    cases: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Registry({}, {"kueue_nonsense": "SyntaxError"})
    assert run(cases, "*", broken, (), tmp_path / "report.txt") == 1
    assert capsys.readouterr().out.endswith("0 passed, 1 failed\n")


def test_no_directory_no_cases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--cases", str(tmp_path / "nowhere"), "--only", "x*"]) == 0
    said, total = capsys.readouterr().out.splitlines()
    assert said == f"no cases to run: {tmp_path / 'nowhere'} is not there"
    assert total == "0 passed, 0 failed"


@pytest.mark.parametrize("entry", ['file = "a"\ncase = "b"', 'file = "a"\ncase = "b"\nreason = " "'])
def test_an_entry_of_the_list_needs_its_reason(tmp_path: Path, entry: str) -> None:
    path = tmp_path / "known.toml"
    path.write_text(f"[[difference]]\n{entry}\n")
    with pytest.raises((TypeError, ValueError)):
        read_known(path)


def test_a_known_difference_may_be_limited_to_what_the_report_says(cases: Path, go: Any) -> None:
    write(
        cases / "fam" / "good.json", {"id": "a", "wrong": ["peer slips"]}, {"id": "b", "wrong": ["we slip"]}
    )
    known = (Known("fam/good", "*", "the peer is wrong", says="peer slips"),)
    status, lines, report = go(known=known)
    assert (status, lines[-2:]) == (1, ["1 known differences", "0 passed, 1 failed"])
    assert "known: the peer is wrong" in report
