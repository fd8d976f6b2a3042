"""The scheduler on a cluster in memory: what it binds, which pods it preempts, and what it publishes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bayplan.backends.crds import define
from bayplan.backends.embedded.api.options import Deletion
from bayplan.backends.embedded.cluster import new_store
from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.backends.embedded.kinds.gangs import GangApi
from bayplan.backends.fake_controllers.controller_manager import FakeControllerManager
from bayplan.backends.fake_controllers.manifests import job, topology
from bayplan.cli.commands.replay import replay
from bayplan.dialects.api import Ended, Kind, Verb, Write, WriteOutcome
from bayplan.dialects.jobs.batch_jobs import JOBS
from bayplan.dialects.kube.gang_api.gates import GROUP, V1ALPHA1, V1ALPHA2, V1BETA1
from bayplan.dialects.kueue.decode import scheduled_jobs
from bayplan.model.profile import NodeChoice, Profile
from bayplan.runtime.controllers.scheduler.controller import RECORD_SECONDS, SchedulerController
from bayplan.runtime.core.journal import FileJournal, MemoryJournal
from bayplan.runtime.core.loop import Loop
from bayplan.state.scheduling.state import ASSUMED_SECONDS
from tests.support.pod_site import NODES, PODS, START, Object, PodSite

CLASSES = Kind(GROUP, "v1", "PriorityClass", "priorityclasses", namespaced=False)
WORKLOADS = Kind(GROUP, V1ALPHA1, "Workload", "workloads")
GROUPS = {version: Kind(GROUP, version, "PodGroup", "podgroups") for version in (V1ALPHA2, V1BETA1)}
CONDITION = {V1ALPHA2: "PodGroupScheduled", V1BETA1: "PodGroupInitiallyScheduled"}


class Site(PodSite):
    """A cluster of a few nodes in virtual time, with the gang API of one release."""

    def __init__(
        self,
        *versions: str,
        cpus: tuple[int, ...] = (4, 4),
        role: SchedulerController | None = None,
        journal: FileJournal | None = None,
    ) -> None:
        self.now = START
        numbers = itertools.count(1)
        self.store = new_store(
            lambda: self.now, lambda: f"uid-{next(numbers)}", lambda: f"{next(numbers):05d}",
            gang_api=GangApi(versions),
        )  # fmt: skip
        for number, cpu in enumerate(cpus, start=1):
            self.node(f"n{number}", cpu)
        self.role = role or SchedulerController()
        self.journal = journal or MemoryJournal()
        self.loop = Loop(EmbeddedBackend(self.store), (self.role,), self.journal)

    def node(self, name: str, cpu: int) -> None:
        amounts = {"cpu": str(cpu), "memory": "64Gi", "pods": "110"}
        labels = {"kubernetes.io/hostname": name, "rack": name}
        body = {
            "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": amounts, "capacity": amounts},
        }
        self.store.create(NODES, body)

    def pod(self, name: str, cpu: int = 1, scheduler: str = "bayplan", **spec: Any) -> None:
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": str(cpu)}}}
        whole = {"schedulerName": scheduler, "containers": [container], **spec}
        self.store.create(
            PODS, {"metadata": {"name": name, "labels": {"app": name}}, "spec": whole}, "default"
        )

    def workload(self, minimum: int) -> None:
        groups = [{"name": "g", "policy": {"gang": {"minCount": minimum}}}]
        self.store.create(WORKLOADS, {"metadata": {"name": "w"}, "spec": {"podGroups": groups}}, "default")

    def group(self, version: str, minimum: int, **spec: Any) -> None:
        whole = {"schedulingPolicy": {"gang": {"minCount": minimum}}, **spec}
        self.store.create(GROUPS[version], {"metadata": {"name": "g"}, "spec": whole}, "default")

    def said(self, name: str, type_: str = "PodScheduled") -> tuple[str, str, str]:
        """Status, reason and message of a condition."""
        return condition(self.get(name), type_)

    def group_said(self, version: str) -> tuple[str, str, str]:
        return condition(self.store.get(GROUPS[version], "default", "g"), CONDITION[version])


def condition(item: Object, type_: str) -> tuple[str, str, str]:
    for one in (item.get("status") or {}).get("conditions") or ():
        if one["type"] == type_:
            return one["status"], one.get("reason", ""), one.get("message", "")
    return "", "", ""


OF_WORKLOAD: Object = {"workloadRef": {"name": "w", "podGroup": "g"}}
OF_GROUP: Object = {"schedulingGroup": {"podGroupName": "g"}}


def test_a_gang_waits_until_it_is_complete_and_says_so() -> None:
    site = Site(V1ALPHA1)
    site.pod("a", **OF_WORKLOAD)
    site.run(6)
    assert site.said("a")[1] == "WaitingForGang", "an autoscaler must not be woken"
    assert 'workload "w" to appear' in site.said("a")[2]
    site.workload(2)
    site.run(20)
    assert "1 of 2 are there" in site.said("a")[2]
    site.pod("b", **OF_WORKLOAD)
    site.run()
    assert all(site.on("a", "b"))
    assert site.said("a")[0] == "True"


def test_pods_that_come_together_are_told_nothing_on_the_way() -> None:
    site = Site(V1ALPHA1)
    site.workload(3)
    for name in "abc":
        site.pod(name, **OF_WORKLOAD)
        site.run(0.8)
    assert all(site.on("a", "b", "c"))
    site.run(5)
    assert [reason for reason, _ in site.events("a")] == ["Scheduled"]
    assert site.events("w") == []


@pytest.mark.parametrize("version", [V1ALPHA2, V1BETA1])
def test_a_pod_group_says_how_it_fares(version: str) -> None:
    site = Site(version, cpus=(2,))
    site.group(version, 3)
    for name in "abc":
        site.pod(name, **OF_GROUP)
    site.run(1)
    assert site.on("a", "b", "c") == ["", "", ""]
    status, reason, message = site.group_said(version)
    assert (status, reason) == ("False", "Unschedulable")
    assert "2 of 3 pods fit" in message and "Insufficient cpu" in message
    assert [site.said(name)[1] for name in "abc"] == ["Unschedulable"] * 3
    assert site.events("a") == site.events("g") == [("FailedScheduling", message)]
    site.node("n2", 2)
    site.run(3)
    assert all(site.on("a", "b", "c"))
    assert site.group_said(version)[:2] == ("True", "Scheduled")


def test_that_a_gang_began_is_on_record_only_when_all_of_it_is_bound() -> None:
    site = Site(V1BETA1)
    submit, failures = site.loop.backend.submit, ["b"]

    def refuse_b_once(writes: Sequence[Write]) -> None:
        told = []
        for write in writes:
            fails = write.subresource == "binding" and write.name in failures
            told.append(replace(write, uid="another") if fails else write)
            if fails:
                failures.clear()
        submit(told)

    site.loop.backend.submit = refuse_b_once  # type: ignore[method-assign]
    site.group(V1BETA1, 2)
    site.pod("a", **OF_GROUP)
    site.pod("b", **OF_GROUP)
    site.run(0.8)
    assert (bool(site.on("a")[0]), site.on("b")) == (True, [""])
    assert site.group_said(V1BETA1)[0] != "True", "half of it is bound"
    site.run(3)
    assert all(site.on("a", "b"))
    assert site.group_said(V1BETA1)[:2] == ("True", "Scheduled")


def test_a_group_made_again_is_put_on_record_like_the_first() -> None:
    site = Site(V1BETA1)
    site.group(V1BETA1, 2)
    site.pod("a", **OF_GROUP)
    site.pod("b", **OF_GROUP)
    site.run(3)
    assert site.group_said(V1BETA1)[:2] == ("True", "Scheduled")
    site.store.delete(GROUPS[V1BETA1], "default", "g")
    site.group(V1BETA1, 2)
    site.run(3)
    assert site.group_said(V1BETA1)[:2] == ("True", "Scheduled")


def test_a_record_that_is_refused_is_written_again_after_a_while_and_not_all_the_time() -> None:
    site = Site(V1BETA1)
    backend, refused, refuses = site.loop.backend, list[Write](), [True]
    submit, outcomes = backend.submit, backend.outcomes

    def refuse(writes: Sequence[Write]) -> None:
        found = [write for write in writes if write.kind.plural == "podgroups" and refuses]
        refused.extend(found)
        submit([write for write in writes if write not in found])

    def told() -> Iterator[WriteOutcome]:
        yield from outcomes()
        yield from (WriteOutcome(write, Ended.REFUSED, 403) for write in refused[len(said) :])
        said.extend(refused[len(said) :])

    said: list[Write] = []
    backend.submit = refuse  # type: ignore[method-assign]
    backend.outcomes = told  # type: ignore[method-assign]
    site.group(V1BETA1, 2)
    site.pod("a", **OF_GROUP)
    site.pod("b", **OF_GROUP)
    site.run(3 * RECORD_SECONDS + 5)
    assert all(site.on("a", "b")) and 2 <= len(refused) <= 4
    assert site.loop.step(site.now) <= site.now + RECORD_SECONDS
    refuses.clear()
    site.run(RECORD_SECONDS + 5)
    assert site.group_said(V1BETA1)[:2] == ("True", "Scheduled")


def test_the_same_reason_is_published_only_once() -> None:
    site = Site(cpus=(2,))
    site.pod("large", 3)
    site.run(1)
    first = site.get("large")["metadata"]["resourceVersion"]
    assert "Insufficient cpu" in site.said("large")[2]
    site.node("tiny", 1)
    site.pod("small", 1)
    site.run(700)
    assert site.on("small") != [""]
    assert site.get("large")["metadata"]["resourceVersion"] == first
    assert len(site.events("large")) == 1


def test_pods_without_a_gang_are_scheduled_and_those_of_others_left_alone() -> None:
    site = Site()
    site.pod("a")
    site.pod("b", scheduler="default-scheduler")
    site.pod("c", schedulingGates=[{"name": "g"}])
    site.run()
    assert site.on("a", "b", "c")[1:] == ["", ""]
    assert site.on("a") != [""]
    assert site.events("a") == [("Scheduled", f"Successfully assigned default/a to {site.on('a')[0]}")]
    assert site.said("c")[1] == "SchedulingGated"


@pytest.mark.parametrize(
    ("name", "nodes"), [("dense", ["n1", "n1"]), ("loose", ["n1", "n2"]), ("bayplan", ["", ""])]
)
def test_each_name_has_its_profile(name: str, nodes: list[str]) -> None:
    profiles = {"dense": Profile(), "loose": Profile(gang_nodes=NodeChoice.SPREAD)}
    site = Site(V1ALPHA2, role=SchedulerController(profiles=profiles))
    site.group(V1ALPHA2, 2)
    site.pod("a", 1, name, **OF_GROUP)
    site.pod("b", 1, name, **OF_GROUP)
    site.run()
    assert site.on("a", "b") == nodes


def test_who_has_to_go_is_told_and_deleted_and_the_winner_knows_where_to() -> None:
    site = Site(cpus=(2,))
    site.pod("low", 2, terminationGracePeriodSeconds=30)
    site.run()
    assert site.on("low") == ["n1"]
    site.store.patch(PODS, "default", "low", {"status": {"phase": "Running"}}, subresource="status")
    site.store.create(CLASSES, {"metadata": {"name": "urgent"}, "value": 1000})
    site.pod("high", 2, priorityClassName="urgent")
    site.run(1)
    assert site.said("low", "DisruptionTarget")[:2] == ("True", "PreemptionByScheduler")
    assert site.get("low")["metadata"].get("deletionTimestamp")
    uid = site.get("high")["metadata"]["uid"]
    assert ("Preempted", f"Preempted by pod {uid} on node n1") in site.events("low")
    assert site.get("high")["status"]["nominatedNodeName"] == "n1"
    assert "waiting for preemption to complete: 1 pod is" in site.said("high")[2]
    site.store.delete(PODS, "default", "low", Deletion.from_body({"gracePeriodSeconds": 0}))
    site.run(3)
    assert site.on("high") == ["n1"]


def deletions_lost(site: Site, most: int = 10**6) -> list[Write]:
    """The first deletions get lost, and time out for the scheduler."""
    submit, outcomes = site.loop.backend.submit, site.loop.backend.outcomes
    lost: list[Write] = []
    ended: list[WriteOutcome] = []

    def lose(writes: Sequence[Write]) -> None:
        found = [write for write in writes if write.verb is Verb.DELETE][: most - len(lost)]
        lost.extend(found)
        ended.extend(WriteOutcome(write, Ended.TIMED_OUT, 500) for write in found)
        submit([write for write in writes if write not in found])

    def told() -> Iterator[WriteOutcome]:
        yield from outcomes()
        while ended:
            yield ended.pop(0)

    site.loop.backend.submit = lose  # type: ignore[method-assign]
    site.loop.backend.outcomes = told  # type: ignore[method-assign]
    return lost


def preemption_is_needed(site: Site) -> None:
    site.pod("low", 2, terminationGracePeriodSeconds=0)
    site.run()
    site.store.create(CLASSES, {"metadata": {"name": "high"}, "value": 100})
    site.pod("high", 2, priority=100, priorityClassName="high")


def test_a_deletion_that_timed_out_is_repeated() -> None:
    site = Site(cpus=(2,))
    lost = deletions_lost(site, 1)
    preemption_is_needed(site)
    site.run(3)
    assert len(lost) == 1 and site.on("high") == ["n1"]


def test_a_deletion_that_always_times_out_is_repeated_and_given_up() -> None:
    site = Site(cpus=(2,))
    lost = deletions_lost(site)
    preemption_is_needed(site)
    site.run(20)
    assert 10 <= len(lost) <= 20 and site.role.state.store.preempting
    site.run(ASSUMED_SECONDS)
    assert isinstance(site.journal, MemoryJournal)
    plans = [entry for entry in site.journal.entries() if entry.kind == "plan"]
    assert sum("PreemptPod" in str(entry.body) for entry in plans) == 2, "the first was given up"


def test_a_job_and_its_pods_show_why_it_is_pending() -> None:
    site = Site()
    define(site.store)
    site.store.create(scheduled_jobs.TOPOLOGIES, topology())
    site.store.create(JOBS, job("wide", 2, 4, {}, 60))
    crew = FakeControllerManager(EmbeddedBackend(site.store))
    for _ in range(6):
        crew.step(site.now)
        site.run(0.2)
    ((reason, message),) = site.events("wide")
    assert reason == "FailedScheduling"
    assert message == "no topology domains at level: kubernetes.io/hostname"
    pods = [one["metadata"]["name"] for one in site.store.list(PODS).items]
    assert [site.said(name)[1:] for name in pods] == [("Unschedulable", message)] * 2


def test_without_the_gang_api_pods_are_scheduled_all_the_same() -> None:
    site = Site()
    site.store.create(PODS, {"metadata": {"name": "a"}, "spec": {"schedulerName": "bayplan",
                      "containers": [{"name": "c", "image": "i"}]}}, "default")  # fmt: skip
    site.run()
    assert site.on("a") != [""]


def test_a_journal_with_gangs_and_preemption_is_decided_alike_again(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "journal")
    site = Site(V1ALPHA2, cpus=(2, 2), journal=journal)
    for name in "abcd":
        site.pod(name, terminationGracePeriodSeconds=0)
    site.run()
    site.store.create(CLASSES, {"metadata": {"name": "urgent"}, "value": 1000})
    site.group(V1ALPHA2, 3, priorityClassName="urgent")
    for name in "xyz":
        site.pod(name, priorityClassName="urgent", **OF_GROUP)
    site.run(5)
    assert all(site.on("x", "y", "z"))
    journal.close()
    result = CliRunner().invoke(replay, [str(tmp_path / "journal")])
    assert result.exit_code == 0, result.output
    assert "0 plans differ" in result.output
    assert "preempts pod" in result.output
