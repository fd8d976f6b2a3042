"""Two processes and a real API server: the leader is stopped, sleeps past its lease, and wakes up."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.end_to_end.election_replica import TIMING
from tests.end_to_end.objects import eventually

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

PROGRAM = Path(__file__).with_name("election_replica.py")


class Replica:
    """A process of election_replica.py, and what it says."""

    def __init__(
        self, cluster: Cluster, namespace: str, name: str, stop_itself_before_write: int = 0
    ) -> None:
        self.name = name
        command = [sys.executable, str(PROGRAM), str(cluster.kubeconfig), namespace, name]
        self.process = subprocess.Popen(
            [*command, str(stop_itself_before_write)], stdout=subprocess.PIPE, text=True
        )
        self.said: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def hears(self, sentence: str, seconds: float = 30.0) -> list[str]:
        """Wait until it says so; everything it said up to there."""
        heard: list[str] = []
        end = time.monotonic() + seconds
        while not heard or not heard[-1].startswith(sentence):
            try:
                heard.append(self.said.get(timeout=max(0.01, end - time.monotonic())))
            except queue.Empty:
                raise AssertionError(f"{self.name} did not say '{sentence}' but {heard[-10:]}") from None
        return heard

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> None:
        self.signal(signal.SIGTERM)
        assert self.process.wait(20) == 0

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.put(line.rstrip("\n"))


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"election-{request.node.name.replace('_', '-')[5:40].strip('-')}"
    cluster.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "written", "namespace": name}},
    )
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


@contextmanager
def replica(
    cluster: Cluster, namespace: str, name: str, stop_itself_before_write: int = 0
) -> Iterator[Replica]:
    started = Replica(cluster, namespace, name, stop_itself_before_write)
    try:
        yield started
    finally:
        started.kill()


def names(cluster: Cluster, namespace: str) -> list[str]:
    """Who wrote, in order."""
    found: str = cluster.get("configmap", "written", "-n", namespace).get("data", {}).get("names", "")
    return found.split()


def holder(cluster: Cluster, namespace: str) -> str | None:
    spec: dict[str, str] = cluster.get("lease", "bayplan", "-n", namespace)["spec"]
    return spec.get("holderIdentity")


def changes(written: list[str]) -> list[str]:
    """Each writer once for every time that it followed another."""
    return [name for at, name in enumerate(written) if at == 0 or written[at - 1] != name]


def test_a_leader_that_wakes_up_past_its_lease_does_not_write(cluster: Cluster, namespace: str) -> None:
    with replica(cluster, namespace, "a") as a, replica(cluster, namespace, "b") as b:
        leader, other = (a, b) if holder_of_two(cluster, namespace, a, b) == "a" else (b, a)
        leader.signal(signal.SIGSTOP)
        stopped = time.monotonic()
        other.hears("wrote")
        assert time.monotonic() - stopped > TIMING.write_seconds, (
            "it began while the first was still within its time"
        )
        leader.signal(signal.SIGCONT)
        leader.hears("may not write")
        time.sleep(2 * TIMING.retry_seconds)
        assert holder(cluster, namespace) == other.name
        assert changes(names(cluster, namespace))[-2:] == [leader.name, other.name]

        other.end()  # gracefully: the lease is given back
        began = time.monotonic()
        leader.hears("may write")
        assert time.monotonic() - began < TIMING.lease_seconds, "it waited for a lease that was given back"
        leader.hears("wrote")
        leader.end()
        assert holder(cluster, namespace) is None
        assert changes(names(cluster, namespace))[-3:] == [leader.name, other.name, leader.name]


def test_stopped_between_asking_and_writing_it_is_refused(cluster: Cluster, namespace: str) -> None:
    with replica(cluster, namespace, "a", stop_itself_before_write=5) as a:
        a.hears("stops")
        with replica(cluster, namespace, "b") as b:
            b.hears("wrote")
            b.hears("wrote")
            a.signal(signal.SIGCONT)
            heard = a.hears("may not write")
            assert ("was refused" in heard or "got no answer" in heard) and "wrote" not in heard
            assert changes(names(cluster, namespace)) == ["a", "b"]
            b.end()
        a.end()


def holder_of_two(cluster: Cluster, namespace: str, a: Replica, b: Replica) -> str:
    """Who of the two leads, once one does and has written."""
    eventually(lambda: len(names(cluster, namespace)) > 3, "somebody writes")
    found = holder(cluster, namespace)
    assert found in (a.name, b.name)
    return found
