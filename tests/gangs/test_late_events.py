"""The conformance scenarios again, with a scheduler that gets events late or twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from random import Random

import pytest

from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.dialects.api import Backend
from bayplan.simulator.core.faults import NONE, FaultyBackend
from tests.conformance.__main__ import CASES
from tests.conformance.case_files import CaseFile, Malformed, find_case_files, read_cases
from tests.conformance.gang_steps import Play, dialect_of, feature_sets
from tests.conformance.gang_steps_objects import Dialect, Object
from tests.conformance.gang_steps_stage import Embedded
from tests.conformance.known_differences import KNOWN_DIFFERENCES, read_known
from tests.support.missing_parts import lacking

LATE = replace(NONE, delay_events=0.35, duplicate=0.1, relist=0.02, delay_outcome=0.35)
PREFIXES = ("gang/steps_", "gang/preemption_")
FILES = [file for file in find_case_files(CASES, "gang/*") if file.name.startswith(PREFIXES)]


class Late(Embedded):
    """A test cluster with delayed events."""

    quiet = 4.0

    def __init__(self, dialect: Dialect, gates: Iterable[str], seed: int) -> None:
        self.rng = Random(seed)
        super().__init__(dialect, gates)

    def connect(self) -> Backend:
        return FaultyBackend(EmbeddedBackend(self.store), self.rng, LATE, Counter())


def is_about_turns(case: Object) -> bool:
    """Whether the case depends on what is known in a certain cycle."""
    return any(step["op"] == "run_one_cycle" for step in case["steps"])


def test_there_are_scenes_from_outside() -> None:
    if not CASES.is_dir():
        lacking(f"no cases from outside here: {CASES} is not there")
    assert FILES


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.label)
def test_scenes_from_outside_with_late_news(file: CaseFile, seed: int) -> None:
    known, failed = read_known(KNOWN_DIFFERENCES), []
    for entry in read_cases(file):
        assert not isinstance(entry, Malformed), entry
        name, case = entry
        if is_about_turns(case) or (case.get("extra") or {}).get("customPluginFunc"):
            continue
        version, gates = dialect_of(case["source"]["version"]), next(feature_sets(case))
        problems = tuple(Play(Late(Dialect(version), gates, seed), case).run())
        if problems and not any(one.covers(file.name, name) and one.explains(problems) for one in known):
            failed.append((name, *problems))
    assert failed == []
