"""`bayplan up` as a process: what it does to a kubeconfig, and what it says when it cannot start."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from bayplan.cli.commands.up import next_commands, up

COMMAND = [sys.executable, "-m", "bayplan", "up", "--no-mix", "--blocks", "1", "--racks", "1", "--hosts", "1"]
THEIRS = """\
# mine
apiVersion: v1
kind: Config
clusters: [{name: prod, cluster: {server: "https://prod:6443"}}]
contexts: [{name: prod, context: {cluster: prod, user: me}}]
users: [{name: me, user: {token: secret}}]
current-context: prod
"""


def started(*options: str) -> subprocess.Popen[str]:
    """It runs once it has told what to try next."""
    process = subprocess.Popen(
        [*COMMAND, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "uncordon" in line:
            return process
    raise AssertionError(process.communicate())


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_kubeconfig_is_what_it_was_once_it_ends(tmp_path: Path, name: str) -> None:
    path = tmp_path / "config"
    path.write_text(THEIRS)
    process = started("--kubeconfig", str(path))
    during = yaml.safe_load(path.read_text())
    process.send_signal(getattr(signal, name))
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, ""), output
    assert [one["name"] for one in during["contexts"]] == ["prod", "bayplan"]
    assert during["current-context"] == "bayplan"
    assert path.read_text() == THEIRS
    assert [one.name for one in tmp_path.iterdir()] == ["config"]


def test_without_one_a_new_file_is_made_and_removed() -> None:
    process = started("--for", "1")
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, ""), output


def test_a_file_that_is_no_kubeconfig_is_told_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("just text\n")
    found = CliRunner().invoke(up, ["--nodes", "1", "--for", "0", "--kubeconfig", str(path)])
    assert found.exit_code == 1 and str(path) in found.output and "is no kubeconfig" in found.output
    assert path.read_text() == "just text\n" and "Traceback" not in found.output


def test_a_port_in_use_is_told_in_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        options = ["--nodes", "1", "--for", "0", "--port", port, "--kubeconfig", str(tmp_path / "config")]
        found = CliRunner().invoke(up, options)
    assert found.exit_code == 1
    assert found.output.count("\n") == 1 and f"port {port} is in use; choose another one" in found.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--nodes", "0"], "0 is not in the range 1<=x<=100000"),
        (["--nodes", "-3"], "-3 is not in the range"),
        (["--nodes", "1000001"], "1000001 is not in the range"),
        (["--nodes", "many"], "'many' is not a valid integer"),
        (["--hosts", "0"], "0 is not in the range"),
        (
            ["--blocks", "1000", "--racks", "1000"],
            "are 8,000,000 nodes; a local cluster has at most 100,000",
        ),
        (["--port", "70000"], "70000 is not in the range"),
        (["--for", "-1"], "-1.0 is not in the range"),
    ],
)
def test_sizes_that_make_no_sense_are_told(options: list[str], words: str) -> None:
    found = CliRunner().invoke(up, options)
    assert found.exit_code == 2 and words in found.output


def test_without_the_example_jobs_no_command_names_one(tmp_path: Path) -> None:
    path = tmp_path / "my config"
    assert "giant" in next_commands(path, mix=True)
    alone = next_commands(path, mix=False)
    assert "giant" not in alone and "kubectl create deployment" in alone
    assert f"export KUBECONFIG='{path}'" in alone


def test_the_dashboards_address_comes_first_and_it_starts_with_the_first_visitor(
    tmp_path: Path,
) -> None:
    process = subprocess.Popen(
        [*COMMAND, "--kubeconfig", str(tmp_path / "config"), "--for", "300"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    label, _, address = process.stdout.readline().strip().partition(": ")
    assert label == "Dashboard"
    hosts: list[str] = []
    for _ in range(100):
        try:
            with urllib.request.urlopen(f"{address}api/v1/state", timeout=60) as answer:
                hosts = json.load(answer)["maps"][0]["hosts"]
                break
        except urllib.error.HTTPError:  # 503: the cluster has not been read yet
            time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, ""), output
    assert hosts == ["b01-r01-h01"]
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address, timeout=5)
