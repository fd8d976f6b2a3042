"""Watches that begin again are counted, by kind and by cause."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.remote_server import (
    HASTY,
    THINGS,
    Answerer,
    Server,
    added,
    failed,
    page,
    quiet,
    refused,
    stream,
    thing,
    watching,
)

LATER = stream(added(thing("later", 9)))


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (stream(added(thing("a", 2)), stay=False), "ended"),
        (stream(failed(410)), "stale"),
        (refused(410, reason="Expired"), "stale"),
        (stream(failed(500)), "broken"),
        (refused(403), "refused"),
        (refused(404), "absent"),
    ],
)
def test_a_watch_that_begins_again_is_counted_with_its_cause(
    server: Server, first: Answerer, why: str
) -> None:
    server.watches = [first, LATER]
    with watching(server, replace(THINGS, optional=True)) as seen:
        seen.until(lambda: "seen later@9" in seen.told())
        assert seen.restarts == [("Thing", why)]


def test_a_streamed_list_that_breaks_off_is_counted(server: Server) -> None:
    server.watches = [stream(stay=False), LATER]
    with watching(server, THINGS, patience=replace(HASTY, stream_lists=True)) as seen:
        seen.until(lambda: "seen later@9" in seen.told())
        assert seen.restarts == [("Thing", "broken")]


def test_a_watch_that_goes_on_is_not_counted(server: Server) -> None:
    server.watches = [LATER]
    with watching(server, THINGS) as seen:
        seen.until(lambda: "seen later@9" in seen.told())
        assert seen.restarts == []


def test_after_an_outage_a_server_that_forgot_our_history_is_asked_for_a_list_soon(server: Server) -> None:
    server.watches = [*[refused(429)] * 7, refused(410, reason="Expired"), LATER]
    with watching(server, THINGS, patience=replace(HASTY, longest_pause=2.0)) as seen:
        seen.until(lambda: "seen later@9" in seen.told())
        pauses = [float(found[1]) for line in seen.log if (found := re.search(r"next try in (\S+) s", line))]
    assert len(pauses) == 8 and pauses[6] > 10 * pauses[0]
    assert pauses[7] == pauses[0]


def test_bayplan_run_shows_them_among_its_metrics(server: Server, tmp_path: Path) -> None:
    server.lists, server.watches = [page([])], [refused(400)] * 5 + [stream(failed(410)), quiet]
    config = tmp_path / "config"
    context = {"context": {"cluster": "c", "user": "u"}, "name": "x"}
    clusters = [{"cluster": {"server": server.url}, "name": "c"}]
    users = [{"user": {}, "name": "u"}]
    config.write_text(
        json.dumps({"clusters": clusters, "users": users, "contexts": [context], "current-context": "x"})
    )
    command = [sys.executable, "-m", "bayplan", "run", "--kubeconfig", str(config), "--log-format", "json"]
    command += ["--no-elect", "--roles", "scheduler"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stderr is not None
            told = (json.loads(line) for line in process.stderr)
            address = next(line["probes"] for line in told if "probes" in line)
            next(line for line in told if "listed again" in str(line))
            with urllib.request.urlopen(f"{address}/metrics", timeout=10) as answer:
                text = answer.read().decode()
        finally:
            process.terminate()
            process.communicate(timeout=30)
    assert re.search(r'^bayplan_watch_restarts_total\{kind="\w+",reason="stale"\} 1.0$', text, re.MULTILINE)
