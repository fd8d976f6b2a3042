"""Moves in virtual time: for a job that has waited long for one rack, in rounds."""

from __future__ import annotations

from itertools import pairwise

import pytest

from bayplan.model.gang import Locality
from bayplan.model.profile import Profile
from bayplan.scheduling.defragment.policy import DefragmentPolicy
from bayplan.simulation.traces.cluster_shapes import RACK, parse_shape
from bayplan.simulation.traces.workload import GPU, Trace, TraceJob
from bayplan.simulation.virtual_time import defragmenting_engine
from bayplan.simulation.virtual_time.defragmenting_engine import ROUND_SECONDS, DefragmentingEngine
from bayplan.simulation.virtual_time.outcome import RunOutcome
from bayplan.simulation.virtual_time.virtual_run import RunSettings, VirtualRun


def trace_job(name: str, arrival: float, seconds: float, gpus: int = 8) -> TraceJob:
    return TraceJob(name, arrival, seconds, {GPU: gpus})


NODES = parse_shape("2x2 gpu=8")
JOBS = (
    trace_job("one", 0, 100_000),
    trace_job("short", 1, 10),
    trace_job("two", 2, 90_000),
    TraceJob("wide", 20, 10, {GPU: 8}, pods=2, locality=Locality(required=RACK)),
    *(trace_job(f"tick{at}", at, 1, gpus=1) for at in range(1000, 1200, 5)),
)
"""After `short`, each of two racks has a host in use; `wide` needs a whole rack."""


def outcome(engine: DefragmentingEngine) -> RunOutcome:
    return VirtualRun("test", NODES, Trace("test", JOBS), engine, RunSettings()).run(lambda *_: None)


def test_a_running_job_moves_when_that_is_worth_it() -> None:
    found = outcome(DefragmentingEngine(NODES, Profile(), DefragmentPolicy(again_after=0.0)))
    start = {one.name: one.start for one in found.jobs}["wide"]
    assert start is not None and 3600 <= start < 4000, "just after the hour, when little work is done again"
    assert (found.moves, found.lost) == (1, 8 * (start % 3600 - 2 + 300))


def test_without_a_budget_nothing_moves() -> None:
    policy = DefragmentPolicy(again_after=0.0, moves_per_hour=0)
    found = outcome(DefragmentingEngine(NODES, Profile(), policy))
    assert (found.moves, found.lost) == (0, 0.0)
    assert {one.name: one.start for one in found.jobs}["wide"] == 90_002


def test_there_is_one_search_in_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = DefragmentingEngine(NODES, Profile(), DefragmentPolicy(again_after=0.0))
    searches: list[float] = []
    monkeypatch.setattr(defragmenting_engine, "find_plan", lambda *_, **__: searches.append(engine.searched))
    outcome(engine)
    assert len([one for one in searches if 1000 <= one < 1200]) == 4
    assert all(later - earlier >= ROUND_SECONDS for earlier, later in pairwise(searches))
