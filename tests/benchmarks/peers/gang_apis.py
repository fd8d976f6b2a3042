"""The schedulers of KAI and Volcano on a control plane, and what gangs look like in the API of each."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from tests.benchmarks.gang_load import WORKLOADS, gang_workload, load_pod
from tests.benchmarks.peers.managers import BAYPLAN, Manager, answers
from tests.benchmarks.watched_processes import bayplan_run, until
from tests.support.listening import free_address
from tools.controlplane import processes
from tools.controlplane.build import build
from tools.controlplane.cluster import Cluster
from tools.controlplane.plan import KAI, KAI_BINDER, VOLCANO, Program, module_dir

Object = dict[str, Any]

QPS = 5000
"""The limits of their clients are lifted, as those of kube-scheduler are."""
UNLIMITED = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
QUEUE = "bench"


@dataclass(frozen=True, slots=True)
class GangApi:
    """How an API says that pods are a gang."""

    path: str  # where its gangs are created
    gang: Callable[[str, int], Object]
    pod: Callable[[str, str, str], Object]  # name, scheduler, gang


@dataclass(frozen=True, slots=True)
class Peer:
    """Another scheduler: the API that it reads, and which of ours the same gangs are made in for Bayplan."""

    name: str
    programs: tuple[Program, ...]
    module: str
    definitions: str  # the folder of its CRDs in its module
    api: GangApi
    ours: GangApi
    objects: tuple[Object, ...]  # what gangs need besides
    start: Callable[[Cluster, Path], AbstractContextManager[Manager]]


def define(cluster: Cluster, peer: Peer) -> None:
    """Create the CRDs of a scheduler, and its queues."""
    command = ["go", "mod", "download", "-json", peer.module]
    folder = module_dir(peer.programs[0], cluster.kube)
    answer = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE)
    source = Path(json.loads(answer.stdout)["Dir"]) / peer.definitions
    found = [one for path in sorted(source.glob("*.yaml")) for one in yaml.safe_load_all(path.read_text())]
    definitions = [one for one in found if one]
    cluster.apply(*definitions)
    names = [f"crd/{one['metadata']['name']}" for one in definitions]
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", *names)
    for one in peer.objects:
        cluster.apply(one)


@contextmanager
def bayplan(cluster: Cluster, folder: Path) -> Iterator[Manager]:
    """One replica with the role `scheduler`."""
    with bayplan_run(cluster, "scheduler", folder / "bayplan.log") as (process, _):
        yield Manager(BAYPLAN, (process.pid,))


@contextmanager
def _kai(cluster: Cluster, folder: Path) -> Iterator[Manager]:
    """The scheduler of KAI with its default configuration, and the program that binds for it."""
    metrics = free_address()
    scheduler = [f"--listen-address={metrics}", "--plugin-server-port=-1"]  # on no other interface
    binder = ["--metrics-bind-address=0", "--health-probe-bind-address=0"]
    limits = [f"--qps={QPS}", f"--burst={QPS}"]
    with ExitStack() as stack:
        start = partial(_start, stack, cluster, folder)
        pids = (
            start(KAI, [*scheduler, *limits], lambda: answers(f"http://{metrics}/metrics")),
            start(KAI_BINDER, [*binder, *limits], lambda: _says(folder, KAI_BINDER, "Starting workers", 2)),
        )
        yield Manager("kai", pids)


@contextmanager
def _volcano(cluster: Cluster, folder: Path) -> Iterator[Manager]:
    """The scheduler of Volcano with its default configuration."""
    probes = free_address()
    options = ["--leader-elect=false", "--enable-healthz", f"--healthz-address={probes}"]
    options += [f"--kubeconfig={cluster.kubeconfig}", f"--cache-dump-dir={folder}"]
    options += [f"--kube-api-qps={QPS}", f"--kube-api-burst={QPS}"]
    with ExitStack() as stack:
        pid = _start(stack, cluster, folder, VOLCANO, options, lambda: answers(f"http://{probes}/healthz"))
        until(lambda: "default" in cluster.kubectl("get", "queues.scheduling.volcano.sh"), "default queue")
        yield Manager("volcano", (pid,))


def _start(
    stack: ExitStack,
    cluster: Cluster,
    folder: Path,
    program: Program,
    options: list[str],
    ready: Callable[[], bool],
) -> int:
    path = build(cluster.kube, (program,))[program.name]
    environment = os.environ | {"KUBECONFIG": str(cluster.kubeconfig), "DEBUG_SOCKET_DIR": str(folder)}
    log = folder / f"{program.name}.log"
    log.unlink(missing_ok=True)
    process = processes.start(program.name, [str(path), *options], log, environment, dies_with_us=True)
    stack.callback(processes.stop, process)
    processes.wait_until(ready, process, 120)
    return process.pid


def _says(folder: Path, program: Program, words: str, times: int) -> bool:
    """Whether the log of a program has these words that often."""
    log = folder / f"{program.name}.log"
    return log.exists() and log.read_text().count(words) >= times


# ── gangs in each API ──────────────────────────────────────────────────────────────────────────────


def _group(api_version: str, name: str, size: int, queue: str) -> Object:
    head = {"apiVersion": api_version, "kind": "PodGroup", "metadata": {"name": name}}
    return {**head, "spec": {"minMember": size, "queue": queue}}


def _annotated(key: str, name: str, scheduler: str, gang: str) -> Object:
    pod = load_pod(name, scheduler)
    pod["metadata"]["annotations"] = {key: gang}
    pod["metadata"]["labels"]["gang"] = gang
    return pod


KUBERNETES_API = GangApi(WORKLOADS, gang_workload, lambda name, who, gang: load_pod(name, who, gang=gang))
KAI_API = GangApi(
    "/apis/scheduling.run.ai/v2alpha2/namespaces/default/podgroups",
    lambda name, size: _group("scheduling.run.ai/v2alpha2", name, size, QUEUE),
    partial(_annotated, "pod-group-name"),
)
VOLCANO_API = GangApi(
    "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups",
    lambda name, size: _group("scheduling.volcano.sh/v1beta1", name, size, "default"),
    partial(_annotated, "scheduling.k8s.io/group-name"),
)


def _queue(name: str, parent: str = "") -> Object:
    head = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}}
    spec: Object = {"resources": dict.fromkeys(("cpu", "gpu", "memory"), UNLIMITED)}
    return {**head, "spec": spec | ({"parentQueue": parent} if parent else {})}


PEERS = {
    "kai-scheduler": Peer(
        "kai-scheduler", (KAI, KAI_BINDER), "github.com/NVIDIA/KAI-scheduler",
        "deployments/kai-scheduler/crds", KAI_API, KAI_API, (_queue("all"), _queue(QUEUE, "all")), _kai,
    ),
    "volcano": Peer(
        "volcano", (VOLCANO,), "volcano.sh/volcano", "installer/helm/chart/volcano/crd/bases",
        VOLCANO_API, KUBERNETES_API, (), _volcano,
    ),
}  # fmt: skip
"""By the name of the scheduler in pods."""
