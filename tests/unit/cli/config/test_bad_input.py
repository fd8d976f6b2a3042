"""No input makes `bayplan place` fall over: every problem is named, all at once, exit status 2."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bayplan.cli.config import read_files
from tests.support.manifests import FOUR, RACK, Write, data, gpu_job, place, rack_node, running_pod, writer


@pytest.fixture
def file(tmp_path: Path) -> Write:
    return writer(tmp_path)


BAD_FILES: dict[str, tuple[Any, str]] = {
    "empty": ("", "is empty"),
    "only comments": ("# nothing\n---\n", "is empty"),
    "YAML syntax": ("kind: Node\nmetadata: {name: [}\n", "line 2, column 19: is not YAML"),
    "tabs": ("kind:\n\t- x\n", "line 2"),
    "JSON syntax": ('{"kind": "Node",\n "metadata" {}}', "line 2"),
    "binary": (b"\x89PNG\r\n\xff\xfe", "is not text: byte 0 (0x89) is not UTF-8"),
    "null bytes": ("kind: \0Node", "is not YAML"),
    "a cycle": ("kind: List\nitems: &a\n  - *a\n", "alias that contains itself"),
    "a cycle of mappings": ("kind: Node\nmetadata: &m\n  labels: *m\n", "alias that contains itself"),
    "a bomb": (
        "a: &a [x,x,x,x,x,x,x,x,x]\n"
        + "".join(
            f"{c}: &{c} [{','.join([f'*{p}'] * 9)}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True)
        )
        + "kind: List\nitems: *i\n",
        "aliases make more than",
    ),
    "deep YAML": ("kind: " + "[" * 50_000, "nested too deeply"),
    "deep YAML in blocks": ("- " * 50_000, "nested too deeply"),
    "deep JSON": ('{"kind": ' + "[" * 200_000, "nested too deeply"),
    "unknown tag": ("kind: !!python/object:os.system x", "is not YAML"),
    "a long number": ("kind: Node\nspec: " + "9" * 5000, "cannot be read"),
    "a long number in JSON": ('{"kind": "Node", "spec": ' + "9" * 5000 + "}", "too long"),
    "a scalar": ("just text", "must be an object, not text"),
    "a list of scalars": ("[1, 2]", "must be an object, not a number"),
    "no kind": ("metadata: {name: x}", "kind: must be set"),
    "kind is a number": ("kind: 7", "kind: 7: must be text"),
    "items is text": ("kind: List\nitems: none", "items: "),
    "metadata is a list": ("kind: Node\nmetadata: []", "metadata: a list of 0: must be a mapping"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_are_named_with_the_reason(file: Write, name: str) -> None:
    content, why = BAD_FILES[name]
    path = file(content, name="bad.yaml")
    result = place(path, file(*FOUR, gpu_job(), name="good.yaml"))
    assert result.exit_code == 2, result.output
    assert why in result.stderr
    assert str(path) in result.stderr
    assert "Traceback" not in result.output
    assert isinstance(result.exception, SystemExit)
    assert len(result.stderr) < 3000


def test_missing_files_and_directories(tmp_path: Path) -> None:
    result = place(tmp_path / "none.yaml", tmp_path)
    assert result.exit_code == 2
    assert "none.yaml: there is no such file" in result.stderr
    assert "is a directory" in result.stderr
    assert "2 problems" in result.stderr
    assert place("x\0y").exit_code == 2
    assert place("x" * 5000).exit_code == 2


def test_what_never_ends_is_refused() -> None:
    result = place("/dev/zero", "/dev/urandom")
    assert result.exit_code == 2
    assert result.stderr.count("cannot be read: it is a device, not a file") == 2
    command = [sys.executable, "-m", "bayplan", "place", "-f"]
    with Path("/dev/zero").open("rb") as zeros:
        piped = subprocess.run([*command, "-"], stdin=zeros, capture_output=True, check=False, text=True)
    assert piped.returncode == 2 and "stdin: cannot be read: it holds null bytes" in piped.stderr


def test_a_pipe_is_read_and_a_closed_standard_input_is_said(file: Write) -> None:
    good = file(*FOUR, gpu_job(), name="good.yaml")
    command = f"cat {good} | {sys.executable} -m bayplan place -f /dev/stdin"
    piped = subprocess.run(["sh", "-c", command], capture_output=True, check=False, text=True)
    assert piped.returncode == 0, piped.stderr
    closed = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m bayplan place -f - <&-"],
        capture_output=True,
        check=False,
        text=True,
    )
    assert closed.returncode == 2 and "stdin: is closed" in closed.stderr


@pytest.mark.parametrize("form", ["tree", "json", "yaml"])
def test_a_reader_that_has_gone_ends_a_command_quietly(file: Write, form: str) -> None:
    path = file(*(rack_node(f"n{index}") for index in range(400)), gpu_job(pods=400), name="good.yaml")
    command = [sys.executable, "-m", "bayplan", "place", "--full", "-o", form, "-f", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        assert started.stdout is not None and started.stderr is not None
        started.stdout.close()
        assert started.stderr.read() == b""


def test_a_file_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch, file: Write) -> None:
    monkeypatch.setattr(read_files, "BYTES_MAX", 1024 * 1024)
    result = place(file("#" * 2_000_000, name="large.yaml"))
    assert result.exit_code == 2 and "it is larger than 1 MiB, the most that is read" in result.stderr


BAD_OBJECTS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "no nodes": ([gpu_job()], "there is no Node in the input"),
    "no gang": (FOUR, "there is no Job, JobSet or Workload in the input"),
    "a negative count": ([*FOUR, gpu_job(pods=-1)], "spec.parallelism: -1: must not be less than 0"),
    "a fractional count": ([*FOUR, gpu_job(pods=1.5)], "spec.parallelism: 1.5: must be a whole number"),
    "a count in words": ([*FOUR, gpu_job(pods="two")], "must be a whole number, not text"),
    "a huge count": ([*FOUR, gpu_job(pods=2**40)], "must not be more than 2147483647"),
    "a bad quantity": ([*FOUR, gpu_job(gpu="4 GB")], "must be a quantity such as"),
    "a negative quantity": ([*FOUR, gpu_job(gpu=-1)], "must not be negative"),
    "a huge quantity": ([*FOUR, gpu_job(gpu=10**30)], "is more than 2^53, the largest amount"),
    "a large quantity": ([*FOUR, gpu_job(gpu=2**60)], "more than 2^53"),
    "an unknown level": (
        [*FOUR, gpu_job(podset_required_topology="cloud.com/room")],
        "cloud.com/room is not a level of topology inferred; its levels are cloud.com/topology-rack, kub",
    ),
    "an unknown segment level": (
        [*FOUR, gpu_job(podset_slice_required_topology="cloud.com/room", podset_slice_size=1)],
        "cloud.com/room is not a level",
    ),
    "segments above the locality": (
        [
            *FOUR,
            gpu_job(
                podset_required_topology="kubernetes.io/hostname",
                podset_slice_required_topology=RACK,
                podset_slice_size=1,
            ),
        ],
        "cannot stay inside one kubernetes.io/hostname",
    ),
    "a negative size": (
        [*FOUR, gpu_job(podset_slice_required_topology=RACK, podset_slice_size=-2)],
        "must be greater than or equal to 1",
    ),
    "two nodes of one name": ([*FOUR, rack_node("x1"), gpu_job()], "is also the name of another Node"),
    "two gangs of one name": ([*FOUR, gpu_job(), gpu_job()], "is also the name of another Job"),
    "two nodes of one hostname": (
        [
            rack_node("a"),
            rack_node("b") | {"metadata": {"name": "b", "labels": {"kubernetes.io/hostname": "a"}}},
            gpu_job(),
        ],
        "as on node a",
    ),
    "labels that are numbers": (
        [rack_node("x9") | {"metadata": {"name": "x9", "labels": {RACK: 1}}}, gpu_job()],
        "must be text, not a number: write it in quotes",
    ),
    "too much use": (
        [*FOUR, *(running_pod(f"p{number}", "x1", 2**53) for number in range(3)), gpu_job()],
        "its pods use 27021597764222976 of example.com/gpu",
    ),
}


@pytest.mark.parametrize("name", BAD_OBJECTS)
def test_bad_objects_are_named_with_the_reason(file: Write, name: str) -> None:
    objects, why = BAD_OBJECTS[name]
    result = place(file(*objects))
    assert result.exit_code == 2, result.output
    assert why in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("levels", "why"),
    [
        ("", "is empty"),
        (f"{RACK},,x", "is empty"),
        (f"{RACK},{RACK}", "named twice"),
        (f"kubernetes.io/hostname,{RACK}", "may only be the lowest"),
        (",".join(f"l{number}" for number in range(17)), "more than 16"),
        ("nowhere.com/room", "no node has a label nowhere.com/room"),
    ],
)
def test_bad_levels_on_the_command_line(file: Write, levels: str, why: str) -> None:
    result = place(file(*FOUR, gpu_job()), options=("--levels", levels))
    assert result.exit_code == 2
    assert why in result.stderr


def test_every_problem_is_listed_at_once(file: Write) -> None:
    bad = rack_node("x2")
    bad["status"]["allocatable"]["cpu"] = "lots"
    bad["spec"] = {"taints": [{"key": "k", "effect": "Whenever"}]}
    first = file(*FOUR[:1], bad, gpu_job(pods=-1, gpu="much"), name="first.yaml")
    second = file("{", name="second.yaml")
    result = place(first, second, options=("-o", "json"))
    assert result.exit_code == 2
    problems = data(result)["problems"]
    assert [(Path(problem["file"]).name, problem["why"].split(":")[0]) for problem in problems] == [
        ("second.yaml", "is not JSON"),
        ("first.yaml", "status.allocatable.cpu"),
        ("first.yaml", "spec.taints[0].effect"),
        ("first.yaml", "spec.parallelism"),
        ("first.yaml", "spec.template.spec.containers[0].resources.limits[example.com/gpu]"),
    ]
    assert "5 problems: nothing was placed" in result.stderr
    assert problems[1]["where"] == "line 21, Node x2"


JUNK = [None, True, 0, -1, 1.5, 2**70, "", "x", "9" * 30, "\0\x1b[31m", "\ud800", [], [None], {}, {"a": None}]


def damaged(value: Any, luck: random.Random) -> Any:
    """The value with something below it replaced by junk."""
    if not isinstance(value, dict | list) or not value or luck.random() < 0.1:
        return luck.choice(JUNK)
    changed = value.copy()
    key = luck.choice(list(value) if isinstance(value, dict) else range(len(value)))
    changed[key] = damaged(value[key], luck)
    return changed


@pytest.mark.parametrize("seed", range(80))
def test_no_damage_makes_it_fall_over(file: Write, seed: int) -> None:
    luck = random.Random(seed)
    wish: dict[str, Any] = {
        "podset_preferred_topology": RACK,
        "podset_slice_required_topology": RACK,
        "podset_slice_size": 2,
    }
    objects: list[Any] = [*FOUR, running_pod("p", "x1", 1), gpu_job(**wish)]
    index = luck.randrange(len(objects))
    objects[index] = damaged(objects[index], luck)
    text = "\n".join(json.dumps(each) if isinstance(each, dict) else "{}" for each in objects)
    result = place(file(text, name="damaged.json"), options=("-o", luck.choice(["tree", "json", "yaml"])))
    assert result.exit_code in (0, 1, 2)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_said_not_thrown(file: Write) -> None:
    command = [sys.executable, "-c", "from bayplan.cli.commands.main import main; main()"]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [*command, "place", "-f", str(file(*FOUR, gpu_job()))],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert ended.returncode == 1
    assert ended.stderr == b"Error: cannot write: No space left on device\n"
