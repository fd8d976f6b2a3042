"""The role defragment of `bayplan run`: a process of its own while this replica leads.

A search reads the whole cluster and takes seconds of CPU, which the loop must not wait for.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import click

from bayplan.cli.config.options import configuration_file
from bayplan.cli.running.defragment_standing import DefragmentSearch
from bayplan.runtime.core.clock import Clock
from bayplan.runtime.process.election import Election
from bayplan.runtime.telemetry import logs
from bayplan.runtime.telemetry.metrics import Metrics

DEFRAGMENT = "defragment"
CHECK_SECONDS = 0.5
END_SECONDS = 10.0  # to take back taints and held places
AGAIN_SECONDS = 5.0  # before a process that ended is started again
UNELECTED_SECONDS = 10.0  # without an election, so long at a time


def passed_on(kubeconfig: Path | None, context: str | None, log_format: str, log_level: str) -> list[str]:
    """The options of the process. Must be called within the command, whose --config is passed on."""
    given = {"--kubeconfig": kubeconfig, "--context": context, "--config": configuration_file()}
    given |= {"--log-format": log_format, "--log-level": log_level}
    return [text for option, value in given.items() if value for text in (option, str(value))]


def check_defragment(roles: frozenset[str], loops: frozenset[str], *, shadow: bool) -> None:
    """Raise an error if the role cannot run beside the others."""
    if DEFRAGMENT not in roles:
        return
    if shadow:
        raise click.UsageError("the role defragment writes; leave it out with --shadow")
    if not roles & loops:
        others = " or ".join(sorted(loops))
        raise click.UsageError(f"the role defragment runs in the leader; name {others} beside it in --roles")


def open_moves(
    options: Sequence[str], election: Election | None, clock: Clock, metrics: Metrics
) -> DefragmentProcess:
    """Run the role in this replica, while it leads."""

    def leads_until() -> float:
        return clock.monotonic() + UNELECTED_SECONDS if election is None else election.until()

    command = [sys.executable, "-m", "bayplan.cli.running.defragment_role", *options]
    log = logs.logger(DEFRAGMENT)
    return DefragmentProcess(command, leads_until, clock, log.warning, search_counter(metrics))


def search_counter(metrics: Metrics) -> Callable[[str], None]:
    """Counts what the process reports, line by line."""
    log = logs.logger(DEFRAGMENT)

    def count(line: str) -> None:
        try:
            found = DefragmentSearch(**json.loads(line))
        except (ValueError, TypeError):
            log.warning("the process of the role defragment wrote a line that is no report", line=line)
            return
        metrics.searched_moves(found.result, found.moved, found.lost_gpu_hours)

    return count


class DefragmentProcess:
    """Runs the process while this replica leads, and tells it until when that is."""

    def __init__(
        self,
        command: Sequence[str],
        leads_until: Callable[[], float],
        clock: Clock,
        note: Callable[[str], None],
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        """`leads_until` is a moment of the monotonic clock; one in the past means that others may lead.

        `report` gets each line that the process writes.
        """
        self._command, self._leads_until = command, leads_until
        self._clock, self._note, self._report = clock, note, report
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=DEFRAGMENT, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the process: it takes back what it has written, and starts a gang that it has stopped."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            if self._leads():
                self._serve()
            self._stop.wait(CHECK_SECONDS)

    def _leads(self) -> bool:
        return self._clock.monotonic() < self._leads_until()

    def _serve(self) -> None:
        """Run the process until it ends, another replica leads, or this one is stopped."""
        process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for this process, which then ends the other one
        )
        reader = threading.Thread(target=self._read_reports, args=(process,), daemon=True)
        reader.start()
        while process.poll() is None and self._leads() and not self._stop.wait(CHECK_SECONDS):
            self._grant(process)
        if process.poll() is None:
            self._end(process)
        else:
            self._note(
                f"the process of the role defragment ended with status {process.returncode};"
                " it is started again"
            )
            self._stop.wait(AGAIN_SECONDS)
        reader.join()
        assert process.stdin is not None
        with suppress(OSError):  # a line that the process did not read any more
            process.stdin.close()

    def _read_reports(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self._report(line)

    def _grant(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        with suppress(OSError):  # it has just ended
            process.stdin.write(f"{self._leads_until()}\n")
            process.stdin.flush()

    def _end(self, process: subprocess.Popen[str]) -> None:
        """Let it take back what it has written, as long as this replica leads."""
        process.terminate()
        end = self._clock.monotonic() + END_SECONDS
        while process.poll() is None and self._clock.monotonic() < end:
            self._grant(process)
            self._clock.sleep(CHECK_SECONDS / 5)
        if process.poll() is None:
            process.kill()
        process.wait()
