"""`bayplan shadow report`: what a shadow decided beside another scheduler, on a cluster in memory."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bayplan.backends.crds import define
from bayplan.backends.embedded.cluster import new_store
from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.backends.fake_controllers.controller_manager import FakeControllerManager
from bayplan.backends.fake_controllers.manifests import BLOCK, RACK, job, node, topology
from bayplan.cli.commands.main import main
from bayplan.cli.running.shadow_options import shadowing
from bayplan.configuration.settings import DEFAULTS
from bayplan.dialects.jobs.batch_jobs import JOBS
from bayplan.dialects.kueue.decode.scheduled_jobs import TOPOLOGIES
from bayplan.dialects.kueue.names.annotations import REQUIRED
from bayplan.dialects.kueue.names.api_kinds import WORKLOADS
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.core.journal import FileJournal
from bayplan.runtime.core.loop import Loop
from bayplan.runtime.process.service import Shadow
from bayplan.runtime.telemetry.metrics import Metrics
from tests.support.pod_site import NODES, PODS, START, PodSite
from tests.support.queued_cluster import GPU, admitted, queued_workload
from tests.unit.runtime.controllers.admission.test_controller import World

OTHER = "default-scheduler"
HOSTS = [f"{block}-{rack}-h{host}" for block in ("b1", "b2") for rack in ("r1", "r2") for host in (1, 2)]


class ShadowSite(PodSite):
    """Two blocks of two racks of two hosts with 4 GPUs; another scheduler binds, and a shadow looks on."""

    def __init__(self, folder: Path) -> None:
        self.now = START
        numbers = itertools.count(1)
        self.store = new_store(
            lambda: self.now, lambda: f"uid-{next(numbers)}", lambda: f"{next(numbers):05d}"
        )
        define(self.store)
        self.store.create(TOPOLOGIES, topology())
        for name in HOSTS:
            block, rack, _ = name.split("-")
            self.store.create(NODES, node(name, block, rack, 4))
        self.controllers = FakeControllerManager(EmbeddedBackend(self.store))
        self.journal = FileJournal(folder)
        self.shadow()

    def shadow(self) -> None:
        """A new shadow, which knows what it sees from now on."""
        role = SchedulerController(profiles=shadowing(DEFAULTS, [OTHER], shadow=True).profiles)
        backend = Shadow(EmbeddedBackend(self.store), Metrics("test"))
        self.loop = Loop(backend, (role,), self.journal)

    def run(self, seconds: float = 0.5) -> None:
        end = self.now + seconds
        while self.now < end:
            self.controllers.step(self.now)
            self.loop.step(self.now)
            self.now += 0.5

    def submit(self, name: str, pods: int, gpus: int, **wishes: str) -> None:
        made = job(name, pods, gpus, wishes, seconds=1000)
        made["spec"]["template"]["spec"]["schedulerName"] = OTHER
        self.store.create(JOBS, made, "default")

    def bind(self, name: str, *hosts: str) -> None:
        """The other scheduler binds the first pods of a job that have no node."""
        pods = [one for one in self.store.list(PODS, "default").items if not one["spec"].get("nodeName")]
        of_job = [one for one in pods if one["metadata"]["labels"]["job-name"] == name]
        for one, host in zip(of_job, hosts, strict=False):
            body = {"target": {"kind": "Node", "name": host}, "metadata": {"name": one["metadata"]["name"]}}
            self.store.connect(PODS, "default", one["metadata"]["name"], "binding", body)


@contextmanager
def shadowed(folder: Path) -> Iterator[ShadowSite]:
    site = ShadowSite(folder)
    yield site
    site.journal.close()


def reported(folder: Path) -> Any:
    result = CliRunner().invoke(main, ["shadow", "report", str(folder), "-o", "json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def text(folder: Path) -> list[str]:
    result = CliRunner().invoke(main, ["shadow", "report", str(folder)])
    assert result.exit_code == 0, result.output
    return [" ".join(line.split()) for line in result.stdout.splitlines()]


def test_a_gang_that_the_other_scheduler_starts_late_and_far_apart_is_earlier_and_closer(
    tmp_path: Path,
) -> None:
    with shadowed(tmp_path) as site:
        site.submit("train", 4, 2)
        site.run(3)
        site.bind("train", *HOSTS[::2])
        site.run(2)
    (gang,) = reported(tmp_path)["gangs"]
    assert (gang["start"], gang["placement"], gang["pods"]) == ("earlier", "closer", 4)
    assert 2.0 <= gang["secondsEarlier"] <= 4.0
    assert (gang["domainsHere"], gang["domainsThere"]) == ([1, 1, 2], [2, 4, 4])
    lines = text(tmp_path)
    assert "1 block, 1 rack, 2 hosts 2 blocks, 4 racks, 4 hosts" in lines[1]
    assert "1 would have started earlier here, half of them by 3s or more" in lines
    assert "1 would be closer together here, 0 farther apart, 0 alike" in lines


def test_a_gang_that_is_started_although_it_has_no_place_as_asked_is_refused(tmp_path: Path) -> None:
    with shadowed(tmp_path) as site:
        site.submit("wide", 3, 4, **{REQUIRED: RACK})
        site.run(3)
        site.bind("wide", *HOSTS[:3])
        site.run(2)
    (gang,) = reported(tmp_path)["gangs"]
    assert (gang["start"], gang["reason"], gang["here"]) == ("refused", "no_room", None)
    assert "1 were started, and would still be pending here" in text(tmp_path)


def test_placing_the_rest_of_a_gang_that_the_other_scheduler_began_to_start_is_no_start_of_ours(
    tmp_path: Path,
) -> None:
    with shadowed(tmp_path) as site:
        site.submit("wide", 3, 4, **{REQUIRED: RACK})
        site.run(3)
        for host in (HOSTS[0], HOSTS[2], HOSTS[4]):
            site.bind("wide", host)
            site.run(0.5)
        site.run(2)
    (gang,) = reported(tmp_path)["gangs"]
    assert (gang["start"], gang["reason"], gang["here"]) == ("refused", "no_room", None)


def test_a_partial_start_is_told_with_how_long_it_lasted(tmp_path: Path) -> None:
    with shadowed(tmp_path) as site:
        site.submit("huge", 9, 4)
        site.run(2)
        site.bind("huge", *HOSTS)
        site.run(10)
        site.submit("small", 1, 0)  # the journal ends with its last entry
        site.run(1)
    found = reported(tmp_path)
    gang = found["gangs"][0]
    assert (gang["start"], gang["there"]) == ("pending", None)
    assert gang["partialSeconds"] == found["total"]["partialSeconds"] >= 8
    assert any("was partly started for" in line for line in text(tmp_path))


def test_gangs_that_started_before_the_shadow_saw_them_are_left_out(tmp_path: Path) -> None:
    with shadowed(tmp_path) as site:
        site.submit("old", 2, 1)
        for _ in range(4):
            site.controllers.step(site.now)
        site.bind("old", HOSTS[0], HOSTS[1])
        site.shadow()
        site.run(3)
    result = CliRunner().invoke(main, ["shadow", "report", str(tmp_path)])
    assert result.stdout == "" and "there is nothing to compare" in result.stderr


def test_admission_by_another_controller_is_compared_as_well(tmp_path: Path) -> None:
    world, journal = World(), FileJournal(tmp_path)
    role = AdmissionController(shadow=True)
    world.loop = Loop(Shadow(world.backend, Metrics("test")), [role], journal)
    world.submit(queued_workload("apart", 2, 2), queued_workload("huge", 100, 4, "right"))
    world.pass_time(5.0)
    usage = {"cpu": "16", GPU: "4"}
    status = {"status": admitted("left-queue", "a100", usage, {"h1": 1, "h8": 1})}
    world.cluster.store.patch(WORKLOADS, "ml", "apart", status, subresource="status")
    world.pass_time(1.0)
    journal.close()
    gangs = {one["name"]: one for one in reported(tmp_path)["gangs"]}
    assert gangs["apart"]["start"] == "earlier" and gangs["apart"]["secondsEarlier"] == pytest.approx(6)
    assert (gangs["apart"]["placement"], gangs["apart"]["domainsThere"]) == ("closer", [2, 2, 2])
    assert (gangs["huge"]["start"], gangs["huge"]["reason"]) == ("pending", "never_enough_quota")


def test_a_journal_of_a_scheduler_that_wrote_is_no_shadow(tmp_path: Path) -> None:
    with shadowed(tmp_path) as site:
        site.loop = Loop(EmbeddedBackend(site.store), (SchedulerController(),), site.journal)
        made = job("ours", 2, 1, {REQUIRED: BLOCK}, seconds=1000)
        site.store.create(JOBS, made, "default")
        site.run(3)
    result = CliRunner().invoke(main, ["shadow", "report", str(tmp_path)])
    assert result.exit_code == 1 and "this journal is not of a shadow" in result.stderr


def test_another_scheduler_is_never_bound_for() -> None:
    result = CliRunner().invoke(main, ["run", "--shadow-scheduler", OTHER])
    assert result.exit_code == 1 and "add --shadow" in result.stderr
