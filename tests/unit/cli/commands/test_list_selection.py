"""`bayplan list gangs` with filters, sort keys, colours and `--watch`, on a cluster in memory."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from bayplan.cli.commands.main import main
from bayplan.dialects.kube.decode.wire import PODS_KIND
from bayplan.runtime.core.clock import VirtualClock
from tests.support.queued_cluster import (
    GPU,
    JOBS,
    NOW,
    QueuedCluster,
    admitted,
    furnish,
    queued_cluster,
    queued_job,
    queued_workload,
)
from tests.unit.cli.commands.test_list_families import our_pod

FRAME = b"\x1b[H"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueuedCluster]:
    with queued_cluster(tmp_path_factory.mktemp("selection")) as made:
        furnish(made)
        running = queued_workload("runs", 2, 2)
        running["metadata"]["labels"] = {"user": "ann"}
        made.submit(running, admitted("left-queue", "a100", {"cpu": "16", GPU: "4"}, {"h1": 2}))
        made.submit(queued_workload("huge", 100, 4, "right", priority=7))
        made.submit(queued_workload("first", 1, 4, "small", priority=5))
        second = queued_workload("second", 1, 1, "small")
        second["spec"]["podSets"][0]["template"]["metadata"] = {"labels": {"user": "ben"}}
        made.submit(second)
        job = queued_job("early", 1, 1)
        job["metadata"]["labels"]["user"] = "ann"
        made.put(JOBS, job)
        solo = our_pod("solo")
        solo["metadata"]["labels"] = {"user": "cleo", "owner": "dora"}
        made.put(PODS_KIND, solo)
        yield made


def names(cluster: QueuedCluster, *options: str) -> list[str]:
    result = cluster.run("list", "gangs", "-n", "ml", "-o", "json", *options)
    assert result.exit_code == 0, result.output
    return [one["name"] for one in json.loads(result.stdout)]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (("--queue", "small"), ["first", "second"]),
        (("--queue", "right-queue"), ["huge"]),
        (("--queue", "left"), ["runs", "early"]),
        (("--user", "ann"), ["runs", "early"]),
        (("--user", "ben", "--user", "cleo"), ["second", "solo"]),
        (("--user", "dora", "--user-label", "owner"), ["solo"]),
        (("--state", "Admitted"), ["runs"]),
        (("--state", "admitted,pending", "--queue", "right"), ["huge"]),
        (("--reason", "exceedsmaxquota"), ["huge"]),
        (("--reason", "insufficient quota"), ["second"]),
    ],
)
def test_filters_choose_gangs_of_every_table(
    cluster: QueuedCluster, options: tuple[str, ...], found: list[str]
) -> None:
    assert names(cluster, *options) == found


def test_gangs_are_sorted_by_several_keys_in_both_directions(cluster: QueuedCluster) -> None:
    queued = ("--queue", "small,right")
    assert names(cluster, *queued, "--sort", "priority") == ["second", "first", "huge"]
    assert names(cluster, *queued, "--sort", "-priority") == ["huge", "first", "second"]
    assert names(cluster, *queued, "--sort", "queue,name") == ["huge", "first", "second"]
    assert names(cluster, *queued, "--sort", "queue,-name") == ["huge", "second", "first"]


def test_an_unknown_sort_key_is_refused_with_the_known_ones(cluster: QueuedCluster) -> None:
    result = cluster.run("list", "gangs", "--sort", "-nice")
    assert result.exit_code == 2
    assert "-nice is not a key to sort by; the keys are age, name," in result.stderr


def test_filters_that_match_no_gang_say_which_values_there_are(cluster: QueuedCluster) -> None:
    result = cluster.run("list", "gangs", "-n", "ml", "--state", "runing")
    assert result.exit_code == 0 and result.stdout == ""
    assert result.stderr == "no gang matches --state runing (there are: admitted, pending)\n"


def test_the_user_is_a_column_of_the_wide_table_only(cluster: QueuedCluster) -> None:
    wide = cluster.run("list", "gangs", "-n", "ml", "-o", "wide").stdout.splitlines()
    assert [line.split()[line_of(wide, "USER")] for line in wide if " runs " in line] == ["ann"]
    assert "USER" not in cluster.run("list", "gangs", "-n", "ml").stdout


def line_of(lines: list[str], head: str) -> int:
    return lines[0].split().index(head)


def test_states_have_no_colour_where_the_output_is_no_terminal(cluster: QueuedCluster) -> None:
    assert "\x1b" not in cluster.run("list", "gangs", "-n", "ml").stdout


def test_watch_and_json_exclude_each_other(cluster: QueuedCluster) -> None:
    result = cluster.run("list", "gangs", "--watch", "-o", "json")
    assert result.exit_code == 2 and "--watch draws a table" in result.stderr


class StoppingClock(VirtualClock):
    """A clock whose user presses Ctrl-C in the third pause; before that, things happen in each pause."""

    def __init__(self, *pauses: object) -> None:
        super().__init__(wall=NOW)
        self.pauses = list(pauses)

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if not self.pauses:
            raise KeyboardInterrupt
        happens = self.pauses.pop(0)
        if callable(happens):
            happens()


def test_watch_prints_a_list_that_changed_and_ends_with_control_c(tmp_path: Path) -> None:
    with queued_cluster(tmp_path) as made:
        furnish(made)
        made.submit(queued_workload("first", 1, 1, "small"))
        clock = StoppingClock(None, lambda: made.submit(queued_workload("more", 1, 1, "small")))
        options = ["--kubeconfig", str(made.kubeconfig), "-n", "ml", "--watch", "--interval", "0.1"]
        result = CliRunner().invoke(main, ["list", "gangs", *options], obj=clock)
    assert result.exit_code == 0, result.output
    frames = result.stdout.strip().split("\n\n")
    assert [frame.count("\nml ") for frame in frames] == [1, 2], "an equal list is not printed again"


def test_watch_keeps_the_last_list_while_the_server_does_not_answer(tmp_path: Path) -> None:
    clock = StoppingClock()
    with queued_cluster(tmp_path) as made:
        furnish(made)
        made.submit(queued_workload("first", 1, 1, "small"))
        config = made.kubeconfig.read_text()
        clock.pauses = [
            lambda: made.kubeconfig.write_text("nonsense"),
            lambda: made.kubeconfig.write_text(config),
        ]
        options = ["--kubeconfig", str(made.kubeconfig), "-n", "ml", "--watch"]
        result = CliRunner().invoke(main, ["list", "gangs", *options], obj=clock)
    assert result.exit_code == 0, result.output
    first, kept, trouble, again = result.stdout.strip().split("\n\n")
    assert first == kept == again
    assert trouble.startswith("not up to date: ")


def test_watch_on_a_terminal_draws_each_frame_over_the_last_in_colour(cluster: QueuedCluster) -> None:
    """The screen is never cleared: that would flicker."""
    options = ["--kubeconfig", str(cluster.kubeconfig), "-n", "ml", "--watch", "--interval", "0.1"]
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "bayplan", "list", "gangs", *options],
        stdin=terminal, stdout=terminal, stderr=terminal,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "60", "LINES": "4", "NO_COLOR": ""},
    )  # fmt: skip
    os.close(terminal)
    killer = threading.Timer(60, process.kill)
    killer.start()
    shown = b""
    try:
        while b"more lines" not in shown:  # the first frame is complete
            shown += os.read(controller, 65536)
        process.send_signal(signal.SIGINT)
        with suppress(OSError):  # the end, once the process has closed its side
            while True:
                shown += os.read(controller, 65536)
        assert process.wait() == 0
    finally:
        killer.cancel()
        process.kill()
        process.wait()
        os.close(controller)
    assert shown.endswith(b"\x1b[?1049l"), "the first screen did not return"
    assert shown.startswith(b"\x1b[?1049h") and FRAME in shown
    assert b"\x1b[2J" not in shown, "the screen was cleared"
    assert b"\x1b[32madmitted\x1b[0m" in shown
