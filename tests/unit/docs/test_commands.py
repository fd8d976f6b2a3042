"""Every block of commands in the documentation is run by a test, or says why it is not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from bayplan.assembly.local_cluster import ClusterShape, LocalCluster
from bayplan.runtime.core.clock import VirtualClock
from tests.support.documented_commands import COMMANDS, ROOT, FencedBlock, blocks, pages

LANGUAGES = {*COMMANDS, "bash", "json", "python", "text", "yaml", "yml"}
BLOCKS = [block for path in pages() for block in blocks(path)]
TYPED = [block for block in BLOCKS if block.language in COMMANDS]
ANY_LINES = "…"
"""A line of a `console` block that stands for any lines."""


def is_an_example(block: FencedBlock) -> bool:
    """Whether tests walk through the page: its first block has the commands of example.yaml."""
    folder = ROOT / Path(block.page).parent
    if not (folder / "example.yaml").is_file():
        return False
    steps = yaml.safe_load((folder / "example.yaml").read_text(encoding="utf-8"))["steps"]
    return block.text.splitlines() == [step["run"] for step in steps if "run" in step]


def test_every_block_says_what_it_is() -> None:
    assert [block.where for block in BLOCKS if block.language not in LANGUAGES] == []
    scripts = [block for block in BLOCKS if block.language == "bash"]
    assert [block.where for block in scripts if not block.text.startswith("#!")] == [], "write sh"


def test_no_output_hides_commands() -> None:
    hidden = [block.where for block in BLOCKS if block.language == "text" and re.search(r"^\$ ", block.text)]
    assert hidden == [], "write console"


def test_every_block_of_commands_is_run_or_says_why_not() -> None:
    open_ = [block.where for block in TYPED if block.mark in ("", "file") and not is_an_example(block)]
    assert open_ == [], "put <!-- run: … -->, <!-- run by: … --> or <!-- not run: … --> above it"


@pytest.mark.parametrize("block", [one for one in TYPED if one.mark == "run by"], ids=lambda one: one.where)
def test_the_tests_that_a_block_names_run_its_commands(block: FencedBlock) -> None:
    sources = "".join((ROOT / name).read_text(encoding="utf-8") for name in block.said.split())
    for command in block.commands():
        program, *words = command.split()
        what = next((word for word in words if not word.startswith("-")), program)
        assert what in sources or Path(block.page).name in sources, f"{block.said} has no '{what}'"


def matches(expected: str, printed: str) -> bool:
    """Whether a console block shows what a command prints; a line with an ellipsis stands for any lines."""
    parts = [
        ".*" if line.strip() == ANY_LINES else re.escape(f"{line}\n")
        for line in expected.rstrip("\n").splitlines()
    ]
    return re.fullmatch("".join(parts), printed, re.DOTALL) is not None


def run(command: str, folder: Path, **names: str) -> str:
    paths = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = os.environ | {
        "PATH": paths,
        "HOME": str(folder),
        "COLUMNS": "110",
        "KUBECONFIG": "none",
        **names,
    }
    ran = subprocess.run(
        ["sh", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


@pytest.mark.parametrize(
    "block", [one for one in TYPED if (one.mark, one.said) == ("run", "alone")], ids=lambda one: one.where
)
def test_commands_that_need_no_cluster(block: FencedBlock, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for other in BLOCKS:
        if other.page == block.page and other.mark == "file":
            (tmp_path / other.said).write_text(other.text, encoding="utf-8")
    printed = "".join(run(command, tmp_path) for command in block.commands())
    if block.language == "console":
        assert matches(block.output(), printed), printed


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of a cluster in memory."""
    cluster = LocalCluster(ClusterShape(1, 1, 2, 4), VirtualClock(wall=time.time()))
    path = tmp_path_factory.mktemp("cluster") / "kubeconfig"
    cluster.api_server.start()
    cluster.api_server.write_kubeconfig(path)
    yield path
    cluster.api_server.stop()


@pytest.mark.parametrize(
    "block", [one for one in TYPED if (one.mark, one.said) == ("run", "in memory")], ids=lambda one: one.where
)
def test_commands_that_read_a_cluster(block: FencedBlock, kubeconfig: Path, tmp_path: Path) -> None:
    for command in block.commands():
        run(command, tmp_path, KUBECONFIG=str(kubeconfig))


def test_where_commands_run_is_known() -> None:
    told = {block.said for block in TYPED if block.mark == "run"}
    assert told == {"alone", "in memory"}


def test_an_ellipsis_stands_for_any_lines() -> None:
    assert matches("a\n…\nd\n", "a\nb\nc\nd\n") and matches("a\n…\n", "a\nb\n")
    assert not matches("a\nd\n", "a\nb\nd\n") and not matches("a\n…\n", "b\na\n")
