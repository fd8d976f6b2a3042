"""The tools that build, start and stop a control plane, without building or starting one."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="cryptography is not installed: pip install cryptography")

from tools.controlplane import build, components, processes, start
from tools.controlplane.__main__ import main
from tools.controlplane.cluster import Cluster, down, load, save
from tools.controlplane.components import PORTS
from tools.controlplane.plan import (
    APISERVER,
    DEFAULT_KUBE,
    ETCD,
    KUBECTL,
    NEEDED,
    SWITCHES,
    Trouble,
    known_versions,
)

SLEEPER = [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(600)"]


@pytest.fixture
def empty_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Nothing built, no binaries, no Go."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return tmp_path


def test_every_pinned_version_has_its_switches() -> None:
    assert {version.rpartition(".")[0] for version in known_versions()} == set(SWITCHES)
    assert DEFAULT_KUBE in known_versions()


def test_a_version_without_module_files_is_refused_with_those_there_are() -> None:
    with pytest.raises(
        Trouble, match=r"Kubernetes 1\.2\.3 was asked for; there are module files for .*1\.35\.4"
    ):
        build.build("1.2.3")


def test_without_go_and_binaries_one_line_says_what_is_lacking(empty_machine: Path) -> None:
    reason = build.unavailable(DEFAULT_KUBE)
    assert reason is not None
    assert "\n" not in reason
    assert all(program.name in reason for program in NEEDED)


def test_binaries_of_kubebuilder_assets_are_used(
    empty_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*(program.name for program in NEEDED), *build.JOBSET_MANIFESTS):
        (empty_machine / name).touch()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(empty_machine))
    assert build.unavailable(DEFAULT_KUBE) is None
    assert build.build(DEFAULT_KUBE)[KUBECTL.name] == empty_machine / "kubectl"


def test_a_build_that_fails_quotes_go_and_leaves_no_binary(empty_machine: Path) -> None:
    go = empty_machine / "go"
    go.write_text("#!/bin/sh\necho no such host >&2; exit 7\n")
    go.chmod(0o755)
    (empty_machine / "nice").write_text('#!/bin/sh\nshift 2; exec "$@"\n')
    (empty_machine / "nice").chmod(0o755)
    with pytest.raises(Trouble, match=r"(?s)etcd was to be built; go build ended with 7.*no such host"):
        build.build(DEFAULT_KUBE)
    assert not list((empty_machine / "cache").rglob("*etcd*"))


def test_a_process_is_stopped_and_a_stranger_with_its_pid_is_not(tmp_path: Path) -> None:
    process = processes.start("sleeper", SLEEPER, tmp_path / "log", os.environ, dies_with_us=True)
    stranger = replace(process, born="an earlier life")
    assert not processes.alive(stranger)
    assert not processes.stop(stranger)
    assert processes.alive(process)
    assert processes.stop(process)
    assert not processes.alive(process)


def test_a_component_that_dies_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('bind: address already in use'); raise SystemExit(1)"]
    process = processes.start("etcd", command, tmp_path / "etcd.log", os.environ)
    with pytest.raises(
        Trouble, match=r"(?s)etcd was started, but it ended by itself.*address already in use"
    ):
        processes.wait_until(lambda: False, process, patience=20)


def test_down_stops_what_was_recorded_and_nothing_twice(tmp_path: Path) -> None:
    process = processes.start("sleeper", SLEEPER, tmp_path / "log", os.environ, dies_with_us=True)
    save(Cluster(DEFAULT_KUBE, tmp_path, "https://127.0.0.1:1", tmp_path / "kubectl", {}, (process,)))
    assert down(tmp_path) == ["sleeper"]
    assert down(tmp_path) == []
    assert load(tmp_path) is not None


def test_one_program_is_killed_and_started_again_and_the_others_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, api = (
        processes.start(program.name, SLEEPER, tmp_path / program.name, os.environ, dies_with_us=True)
        for program in (ETCD, APISERVER)
    )
    ports = dict.fromkeys(PORTS, 1)
    save(Cluster(DEFAULT_KUBE, tmp_path, "https://127.0.0.1:1", tmp_path / "kubectl", ports, (store, api)))
    monkeypatch.setattr(start, "build", lambda *_: {APISERVER.name: SLEEPER[0]})
    monkeypatch.setattr(components, "apiserver", lambda site: SLEEPER[1:])
    monkeypatch.setattr(start, "answers", lambda *_: True)
    recorded = load(tmp_path)
    assert recorded is not None
    try:
        after = start.restart(recorded, APISERVER)
        assert not processes.alive(api) and processes.alive(store)
        assert after == load(tmp_path) and after.processes[0] == store
        assert processes.alive(after.processes[1]) and after.processes[1].pid != api.pid
    finally:
        assert down(tmp_path) == [APISERVER.name, ETCD.name]


def test_a_folder_with_other_files_is_not_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "build", lambda *_: {KUBECTL.name: tmp_path / "kubectl"})
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(Trouble, match="has other files in it"):
        start.up(state=tmp_path)
    assert (tmp_path / "thesis.tex").exists()


def test_status_of_nothing_says_how_to_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--state", str(tmp_path)]) == 1
    assert "make cluster" in capsys.readouterr().out
