"""`bayplan defragment --apply` on a real control plane: room under budgets, and never a part of a gang."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from bayplan.assembly.manifests import InstallSettings, custom_resources
from bayplan.backends.fake_controllers.manifests import BLOCK, RACK, job, topology
from tests.end_to_end.objects import Object, eventually, kwok_node, namespace
from tests.end_to_end.test_run import rights, scheduler

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

HOSTS = [f"moving-r{rack}-h{host}" for rack in (1, 2, 3) for host in (1, 2)]
PODS = {"one": 1, "pair": 2, "two": 1}
RACKFUL = "gang of 8 gpu in one rack"
FOREVER = 100_000


@pytest.fixture(scope="module")
def hall(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three racks of two hosts with four GPUs, and our scheduler at work."""
    cluster.apply(*custom_resources(InstallSettings(roles=("scheduler",))))
    eventually(
        lambda: "topologies" in cluster.kubectl("api-resources", "-o", "name"), "the definition is served"
    )
    cluster.apply(namespace("bayplan-system"))
    cluster.apply(topology(), *rights())
    cluster.apply(*(kwok_node(name, 4, **{BLOCK: "b1", RACK: name.split("-")[1]}) for name in HOSTS))
    cluster.kubectl("wait", "--for=condition=Ready", "--timeout=120s", "node", *HOSTS)
    with scheduler(cluster, tmp_path_factory.mktemp("moving")):
        yield cluster
        cluster.kubectl("delete", "job,pdb", "--all", "-n", "default", "--cascade=foreground")
    cluster.kubectl("delete", "node", *HOSTS)
    cluster.kubectl("delete", "topologies.kueue.x-k8s.io", "data-centre")


def defragment(cluster: Cluster, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "bayplan",
        "defragment",
        "--kubeconfig",
        str(cluster.kubeconfig),
        *options,
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def pods_of(cluster: Cluster, name: str) -> list[Object]:
    found: list[Object] = cluster.get("pods", "-n", "default", "-l", f"job-name={name}")["items"]
    return found


def hosts_of(cluster: Cluster, name: str) -> list[str]:
    running = [one for one in pods_of(cluster, name) if one["status"].get("phase") == "Running"]
    return sorted(one["spec"]["nodeName"] for one in running if not one["metadata"].get("deletionTimestamp"))


def start_on(cluster: Cluster, name: str, hosts: list[str], gpus: int) -> None:
    """Start a job while all other hosts are cordoned. It must not fail: `backoffLimit` is 0."""
    others = [host for host in HOSTS if host not in hosts]
    cluster.kubectl("cordon", *others)
    made = job(name, len(hosts), gpus, {}, FOREVER)
    made["spec"]["backoffLimit"] = 0
    cluster.apply(made)
    eventually(lambda: len(hosts_of(cluster, name)) == len(hosts), f"{name} runs")
    cluster.kubectl("uncordon", *others)


def budget(cluster: Cluster, name: str, least: int) -> None:
    cluster.apply(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"minAvailable": least, "selector": {"matchLabels": {"job-name": name}}},
        }
    )
    allowed = PODS[name] - least
    eventually(
        lambda: _allowed(cluster, name) == allowed,
        f"the budget of {name} allows {allowed} pods to be evicted",
    )


def _allowed(cluster: Cluster, name: str) -> int | None:
    found: int | None = cluster.get("pdb", name, "-n", "default")["status"].get("disruptionsAllowed")
    return found


@dataclass
class GangWatcher:
    """Looks at all gangs again and again; notes what must never be."""

    cluster: Cluster
    before: dict[str, set[str]]  # by job: the uids of its pods
    breaches: list[str] = field(default_factory=list)
    looks: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        partly: dict[str, float] = {}
        while not self.over.is_set():
            self.looks += 1
            for name, old in self.before.items():
                self._look(name, old, partly)

    def _look(self, name: str, old: set[str], partly: dict[str, float]) -> None:
        pods = [one for one in pods_of(self.cluster, name) if one["spec"].get("nodeName")]
        lasting = [one for one in pods if not one["metadata"].get("deletionTimestamp")]
        uids = {one["metadata"]["uid"] for one in lasting}
        if uids & old and uids - old:
            self.breaches.append(f"{name}: old and new pods have nodes at the same time")
        if not 0 < len(uids) < PODS[name]:
            partly.pop(name, None)
        elif (
            time.monotonic() - partly.setdefault(name, time.monotonic()) > 2.0
        ):  # pods are written one by one
            self.breaches.append(f"{name}: {len(uids)} of {PODS[name]} pods have nodes for seconds")


def test_room_is_made_under_budgets_and_no_gang_is_ever_partial(hall: Cluster) -> None:
    start_on(hall, "one", ["moving-r1-h1"], 4)
    start_on(hall, "pair", ["moving-r2-h1", "moving-r2-h2"], 2)
    start_on(hall, "two", ["moving-r3-h1"], 4)
    budget(hall, "one", 1)  # must not leave
    budget(hall, "two", 1)  # must not leave
    budget(hall, "pair", 1)  # only one of two may leave: so none
    refused = defragment(hall, "--for", RACKFUL, "-o", "json")
    assert refused.returncode == 3, refused.stderr
    reasons = {one["gang"]: one["reason"] for one in json.loads(refused.stdout)["staying"]}
    assert reasons["default/pair"].endswith("allows 1 of its 2 pods to be evicted at once")
    budget(hall, "pair", 0)

    watcher = GangWatcher(
        hall, {name: {one["metadata"]["uid"] for one in pods_of(hall, name)} for name in PODS}
    )
    thread = threading.Thread(target=watcher.run)
    thread.start()
    try:
        done = defragment(hall, "--for", RACKFUL, "--apply", "--timeout", "60s")
    finally:
        watcher.over.set()
        thread.join()
    assert done.returncode == 0, done.stdout + done.stderr
    assert watcher.looks > 5
    assert watcher.breaches == []
    assert len(hosts_of(hall, "pair")) == 2 and set(hosts_of(hall, "pair")).isdisjoint(
        {"moving-r2-h1", "moving-r2-h2"}
    )
    assert (hosts_of(hall, "one"), hosts_of(hall, "two")) == (["moving-r1-h1"], ["moving-r3-h1"])
    assert _left_behind(hall) == []
    hall.apply(job("wanted", 2, 4, {"kueue.x-k8s.io/podset-required-topology": RACK}, FOREVER))
    eventually(
        lambda: hosts_of(hall, "wanted") == ["moving-r2-h1", "moving-r2-h2"], "the gang runs in the rack"
    )


def _left_behind(cluster: Cluster) -> list[Any]:
    """Taints and pods of the command."""
    nodes = cluster.get("nodes", *HOSTS)["items"]
    taints = [taint for one in nodes for taint in one["spec"].get("taints") or ()]
    held = cluster.get("pods", "-n", "default", "-l", "bayplan.dev/holds-place")["items"]
    return [*taints, *(one["metadata"]["name"] for one in held)]
