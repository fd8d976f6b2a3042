"""The queue run forward on counts starts gangs when the scheduler itself does, in virtual time."""

from __future__ import annotations

import random

import numpy as np
import pytest

from bayplan.model.gang import Locality
from bayplan.model.node import HOSTNAME, PODS, Node
from bayplan.model.profile import Profile
from bayplan.simulation.forecast.forward_run import (
    NEVER,
    ForwardRun,
    QueuePicture,
    StartOption,
    WaitingGang,
)
from bayplan.simulation.forecast.node_room import ANYWHERE, Measure, NodeCapacity
from bayplan.simulation.forecast.quota_room import NO_QUOTA
from bayplan.simulation.traces.workload import GPU, Trace, TraceJob
from bayplan.simulation.virtual_time.our_engine import OurEngine
from bayplan.simulation.virtual_time.virtual_run import RunSettings, VirtualRun

RACK = "rack"
CASES = 60


def drawn(seed: int) -> tuple[list[Node], list[TraceJob]]:
    """A few racks of a few hosts, and gangs of whole hosts, some of which have to stay within one rack."""
    dice = random.Random(seed)
    racks, hosts = dice.randint(1, 3), dice.randint(1, 3)
    names = [(f"host-{rack}-{host}", f"rack-{rack}") for rack in range(racks) for host in range(hosts)]
    nodes = [Node(name, {HOSTNAME: name, RACK: rack}, {GPU: 8, PODS: 110}) for name, rack in names]
    jobs = []
    for number in range(dice.randint(2, 9)):
        pods = dice.randint(1, racks * hosts)
        within = pods <= hosts and dice.random() < 0.5
        seconds = dice.choice((50, 100, 299, 400, 700, 1000, 3000)) + dice.random()
        locality = Locality(required=RACK) if within else Locality()
        jobs.append(TraceJob(f"job-{number:02}", 0.0, seconds, {GPU: 8}, pods, locality=locality))
    return nodes, jobs


def by_the_scheduler(nodes: list[Node], jobs: list[TraceJob], profile: Profile) -> list[float | None]:
    run = VirtualRun(
        "scheduler", nodes, Trace("drawn", tuple(jobs)), OurEngine(nodes, profile), RunSettings()
    )
    return [record.start for record in run.run(lambda *_: None).jobs]


def by_counts(nodes: list[Node], jobs: list[TraceJob], keep_after: float) -> list[float]:
    racks = sorted({node.labels[RACK] for node in nodes})
    capacity = NodeCapacity(
        free=np.full((len(nodes), 1), 8, np.int64),
        requests=np.array([[8]], np.int64),
        allowed=np.ones((1, len(nodes)), bool),
        domains=(np.array([racks.index(node.labels[RACK]) for node in nodes]),),
        measures=(Measure(0, ANYWHERE), Measure(0, 0)),
    )
    waiting = tuple(
        WaitingGang(job.name, (StartOption(((int(job.locality.required is not None), job.pods),)),))
        for job in jobs
    )
    picture = QueuePicture(capacity, NO_QUOTA, (), waiting, keep_after=keep_after)
    runs = np.array([job.duration or 0.0 for job in jobs])
    found: list[float] = ForwardRun(picture).run(0.0, np.zeros(0), runs).times.tolist()
    return found


@pytest.mark.parametrize("seed", range(CASES))
def test_gangs_start_when_the_scheduler_starts_them(seed: int) -> None:
    nodes, jobs = drawn(seed)
    expected = by_the_scheduler(nodes, jobs, Profile(keep_after_seconds=0.0))
    assert by_counts(nodes, jobs, NEVER) == pytest.approx(expected)


def test_with_nodes_kept_for_the_first_gang_nearly_all_starts_agree() -> None:
    """Which hosts are kept may differ where several would do."""
    same = total = 0
    for seed in range(CASES):
        nodes, jobs = drawn(seed)
        expected = by_the_scheduler(nodes, jobs, Profile(keep_after_seconds=300.0))
        found = by_counts(nodes, jobs, 300.0)
        same += sum(one == pytest.approx(other) for one, other in zip(found, expected, strict=True))
        total += len(jobs)
    assert same >= 0.9 * total, (same, total)
