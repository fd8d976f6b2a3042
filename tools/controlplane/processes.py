"""Start programs that outlive us, recognise them later, and stop these and nothing else."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tools.controlplane.plan import Trouble

LINES_QUOTED = 15
POLL = 0.05
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Process:
    """A program that we started; `born` tells it from a later one with the same pid."""

    name: str
    pid: int
    born: str
    log: str
    dies_with_us: bool = False


def start(
    name: str,
    command: Sequence[str],
    log: Path,
    environment: Mapping[str, str],
    *,
    dies_with_us: bool = False,
) -> Process:
    """Start a program in its own session, with its output in `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
            preexec_fn=_die_with_parent if dies_with_us and sys.platform == "linux" else None,  # noqa: PLW1509
        )
    child.returncode = 0  # it is looked after by pid from here on: no warning when this object goes
    return Process(name, child.pid, _born(child.pid), str(log), dies_with_us)


def alive(process: Process) -> bool:
    """Whether that very program still runs."""
    _reap(process.pid)
    return bool(process.born) and _born(process.pid) == process.born


def stop(process: Process, patience: float = 10.0) -> bool:
    """Ask a program to end, insist after `patience` seconds; False when it was gone already."""
    if not alive(process):
        return False
    os.kill(process.pid, signal.SIGTERM)
    if not _ended(process, patience) and alive(process):
        os.kill(process.pid, signal.SIGKILL)
        _ended(process, patience)
    return True


def kill(process: Process, patience: float = 10.0) -> bool:
    """End a program at once and without warning; False when it was gone already."""
    if not alive(process):
        return False
    os.kill(process.pid, signal.SIGKILL)
    return _ended(process, patience)


def wait_until(ready: Callable[[], bool], process: Process, patience: float) -> None:
    """Wait until a program is ready; say what its log ends with when it dies or takes too long."""
    deadline = time.monotonic() + patience
    while not ready():
        if not alive(process):
            raise Trouble(_story(process, "it ended by itself"))
        if time.monotonic() > deadline:
            raise Trouble(_story(process, f"it was not ready after {patience:.0f} s"))
        time.sleep(POLL)


def last_lines(log: str, count: int = LINES_QUOTED) -> str:
    """The end of a log, indented for quoting."""
    text = Path(log).read_text(errors="replace") if Path(log).exists() else ""
    return "\n".join(f"  {line[:300]}" for line in text.splitlines()[-count:]) or "  (nothing)"


def _story(process: Process, found: str) -> str:
    return (
        f"{process.name} was started, but {found}. {process.log} ends with:\n{last_lines(process.log)}\n"
        "What had been started was stopped again; mend the cause and run the command once more."
    )


def _ended(process: Process, patience: float) -> bool:
    deadline = time.monotonic() + patience
    while alive(process) and time.monotonic() < deadline:
        time.sleep(POLL)
    return not alive(process)


def _born(pid: int) -> str:
    """When the process with this pid began, in the system's own words; empty when there is none."""
    if sys.platform != "linux":
        question = ["ps", "-o", "lstart=", "-p", str(pid)]
        return subprocess.run(question, check=False, text=True, stdout=subprocess.PIPE).stdout.strip()
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def _reap(pid: int) -> None:
    """Let the system forget a child of ours that has ended; other processes are not our business."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
