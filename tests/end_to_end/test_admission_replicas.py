"""Replicas that admit on a real control plane: killed at any moment, in the shadow, and two at a time."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.end_to_end.admission_site import (
    GPU,
    HOST,
    OLD_WORKLOADS,
    RACK,
    WORKLOADS,
    Site,
    admitting,
    flavor,
    gang_workload,
    gpu_queues,
    hosts,
    hosts_in,
    installed,
    replayed,
)
from tests.end_to_end.objects import Object, eventually

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

GANGS, KILLS, QUOTA = 50, 3, 24
SHAPES = ((1, 4, ""), (2, 2, HOST), (2, 4, RACK), (4, 1, RACK))  # pods, GPUs of each, how close
SAME = "; 0 plans differ when decided again"


@pytest.fixture(scope="module")
def site(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with installed(cluster, "replicas-test", tmp_path_factory.mktemp("replicas")) as found:
        yield found


@contextmanager
def watched(site: Site, path: Path) -> Iterator[list[Object]]:
    """Everything that becomes of Workloads, as the API tells it; known at the end."""
    program, kubeconfig = str(site.cluster.kubectl_path), f"--kubeconfig={site.cluster.kubeconfig}"
    watch = ("get", OLD_WORKLOADS, "-n", "default", "--watch", "-o", "json")
    seen: list[Object] = []
    with path.open("w") as out:
        process = subprocess.Popen([program, kubeconfig, *watch], stdout=out, stderr=subprocess.DEVNULL)
    try:
        yield seen
        time.sleep(1.0)  # for the last of them to be told
    finally:
        process.terminate()
        process.wait()
    text, decoder = path.read_text().strip(), json.JSONDecoder()
    start = 0
    while start < len(text):
        found, end = decoder.raw_decode(text, start)
        seen.append(found)
        start = end + 1


def holds(workload: Object, kind: str) -> bool:
    conditions = (workload.get("status") or {}).get("conditions") or []
    return any(c["type"] == kind and c["status"] == "True" for c in conditions)


def check(workloads: list[Object], capacity: dict[str, int]) -> None:
    """Who has quota has a place for all its pods, as close as asked; no host and no queue gives too much."""
    taken, used = Counter[str](), Counter[str]()
    for workload in workloads:
        if not holds(workload, "QuotaReserved") or holds(workload, "Finished"):
            continue
        part = workload["status"]["admission"]["podSetAssignments"][0]
        pod_set = workload["spec"]["podSets"][0]
        each = int(pod_set["template"]["spec"]["containers"][0]["resources"]["requests"][GPU])
        where = hosts_in([part])
        assert sum(where.values()) == pod_set["count"] == part["count"]
        assert int(part["resourceUsage"][GPU]) == each * pod_set["count"]
        level = (pod_set.get("topologyRequest") or {}).get("required", "")
        domains = {host.rpartition("-")[0] if level == RACK else host for host in where}
        assert not level or len(domains) == 1, (level, where)
        taken.update({host: pods * each for host, pods in where.items()})
        used[workload["status"]["admission"]["clusterQueue"]] += each * pod_set["count"]
    assert all(amount <= capacity[host] for host, amount in taken.items()), taken
    assert all(amount <= QUOTA for amount in used.values()), used


def test_killed_at_any_moment_every_gang_is_admitted_once(site: Site, tmp_path: Path) -> None:
    pool = hosts("flow", racks=4)
    capacity = {one["metadata"]["name"]: 4 for one in pool}
    site.add_hosts(*pool)
    site.apply(flavor("flow"), *gpu_queues("flow", QUOTA))
    names = [f"flow-{number:02}" for number in range(GANGS)]

    def listed() -> list[Object]:
        found: list[Object] = site.cluster.get(OLD_WORKLOADS, "-n", "default")["items"]
        return found

    def admitted() -> set[str]:
        return {one["metadata"]["name"] for one in listed() if holds(one, "Admitted")}

    def counts() -> tuple[int, int]:
        status = site.cluster.get("clusterqueue", "flow")["status"]
        return status["pendingWorkloads"], status["reservingWorkloads"]

    def finish_some() -> int:
        """End half of what runs; say how many are not over yet."""
        found = listed()
        check(found, capacity)
        runs = [
            one["metadata"]["name"] for one in found if holds(one, "Admitted") and not holds(one, "Finished")
        ]
        if runs:
            site.finish(*runs[: (len(runs) + 1) // 2])
        return sum(not holds(one, "Finished") for one in found)

    with watched(site, tmp_path / "seen.json") as seen:
        site.apply(*(_gang(name, number) for number, name in enumerate(names)))
        for round_ in range(KILLS):
            finish_some()
            before = admitted()
            with admitting(site, tmp_path / f"round-{round_}", "--no-elect") as process:
                eventually(lambda known=before: admitted() > known, "it admits")  # type: ignore[misc]
                finish_some()
                time.sleep(0.1 * round_)
                process.kill()
                process.wait()
        with admitting(site, tmp_path / "last", "--no-elect"):
            eventually(lambda: finish_some() == 0, "everything came to its end")
            eventually(lambda: counts() == (0, 0), "the queue says that it is empty")
    given: dict[str, set[str]] = {name: set() for name in names}
    for one in seen:
        if holds(one, "Admitted"):
            given[one["metadata"]["name"]].add(json.dumps(one["status"]["admission"], sort_keys=True))
        assert not holds(one, "Evicted"), one["metadata"]["name"]
    assert {name: len(found) for name, found in given.items()} == dict.fromkeys(names, 1)
    for folder in (*(f"round-{round_}" for round_ in range(KILLS)), "last"):
        assert replayed(tmp_path / folder).endswith(SAME), folder
    site.kubectl("delete", WORKLOADS, "--all", "-n", "default")


def _gang(name: str, number: int) -> Object:
    pods, gpus, level = SHAPES[number % len(SHAPES)]
    return gang_workload(name, "flow", pods, gpus, required=level)


def test_in_the_shadow_nothing_is_written(site: Site, tmp_path: Path) -> None:
    site.add_hosts(*hosts("dim"))
    site.apply(
        flavor("dim"),
        *gpu_queues("dim", 4),
        gang_workload("unseen", "dim", 1, 4),
        gang_workload("beside", "dim", 1, 4),
    )

    def decided() -> bool:
        entries = "".join(file.read_text() for file in (tmp_path / "journal").glob("*.jsonl"))
        return '"is":"Admit"' in entries and '"is":"ReportNotAdmitted"' in entries

    with admitting(site, tmp_path, "--shadow"):
        eventually(decided, "decisions are noted")
        time.sleep(1.5)  # long enough for statuses of queues
    for name in ("unseen", "beside"):
        assert "conditions" not in (site.workload(name).get("status") or {}) and site.events(name) == []
    assert "conditions" not in (site.cluster.get("clusterqueue", "dim").get("status") or {})
    assert "finalizers" not in site.cluster.get("clusterqueue", "dim")["metadata"]
    assert replayed(tmp_path).endswith(SAME)


def test_of_two_replicas_one_admits_and_the_other_follows_when_it_goes(site: Site, tmp_path: Path) -> None:
    site.add_hosts(*hosts("pair"))
    site.apply(flavor("pair"), *gpu_queues("pair", 8))

    def plans(which: str) -> int:
        files = (tmp_path / which / "journal").glob("*.jsonl")
        return sum('"plan"' in line for file in files for line in file.read_text().splitlines())

    with admitting(site, tmp_path / "second") as second:
        with admitting(site, tmp_path / "first"):
            site.apply(gang_workload("one", "pair", 1, 4))
            site.wait_admitted("one")
            led = "first" if plans("first") else "second"
            assert plans("first" if led == "second" else "second") == 0
            reserved = [event for event in site.events("one") if event[1] == "QuotaReserved"]
            assert len(reserved) == 1
        site.apply(gang_workload("two", "pair", 1, 4))
        site.wait_admitted("two")
        assert second.poll() is None and plans("second") > 0
    assert replayed(tmp_path / "first").endswith(SAME) and replayed(tmp_path / "second").endswith(SAME)
