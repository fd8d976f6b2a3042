"""`bayplan simulate`: files, summary, errors; one seed gives the same bytes; an interrupt keeps the rest."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bayplan.cli.commands.simulate import simulate
from bayplan.model.profile import Profile
from bayplan.simulation.reports.comparison import SimulationReport
from bayplan.simulation.reports.figures import quantile
from bayplan.simulation.traces.cluster_shapes import parse_shape
from bayplan.simulation.traces.workload import GPU, Trace, TraceJob
from bayplan.simulation.virtual_time.policies import known_policies
from bayplan.simulation.virtual_time.virtual_run import RunSettings, VirtualRun

DRAWN = "sizes: {1: 60, 8: 90, 24: 100}\ndurations: {60: 50, 900: 100}\njobs: 40\nload: 0.9\n"


def simulated(folder: Path, *arguments: str, trace: str = DRAWN, cluster: str = "2x2 gpu=8") -> Result:
    path = folder / "work.yaml"
    path.write_text(trace, encoding="utf-8")
    given = ["--cluster", cluster, "--trace", str(path), "-o", str(folder / "out"), *arguments]
    return CliRunner().invoke(simulate, given)


def test_policies_are_compared_in_a_page_that_loads_nothing(tmp_path: Path) -> None:
    result = simulated(tmp_path, "--policy", "bayplan", "--policy", "spread")
    assert result.exit_code == 0, result.output
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 8
    assert not re.search(r"https?://|<script|<link|src=", page)
    data = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    assert [one["policy"] for one in data["policies"]] == ["bayplan", "spread"]
    assert all(one["jobs"]["done"] == 40 for one in data["policies"])
    assert "wait p50" in result.output


def test_one_seed_gives_the_same_files_whatever_the_hash_seed(tmp_path: Path) -> None:
    path = tmp_path / "work.yaml"
    path.write_text(DRAWN, encoding="utf-8")
    found = []
    for number in ("1", "2"):
        folder = tmp_path / number
        command = [
            sys.executable,
            "-m",
            "bayplan",
            "simulate",
            "--cluster",
            "2x2 gpu=8",
            "--trace",
            str(path),
        ]
        command += ["--policy", "bayplan", "--policy", "random", "-o", str(folder)]
        subprocess.run(command, check=True, capture_output=True, env=os.environ | {"PYTHONHASHSEED": number})
        found.append({path.name: path.read_bytes() for path in sorted(folder.iterdir())})
    assert found[0] == found[1]
    assert [*found[0]] == [
        "across-racks.png",
        "allocation.png",
        "completion.png",
        "fragmentation.png",
        "report.html",
        "report.json",
        "slots-in-racks.png",
        "slots.png",
        "wait.png",
        "waiting.png",
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--cluster", "4y4"), "4y4"),
        (("--cluster", "4 gpus=1"), "'gpus=1' is no amount of a host"),
        (("--cluster", "trace"), "needs a cluster with GPUs"),
        (("--slowdown", "rack"), "rack is no LEVEL=RATE"),
        (("--slowdown", "nowhere=0.5"), "no node has a label nowhere"),
        (("--node-failures", "mtbf=x repair=2h"), "'x' is no duration"),
        (("--node-failures", "mtbf=2h"), "'mtbf=2h' is no rate"),
        (("--node-failures", "mtbf=0.001s repair=1s"), "more than 1,000,000 outages"),
        (("--node-failures", "nosuch.csv"), "nosuch.csv"),
        (("--leave-after", "-3"), "'-3' is no duration"),
        (("--sweep", "racks=3..1"), "'racks=3..1' is no range of racks"),
        (("--sweep", "racks=0..999"), "more than 64 values"),
        (("--target", "p95 wait < 30m"), "--target needs --sweep"),
        (("--sweep", "racks=0..1", "--target", "fast"), "'fast' is no target"),
        (("--sweep", "racks=0..1", "--target", "p95 wait < soon"), "'soon' is no duration"),
        (("--sweep", "racks=0..1", "--policy", "fifo", "--policy", "spread"), "for one policy"),
        (("--cluster", "4 gpu=8", "--sweep", "racks=0..x"), "is no range"),
    ],
)
def test_a_wrong_option_is_answered_in_a_sentence(
    tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    result = simulated(tmp_path, *arguments)
    assert result.exit_code != 0
    assert sentence in result.output
    assert "Traceback" not in result.output


def test_a_bad_trace_is_answered_with_file_and_line(tmp_path: Path) -> None:
    result = simulated(tmp_path, "--format", "swf", trace="1 2 3\n")
    assert result.exit_code == 1
    assert "work.yaml, line 1: 3 numbers; 18 were expected" in result.output
    assert not (tmp_path / "out").exists()


def test_jobs_that_can_never_fit_are_named_in_the_summary(tmp_path: Path) -> None:
    result = simulated(tmp_path, "--policy", "fifo", cluster="1 gpu=8")
    assert "jobs can never fit this cluster: job-" in result.output


def test_an_interrupt_keeps_what_has_happened() -> None:
    nodes = parse_shape("1 gpu=8")
    trace = Trace("test", tuple(TraceJob(f"j{at}", at, 10.0, {GPU: 8}) for at in range(9)))
    scheduler = known_policies(Profile())["fifo"].scheduler(nodes, 1)

    def interrupt(arrived: int, total: int) -> None:
        if arrived == 5:
            raise KeyboardInterrupt

    outcome = VirtualRun("fifo", nodes, trace, scheduler, RunSettings()).run(interrupt)
    assert outcome.interrupted
    assert sum(one.start is not None for one in outcome.jobs) == 1
    assert "interrupted" in SimulationReport("t", "c", 1, (outcome,)).text()


def test_quantiles_are_values_that_occurred() -> None:
    assert [quantile([3.0, 1.0, 2.0, 4.0], share) for share in (0.5, 0.9, 0.0)] == [2.0, 4.0, 1.0]
    assert quantile([], 0.5) is None


def test_free_slots_are_in_the_report_where_the_cluster_has_gpus(tmp_path: Path) -> None:
    one_job = "sizes: {8: 100}\ndurations: {60: 100}\njobs: 2\nload: 0.01\n"
    result = simulated(tmp_path, "--policy", "fifo", trace=one_job, cluster="2x9 gpu=8")
    data = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    found = data["policies"][0]["freeSlots"]
    assert 1.9 < found["64"]["inRacks"] <= 2
    assert found["128"] == {"inRacks": 0.0, "anywhere": 1.0}
    assert "each within a rack / anywhere" in result.output
    work = tmp_path / "small.swf"
    work.write_text("; MaxProcs: 4\n1 0 0 5 1 -1 -1 1 5 -1 1 1 1 1 1 1 -1 -1\n", encoding="utf-8")
    given = ["--cluster", "trace", "--trace", str(work), "-o", str(tmp_path / "cpu"), "--policy", "fifo"]
    result = CliRunner().invoke(simulate, given)
    assert result.exit_code == 0, result.output
    assert "within a rack" not in result.output


def test_node_failures_from_a_table_are_in_the_notes_and_the_figures(tmp_path: Path) -> None:
    table = tmp_path / "outages.csv"
    table.write_text("node,start,seconds\nb000-r000-h000,0,500000\n", encoding="utf-8")
    result = simulated(tmp_path, "--policy", "bayplan", "--node-failures", str(table))
    assert "note: 1 node failures" in result.output
    table.write_text("node,start,seconds\nnosuch,0,5\n", encoding="utf-8")
    result = simulated(tmp_path, "--policy", "bayplan", "--node-failures", str(table))
    assert "outages.csv, line 2: there is no node 'nosuch' in the cluster" in result.output


def test_without_matplotlib_one_line_says_what_is_not_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bayplan.cli.commands.simulate.can_draw", lambda: False)
    result = simulated(tmp_path, "--policy", "fifo")
    assert "No PNG images: matplotlib is not installed" in result.output
    assert not [*(tmp_path / "out").glob("*.png")]


def test_a_sweep_names_the_fewest_racks_that_meet_a_target(tmp_path: Path) -> None:
    work = "sizes: {8: 50, 32: 100}\ndurations: {600: 100}\njobs: 60\nload: 1.2\n"
    target = ("--target", "p95 wait of 32-GPU gangs < 30m")
    result = simulated(tmp_path, "--sweep", "racks=0..3", "--policy", "bayplan", *target, trace=work)
    assert result.exit_code == 0, result.output
    data = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    assert [row["hosts"] for row in data["runs"]] == [4, 6, 8, 10]
    assert data["runs"][0]["meetsTarget"] is False
    met = [row["racksAdded"] for row in data["runs"] if row["meetsTarget"]]
    assert data["smallest"] == met[0] > 0
    assert f"p95 wait of 32-GPU gangs < 30m: met with {met[0]} racks more" in result.output
    assert data["runs"][0]["gpuHoursWaited"] > data["runs"][-1]["gpuHoursWaited"]


def test_a_target_that_no_capacity_meets_is_said_so(tmp_path: Path) -> None:
    work = "sizes: {32: 100}\ndurations: {600: 100}\njobs: 30\nload: 9\n"
    result = simulated(tmp_path, "--sweep", "racks=0..1", "--target", "mean wait < 1s", trace=work)
    assert "mean wait < 1s: not met with up to 1 racks more" in result.output
