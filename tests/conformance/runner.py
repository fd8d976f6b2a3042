"""Runs case files through their checks, counts, and writes every difference to a report."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.conformance.case_files import CaseFile, Malformed, find_case_files, read_cases
from tests.conformance.known_differences import Known
from tests.conformance.registry import Check, ForFile, NothingToRun, Registry


@dataclass(frozen=True, slots=True)
class Difference:
    """A case whose answer is not the one expected; `known` says why if that is as it should be."""

    file: str
    case: str
    details: tuple[str, ...]
    known: Known | None = None


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of the cases of one file."""

    passed: int = 0
    differences: tuple[Difference, ...] = ()
    covered: frozenset[Known] = field(default_factory=frozenset)  # entries that mean a case run here
    empty: int = 0  # cases that lack what they are about

    @property
    def failed(self) -> int:
        return sum(difference.known is None for difference in self.differences)

    @property
    def known(self) -> int:
        return len(self.differences) - self.failed


def run_file(file: CaseFile, check: Check | ForFile, known: tuple[Known, ...]) -> Tally:
    """Run every case of one file."""
    if isinstance(check, ForFile):
        check = check.of(file.path)
    passed = empty = 0
    differences: list[Difference] = []
    covered: set[Known] = set()
    for entry in read_cases(file):
        if isinstance(entry, Malformed):
            differences.append(Difference(file.label, entry.where, (entry.why,)))
            continue
        case_id, case = entry
        matching = [k for k in known if k.covers(file.name, case_id)]
        covered.update(matching)
        try:
            details = tuple(check(case))
        except NothingToRun:
            empty += 1
            continue
        except Exception:
            details = (traceback.format_exc(),)
        if details:
            reason = next((k for k in matching if k.explains(details)), None)
            differences.append(Difference(file.label, case_id, details, reason))
        else:
            passed += 1
    return Tally(passed, tuple(differences), frozenset(covered), empty)


def outdated(tallies: list[Tally]) -> list[Known]:
    """Entries that mean cases of this run of which not one differs any more."""
    covered = {known for tally in tallies for known in tally.covered}
    still = {difference.known for tally in tallies for difference in tally.differences}
    return sorted(covered - still, key=lambda k: (k.file, k.case))


def run(cases: Path, only: str, registry: Registry, known: tuple[Known, ...], report: Path) -> int:
    """Run what is known below `cases`, print the counts, write the report; 1 on any new failure."""
    if not cases.is_dir():
        print(f"no cases to run: {cases} is not there")
        print("0 passed, 0 failed")
        return 0
    tallies = list(_broken_modules(registry))
    for file in find_case_files(cases, only):
        check = registry.check_of(file.name)
        if check is None:
            print(f"{file.label}: not known yet")
            continue
        tally = run_file(file, check, known)
        apart = f" ({tally.empty} with nothing to run)" if tally.empty else ""
        print(f"{file.label}: {tally.passed} passed, {tally.failed} failed{apart}", flush=True)
        tallies.append(tally)
    _write_report(report, tallies)
    return _print_total(tallies, report)


def _broken_modules(registry: Registry) -> Iterator[Tally]:
    for module, trouble in registry.broken.items():
        print(f"tests/conformance/{module}.py: cannot be imported: 0 passed, 1 failed")
        yield Tally(differences=(Difference(f"tests/conformance/{module}.py", "import", (trouble,)),))


def _print_total(tallies: list[Tally], report: Path) -> int:
    failed = sum(tally.failed for tally in tallies)
    for entry in outdated(tallies):
        print(f"no longer differs, take it off the list: {entry.file} {entry.case}")
    if any(tally.differences for tally in tallies):
        print(f"differences: {report}")
    if any(tally.known for tally in tallies):
        print(f"{sum(tally.known for tally in tallies)} known differences")
    print(f"{sum(tally.passed for tally in tallies)} passed, {failed} failed")
    return 1 if failed else 0


def _write_report(report: Path, tallies: list[Tally]) -> None:
    report.parent.mkdir(parents=True, exist_ok=True)
    with report.open("w", encoding="utf-8") as out:
        for difference in (d for tally in tallies for d in tally.differences):
            status = f"known: {difference.known.reason}" if difference.known else "FAILED"
            out.write(f"{difference.file} :: {difference.case}\n  {status}\n")
            for detail in difference.details:
                out.writelines(f"  {line}\n" for line in detail.splitlines())
            out.write("\n")
