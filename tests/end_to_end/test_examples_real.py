"""Every example, from its files, on a real control plane: only kube-scheduler and the kubelets are played."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bayplan.backends.stagehands.binding import bindings
from bayplan.backends.stagehands.definitions import provisioning_requests
from tests.end_to_end.admission_site import Site, admitting, installed
from tests.end_to_end.objects import bind
from tests.end_to_end.walk import Example, Walk, examples

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class Real:
    """A site where Bayplan admits; looking at it takes time enough for others to get on."""

    site: Site

    @property
    def kubectl(self) -> Path:
        return self.site.cluster.kubectl_path

    @property
    def kubeconfig(self) -> Path:
        return self.site.cluster.kubeconfig

    def play(self) -> None:
        """As kube-scheduler would: bind what was told its host."""
        cluster = self.site.cluster
        pods = cluster.get("pods", "-n", "default", "--field-selector=spec.nodeName=")["items"]
        told = [pod for pod in pods if not pod["spec"].get("schedulingGates")]
        for pod, node in bindings(told, cluster.get("nodes")["items"]) if told else ():
            bind(cluster, "default", pod["metadata"]["name"], node)

    def patient(self) -> Iterator[None]:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            yield None
            time.sleep(0.1)


@pytest.fixture(scope="module")
def walk(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    folder = tmp_path_factory.mktemp("examples")
    with installed(cluster, "examples-test", folder) as site:
        site.apply(provisioning_requests())
        found = Walk(Real(site))
        found.run("kubectl apply -f cluster/nodes.yaml -f cluster/queues.yaml")
        with admitting(site, folder / "run", "--pod-batch-seconds=0.1"):
            yield found
            for kind in ("jobs", "jobsets", "pods", "workloads.kueue.x-k8s.io"):
                found.run(f"kubectl delete {kind} --all --wait=false")
            found.run("kubectl delete -f cluster/queues.yaml --timeout=30s")
        site.kubectl("delete", "crd", provisioning_requests()["metadata"]["name"])


@pytest.mark.parametrize("example", examples("real"), ids=lambda one: one.name)
def test_an_example_shows_what_it_says_and_leaves_nothing(walk: Walk, example: Example) -> None:
    replace(walk, folder=example.folder).through(example)
