"""A journal as the cluster and the trace of `bayplan simulate`: nodes, gangs with their times, bad files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bayplan.cli.commands.simulate import simulate
from bayplan.cli.starts.journal_workload import read_journal
from bayplan.model.change import (
    Change,
    GangSpecSeen,
    NodeLost,
    NodeSeen,
    PodLost,
    PodSeen,
    QueuedGangLost,
    QueuedGangSeen,
    TopologySeen,
)
from bayplan.model.gang import GangSpec, Locality, PodSet, Ref
from bayplan.model.node import HOSTNAME, Node, Topology
from bayplan.model.pod import Pod
from bayplan.model.pod_spec import PodSignature
from bayplan.model.queued_gang import QueuedGang
from bayplan.runtime.core.journal import FileJournal
from bayplan.simulation.traces.cluster_shapes import BLOCK, RACK
from bayplan.simulation.traces.workload import CPU, GPU
from tests.support.model_objects import gang, pod

SHAPE = PodSignature(amounts=((CPU, 4000), (GPU, 8), ("pods", 1)))
TRAIN = Ref("test", "PodGroup", "ns", "train")
START = 1_000_000.0


def host_in_rack(name: str, rack: str = "r1") -> Node:
    labels = {HOSTNAME: name, "block": "b1", "rack": rack}
    return Node(name, labels, {CPU: 64_000, GPU: 8, "pods": 110})


def written(folder: Path, *entries: tuple[float, Change], role: str = "scheduler") -> Path:
    journal = FileJournal(folder / "journal")
    for after, change in entries:
        journal.record(START + after, "change", change, role)
    journal.close()
    return folder / "journal"


def hosts(*names: str) -> list[tuple[float, Change]]:
    racks = TopologySeen(Topology("racks", ("block", "rack", HOSTNAME)))
    return [(0.0, racks), *((0.0, NodeSeen(host_in_rack(name))) for name in names)]


def worker(at: int, **more: Any) -> Pod:
    return pod(f"train-{at}", SHAPE, gang=TRAIN, **more)


def run_of(workers: Iterable[int], start: float, end: float) -> list[tuple[float, Change]]:
    numbers = list(workers)
    return [
        (start, GangSpecSeen(GangSpec(TRAIN, minimum=2, locality=Locality(required="rack"), created=START))),
        *((start, PodSeen(worker(at, created=START + start))) for at in numbers),
        *((start + 5, PodSeen(worker(at, on="h1"))) for at in numbers),
        *((end, PodLost(worker(at).key)) for at in numbers),
    ]


def simulated(journal: Path, folder: Path, *more: str) -> Result:
    given = ["--cluster", str(journal), "--trace", str(journal), "-o", str(folder / "out"), *more]
    return CliRunner().invoke(simulate, given)


def test_a_gang_of_the_scheduler_has_the_time_from_its_start_to_the_end_of_its_last_pod(
    tmp_path: Path,
) -> None:
    journal = written(tmp_path, *hosts("h1", "h2"), *run_of(range(2), 10, 115))
    (job,) = read_journal(str(journal)).trace().jobs
    assert (job.name, job.pods, job.requests) == ("ns/train", 2, {CPU: 4000, GPU: 8})
    assert job.duration == 100  # from its bind to its end
    assert job.locality == Locality(required="rack")


def test_a_gang_of_a_queue_runs_from_its_admission_and_its_pods_are_not_counted_again(tmp_path: Path) -> None:
    members = gang(PodSet("main", 4, 4, {GPU: 8}), name="job")
    queued = QueuedGang(members, (), ("ns", "queue"), created=START + 2)
    admitted = replace(queued, admitted=True, reserved=START + 30)
    entries: list[tuple[float, Change]] = [
        (2.0, QueuedGangSeen(queued)),
        (30.0, QueuedGangSeen(admitted)),
        (50.0, QueuedGangSeen(admitted)),
        (90.0, QueuedGangLost(members.source)),
    ]
    journal = written(tmp_path, *hosts("h1"), *entries, role="admission")
    (job,) = read_journal(str(journal)).trace().jobs
    assert (job.arrival, job.duration, job.pods, job.gpus) == (2.0, 60.0, 4, 32)


def test_a_queued_gang_that_was_evicted_runs_from_its_last_admission(tmp_path: Path) -> None:
    members = gang(PodSet("main", 1, 1, {GPU: 8}), name="job")
    queued = QueuedGang(members, (), ("ns", "queue"), created=START)
    admitted = replace(queued, admitted=True, reserved=START + 10)
    entries: list[tuple[float, Change]] = [
        (10.0, QueuedGangSeen(admitted)),
        (20.0, QueuedGangSeen(replace(admitted, evicted=True))),
        (40.0, QueuedGangSeen(replace(admitted, reserved=START + 40))),
        (100.0, QueuedGangLost(members.source)),
    ]
    (job,) = read_journal(str(written(tmp_path, *entries, role="admission"))).trace().jobs
    assert job.duration == 60


def test_what_ran_before_and_after_the_journal_is_cut_and_said(tmp_path: Path) -> None:
    old = pod("old", SHAPE, on="h1", created=START - 5000, started=START - 4000)
    journal = written(tmp_path, *hosts("h1"), (0.0, PodSeen(old)), (70.0, NodeSeen(host_in_rack("h2"))))
    trace = read_journal(str(journal)).trace()
    assert (trace.jobs[0].arrival, trace.jobs[0].duration) == (0, 70)
    assert "1 gangs ran before the journal begins; they arrive at its beginning" in trace.notes
    assert "1 gangs ran when the journal ends; they are taken to end then" in trace.notes


def test_a_gang_that_is_made_again_is_another_job(tmp_path: Path) -> None:
    journal = written(tmp_path, *run_of(range(2), 10, 50), *run_of(range(3), 60, 80))
    assert [(job.name, job.pods) for job in read_journal(str(journal)).trace().jobs] == [
        ("ns/train", 2),
        ("ns/train#2", 3),
    ]


def test_nodes_are_those_at_the_end_with_their_racks(tmp_path: Path) -> None:
    cordoned = replace(host_in_rack("h3"), schedulable=False)
    journal = written(
        tmp_path,
        *hosts("h1", "h2"),
        (5.0, NodeLost("h1")),
        (6.0, NodeSeen(cordoned)),
        (7.0, NodeSeen(host_in_rack("h0", "r2"))),
    )
    found = read_journal(str(journal)).nodes()
    assert [one.name for one in found] == ["h0", "h2"]
    assert [(one.labels[BLOCK], one.labels[RACK]) for one in found] == [("b1", "b1/r2"), ("b1", "b1/r1")]


def test_a_journal_is_simulated_with_another_number_of_racks(tmp_path: Path) -> None:
    journal = written(tmp_path, *hosts("h1", "h2"), *run_of(range(2), 10, 115), *run_of(range(2), 120, 150))
    result = simulated(journal, tmp_path, "--policy", "bayplan", "--policy", "best-fit")
    assert result.exit_code == 0, result.output
    data = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    assert [one["jobs"]["done"] for one in data["policies"]] == [2, 2]
    assert simulated(journal, tmp_path, "--sweep", "racks=0..1").exit_code == 0
    (one_file,) = journal.glob("*.jsonl")
    given = ["--cluster", "trace", "--trace", str(one_file), "-o", str(tmp_path / "again")]
    assert CliRunner().invoke(simulate, given).exit_code == 0


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "there is no journal-*.jsonl in it"),
        ("nonsense\n", "line 1: this is not an entry of a journal"),
        ('{"sequence":1,"now":1.0,"kind":"change","role":"scheduler","body":{"is":"NodeSeen"}}\n', "entry 1"),
        ('{"sequence":1,"now":1.0,"kind":"plan","role":"scheduler","body":{}}\n', "tells of no node"),
        ("", "tells of no node"),
    ],
)
def test_a_journal_that_cannot_be_used_is_answered_in_a_sentence(
    tmp_path: Path, content: str | None, sentence: str
) -> None:
    journal = tmp_path / "journal"
    journal.mkdir()
    if content is not None:
        (journal / "journal-000000000001.jsonl").write_text(content, encoding="utf-8")
    result = simulated(journal, tmp_path)
    assert result.exit_code == 1
    assert sentence in result.output
    assert "Traceback" not in result.output
    assert not (tmp_path / "out").exists()


def test_a_journal_without_gangs_is_said_so(tmp_path: Path) -> None:
    result = simulated(written(tmp_path, *hosts("h1")), tmp_path)
    assert "tells of no gang and no pod that Bayplan schedules" in result.output
