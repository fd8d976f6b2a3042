"""Moves of gangs on a real control plane with the rights and policies of an installation, and no others.

The role moves gangs for one that waits, and puts right what it left behind when its process was killed. The
command moves a pod group and a queued gang one after the other.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bayplan.backends.fake_controllers.manifests import job
from bayplan.configuration.settings import EMPTY
from bayplan.dialects.kube.encode.holders import HOLDER
from bayplan.dialects.kube.encode.move_marks import PLAN
from tests.end_to_end.admission_site import RACK, Site, flavor, gpu_queues, hosts, installed, running
from tests.end_to_end.objects import Object, eventually
from tests.end_to_end.test_shared_capacity import delete

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

pytestmark = pytest.mark.minutes(4)
POOL = "moves"
HOSTS = [one["metadata"]["name"] for one in hosts(POOL, racks=3)]
RACKFUL = "gang of 8 gpu in one rack"
FOREVER = 100_000
FIXED = {"bayplan.dev/movable": "false"}
KEPT = "example.com/kept"
QUICK = f"""{EMPTY}defragmentation:
  everySeconds: 1
  waitSeconds: 1
  againAfterSeconds: 1
  leastRunSeconds: 0
  gainRatio: 0.0001
  timeoutSeconds: 60
"""


@pytest.fixture(scope="module")
def site(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Three racks of two hosts with four GPUs, and a queue for all of them."""
    roles = ("admission", "scheduler", "webhooks", "defragment")
    with installed(cluster, "moves-test", tmp_path_factory.mktemp("moves"), roles=roles) as found:
        found.add_hosts(*hosts(POOL, racks=3))
        found.apply(flavor(POOL), *gpu_queues(POOL, 64))
        yield found


def long_job(name: str, pods: int, gpus: int, wishes: dict[str, str] | None = None, **more: Any) -> Object:
    """A Job that asks for GPUs only, and must not fail."""
    made = job(name, pods, gpus, wishes or {}, FOREVER)
    made["metadata"] |= more
    made["spec"]["backoffLimit"] = 0
    spec = made["spec"]["template"]["spec"]
    spec["terminationGracePeriodSeconds"] = 0
    spec["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    return made


def queued(name: str, pods: int, gpus: int) -> Object:
    made = long_job(name, pods, gpus, {"kueue.x-k8s.io/podset-required-topology": RACK})
    made["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": POOL}
    made["spec"]["suspend"] = True
    return made


def pod_group(name: str, pods: int, gpus: int) -> list[Object]:
    """A gang of the API of Kubernetes 1.35, whose pods a ReplicaSet creates."""
    api = {"apiVersion": "scheduling.k8s.io/v1alpha1", "kind": "Workload"}
    meta = {"name": name, "namespace": "default"}
    groups = [{"name": "g", "policy": {"gang": {"minCount": pods}}}]
    template = long_job(name, pods, gpus)["spec"]["template"]
    template["metadata"]["labels"] = {"app": name}
    template["spec"] |= {"restartPolicy": "Always", "workloadRef": {"name": name, "podGroup": "g"}}
    replicas = {"replicas": pods, "selector": {"matchLabels": {"app": name}}, "template": template}
    return [
        {**api, "metadata": meta, "spec": {"podGroups": groups}},
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta, "spec": replicas},
    ]


def running_on(site: Site, name: str) -> list[str]:
    """The hosts of the running pods of a job or ReplicaSet."""
    found = site.cluster.get("pods", "-n", "default")["items"]
    return sorted(
        one["spec"]["nodeName"]
        for one in found
        if one["metadata"]["name"].startswith(f"{name}-")
        and one["status"].get("phase") == "Running"
        and not one["metadata"].get("deletionTimestamp")
    )


def start_on(site: Site, name: str, where: list[str], *objects: Object) -> None:
    """Start a gang while all other hosts are cordoned."""
    others = [host for host in HOSTS if host not in where]
    site.kubectl("cordon", *others)
    site.apply(*objects)
    eventually(lambda: running_on(site, name) == sorted(where), f"{name} runs on {where}")
    site.kubectl("uncordon", *others)


def command(site: Site, *options: str) -> list[str]:
    """`bayplan defragment` with the rights of the role."""
    return [
        *(sys.executable, "-m", "bayplan", "defragment", "--kubeconfig", str(site.kubeconfig)),
        *options,
    ]


def left_behind(site: Site) -> list[str]:
    """Nodes with the taint of a plan, pods that hold places, and stopped gangs."""
    nodes = site.cluster.get("nodes", *HOSTS)["items"]
    tainted = [one for one in nodes if any(taint["key"] == PLAN for taint in one["spec"].get("taints") or ())]
    holders = site.cluster.get("pods", "-n", "default", "-l", HOLDER)["items"]
    kinds = "jobs,workloads.kueue.x-k8s.io"
    gangs = site.cluster.get(kinds, "-n", "default")["items"]
    stopped = [one for one in gangs if PLAN in (one["metadata"].get("annotations") or {})]
    return [one["metadata"]["name"] for one in (*tainted, *holders, *stopped)]


def stopped_jobs(site: Site) -> list[str]:
    found = site.cluster.get("jobs", "-n", "default")["items"]
    return [one["metadata"]["name"] for one in found if PLAN in (one["metadata"].get("annotations") or {})]


def keep(site: Site, name: str, *, kept: bool) -> None:
    """A finalizer lets pods of a job terminate and not go."""
    change = json.dumps({"metadata": {"finalizers": [KEPT] if kept else None}})
    for one in site.cluster.get("pods", "-n", "default", "-l", f"job-name={name}")["items"]:
        if kept or KEPT in (one["metadata"].get("finalizers") or ()):
            site.kubectl(
                "patch", "pod", "-n", "default", one["metadata"]["name"], "--type=merge", "-p", change
            )


def test_a_pod_group_and_a_queued_gang_move_one_after_the_other(site: Site, tmp_path: Path) -> None:
    """The queued gang needs a whole host, and there is one only after the pod group has left it."""
    with running(site, tmp_path, "--roles=admission,scheduler", "--pod-batch-seconds=0.1"):
        start_on(site, "fixed-a", ["moves-r2-h1"], long_job("fixed-a", 1, 4, annotations=FIXED))
        start_on(site, "fixed-b", ["moves-r3-h1"], long_job("fixed-b", 1, 4, annotations=FIXED))
        start_on(site, "fixed-c", ["moves-r3-h2"], long_job("fixed-c", 1, 2, annotations=FIXED))
        start_on(site, "group", ["moves-r2-h2"] * 2, *pod_group("group", 2, 1))
        start_on(site, "queued", ["moves-r1-h1"] * 2, queued("queued", 2, 2))
        plan = subprocess.run(command(site, "--for", RACKFUL, "-o", "json"), capture_output=True, check=True)
        moves = [(one["gang"], one["to"]) for one in json.loads(plan.stdout)["moves"]]
        assert [to for _, to in moves] == [{"moves-r3-h2": 2}, {"moves-r2-h2": 2}], moves
        done = subprocess.run(
            command(site, "--for", RACKFUL, "--apply", "--timeout", "60s"),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert "forbidden" not in done.stderr
        assert running_on(site, "group") == ["moves-r3-h2"] * 2
        assert running_on(site, "queued") == ["moves-r2-h2"] * 2
        assert left_behind(site) == []
        site.kubectl("delete", "workloads.scheduling.k8s.io,replicasets", "--all", "-n", "default")
        delete(site, "jobs", "pods")


def test_the_role_makes_room_and_puts_right_what_its_killed_process_left_behind(
    site: Site, tmp_path: Path
) -> None:
    config = tmp_path / "configuration.yaml"
    config.write_text(QUICK)
    with running(site, tmp_path / "idle", "--roles=admission,scheduler"):
        start_on(site, "mover", ["moves-r1-h1"], long_job("mover", 1, 4))
        start_on(site, "fixed-a", ["moves-r2-h1"], long_job("fixed-a", 1, 4, annotations=FIXED))
        start_on(site, "fixed-b", ["moves-r3-h1"], long_job("fixed-b", 1, 4, annotations=FIXED))
    keep(site, "mover", kept=True)
    site.apply(long_job("wide", 2, 4, {"kueue.x-k8s.io/podset-required-topology": RACK}))
    options = ("--roles=admission,scheduler,defragment", f"--config={config}")
    with running(site, tmp_path / "role", *options) as process:
        eventually(lambda: stopped_jobs(site) == ["mover"], "the role has stopped the gang")
        eventually(lambda: len(left_behind(site)) == 4, "taints, held place and stopped gang")
        (child,) = children(process.pid)
        os.kill(child, signal.SIGKILL)
        log = tmp_path / "role" / "log"
        eventually(lambda: "ended with status -9" in log.read_text(), "the replica notices")
        keep(site, "mover", kept=False)
        eventually(lambda: "was left behind; put right" in log.read_text(), "it is put right")
        eventually(lambda: len(running_on(site, "wide")) == 2, "the gang that waited runs")
        eventually(lambda: len(running_on(site, "mover")) == 1, "the gang that moved runs")
        eventually(lambda: left_behind(site) == [], "nothing is left behind")
        assert running_on(site, "wide") == ["moves-r1-h1", "moves-r1-h2"]
        assert (running_on(site, "fixed-a"), running_on(site, "fixed-b")) == (
            ["moves-r2-h1"],
            ["moves-r3-h1"],
        )
        delete(site, "jobs", "pods")


def test_a_command_that_was_killed_is_taken_back(site: Site, tmp_path: Path) -> None:
    with running(site, tmp_path, "--roles=admission,scheduler"):
        start_on(site, "mover", ["moves-r1-h1"], long_job("mover", 1, 4))
        start_on(site, "fixed-a", ["moves-r2-h1"], long_job("fixed-a", 1, 4, annotations=FIXED))
        start_on(site, "fixed-b", ["moves-r3-h1"], long_job("fixed-b", 1, 4, annotations=FIXED))
        keep(site, "mover", kept=True)
        process = subprocess.Popen(
            command(site, "--for", RACKFUL, "--apply"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        eventually(lambda: stopped_jobs(site) == ["mover"], "the command has stopped the gang")
        process.kill()
        process.wait()
        assert len(left_behind(site)) == 4
        keep(site, "mover", kept=False)
        undone = subprocess.run(command(site, "--undo"), capture_output=True, text=True, check=False)
        assert undone.returncode == 0 and "Job default/mover, which is stopped" in undone.stderr
        assert left_behind(site) == []
        eventually(lambda: len(running_on(site, "mover")) == 1, "the gang runs again")
        delete(site, "jobs", "pods")


def test_the_account_can_run_nothing_and_change_nothing_else_of_nodes(site: Site) -> None:
    """The policy of the role, beside its rights."""

    def told(*arguments: str, stdin: str | None = None) -> str:
        whole = ["kubectl", "--kubeconfig", str(site.kubeconfig), *arguments]
        done = subprocess.run(whole, input=stdin, capture_output=True, text=True, check=False)
        return done.stderr if done.returncode else ""

    label = json.dumps({"metadata": {"labels": {"mine": "yes"}}})
    cordon = json.dumps({"spec": {"unschedulable": True}})
    for change in (label, cordon):
        refused = told("patch", "node", HOSTS[0], "--type=merge", "-p", change)
        assert "bayplan may change only the taint" in refused, refused
    pod = long_job("x", 1, 1)["spec"]["template"]
    pod |= {"apiVersion": "v1", "kind": "Pod"}
    pod["metadata"] |= {"name": "mine", "namespace": "default", "labels": {HOLDER: "mine"}}
    refused = told("create", "-f", "-", stdin=json.dumps(pod))
    assert "bayplan may create only pods that hold a place" in refused, refused


def children(pid: int) -> list[int]:
    """The processes that the threads of a process have started."""
    found = (one.read_text().split() for one in Path(f"/proc/{pid}/task").glob("*/children"))
    return [int(child) for one in found for child in one]
