"""Every example, from its files, on a real control plane.

Played are kube-scheduler, which binds each pod to the host that it was told, and the operators of
LeaderWorkerSets and MPIJobs, by the same stage hands as in memory; and kwok plays the kubelets.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bayplan.backends.fake_controllers.binding import Binder
from bayplan.backends.fake_controllers.controller_manager import OPERATORS, FakeControllerManager
from bayplan.backends.fake_controllers.crds import operator_crds, provisioning_requests
from bayplan.backends.remote.backend import connect
from tests.end_to_end.admission_site import Site, admitting, installed
from tests.end_to_end.objects import PATIENCE
from tests.end_to_end.walk import CONFIGURATION, KINDS, WORKLOADS, Example, Walk, examples

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Real:
    """A site where Bayplan admits; looking at it takes time enough for others to get on."""

    site: Site
    crew: FakeControllerManager
    binder: Binder

    @property
    def kubectl(self) -> Path:
        return self.site.cluster.kubectl_path

    @property
    def kubeconfig(self) -> Path:
        return self.site.cluster.kubeconfig

    def play(self) -> None:
        now = time.time()
        self.crew.step(now)
        self.binder.step(now)

    def listed(self, kinds: str) -> None:
        """Only kubectl knows."""

    def patient(self) -> Iterator[None]:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            yield None
            time.sleep(0.1)


@contextmanager
def played(site: Site) -> Iterator[Real]:
    """The site with everybody who does not run there."""
    backends = [connect(site.cluster.kubeconfig) for _ in range(2)]
    try:
        yield Real(site, FakeControllerManager(backends[0], OPERATORS, hosts=False), Binder(backends[1]))
    finally:
        for backend in backends:
            backend.close()


@pytest.fixture(scope="module")
def walk(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    folder = tmp_path_factory.mktemp("examples")
    kinds = [*operator_crds(), provisioning_requests()]
    names = [kind["metadata"]["name"] for kind in kinds]
    roles = ("admission", "scheduler", "grouper", "webhooks")
    with installed(cluster, "examples-test", folder, roles=roles) as site, played(site) as stage:
        site.apply(*kinds)
        site.kubectl("wait", "--for=condition=established", "--timeout=120s", "crd", *names)
        found = Walk(stage)
        found.run("kubectl apply -f cluster/nodes.yaml -f cluster/queues.yaml")
        ours = ("--roles=admission,scheduler,grouper", f"--config={CONFIGURATION}")
        with admitting(site, folder / "run", "--pod-batch-seconds=0.1", *ours):
            yield found
            found.run(f"kubectl delete {KINDS},{WORKLOADS} --all --wait=false")
            found.run("kubectl delete -f cluster/queues.yaml --timeout=120s")
        site.kubectl("delete", "crd", *names)


@pytest.mark.parametrize("example", examples(), ids=lambda one: one.name)
def test_an_example_shows_what_it_says_and_leaves_nothing(walk: Walk, example: Example) -> None:
    replace(walk, folder=example.folder).through(example)
