"""A real control plane with hosts and a queue for one large Job, and the two ways to ungate its pods."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import Struct

from bayplan.assembly.manifests import InstallSettings, custom_resources
from bayplan.backends.remote.backend import RemoteBackend
from bayplan.backends.remote.kubeconfig import load
from bayplan.dialects.api import Happened, Kind
from tests.benchmarks.jobs_bare import INDEX, Selectors, bare_loop
from tests.benchmarks.watched_processes import bayplan_run, cpu_seconds, until
from tools.controlplane.cluster import Cluster

Object = dict[str, Any]

API, NAMESPACE = "kueue.x-k8s.io/v1beta2", "default"
WORKLOADS = "workloads.kueue.x-k8s.io"
RACK, HOST, POOL, GPU = "example.com/rack", "kubernetes.io/hostname", "example.com/pool", "nvidia.com/gpu"
GPUS_OF_HOST, HOSTS_OF_RACK = 8, 16
RUN_SECONDS = 600.0


# ── what is there ──────────────────────────────────────────────────────────────────────────────────


def furnish(cluster: Cluster, pods: int) -> int:
    """Definitions, one queue, and racks of hosts with room for one Job; how many hosts there are."""
    cluster.apply(*custom_resources(InstallSettings(roles=("admission",))))
    until(lambda: WORKLOADS in cluster.kubectl("api-resources", "-o", "name"), "definitions")
    racks = -(-pods // (GPUS_OF_HOST * HOSTS_OF_RACK))
    hosts = [_host(rack, number) for rack in range(racks) for number in range(HOSTS_OF_RACK)]
    cluster.apply(*_rules(len(hosts) * GPUS_OF_HOST), *hosts)
    ready = "jsonpath={range .items[*]}{.spec.taints[*].key}{' '}{end}"
    until(lambda: not cluster.kubectl("get", "nodes", "-o", ready).strip(), "hosts that may be used")
    return len(hosts)


def _host(rack: int, number: int) -> Object:
    name = f"r{rack:02d}-h{number:02d}"
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(GPUS_OF_HOST)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOST: name, RACK: f"r{rack:02d}", POOL: "gpu"}},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def _rules(gpus: int) -> Iterator[Object]:
    yield _rule("Topology", "hall", {"levels": [{"nodeLabel": RACK}, {"nodeLabel": HOST}]})
    yield _rule("ResourceFlavor", "gpu", {"nodeLabels": {POOL: "gpu"}, "topologyName": "hall"})
    quota = {"name": "gpu", "resources": [{"name": GPU, "nominalQuota": gpus}]}
    group = {"coveredResources": [GPU], "flavors": [quota]}
    yield _rule("ClusterQueue", "gpus", {"namespaceSelector": {}, "resourceGroups": [group]})
    yield _rule("LocalQueue", "gpus", {"clusterQueue": "gpus"})


def _rule(kind: str, name: str, spec: Object) -> Object:
    meta = {"name": name} | ({"namespace": NAMESPACE} if kind == "LocalQueue" else {})
    return {"apiVersion": API, "kind": kind, "metadata": meta, "spec": spec}


def queued_job(name: str, pods: int) -> Object:
    """An indexed Job that waits for its queue, as the webhook would have left it."""
    limits = {GPU: "1"}
    container = {"name": "main", "image": "none", "resources": {"requests": limits, "limits": limits}}
    notes = {"kueue.x-k8s.io/podset-preferred-topology": RACK}
    spec = {"restartPolicy": "Never", "schedulerName": "by-hand", "containers": [container]}
    template = {"metadata": {"annotations": notes}, "spec": spec}
    return _job(name, pods, template, suspend=True, labels={"kueue.x-k8s.io/queue-name": "gpus"})


def _job(name: str, pods: int, template: Object, *, suspend: bool, labels: dict[str, str]) -> Object:
    counts = {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "suspend": suspend}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {**counts, "template": template},
    }


# ── the two ways ───────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Run:
    """One Job: seconds since it was handed in, and the CPU that whoever ungated its pods used till then."""

    seconds: float
    first_made: float  # the seconds until its first pod was there
    last_made: float
    loop_cpu: float  # of the thread that decides
    all_cpu: float
    server_cpu: float  # of the whole control plane; a busy machine changes it less than the seconds
    selectors: Selectors = field(repr=False, default_factory=dict)
    template: Object = field(repr=False, default_factory=dict)


def with_bayplan(cluster: Cluster, folder: Path, name: str, pods: int, *options: str) -> Run:
    """A Job that names a queue: admitted, started and ungated by `bayplan run`."""
    with bayplan_run(cluster, "admission", folder / "run.log", *options) as (process, _):
        time.sleep(2.0)  # the queues get their first statuses
        before, served = cpu_seconds(process.pid), _server_cpu(cluster)
        times = _watched(cluster, queued_job(name, pods), pods, process)
        served = _server_cpu(cluster) - served
        loop, everything = (now - then for now, then in zip(cpu_seconds(process.pid), before, strict=True))
        job = cluster.get("job", name, "-n", NAMESPACE)
        found = cluster.get("pods", "-n", NAMESPACE, "-l", f"batch.kubernetes.io/job-name={name}")["items"]
        _remove(cluster, name)
    selectors = {pod["metadata"]["labels"][INDEX]: pod["spec"]["nodeSelector"] for pod in found}
    assert len(selectors) == pods, "every index was ungated once"
    return Run(*times, loop, everything, served, selectors, job["spec"]["template"])


def with_bare_loop(cluster: Cluster, folder: Path, name: str, model: Run) -> Run:
    """The Job as Bayplan started it in the model, and its pods patched to the same nodes."""
    pods, template = len(model.selectors), json.loads(json.dumps(model.template))
    labels = template["metadata"]["labels"]
    for label in [key for key in labels if key.endswith(("job-name", "controller-uid"))]:
        del labels[label]  # the Job controller gives these anew
    with bare_loop(cluster.kubeconfig, name, model.selectors, folder) as process:
        job = _job(name, pods, template, suspend=False, labels={})
        served = _server_cpu(cluster)
        times = _watched(cluster, job, pods, process)
        served = _server_cpu(cluster) - served
        assert process.stdout is not None
        cpu = float(process.stdout.readline())
    _remove(cluster, name)
    return Run(*times, cpu, cpu, served)


# ── measuring ──────────────────────────────────────────────────────────────────────────────────────


class _Gate(Struct, gc=False):
    name: str


class _Meta(Struct, gc=False, rename="camel"):
    name: str
    namespace: str
    uid: str
    resource_version: str


class _Spec(Struct, gc=False, rename="camel"):
    scheduling_gates: list[_Gate] = []


class GatedPod(Struct, gc=False):
    """What a watch has to know of a pod to see whether it has gates."""

    metadata: _Meta
    spec: _Spec


def _watched(
    cluster: Cluster, job: Object, pods: int, who: subprocess.Popen[Any]
) -> tuple[float, float, float]:
    """Seconds from `kubectl create` until no pod has a gate; until the first was made; until the last was."""
    selector = f"batch.kubernetes.io/job-name={job['metadata']['name']}"
    kind = Kind("", "v1", "Pod", "pods", wire=GatedPod, label_selector=selector)
    backend = RemoteBackend(load(cluster.kubeconfig))
    try:
        backend.watch([kind])
        until(lambda: any(event.happened is Happened.SYNCED for event in backend.events()), "watch")
        start = time.perf_counter()
        cluster.kubectl("create", "-f", "-", stdin=json.dumps(job))
        seen: set[str] = set()
        free: set[str] = set()
        first_made = last_made = 0.0
        while len(free) < pods:
            assert time.perf_counter() - start < RUN_SECONDS, f"{len(seen)} pods, {len(free)} without gate"
            assert who.poll() in (None, 0), f"who ungates has ended with {len(free)} pods without gate"
            backend.wait(1.0)
            for event in backend.events():
                if event.happened is Happened.SEEN:
                    seen.add(event.object.metadata.uid)
                    if not event.object.spec.scheduling_gates:
                        free.add(event.object.metadata.uid)
            passed = time.perf_counter() - start
            if seen:
                first_made = first_made or passed
            if len(seen) == pods:
                last_made = last_made or passed
        return passed, first_made, last_made
    finally:
        backend.close(0)


def _remove(cluster: Cluster, name: str) -> None:
    """Take away a Job with everything it made, and let the control plane come to rest."""
    cluster.kubectl("delete", "job", name, "-n", NAMESPACE, "--cascade=foreground")
    for kind in ("pods", WORKLOADS):
        until(
            lambda kind=kind: not cluster.kubectl("get", kind, "-n", NAMESPACE, "-o", "name"),
            f"end of {kind}",
        )
    time.sleep(2.0)


def _server_cpu(cluster: Cluster) -> float:
    return sum(cpu_seconds(process.pid)[1] for process in cluster.processes)
