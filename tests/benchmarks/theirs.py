"""The peer's side: build its benchmark once, where Go is installed, and run it on a scenario."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks import measure
from tests.benchmarks.measure import Line

SOURCES = Path(__file__).parent / "peer"
NAME = "Kueue v0.15.0"
BUILD_SECONDS_MAX = 1800
TICK = 0.5


class Skipped(Exception):
    """Why there is no peer to compare with."""


def build() -> Path:
    """The benchmark program, from the cache or built now with a line that shows progress."""
    go = shutil.which("go")
    if go is None:
        raise Skipped("Go is not installed")
    program = _cache() / f"peer-{_fingerprint()}" / "peer"
    if program.exists():
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    partial = program.with_name(f"peer.{os.getpid()}")
    command = [go, "build", "-mod=readonly", "-buildvcs=false", "-o", str(partial), "."]
    errors = program.with_name("build.log")
    with errors.open("w", encoding="utf-8") as log:
        process = subprocess.Popen(command, cwd=SOURCES, stdout=log, stderr=log)
        try:
            status = _watch(process)
        except BaseException:
            process.kill()
            process.wait()
            partial.unlink(missing_ok=True)
            raise
    if status != 0:
        told = errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise Skipped(f"building it failed: {told[-1] if told else status} (all of it: {errors})")
    partial.replace(program)
    for other in _cache().glob("peer-*"):
        if other != program.parent:
            shutil.rmtree(other, ignore_errors=True)  # built from sources that have changed since
    return program


def run(program: Path, scenario: Path, rounds: int, budget: float) -> Iterator[Line]:
    """The peer's rows as it measures them."""
    command = [str(program), "-scenario", str(scenario), "-rounds", str(rounds), "-budget", f"{budget}s"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for text in process.stdout:
            yield measure.decode(text)
    if process.returncode:
        raise Skipped(f"its benchmark ended with status {process.returncode}")


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "bayplan"


def _fingerprint() -> str:
    """Changes with every source file, so that a stale program is never run."""
    sources = sorted(path for path in SOURCES.iterdir() if path.suffix in (".go", ".mod", ".sum"))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:12]


def _watch(process: subprocess.Popen[bytes]) -> int:
    """Wait for the build, telling how long it has taken so far."""
    start, shows = time.monotonic(), sys.stderr.isatty()
    text = f"Building the benchmark of {NAME} (a few minutes the first time)"
    if not shows:
        print(f"{text} …", file=sys.stderr, flush=True)
    while (seconds := time.monotonic() - start) < BUILD_SECONDS_MAX:
        try:
            status = process.wait(TICK)
        except subprocess.TimeoutExpired:
            if shows:
                print(f"\r{text} … {seconds:.0f} s", end="", file=sys.stderr, flush=True)
            continue
        print(f"{chr(13) if shows else ''}{text}: {seconds:.0f} s", file=sys.stderr, flush=True)
        return status
    raise Skipped(f"building it took more than {BUILD_SECONDS_MAX // 60} minutes")
