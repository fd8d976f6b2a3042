"""The cluster of `bayplan up`: a job that waits has an expected start."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from bayplan.assembly.local_cluster import ClusterShape, LocalCluster
from bayplan.backends.fake_controllers.manifests import job
from bayplan.cli.commands.main import main
from bayplan.runtime.core.clock import SystemClock
from bayplan.runtime.core.journal import FileJournal

PATIENCE_SECONDS = 60.0


def until(answer: Callable[[], Any]) -> Any:
    """The first answer that is one."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        if found := answer():
            return found
        time.sleep(0.2)
    raise AssertionError("nothing came")


def test_a_waiting_job_starts_after_the_limit_of_the_running_one_and_what_is_unknown_is_named(
    tmp_path: Path,
) -> None:
    cluster = LocalCluster(ClusterShape(1, 1, 4, 8), SystemClock(), journal=FileJournal(tmp_path / "journal"))
    cluster.start(tmp_path / "kubeconfig")

    def gangs(*more: str) -> dict[str, dict[str, Any]]:
        command = ["list", "gangs", "-A", "-o", "json", "--kubeconfig", str(tmp_path / "kubeconfig"), *more]
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 0, result.output
        return {one["name"]: one for one in json.loads(result.stdout)}

    def has_started(name: str) -> bool:
        return gangs().get(name, {}).get("state") == "running"

    def is_waiting(name: str) -> bool:
        return gangs().get(name, {}).get("state") == "pending"

    try:
        limited = job("limited", 4, 8, {}, 3600)
        limited["spec"]["activeDeadlineSeconds"] = 7200
        cluster.submit(limited)
        until(lambda: has_started("limited"))
        cluster.submit(job("next", 2, 8, {}, 3600))
        until(lambda: is_waiting("next"))
        found = gangs()["next"]["expectedStart"]
        assert (found["after"], found["unknown"]) == (["default/limited"], [])
        assert found["from"] is not None and found["latest"] is not None
        cluster.submit(job("other", 4, 8, {}, 3600))
        until(lambda: is_waiting("other"))
        other = gangs()["other"]["expectedStart"]
        assert other["unknown"] == ["default/next"], other
    finally:
        cluster.stop()
    assert cluster.error is None
