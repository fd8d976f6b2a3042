"""The pods of a Deployment, run from the unpacked image as a kubelet would: arguments, volumes and account.

Only addresses differ: all of them share the loopback interface of this machine, each with ports of its own.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from bayplan.assembly.install_settings import USER
from bayplan.runtime.webhooks.http_server import Address
from tests.end_to_end.objects import eventually
from tests.support.listening import free_address
from tests.support.unpacked_image import UnpackedImage

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

Object = dict[str, Any]
_ADDRESS = re.compile(r"--([a-z-]*listen)=0\.0\.0\.0:\d+")


@dataclass(frozen=True, slots=True)
class DeployedPod:
    """A container that runs, and where it listens."""

    name: str
    addresses: dict[str, Address]  # by option
    log: Path

    def is_ready(self) -> bool:
        """Whether it answers the readiness probe of the Deployment."""
        url = f"http://{self.addresses['listen']}/readyz?exclude=leader"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@contextmanager
def running_pods(
    cluster: Cluster, image: UnpackedImage, namespace: str, selector: str, folder: Path
) -> Iterator[list[DeployedPod]]:
    """Run every pod that a selector finds, until the end of the block; then end them as a kubelet would."""
    with ExitStack() as stack:
        pods = cluster.get("pods", "-n", namespace, "-l", selector)["items"]
        started = [
            stack.enter_context(_running(cluster, image, pod, folder / pod["metadata"]["name"]))
            for pod in pods
        ]
        for one in started:
            eventually(one.is_ready, f"{one.name} is ready")
        yield started


@contextmanager
def _running(cluster: Cluster, image: UnpackedImage, pod: Object, folder: Path) -> Iterator[DeployedPod]:
    (container,) = pod["spec"]["containers"]
    addresses: dict[str, Address] = {}

    def moved(found: re.Match[str]) -> str:
        addresses[found[1]] = free_address()
        return f"--{found[1]}={addresses[found[1]]}"

    arguments = [_ADDRESS.sub(moved, argument) for argument in container["args"]]
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    volumes = {one["name"]: _volume(cluster, pod, one, folder) for one in pod["spec"]["volumes"]}
    mounts = {
        one["mountPath"]: path
        for one in container["volumeMounts"]
        if (path := volumes[one["name"]]) is not None
    }
    server = urlsplit(cluster.server)
    environment = image.environment | {one["name"]: one["value"] for one in container.get("env", ())}
    environment |= {
        "KUBERNETES_SERVICE_HOST": str(server.hostname), "KUBERNETES_SERVICE_PORT": str(server.port)
    }  # fmt: skip
    log = folder / "log"
    with log.open("w") as out:
        process = subprocess.Popen(
            image.command(*arguments, mounts=mounts), env=environment, stdout=out, stderr=out
        )
    try:
        yield DeployedPod(pod["metadata"]["name"], addresses, log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(40) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _volume(cluster: Cluster, pod: Object, volume: Object, folder: Path) -> Path | None:
    """A volume of a pod as a folder; None for /tmp, which the image is entered with."""
    if volume["name"] == "tmp":
        return None
    path: Path = folder / volume["name"]
    path.mkdir()
    namespace = pod["metadata"]["namespace"]
    match volume:
        case {"emptyDir": _}:
            os.chown(path, USER, USER)
            return path
        case {"configMap": {"name": name}}:
            files = cluster.get("configmap", name, "-n", namespace)["data"]
        case {"projected": _}:
            bound = ("--bound-object-kind=Pod", f"--bound-object-name={pod['metadata']['name']}")
            account = pod["spec"]["serviceAccountName"]
            token = cluster.kubectl("create", "token", account, "-n", namespace, *bound).strip()
            authority = cluster.authority.read_text(encoding="utf-8")
            files = {"token": token, "ca.crt": authority, "namespace": namespace}
        case _:
            raise AssertionError(f"a kubelet of this test has no volume {volume}")
    for name, text in files.items():
        (path / name).write_text(text, encoding="utf-8")
        (path / name).chmod(0o644)
    path.chmod(0o755)
    return path
