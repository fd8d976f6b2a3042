"""The scenes of gang/steps_* and preemption_* on a real control plane, where `bayplan run` schedules.

A control plane of version KUBE plays the cases of that version; the one of 1.35 also those of later versions
that are about nothing it lacks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from bayplan.dialects.kube.gang_api.gates import V1ALPHA1
from tests.conformance.__main__ import CASES
from tests.conformance.case_files import Malformed, find_case_files, read_cases
from tests.conformance.gang_steps import Play, dialect_of, refuse_what_cannot_run
from tests.conformance.gang_steps_objects import (
    Dialect,
    Object,
    counts_on_priority_of_pods,
    on_the_first,
)
from tests.conformance.known_differences import KNOWN_DIFFERENCES, Known, read_known
from tests.conformance.registry import NothingToRun
from tests.end_to_end.gang_stage import Real, served
from tests.support.missing_parts import lacking
from tools.controlplane.plan import DEFAULT_KUBE

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

KUBE = os.environ.get("KUBE") or DEFAULT_KUBE
DIALECT = Dialect(dialect_of(f"v{KUBE}"))


def test_there_are_scenes_from_outside() -> None:
    if not CASES.is_dir():
        lacking(f"no cases from outside here: {CASES} is not there")
    assert list(playable())


def playable() -> Iterator[tuple[Object, tuple[Known, ...]]]:
    """What can be played on this version, each with the differences we stand by."""
    known = read_known(KNOWN_DIFFERENCES)
    for file in find_case_files(CASES, "gang/*"):
        if not file.name.startswith(("gang/steps_", "gang/preemption_")):
            continue
        for entry in read_cases(file):
            assert not isinstance(entry, Malformed), entry
            name, case = entry
            version = dialect_of(case["source"]["version"])
            found = case if version == DIALECT.version else on_the_first(case) if _is_first() else None
            if found is not None and _can_run(found):
                yield found, tuple(one for one in known if one.covers(file.name, name))


def _can_run(case: Object) -> bool:
    """The others are named, each with its reason, where the same cases are run in memory.

    Control planes of ours have WorkloadAwarePreemption on: cases that need it off are not for them.
    """
    if not _is_first() and counts_on_priority_of_pods(case):
        return False
    try:
        refuse_what_cannot_run(case)
    except NothingToRun:
        return False
    return True


def _is_first() -> bool:
    return DIALECT.version == V1ALPHA1


@pytest.fixture(scope="module")
def site(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with served(cluster, tmp_path_factory.mktemp("gangs")):
        yield cluster


@pytest.mark.parametrize(
    ("case", "known"), list(playable()), ids=lambda given: given["id"] if isinstance(given, dict) else ""
)
def test_a_scene_from_outside(site: Cluster, case: Object, known: tuple[Known, ...]) -> None:
    stage = Real(site, DIALECT)
    try:
        problems = tuple(Play(stage, case).run())
    finally:
        stage.clear()
    assert not problems or any(one.explains(problems) for one in known), "\n".join(problems)
