"""Find each program, or build it once from the Go module proxy and keep it."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from tools.controlplane.plan import (
    JOBSET,
    NEEDED,
    Program,
    Trouble,
    cache_dir,
    cache_root,
    check_version,
    module_dir,
)

LINES_QUOTED = 20
LINE_EVERY = 30.0
"""Seconds between progress lines when the output is not a terminal."""

JOBSET_MANIFESTS = {
    "jobset-crd.yaml": "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml",
    "jobset-webhooks.yaml": "config/components/webhook/manifests.yaml",
}


def find(program: Program, kube: str) -> Path | None:
    """The program's binary: from KUBEBUILDER_ASSETS, or built earlier from the very same module files."""
    return _find(program.name, program, kube)


def manifest(name: str, kube: str) -> Path | None:
    """A manifest of the JobSet release: from KUBEBUILDER_ASSETS, or copied out of the Go module cache."""
    return _find(name, JOBSET, kube)


def unavailable(kube: str, wanted: Iterable[Program] = NEEDED) -> str | None:
    """Why this control plane cannot be built on this machine, in one line; None if it can."""
    lacking = [program.name for program in _unbuilt(kube, wanted)] + _uncopied(kube)
    if not lacking or shutil.which("go"):
        return None
    return (
        f"Kubernetes {kube} was asked for; neither in KUBEBUILDER_ASSETS nor built: {', '.join(lacking)}. "
        "There is no go command to build them: install Go 1.26 or later, or set KUBEBUILDER_ASSETS."
    )


def build(kube: str, wanted: Iterable[Program] = NEEDED, out: TextIO | None = None) -> dict[str, Path]:
    """Build what is missing, one program after the other; return every program's path."""
    kube, wanted, out = check_version(kube), tuple(wanted), out or sys.stderr
    if _unbuilt(kube, wanted) or _uncopied(kube):
        if reason := unavailable(kube, wanted):
            raise Trouble(reason)
        with _only_one(out):
            lacking = _unbuilt(kube, wanted)
            for number, program in enumerate(lacking, start=1):
                _build_one(program, kube, f"[{number}/{len(lacking)}] {program.name}", out)
            for name in _uncopied(kube):
                _copy_one(name, kube)
    paths = {program.name: find(program, kube) for program in wanted}
    return {name: path for name, path in paths.items() if path is not None}


def _find(name: str, program: Program, kube: str) -> Path | None:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets and (Path(assets) / name).exists():
        return Path(assets) / name
    path = cache_dir(program, kube) / name
    current = (
        path.exists() and _stamp(path).exists() and _stamp(path).read_text() == _fingerprint(program, kube)
    )
    return path if current else None


def _unbuilt(kube: str, wanted: Iterable[Program]) -> list[Program]:
    return [program for program in wanted if find(program, kube) is None]


def _uncopied(kube: str) -> list[str]:
    return [name for name in JOBSET_MANIFESTS if manifest(name, kube) is None]


def _build_one(program: Program, kube: str, title: str, out: TextIO) -> None:
    folder = cache_dir(program, kube)
    folder.mkdir(parents=True, exist_ok=True)
    binary, unfinished = folder / program.name, folder / f".{program.name}.unfinished"
    jobs = str(os.cpu_count() or 2)
    command = ["nice", "-n", "15", "go", "build", "-v", "-trimpath", "-mod=readonly", "-p", jobs]
    command += ["-tags", program.tags] if program.tags else []
    command += ["-ldflags", _linker_flags(program, kube), "-o", str(unfinished), program.package]
    _run_showing_progress(command, module_dir(program, kube), title, out)
    unfinished.replace(binary)
    _stamp(binary).write_text(_fingerprint(program, kube))


def _copy_one(name: str, kube: str) -> None:
    command = ["go", "mod", "download", "-json", JOBSET.package]
    answer = subprocess.run(
        command, cwd=module_dir(JOBSET, kube), env=_environment(), check=True, stdout=subprocess.PIPE
    )
    source = Path(json.loads(answer.stdout)["Dir"]) / JOBSET_MANIFESTS[name]
    target = cache_dir(JOBSET, kube) / name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(source.read_bytes())
    _stamp(target).write_text(_fingerprint(JOBSET, kube))


def _run_showing_progress(command: list[str], folder: Path, title: str, out: TextIO) -> None:
    began = time.monotonic()
    last: deque[str] = deque(maxlen=LINES_QUOTED)
    print(f"{title}: building", file=out, flush=True)
    with subprocess.Popen(
        command, cwd=folder, env=_environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            _follow(process.stdout or (), last, title, out)
        except BaseException:
            process.terminate()
            raise
    end = "\r\033[K" if out.isatty() else ""
    if process.returncode:
        raise Trouble(
            f"{end}{title} was to be built; go build ended with {process.returncode}. Its last lines:\n  "
            + "\n  ".join(last)
            + "\nWhat was compiled is kept: fix the cause and run the same command again."
        )
    print(f"{end}{title}: built in {_clock(time.monotonic() - began)}", file=out, flush=True)


def _follow(lines: Iterable[str], last: deque[str], title: str, out: TextIO) -> None:
    """Keep the last lines of a build and report progress, in one live line or in a new line now and then."""
    began = shown = time.monotonic()
    compiled = 0
    for line in lines:
        last.append(line.rstrip())
        compiled += not line.startswith(("#", "go: downloading"))
        now = time.monotonic()
        progress = f"{title}: {compiled} packages compiled, {_clock(now - began)}"
        if out.isatty():
            print(f"\r\033[K{progress}  {last[-1][:50]}", end="", file=out, flush=True)
        elif now - shown >= LINE_EVERY:
            print(progress, file=out, flush=True)
            shown = now


def _environment() -> dict[str, str]:
    return os.environ | {"CGO_ENABLED": "0", "GOWORK": "off"}


def _linker_flags(program: Program, kube: str) -> str:
    """Strip the binary, and let it know its version: `kubectl version` and /version report it."""
    flags = ["-s", "-w"]
    if program.package.startswith("k8s.io/kubernetes/"):
        major, minor, _ = kube.split(".", 2)
        values = {"gitVersion": f"v{kube}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
            flags += [f"-X={package}.{name}={value}" for name, value in values.items()]
    return " ".join(flags)


def _fingerprint(program: Program, kube: str) -> str:
    tags = f" {program.tags}" if program.tags else ""
    digest = hashlib.sha256(f"{program.package} {_linker_flags(program, kube)}{tags}".encode())
    for name in ("go.mod", "go.sum"):
        digest.update((module_dir(program, kube) / name).read_bytes())
    return digest.hexdigest()


def _stamp(binary: Path) -> Path:
    return binary.with_name(f".{binary.name}.built-from")


@contextmanager
def _only_one(out: TextIO) -> Iterator[None]:
    """Hold the lock of the cache: a second build waits for the first and then finds its work done."""
    cache_root().mkdir(parents=True, exist_ok=True)
    with (cache_root() / "lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            print(
                f"Another build is running (process {lock.read().strip()}); waiting for it.",
                file=out,
                flush=True,
            )
            fcntl.flock(lock, fcntl.LOCK_EX)
        lock.seek(0)
        lock.truncate()
        print(os.getpid(), file=lock, flush=True)
        yield


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}m{int(seconds) % 60:02}s"
