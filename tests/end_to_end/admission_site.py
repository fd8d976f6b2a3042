"""A real cluster with Bayplan's admission installed, and what its users have there: hosts, queues, gangs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayplan.assembly.crds import converted
from bayplan.assembly.manifests import InstallSettings, manifests
from bayplan.assembly.webhooks import SECRET_NAME
from bayplan.configuration.settings import EMPTY
from tests.end_to_end.objects import Object, eventually, kwok_node
from tests.end_to_end.test_kueue_api import CONFIGURATIONS, point
from tests.support.api_objects import cluster_queue, container, workload
from tests.support.listening import free_address

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

API = "kueue.x-k8s.io/v1beta2"
WORKLOADS, OLD_WORKLOADS = "workloads.kueue.x-k8s.io", "workloads.v1beta1.kueue.x-k8s.io"
GPU, POOL = "nvidia.com/gpu", "example.com/pool"
BLOCK, RACK, HOST = "example.com/block", "example.com/rack", "kubernetes.io/hostname"
Told = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster where Bayplan was installed; `kubeconfig` is that of its account."""

    cluster: Cluster
    namespace: str
    kubeconfig: Path

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl(*arguments, stdin=stdin)

    def apply(self, *objects: Object) -> None:
        """As a user would: client-side, with strict validation."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "--validate=strict", "-f", "-", stdin=json.dumps(listed))

    def add_hosts(self, *nodes: Object) -> None:
        """Make hosts, and wait until they may be used."""
        self.cluster.apply(*nodes)
        names = [one["metadata"]["name"] for one in nodes]

        def usable(one: Object) -> bool:
            conditions = (one.get("status") or {}).get("conditions") or ()
            ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
            return ready and not one["spec"].get("taints")

        def all_usable() -> bool:
            found = self.cluster.get("nodes", *names)
            return all(usable(one) for one in found.get("items", [found]))

        eventually(all_usable, "the hosts may be used")

    def patch(self, kind: str, name: str, spec: Object) -> None:
        where = ("-n", "default") if kind in (WORKLOADS, "localqueue", "statefulset") else ()
        self.kubectl("patch", kind, name, *where, "--type=merge", "-p", json.dumps({"spec": spec}))

    def workload(self, name: str, version: str = WORKLOADS) -> Object:
        return self.cluster.get(version, name, "-n", "default")

    def told(self, name: str, kind: str = "QuotaReserved") -> Told:
        """Status, reason and message of a condition; nothing, if it is not there."""
        conditions = (self.workload(name).get("status") or {}).get("conditions") or []
        found = next((c for c in conditions if c["type"] == kind), None)
        return (found["status"], found["reason"], found["message"]) if found else ("", "", "")

    def wait(self, name: str, kind: str, status: str, reason: str) -> str:
        """The message of a condition, as soon as it has this status and reason."""
        eventually(
            lambda: self.told(name, kind)[:2] == (status, reason), f"{name} is {kind}={status}, {reason}"
        )
        return self.told(name, kind)[2]

    def wait_admitted(self, *names: str) -> None:
        for name in names:
            assert self.wait(name, "Admitted", "True", "Admitted") == "The workload is admitted"

    def hosts(self, name: str) -> dict[str, int]:
        """Where a Workload's pods belong, as the old version tells it."""
        parts = self.workload(name, OLD_WORKLOADS)["status"]["admission"]["podSetAssignments"]
        return hosts_in(parts)

    def finish(self, *names: str) -> None:
        done = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": "done"}
        value = done | {"lastTransitionTime": "2026-01-01T00:00:00Z"}
        change = json.dumps([{"op": "add", "path": "/status/conditions/-", "value": value}])
        self.kubectl(
            "patch", WORKLOADS, *names, "-n", "default", "--subresource=status", "--type=json", "-p", change
        )

    def events(self, name: str) -> list[tuple[str, str, str]]:
        """Type, reason and message of what was announced about a Workload, by time and reason."""
        selector = f"involvedObject.uid={self.workload(name)['metadata']['uid']}"
        found = self.cluster.get("events", "-n", "default", f"--field-selector={selector}")["items"]
        found.sort(key=lambda event: (event["lastTimestamp"], event["reason"]))
        return [(event["type"], event["reason"], event["message"]) for event in found]


def hosts_in(parts: list[Object]) -> dict[str, int]:
    """The hosts of the domains in an admission of the old version."""
    return {
        domain["values"][-1]: domain["count"]
        for part in parts
        for domain in (part.get("topologyAssignment") or {}).get("domains") or ()
    }


# ── objects ────────────────────────────────────────────────────────────────────────────────────────


def made(kind: str, name: str, spec: Object) -> Object:
    meta = {"name": name} | ({"namespace": "default"} if kind in ("LocalQueue", "Workload") else {})
    return {"apiVersion": API, "kind": kind, "metadata": meta, "spec": spec}


def hosts(pool: str, racks: int = 2, each: int = 2) -> list[Object]:
    """Hosts of four GPUs, in racks of one block."""
    return [
        kwok_node(f"{pool}-r{rack}-h{number}", 4, **{POOL: pool, BLOCK: "b1", RACK: f"r{rack}"})
        for rack in range(1, racks + 1)
        for number in range(1, each + 1)
    ]


def flavor(pool: str, **more: Any) -> Object:
    return made("ResourceFlavor", pool, {"nodeLabels": {POOL: pool}, "topologyName": "hall", **more})


def gpu_queues(name: str, gpus: int, pool: str = "", *, cohort: str = "", **more: Any) -> list[Object]:
    """A ClusterQueue for GPUs of one flavor, and a LocalQueue of the same name."""
    spec: Object = {"namespaceSelector": {}, **more} | ({"cohortName": cohort} if cohort else {})
    whole = cluster_queue(name, [{"name": GPU, "nominalQuota": gpus}], [pool or name], **spec)
    return [whole, made("LocalQueue", name, {"clusterQueue": name})]


def gang_workload(name: str, queue: str, pods: int, gpus: int, *, required: str = "", **more: Any) -> Object:
    limits = {GPU: str(gpus)}
    spec = {"restartPolicy": "Never", "containers": [container(limits, limits)], **more.pop("pod", {})}
    pod_set: Object = {"name": "main", "count": pods, "template": {"spec": spec}}
    if required:
        pod_set["topologyRequest"] = {"required": required}
    return workload(name, pod_set, namespace="default", queueName=queue, **more)


TOPOLOGY = made("Topology", "hall", {"levels": [{"nodeLabel": level} for level in (BLOCK, RACK, HOST)]})


# ── installing and running ─────────────────────────────────────────────────────────────────────────


@contextmanager
def installed(
    cluster: Cluster, namespace: str, folder: Path, *, may_be_refused: bool = False,
    roles: tuple[str, ...] = ("admission", "webhooks"), config: Path | None = None,
) -> Iterator[Site]:  # fmt: skip
    """What `bayplan install` makes for some roles, and a replica that serves the webhooks.

    It `may_be_refused` its rights where the API server is restarted, which then does not know roles yet.
    """
    settings = InstallSettings(
        namespace=namespace, roles=roles, config=config.read_text() if config else EMPTY
    )
    everything = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests(settings)})
    remove = ("delete", "--ignore-not-found", "-f", "-")
    cluster.kubectl(*remove, "--wait", stdin=everything)
    where = ["--kubeconfig", str(cluster.kubeconfig), "--namespace", namespace]
    where += ["--config", str(config)] if config else []
    command = [sys.executable, "-m", "bayplan.cli.commands.install", *where, "--roles", ",".join(roles)]
    subprocess.run(command, check=True, capture_output=True)
    address = free_address()
    point(cluster, f"https://{address}")
    site = Site(cluster, namespace, account_file(cluster, namespace, folder))
    options = ("--roles=webhooks", f"--webhook-listen={address}")
    with running(site, folder / "webhooks", *options, may_be_refused=True):  # once its rights are taken away
        eventually(lambda: trusted(site), "the cluster trusts the webhooks")
        site.apply(TOPOLOGY)
        try:
            yield site
            assert may_be_refused or "forbidden" not in (folder / "webhooks" / "log").read_text()
        finally:  # while there is somebody to convert what is left
            _release(site)
            cluster.kubectl(*remove, "--wait=false", stdin=everything)
            cluster.kubectl("wait", "--for=delete", "--timeout=120s", "crd", *converted())


@contextmanager
def running(
    site: Site, folder: Path, *options: str, may_be_refused: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """`bayplan run` with the rights that were installed and no others, ended as a kubelet would end it."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "bayplan", "run", f"--namespace={site.namespace}", *options]
    with (folder / "log").open("a") as log:
        process = subprocess.Popen([*command, f"--kubeconfig={site.kubeconfig}"], stdout=log, stderr=log)
    try:
        yield process
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0, (folder / "log").read_text()
        assert may_be_refused or "forbidden" not in (folder / "log").read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


@contextmanager
def with_queue(cluster: Cluster, namespace: str, folder: Path, pool: str) -> Iterator[Site]:
    """An installation with four hosts, and a queue of their pool's name for all that they have."""
    with installed(cluster, namespace, folder) as site:
        site.add_hosts(*hosts(pool))
        site.apply(flavor(pool), *gpu_queues(pool, 16))
        yield site


def admitting(site: Site, folder: Path, *options: str) -> Any:
    """A replica that admits, with a journal."""
    return running(site, folder, "--roles=admission", f"--journal={folder / 'journal'}", *options)


def replayed(folder: Path) -> str:
    """What `bayplan replay` says of a replica's journal at the end."""
    command = [sys.executable, "-m", "bayplan", "replay", "--quiet", str(folder / "journal")]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()[-1]


def account_file(cluster: Cluster, namespace: str, folder: Path) -> Path:
    """A kubeconfig of the account that the replicas run under."""
    admin = json.loads(cluster.kubectl("config", "view", "--raw", "-o", "json"))
    token = cluster.kubectl("create", "token", "bayplan", "-n", namespace, "--duration=72h").strip()
    path = folder / "kubeconfig"
    path.write_text(json.dumps({**admin, "users": [{"name": "admin", "user": {"token": token}}]}))
    return path


def trusted(site: Site) -> bool:
    """Whether the cluster knows the authority of the webhooks wherever it asks them."""
    get = site.cluster.get
    certificates = get("secret", SECRET_NAME, "-n", site.namespace).get("data") or {}
    hooks = [hook for kind in CONFIGURATIONS for hook in get(kind, "bayplan")["webhooks"]]
    definitions = get("crd", *converted())["items"]
    asked = [*hooks, *(one["spec"]["conversion"]["webhook"] for one in definitions)]
    bundles = {one["clientConfig"].get("caBundle") for one in asked}
    return len(bundles) == 1 and None not in bundles and bool(certificates)


def _release(site: Site) -> None:
    """Take away what would keep objects from being deleted, and the hosts."""
    for kind in ("clusterqueues", "resourceflavors", "topologies"):
        for one in site.cluster.get(f"{kind}.kueue.x-k8s.io")["items"]:
            if one["metadata"].get("finalizers"):
                change = json.dumps({"metadata": {"finalizers": None}})
                site.kubectl(
                    "patch", f"{kind}.kueue.x-k8s.io", one["metadata"]["name"], "--type=merge", "-p", change
                )
    site.kubectl("delete", "node", "-l", POOL)
