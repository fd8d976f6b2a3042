"""The process of the role defragment runs and writes only while the replica that started it leads."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from bayplan.cli.running.defragment_process import DefragmentProcess, check_defragment, search_counter
from bayplan.cli.running.defragment_role import GrantedLeadership
from bayplan.runtime.core.clock import SystemClock, VirtualClock
from bayplan.runtime.telemetry.metrics import Metrics

CHILD = """
import os, signal, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)  # unbuffered: a signal may interrupt a write
def ends(*_):
    os.write(file, b"ends\\n")
    os._exit(0)
signal.signal(signal.SIGTERM, ends)
os.write(file, b"begins\\n")
print('{"result": "moved", "moved": 2, "lost_gpu_hours": 1.5}', flush=True)
print("no report", flush=True)
for line in sys.stdin:
    os.write(file, line.encode())
"""


def eventually(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_it_runs_while_the_replica_leads_and_is_ended_with_its_leadership(tmp_path: Path) -> None:
    script, told, leads = tmp_path / "child.py", tmp_path / "told", [0.0]
    script.write_text(CHILD)
    told.write_text("")
    command = [sys.executable, str(script), str(told)]
    reports: list[str] = []
    made = DefragmentProcess(command, lambda: leads[0], SystemClock(), print, reports.append)
    try:
        assert told.read_text() == "", "another replica leads"
        leads[0] = time.monotonic() + 1000
        eventually(lambda: str(leads[0]) in told.read_text())
        leads[0] = 0.0
        eventually(lambda: "ends" in told.read_text())
        leads[0] = time.monotonic() + 2000
        eventually(lambda: str(leads[0]) in told.read_text())
    finally:
        made.stop()
    lines = told.read_text().splitlines()
    assert [line for line in lines if line.isalpha()] == ["begins", "ends"] * 2
    assert reports == ['{"result": "moved", "moved": 2, "lost_gpu_hours": 1.5}\n', "no report\n"] * 2


def test_searches_are_counted_and_other_lines_are_not() -> None:
    metrics = Metrics()
    count = search_counter(metrics)
    count('{"result": "moved", "moved": 2, "lost_gpu_hours": 1.5}\n')
    count('{"result": "no_moves", "moved": 0, "lost_gpu_hours": 0.0}\n')
    for line in ("no report\n", "[]\n", '{"result": "moved", "when": 1}\n', "\n"):
        count(line)
    text = metrics.text().decode()
    assert 'bayplan_defragment_searches_total{result="moved"} 1.0' in text
    assert 'bayplan_defragment_searches_total{result="no_moves"} 1.0' in text
    assert "bayplan_defragment_moves_total 2.0" in text
    assert "bayplan_defragment_lost_gpu_hours_total 1.5" in text


def test_the_process_may_write_until_the_time_that_it_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = list[int]()
    monkeypatch.setattr("os.kill", lambda pid, number: ended.append(number))
    clock = VirtualClock(100.0)
    leadership = GrantedLeadership(clock)
    assert not leadership.holds()
    leadership.follow(["105.0\n", "110.5\n"])
    assert leadership.holds() and leadership.first.is_set()
    clock.advance(10.5)
    assert not leadership.holds()
    assert len(ended) == 1, "without the replica it ends"


@pytest.mark.parametrize(
    ("roles", "shadow", "error"),
    [
        ({"defragment"}, False, "name admission or scheduler beside it"),
        ({"defragment", "scheduler"}, True, "leave it out with --shadow"),
    ],
)
def test_the_role_needs_a_leader_that_writes(roles: set[str], shadow: bool, error: str) -> None:
    loops = frozenset({"admission", "scheduler"})
    check_defragment(frozenset({"scheduler", "defragment"}), loops, shadow=False)
    check_defragment(frozenset({"webhooks"}), loops, shadow=True)
    with pytest.raises(click.UsageError, match=error):
        check_defragment(frozenset(roles), loops, shadow=shadow)
