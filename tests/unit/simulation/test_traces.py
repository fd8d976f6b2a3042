"""Trace readers: every format gives the same values, and a bad trace gives one error with file and line."""

from __future__ import annotations

import lzma
import tarfile
from pathlib import Path

import pytest

from bayplan.model.gang import Locality
from bayplan.model.node import HOSTNAME
from bayplan.simulation.traces.cluster_shapes import BLOCK, RACK, InvalidShape, parse_shape, read_switches
from bayplan.simulation.traces.gavel import read_gavel, read_rates
from bayplan.simulation.traces.openb import read_nodes
from bayplan.simulation.traces.readers import (
    DEFAULT_OPTIONS,
    ReadOptions,
    TraceFormat,
    detect,
    read_node_table,
    read_trace,
)
from bayplan.simulation.traces.trace_file import LINE_MAX, TraceError, members
from bayplan.simulation.traces.workload import CPU, GPU, GPU_MODEL, MEMORY, equal_pods
from tests.support.missing_parts import lacking

OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,"
    "qos,pod_phase,creation_time,deletion_time,scheduled_time"
)
SHARED = Path(__file__).parents[4] / "shared" / "traces"


def written(folder: Path, name: str, *lines: str) -> str:
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def problem(path: str, options: ReadOptions = DEFAULT_OPTIONS) -> str:
    with pytest.raises(TraceError) as caught:
        read_trace(path, options)
    return str(caught.value).removeprefix(path)


# ── what is read ───────────────────────────────────────────────────────────────────────────────────


def test_openb_pods_are_jobs_with_shares_models_and_run_times(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "pods.csv",
        OPENB,
        "b,6000,1024,1,460,V100M32|T4|T4,LS,Running,20,90,30",
        "a,12000,2048,2,1000,,BE,Failed,10,40,10",
        "c,1000,1,0,0,,LS,Pending,30,50,",
    )
    whole, share, unstarted = read_trace(path).jobs
    assert (whole.name, whole.arrival, whole.duration, whole.gpus, whole.fails) == ("a", 10, 30, 2, True)
    assert whole.requests == {CPU: 12_000, MEMORY: 2 << 30, GPU: 2}
    assert (share.gpu_share, share.gpu_models, share.duration, share.gpus) == (
        460,
        ("T4", "V100M32"),
        60,
        0.46,
    )
    assert GPU not in share.requests
    assert unstarted.duration is None
    assert unstarted.gpus == 0


def test_openb_variants_without_times_are_read_for_packing(tmp_path: Path) -> None:
    path = written(tmp_path, "p.csv", "name,cpu_milli,memory_mib,num_gpu,gpu_milli", "a,1,1,8,1000")
    (only,) = read_trace(path).jobs
    assert (only.gpus, only.arrival, only.duration) == (8, 0, None)


def test_openb_nodes_carry_the_model_of_their_gpus(tmp_path: Path) -> None:
    path = written(
        tmp_path, "n.csv", "sn,cpu_milli,memory_mib,gpu,model", "n1,64000,262144,2,P100", "n0,1000,1,0,"
    )
    plain, gpu = read_nodes(path)
    assert plain.labels == {HOSTNAME: "n0"}
    assert GPU not in plain.allocatable
    assert gpu.labels[GPU_MODEL] == "P100"
    assert gpu.allocatable[GPU] == 2


def test_philly_jobs_count_time_from_the_earliest_and_are_split_into_equal_pods(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "philly.csv",
        "timestamp,duration,num_gpus,gpu_time,cluster",
        "2017-10-09 07:01:55,66.0,12,66.0,11cb48",
        "2017-10-09 07:00:55,5.5,1,5.5,6214e9",
    )
    first, second = read_trace(path, ReadOptions(nodes=parse_shape("2 gpu=8"))).jobs
    assert (first.arrival, first.duration, first.owner, first.pods) == (0, 5.5, "6214e9", 1)
    assert (second.arrival, second.pods, second.requests[GPU]) == (60, 2, 6)


def test_philly_with_users_is_read_by_its_own_columns(tmp_path: Path) -> None:
    path = written(
        tmp_path, "c.csv", "job_id,user,num_gpu,submit_time,duration", "7,vc_1,16,100,211", "3,vc_2,1,50,9"
    )
    assert [(one.name, one.arrival, one.pods) for one in read_trace(path).jobs] == [
        ("job-000003", 50, 1),
        ("job-000007", 100, 2),
    ]


def test_gavel_steps_become_seconds_by_the_measured_rate(tmp_path: Path) -> None:
    trace = written(
        tmp_path,
        "a.trace",
        "LM (batch size 5)\tcmd\t-n\t1\t1000\t6.5\t2",
        "LM (batch size 5)\tcmd\t-n\t1\t1000\t0.0\t16",
    )
    rates = read_rates(
        written(
            tmp_path,
            "r.csv",
            "gpu,job_type,workers,steps_per_s_consolidated",
            "v100,LM (batch size 5),2,4",
            "v100,LM (batch size 5),8,10",
            "k80,LM (batch size 5),2,1",
        )
    )
    large, small = read_gavel(trace, 8, rates).jobs
    assert (small.duration, small.arrival, small.pods, small.requests[GPU]) == (250, 6.5, 1, 2)
    assert (large.duration, large.pods, large.requests[GPU]) == (100, 2, 8)
    assert read_gavel(trace, 8, rates).notes == (
        "1 jobs run at the rate of the most workers measured for their type",
    )
    assert read_trace(trace).jobs[0].duration is None


def test_swf_jobs_have_limits_and_lines_that_never_ran_are_counted(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "log.swf",
        "; MaxNodes: 4",
        "; MaxProcs: 32",
        "1 0 5 100 16 -1 -1 16 7200 -1 1 3 1 -1 -1 -1 -1 -1",
        "2 9 -1 0 -1 -1 -1 -1 -1 -1 5 3 1 -1 -1 -1 -1 -1",
    )
    trace = read_trace(path)
    (only,) = trace.jobs
    assert (only.duration, only.limit, only.pods, only.requests, only.owner) == (
        100,
        7200,
        2,
        {CPU: 8000},
        "user-3",
    )
    assert len(trace.nodes) == 4
    assert trace.notes == ("1 of 2 jobs never ran and are left out",)


DRAWN = ("sizes: {1: 50, 16: 100}", "durations: {10: 50, 1000: 100}", "jobs: 400", "load: 0.8")


def test_drawn_jobs_follow_the_distribution_and_the_load(tmp_path: Path) -> None:
    path = written(tmp_path, "w.yaml", *DRAWN, "preferred: rack")
    options = ReadOptions(nodes=parse_shape("2x4 gpu=8"))
    trace = read_trace(path, options)
    gangs = [one for one in trace.jobs if one.gpus == 16]
    assert 150 < len(gangs) < 250
    assert all(one.locality == Locality(preferred="rack") for one in gangs)
    offered = sum(one.gpus * (one.duration or 0) for one in trace.jobs) / 64
    assert offered / trace.jobs[-1].arrival == pytest.approx(0.8, rel=0.15)
    assert read_trace(path, options) == trace
    assert read_trace(path, ReadOptions(options.nodes, seed=43)) != trace


def test_drawn_sizes_and_run_times_keep_their_bounds(tmp_path: Path) -> None:
    path = written(tmp_path, "w.yaml", *DRAWN, "largest: 8", "longest: 100")
    trace = read_trace(path, ReadOptions(nodes=parse_shape("4 gpu=8")))
    assert {one.gpus for one in trace.jobs} == {1}
    assert max(one.duration or 0 for one in trace.jobs) <= 100


def test_compressed_files_and_members_of_archives_are_read(tmp_path: Path) -> None:
    plain = written(tmp_path, "pods.csv", OPENB, "a,1,1,0,0,,LS,Running,0,1,0")
    (tmp_path / "pods.csv.xz").write_bytes(lzma.compress(Path(plain).read_bytes()))
    with tarfile.open(tmp_path / "all.tar.xz", "w:xz") as archive:
        archive.add(plain, "pods.csv")
    inside = f"{tmp_path}/all.tar.xz#pods.csv"
    assert members(f"{tmp_path}/all.tar.xz") == [inside]
    for path in (f"{plain}.xz", inside):
        assert read_trace(path).jobs == read_trace(plain).jobs


def test_a_total_is_split_into_the_fewest_equal_pods() -> None:
    assert [equal_pods(total, 8) for total in (1, 8, 12, 13, 64)] == [(1, 1), (1, 8), (2, 6), (13, 1), (8, 8)]


# ── clusters ───────────────────────────────────────────────────────────────────────────────────────


def test_a_shape_names_blocks_racks_and_hosts() -> None:
    nodes = parse_shape("2x3x4 gpu=8 cpu=64")
    assert len(nodes) == 24
    assert len({node.labels[RACK] for node in nodes}) == 6
    assert len({node.labels[BLOCK] for node in nodes}) == 2
    assert nodes[0].allocatable[GPU] == 8
    assert nodes[0].allocatable[CPU] == 64_000


@pytest.mark.parametrize("text", ["4y8", "1x2x3x4", "0x4", "9999x9999", "4 gpus=8", "4 gpu=-1", "4 gpu"])
def test_a_wrong_shape_is_answered_with_the_right_form(text: str) -> None:
    with pytest.raises(InvalidShape):
        parse_shape(text)


def test_racks_of_the_same_name_in_two_blocks_are_two_racks(tmp_path: Path) -> None:
    path = written(tmp_path, "topo.csv", "ip,DSW,PSW,ASW", "x,G6,P1,S1", "y,G6,P2,S1", "z,G6,P2,S1")
    nodes = read_switches(path, 8)
    assert len({node.labels[RACK] for node in nodes}) == 2
    assert read_node_table(path, 8) == nodes


# ── bad traces ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("a,1,1,1,500,,LS,Running,-5,1,0", ", line 2: creation_time is '-5'; give a number of at least 0"),
        ("a,1,1,1,500,,LS,Running,nan,1,0", ", line 2: creation_time is 'nan'; give a number of at least 0"),
        ("a,1,1,1,500,,LS,Running,0,1,3", ", line 2: deletion_time 1 is before the start at 3"),
        ("a,,1,1,500,,LS,Running,5,9,0", ", line 2: cpu_milli is empty; give a number of at least 0"),
        ("a,1.5,1,1,500,,LS,Running,5,9,0", ", line 2: cpu_milli is '1.5'; give a whole number"),
        ("a,1,1,2,500,,LS,Running,5,9,0", ", line 2: num_gpu is 2 and gpu_milli 500; a share is 1 to 1000"),
        ("a,1,1", ", line 2: 3 cells, but the header has 11 columns"),
        ('"a,1,1,2,500,,LS,Running,5,9,0', ", line 2: the line is no row of a CSV file; check its quotes"),
    ],
)
def test_a_bad_cell_is_named_with_its_line(tmp_path: Path, row: str, sentence: str) -> None:
    assert problem(written(tmp_path, "pods.csv", OPENB, row)).startswith(sentence)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "pods.csv", "name,cpu_milli,num_gpu", "a,1,1")
    assert problem(path).startswith(", line 1: there is no column memory_mib, gpu_milli")


def test_an_empty_file_and_a_lone_header_are_told_apart(tmp_path: Path) -> None:
    assert problem(written(tmp_path, "none.csv")) == ": the file is empty; give a trace"
    assert problem(written(tmp_path, "head.csv", OPENB)) == ": there are no pods below the header"


def test_a_line_without_an_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "endless.csv"
    with path.open("wb") as file:
        file.truncate(10_000_000_000)  # sparse: takes no space
    assert problem(str(path)).startswith(f", line 1: the line is longer than {LINE_MAX:,} bytes")


def test_a_file_that_is_no_trace_is_refused(tmp_path: Path) -> None:
    assert "the format is unknown" in problem(written(tmp_path, "x.csv", "hello world"))
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\n")
    assert problem(str(tmp_path / "b.csv")) == ", line 1: the line is not UTF-8 text; is this a trace?"
    (tmp_path / "c.csv.xz").write_bytes(b"no xz")
    assert "cannot be decompressed" in problem(str(tmp_path / "c.csv.xz"))
    assert problem(str(tmp_path / "gone.csv")) == ": No such file or directory"


@pytest.mark.parametrize(
    ("name", "lines", "sentence"),
    [
        ("a.swf", ("1 2 3",), ", line 1: 3 numbers; 18 were expected"),
        ("a.swf", ("1 -7 5 100 16 -1 -1 16 7200 -1 1 3 1 -1 -1 -1 -1 -1",), ", line 1: submit is '-7'"),
        ("a.trace", ("t\tc\t-n\t1\t5\t-1\t1",), ", line 1: arrival is '-1'; give a number of at least 0"),
        ("w.yaml", ("sizes: [",), ", line 2: it is not valid YAML"),
        ("w.yaml", ("sizes: {1: 100}",), ": the field durations is missing"),
        ("w.yaml", (*DRAWN, "color: red"), ": there is no field color"),
        ("w.yaml", (*DRAWN[:2], "jobs: -4", "load: 1"), ": jobs is -4; give a number from 1"),
        ("w.yaml", ("sizes: {1: 90, 2: 80}", *DRAWN[1:]), ": sizes falls at 2: 80; cumulative shares ascend"),
    ],
)
def test_bad_traces_of_other_formats_are_named_too(
    tmp_path: Path, name: str, lines: tuple[str, ...], sentence: str
) -> None:
    assert problem(written(tmp_path, name, *lines), ReadOptions(nodes=parse_shape("4 gpu=8"))).startswith(
        sentence
    )


# ── the public traces ──────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def public_traces() -> None:
    """The folder of public traces; a machine of CI must have it."""
    if not SHARED.is_dir():
        lacking("The public traces are not beside this folder (../shared/traces).")


@pytest.mark.usefixtures("public_traces")
@pytest.mark.parametrize(
    ("name", "found", "jobs", "gpus"),
    [
        ("openb.tar.xz#openb_pod_list_default.csv", TraceFormat.OPENB, 8152, 6087),
        ("philly_pollux.csv.xz", TraceFormat.PHILLY, 82247, None),
        ("chronus_philly.tar.xz#trace_job_Philly_SLO.csv", TraceFormat.PHILLY_COUNTED, None, None),
        ("gavel_msr_seed0.tar.xz#msr/0e4a51.trace", TraceFormat.GAVEL, None, None),
        ("swf_KTH-SP2.swf.xz", TraceFormat.SWF, 28481, None),
    ],
)
def test_public_traces_have_the_jobs_that_are_known_of_them(
    name: str, found: TraceFormat, jobs: int | None, gpus: int | None
) -> None:
    path = f"{SHARED}/{name}"
    assert detect(path) is found
    trace = read_trace(path)
    assert jobs is None or len(trace.jobs) == jobs
    assert gpus is None or round(sum(one.gpus for one in trace.jobs)) == gpus


@pytest.mark.usefixtures("public_traces")
def test_the_public_topology_has_its_racks() -> None:
    nodes = read_node_table(f"{SHARED}/lingjun2023_topo.csv.xz", 8)
    assert len(nodes) == 847
    assert len({node.labels[RACK] for node in nodes}) == 119
    assert len({node.labels[BLOCK] for node in nodes}) == 3
