"""Processes that are measured: waiting for them, the processor time they used, and `bayplan run` itself."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.listening import free_address
from tools.controlplane.cluster import Cluster

READY_SECONDS = 60.0


def until(holds: Callable[..., bool], what: str) -> None:
    """Wait for what somebody else will do."""
    end = time.monotonic() + READY_SECONDS
    while not holds():
        assert time.monotonic() < end, f"no {what} within {READY_SECONDS:g} s"
        time.sleep(0.2)


def cpu_seconds(pid: int) -> tuple[float, float]:
    """Processor time of the thread that decides, and of all threads together."""

    def spent(file: str) -> float:
        fields = Path(file).read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    return spent(f"/proc/{pid}/task/{pid}/stat"), spent(f"/proc/{pid}/stat")


@contextmanager
def bayplan_run(
    cluster: Cluster, role: str, log: Path, *options: str
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """`bayplan run` with one role, ready when the block begins, and where it answers."""
    address = free_address()
    command = [sys.executable, "-m", "bayplan", "run", f"--roles={role}", "--no-elect"]
    places = [f"--listen={address}", f"--kubeconfig={cluster.kubeconfig}"]
    with log.open("a") as out:
        process = subprocess.Popen([*command, *places, *options], stdout=out, stderr=out)
    try:
        until(lambda: _answers(f"http://{address}/readyz"), f"Bayplan that is ready ({log})")
        yield process, f"http://{address}"
    finally:
        process.terminate()
        process.wait(30)


def _answers(url: str) -> bool:
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
