"""Freed memory goes back to the system."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bayplan.runtime.process import freed_memory
from bayplan.runtime.process.freed_memory import return_freed_memory
from tests.support.missing_parts import lacking

PROGRAM = """
import re, threading
from pathlib import Path
from bayplan.runtime.process.freed_memory import return_freed_memory

def resident():
    return int(re.findall(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[0]) // 1024

kept = []
for number in range(5_000):
    freed = bytes(16_384)
    kept.append((freed, bytes(600)))
kept = [second for _, second in kept]  # blocks between the freed ones
del freed
stop = threading.Event()
before = resident()
thread = threading.Thread(target=return_freed_memory, args=(stop, 0.01))
thread.start()
for _ in range(1000):
    if resident() <= before - 20:
        break
    stop.wait(0.01)
stop.set()
thread.join()
print(before, resident(), len(kept))
"""
"""In a process of its own: how much is free in this one depends on the tests before."""


def test_the_resident_memory_shrinks_although_blocks_that_are_in_use_lie_between() -> None:
    if freed_memory._malloc_trim() is None or not Path("/proc/self/status").exists():
        lacking("glibc on Linux: the memory of a process is read below /proc")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=dict(os.environ), check=True
    )
    before, after, _ = map(int, re.findall(r"\d+", done.stdout))
    assert after <= before - 20


def test_with_another_c_library_the_thread_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class NeverAwaited(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            raise AssertionError("there is nothing to wait for")

    monkeypatch.setattr(freed_memory, "_malloc_trim", lambda: None)
    return_freed_memory(NeverAwaited())
