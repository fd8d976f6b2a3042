"""A control plane that was started: what its state folder records, how to talk to it, how to stop it."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.controlplane import processes
from tools.controlplane.plan import SCHEDULER, Trouble
from tools.controlplane.processes import Process

RECORD = "cluster.json"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A control plane and its users: `admin` may do everything, `bayplan` what its role allows."""

    kube: str
    state: Path
    server: str
    kubectl_path: Path
    ports: dict[str, int]
    processes: tuple[Process, ...] = ()

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.kubeconfig_of("admin")

    @property
    def authority(self) -> Path:
        """The certificate that every server of this cluster is signed with."""
        return self.state / "pki" / "ca.crt"

    @property
    def has_scheduler(self) -> bool:
        return any(process.name == SCHEDULER.name for process in self.processes)

    def kubeconfig_of(self, user: str) -> Path:
        """A user's kubeconfig, with a client certificate in it."""
        return self.state / f"{user}.kubeconfig"

    def token_of(self, user: str) -> str:
        """A user's bearer token."""
        return (self.state / "pki" / f"{user}.token").read_text()

    def kubectl(self, *arguments: str, user: str = "admin", stdin: str | None = None) -> str:
        """The output of kubectl; raises Trouble with its error output if it fails."""
        command = [str(self.kubectl_path), f"--kubeconfig={self.kubeconfig_of(user)}", *arguments]
        answer = subprocess.run(command, input=stdin, text=True, capture_output=True, check=False)
        if answer.returncode:
            raise Trouble(f"kubectl {' '.join(arguments)} (as {user}): {answer.stderr.strip()}")
        return answer.stdout

    def apply(self, *objects: dict[str, Any], user: str = "admin") -> None:
        """Create or change objects by server-side apply."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "--server-side", "-f", "-", user=user, stdin=json.dumps(listed))

    def get(self, *arguments: str, user: str = "admin") -> dict[str, Any]:
        """`kubectl get` as a dictionary."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "-o", "json", user=user))
        return found


def save(cluster: Cluster) -> None:
    """Write the record; it is complete or absent at any moment."""
    record = asdict(cluster) | {"state": str(cluster.state), "kubectl_path": str(cluster.kubectl_path)}
    unfinished = cluster.state / f".{RECORD}.unfinished"
    unfinished.write_text(json.dumps(record, indent=2) + "\n")
    unfinished.replace(cluster.state / RECORD)


def load(state: Path) -> Cluster | None:
    """The cluster that a state folder records, running or not."""
    path = state.absolute() / RECORD
    if not path.exists():
        return None
    record = json.loads(path.read_text())
    record["processes"] = tuple(Process(**process) for process in record["processes"])
    return Cluster(**record | {"state": path.parent, "kubectl_path": Path(record["kubectl_path"])})


def attach(state: Path) -> Cluster:
    """The running cluster of a state folder."""
    cluster = load(state)
    if cluster is None or not cluster.processes:
        raise Trouble(
            f"A cluster was expected in {state}; none is recorded there. Start one with: make cluster"
        )
    if dead := [process.name for process in cluster.processes if not processes.alive(process)]:
        raise Trouble(
            f"The cluster in {state} has lost {', '.join(dead)}; see {cluster.state / 'logs'}. "
            "Stop the rest with: make cluster-down"
        )
    return cluster


def down(state: Path) -> list[str]:
    """Stop what a state folder records, the last started first; return what was still running."""
    cluster = load(state)
    if cluster is None:
        return []
    stopped = [process.name for process in reversed(cluster.processes) if processes.stop(process)]
    save(Cluster(cluster.kube, cluster.state, cluster.server, cluster.kubectl_path, cluster.ports))
    return stopped
