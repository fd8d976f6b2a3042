"""Runs in virtual time: jobs start when they fit and end when their time is over, by every policy."""

from __future__ import annotations

import pytest

from bayplan.model.gang import Locality
from bayplan.model.profile import Profile
from bayplan.simulation.traces.cluster_shapes import RACK, parse_shape
from bayplan.simulation.traces.workload import GPU, Trace, TraceJob
from bayplan.simulation.virtual_time.disruptions import Disruptions, NodeOutage
from bayplan.simulation.virtual_time.outcome import JobRecord, JobState, RunOutcome
from bayplan.simulation.virtual_time.policies import known_policies
from bayplan.simulation.virtual_time.virtual_run import RunSettings, VirtualRun

DEFAULT_SETTINGS = RunSettings()
POLICIES = sorted(known_policies(Profile()))


def asks(name: str, arrival: float, seconds: float | None, pods: int = 1, gpus: int = 8) -> TraceJob:
    return TraceJob(name, arrival, seconds, {GPU: gpus}, pods)


def outcome(
    policy: str, shape: str, *jobs: TraceJob, settings: RunSettings = DEFAULT_SETTINGS
) -> tuple[RunOutcome, dict[str, JobRecord]]:
    nodes = parse_shape(shape)
    scheduler = known_policies(Profile())[policy].scheduler(nodes, 42, jobs)
    found = VirtualRun(policy, nodes, Trace("test", jobs), scheduler, settings).run(lambda *_: None)
    return found, {one.name: one for one in found.jobs}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_waits_until_its_pods_fit_together(policy: str) -> None:
    found, jobs = outcome(
        policy, "2 gpu=8", asks("a", 0, 100), asks("b", 10, 50, pods=2), asks("c", 20, 5, gpus=1)
    )
    assert jobs["a"].start == 0
    assert jobs["a"].end == 100
    start, waited = jobs["b"].start, jobs["b"].wait
    assert start is not None and waited is not None
    assert start >= 100
    assert {one.state for one in jobs.values()} == {JobState.DONE}
    assert found.samples[-1].allocated == 0


def test_without_backfill_later_jobs_wait_behind_the_first() -> None:
    jobs = (asks("a", 0, 100), asks("b", 10, 50, pods=2), asks("c", 20, 5, gpus=1))
    assert outcome("fifo", "2 gpu=8", *jobs)[1]["c"].start == 150
    assert outcome("first-fit", "2 gpu=8", *jobs)[1]["c"].start == 20
    assert outcome("bayplan", "2 gpu=8", *jobs)[1]["c"].start == 20


@pytest.mark.parametrize("policy", POLICIES)
def test_jobs_that_can_never_fit_are_listed_and_block_no_others(policy: str) -> None:
    _, jobs = outcome(policy, "2 gpu=8", asks("huge", 0, 10, pods=3), asks("a", 1, 10), asks("b", 2, None))
    assert jobs["huge"].state is JobState.NEVER_FITS
    assert jobs["b"].state is JobState.NO_DURATION
    assert jobs["a"].start == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_a_required_rack_is_kept(policy: str) -> None:
    gang = TraceJob("g", 1, 10, {GPU: 8}, pods=2, locality=Locality(required=RACK))
    _, jobs = outcome(policy, "2x2 gpu=8", asks("a", 0, 100), gang)
    assert (jobs["g"].start, jobs["g"].hosts, jobs["g"].racks) == (1, 2, 1)


def test_a_job_across_racks_runs_slower_by_the_stated_rate() -> None:
    settings = RunSettings(slowdowns={RACK: 0.5})
    _, jobs = outcome("first-fit", "2x1 gpu=8", asks("g", 0, 10, pods=2), settings=settings)
    assert jobs["g"].end == 20


def test_a_run_may_end_early() -> None:
    _, jobs = outcome(
        "bayplan", "1 gpu=8", asks("a", 0, 100), asks("b", 1, 5), settings=RunSettings(until=50)
    )
    assert jobs["a"].state is JobState.RUNNING
    assert jobs["b"].state is JobState.WAITING


def test_shares_of_gpus_run_beside_each_other() -> None:
    share = [TraceJob(name, 0, 10, {}, gpu_share=500) for name in "ab"]
    _, jobs = outcome("bayplan", "1 gpu=1", *share)
    assert [one.start for one in jobs.values()] == [0, 0]


def test_backfill_overtakes_only_where_the_first_job_is_not_delayed() -> None:
    jobs = (
        asks("a", 0, 100),
        asks("first", 10, 50, pods=2),
        TraceJob("short", 20, 60, {GPU: 8}, limit=80),
        TraceJob("long", 30, 5, {GPU: 1}, limit=200),
    )
    found = outcome("fifo-backfill", "2 gpu=8", *jobs)[1]
    assert (found["short"].start, found["first"].start, found["long"].start) == (20, 100, 150)
    assert outcome("first-fit", "2 gpu=8", *jobs)[1]["long"].start == 80


def test_least_fragmentation_keeps_whole_hosts_for_large_pods() -> None:
    jobs = (asks("a", 0, 100, gpus=4), asks("b", 1, 100, gpus=4), asks("whole", 2, 10))
    assert outcome("fgd", "2 gpu=8", *jobs)[1]["whole"].start == 2
    assert outcome("spread", "2 gpu=8", *jobs)[1]["whole"].start == 100


@pytest.mark.parametrize("policy", POLICIES)
def test_jobs_on_a_node_that_fails_start_again_elsewhere_and_the_node_comes_back(policy: str) -> None:
    disruptions = Disruptions(outages=(NodeOutage("b000-r000-h000", 40, 200),))
    found, jobs = outcome(
        policy,
        "2 gpu=8",
        asks("gang", 0, 100, pods=2),
        asks("later", 60, 10),
        settings=RunSettings(disruptions=disruptions),
    )
    assert (jobs["gang"].start, jobs["gang"].end) == (240, 340)
    assert jobs["later"].state is JobState.DONE
    assert found.restarts == 1


def test_a_node_that_fails_again_ends_no_job_that_has_moved_away_from_it() -> None:
    outages = (NodeOutage("b000-r000-h000", 40, 10), NodeOutage("b000-r000-h000", 60, 10))
    settings = RunSettings(disruptions=Disruptions(outages=outages))
    found, jobs = outcome("first-fit", "2 gpu=8", asks("a", 0, 100), settings=settings)
    assert (jobs["a"].start, jobs["a"].end, found.restarts) == (40, 140, 1)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_that_waited_too_long_leaves(policy: str) -> None:
    settings = RunSettings(disruptions=Disruptions(patience=30))
    _, jobs = outcome(
        policy, "1 gpu=8", asks("a", 0, 100), asks("b", 10, 5), asks("c", 90, 5), settings=settings
    )
    assert jobs["b"].state is JobState.LEFT
    assert jobs["b"].start is None
    assert jobs["c"].start == 100


def test_the_share_of_jobs_that_fail_end_early_and_are_the_same_for_every_policy() -> None:
    settings = RunSettings(disruptions=Disruptions(failing_share=0.5))
    many = [asks(f"j{at}", 200.0 * at, 100) for at in range(40)]
    ends = [
        {name: one.end for name, one in outcome(policy, "1 gpu=8", *many, settings=settings)[1].items()}
        for policy in ("bayplan", "first-fit")
    ]
    assert ends[0] == ends[1]
    early = [one for at, one in enumerate(ends[0].values()) if one is not None and one < 200.0 * at + 100]
    assert 10 <= len(early) <= 30
