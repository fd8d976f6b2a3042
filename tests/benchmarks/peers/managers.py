"""The managers on a control plane, installed and started: Kueue's own, Bayplan, a loop that only writes."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.benchmarks.watched_processes import cpu_seconds, until
from tests.end_to_end.admission_site import account_file
from tests.end_to_end.test_kueue_api import point
from tests.support.listening import free_address
from tools.controlplane import processes
from tools.controlplane.build import build
from tools.controlplane.cluster import Cluster
from tools.controlplane.plan import APISERVER, ETCD, KUEUE, module_dir

Object = dict[str, Any]

BAYPLAN, PEER, BARE = "bayplan", "kueue", "bare"
NAMESPACE = "kueue-system"
GATES = "TASBalancedPlacement=false,VisibilityOnDemand=false"
_WITH_ETC = (
    "unshare",
    "--map-root-user",
    "--mount",
    "sh",
    "-c",
    'mount --bind "$0" /etc && exec "$@"',
)
"""The manager reads the certificate of its metrics below /etc/kueue, wherever that of its webhooks is."""
UNMANAGED: Object = {
    "matchExpressions": [
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", NAMESPACE]}
    ]
}
"""The namespaces in which Kueue's webhooks for jobs and pods are called, as in its installation."""


@dataclass(frozen=True, slots=True)
class Manager:
    """A manager at work."""

    name: str
    pids: tuple[int, ...]

    def cpu(self) -> float:
        return sum(cpu_seconds(pid)[1] for pid in self.pids)

    def peak_megabytes(self) -> float:
        return sum(_peak_megabytes(pid) for pid in self.pids)


def _peak_megabytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


def server_cpu(cluster: Cluster) -> float:
    """Of kube-apiserver and etcd."""
    return sum(
        cpu_seconds(one.pid)[1] for one in cluster.processes if one.name in (APISERVER.name, ETCD.name)
    )


@contextmanager
def bayplan(cluster: Cluster, folder: Path, roles: str = "admission,webhooks") -> Iterator[Manager]:
    """`bayplan install`, and one replica with admission and webhooks, under its own account."""
    command = [sys.executable, "-m", "bayplan.cli.commands.install", f"--kubeconfig={cluster.kubeconfig}"]
    command += [f"--namespace={NAMESPACE}", "--roles=admission,webhooks"]
    subprocess.run(command, check=True, capture_output=True)
    hooks, probes = free_address(), free_address()
    point(cluster, f"https://{hooks}")
    where = [f"--namespace={NAMESPACE}", f"--kubeconfig={account_file(cluster, NAMESPACE, folder)}"]
    run = [sys.executable, "-m", "bayplan", "run", f"--roles={roles}", "--no-elect", *where]
    run += [f"--webhook-listen={hooks}", f"--listen={probes}"]
    with _started(BAYPLAN, run, folder / "bayplan.log", f"http://{probes}/readyz") as manager:
        until(lambda: _trusted(cluster, "bayplan"), "certificate of Bayplan's webhooks")
        yield manager


@contextmanager
def bare(cluster: Cluster, folder: Path) -> Iterator[Manager]:
    """A loop that admits everything, and a replica of Bayplan that only serves the webhooks."""
    with bayplan(cluster, folder, "webhooks") as hooks:
        account = account_file(cluster, NAMESPACE, folder)  # its roles and policies cost the API server time
        command = [sys.executable, "-m", "tests.benchmarks.peers.bare", str(account)]
        process = processes.start(BARE, command, log := folder / "bare.log", os.environ, dies_with_us=True)
        try:
            processes.wait_until(lambda: log.exists() and "ready" in log.read_text(), process, 60)
            yield Manager(BARE, (process.pid, *hooks.pids))
        finally:
            processes.stop(process)


@contextmanager
def kueue(cluster: Cluster, folder: Path) -> Iterator[Manager]:
    """The manager of Kueue with its CRDs, its webhooks and its default configuration."""
    source = source_of_kueue(cluster.kube)
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    cluster.apply(*_crds(source))
    until(lambda: "workloads.kueue" in cluster.kubectl("api-resources", "-o", "name"), "CRDs of Kueue")
    hooks, probes = free_address(), free_address()
    certificates = folder / "etc/kueue/metrics/certs"
    certificates.mkdir(parents=True)
    for end in ("crt", "key"):
        (certificates / f"tls.{end}").write_bytes((cluster.state / "pki" / f"server.{end}").read_bytes())
    given = yaml.safe_load((source / "config/components/manager/controller_manager_config.yaml").read_text())
    given |= {
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": str(probes)},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": hooks.host, "port": hooks.port, "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
    }
    config = folder / "kueue.yaml"
    config.write_text(json.dumps(given))
    program = build(cluster.kube, (KUEUE,))[KUEUE.name]
    run = [
        *_WITH_ETC,
        str(folder / "etc"),
        str(program),
        f"--config={config}",
        f"--kubeconfig={cluster.kubeconfig}",
        f"--feature-gates={GATES}",
    ]
    with _started(PEER, run, folder / "kueue.log", f"http://{probes}/readyz") as manager:
        cluster.apply(*_webhooks(source, cluster, f"https://{hooks}"))
        for name in _converted(source):
            cluster.kubectl(
                "patch", "crd", name, "--type=merge", "-p", _conversion(cluster, f"https://{hooks}")
            )
        yield manager


MANAGERS: dict[str, Callable[[Cluster, Path], AbstractContextManager[Manager]]] = {
    BAYPLAN: bayplan,
    PEER: kueue,
    BARE: bare,
}


def source_of_kueue(kube: str) -> Path:
    """Where the module of Kueue lies: its CRDs and webhooks are read there."""
    command = ["go", "mod", "download", "-json", "sigs.k8s.io/kueue"]
    answer = subprocess.run(command, cwd=module_dir(KUEUE, kube), check=True, stdout=subprocess.PIPE)
    return Path(json.loads(answer.stdout)["Dir"])


def _crds(source: Path) -> Iterator[Object]:
    for path in sorted((source / "config/components/crd/bases").glob("*.yaml")):
        yield from (one for one in yaml.safe_load_all(path.read_text()) if one)


def _converted(source: Path) -> Iterator[str]:
    """The CRDs whose objects the manager converts, in its default installation."""
    folder = source / "config/components/crd"
    for patch in yaml.safe_load((folder / "kustomization.yaml").read_text())["patches"]:
        yield yaml.safe_load((folder / patch["path"]).read_text())["metadata"]["name"]


def _conversion(cluster: Cluster, url: str) -> str:
    where = {"url": f"{url}/convert", "caBundle": _trust(cluster)}
    webhook = {"clientConfig": where, "conversionReviewVersions": ["v1"]}
    return json.dumps({"spec": {"conversion": {"strategy": "Webhook", "webhook": webhook}}})


def _trust(cluster: Cluster) -> str:
    return base64.b64encode(cluster.authority.read_bytes()).decode()


def _webhooks(source: Path, cluster: Cluster, url: str) -> Iterator[Object]:
    trusted = _trust(cluster)
    path = source / "config/components/webhook/manifests.yaml"
    for one in yaml.safe_load_all(path.read_text()):
        if not one:
            continue
        for hook in one["webhooks"]:
            where = f"{url}{hook['clientConfig']['service']['path']}"
            hook["clientConfig"] = {"url": where, "caBundle": trusted}
            if not any(group == "kueue.x-k8s.io" for rule in hook["rules"] for group in rule["apiGroups"]):
                hook["namespaceSelector"] = UNMANAGED
        yield one


@contextmanager
def _started(name: str, command: list[str], log: Path, ready: str) -> Iterator[Manager]:
    process = processes.start(name, command, log, os.environ, dies_with_us=True)
    try:
        processes.wait_until(lambda: answers(ready), process, 120)
        yield Manager(name, (process.pid,))
    finally:
        processes.stop(process)


def answers(url: str) -> bool:
    """Whether a GET is answered with 200."""
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _trusted(cluster: Cluster, name: str) -> bool:
    hooks = cluster.get("mutatingwebhookconfiguration", name)["webhooks"]
    return all(hook["clientConfig"].get("caBundle") for hook in hooks)
