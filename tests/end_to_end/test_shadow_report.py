"""A shadow beside the real kube-scheduler on a real control plane, and the report of how the two differ."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner

from bayplan.backends.fake_controllers.manifests import RACK, job
from bayplan.cli.commands.main import main
from bayplan.cli.watching.shadow_comparison import SAME_SECONDS
from bayplan.dialects.kueue.names.annotations import REQUIRED
from tests.end_to_end.objects import Object, eventually
from tests.end_to_end.scheduler_oracle import NAME
from tests.end_to_end.scheduler_oracle import scheduler as kube_scheduler
from tests.end_to_end.test_run import data_centre, nodes_by_rank, scheduler
from tests.support.missing_parts import lacking
from tools.controlplane.build import unavailable
from tools.controlplane.plan import SCHEDULER

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

__all__ = ["data_centre"]  # the fixture


def other_job(name: str, pods: int, gpus: int, **wishes: str) -> Object:
    """A job of the running scheduler."""
    made = job(name, pods, gpus, wishes, seconds=600)
    made["spec"]["template"]["spec"]["schedulerName"] = NAME
    return made


def journal_says(folder: Path, *words: str) -> bool:
    text = "".join(file.read_text() for file in folder.glob("*.jsonl"))
    return all(word in text for word in words)


def reported(folder: Path) -> Any:
    result = CliRunner().invoke(main, ["shadow", "report", str(folder), "-o", "json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_shadow_beside_kube_scheduler_reports_how_the_two_differ(
    data_centre: Cluster, tmp_path: Path
) -> None:
    if reason := unavailable(data_centre.kube, (SCHEDULER,)):
        lacking(reason)
    journal = tmp_path / "journal"
    with scheduler(data_centre, tmp_path, "--shadow", "--shadow-scheduler", NAME, "--log-format", "json"):
        data_centre.apply(other_job("near", 4, 2), other_job("wide", 3, 4, **{REQUIRED: RACK}))
        eventually(
            lambda: journal_says(journal, '"is":"Bind"', '"is":"ReportUnschedulable"'),
            "the shadow decides about both jobs",
        )
        decided_at = time.time()
        eventually(lambda: time.time() > decided_at + 2 * SAME_SECONDS, "it is later")
        with kube_scheduler(data_centre):
            eventually(
                lambda: all(all(nodes_by_rank(data_centre, name)) for name in ("near", "wide")),
                "kube-scheduler binds all pods, for it knows no racks",
            )
        eventually(lambda: all(one["there"] for one in reported(journal)["gangs"]), "the shadow sees it")
    log = [json.loads(line) for line in (tmp_path / "run.log").read_text().splitlines() if line[:1] == "{"]
    decided = {(one["message"], one["gang"]) for one in log if one.get("part") == "decisions"}
    assert {("bind", "default/near"), ("refuse", "default/wide")} <= decided
    found = reported(journal)
    gangs = {one["name"]: one for one in found["gangs"]}
    assert gangs["near"]["start"] == "earlier" and gangs["near"]["secondsEarlier"] > SAME_SECONDS
    assert gangs["near"]["domainsHere"] == [1, 1, 2]
    assert gangs["near"]["placement"] in ("closer", "equal")
    assert (gangs["wide"]["start"], gangs["wide"]["reason"]) == ("refused", "no_room")
    assert found["total"]["refused"] == 1 and found["total"]["earlier"] == 1
    data_centre.kubectl("delete", "job", "-n", "default", "near", "wide")
