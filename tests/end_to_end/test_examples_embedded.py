"""Every example, from its files, on a cluster in memory: kubectl talks to it, and time is made to pass."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bayplan.assembly.local_cluster import ClusterShape, LocalCluster
from bayplan.cli.config.options import configure
from bayplan.runtime.core.clock import VirtualClock
from tests.end_to_end.walk import (
    ASKED,
    CONFIGURATION,
    EXAMPLES,
    KINDS,
    WORKLOADS,
    Example,
    Object,
    Walk,
    commands,
    examples,
)

LINES_MAX = 60
RUNNING = "kubectl get pods -l others=here -o jsonpath='{.items[*].status.phase}'"
BYSTANDER_QUEUE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: bystander}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: bystander}
spec:
  namespaceSelector: {}
  resourceGroups:
    - coveredResources: [cpu]
      flavors: [{name: bystander, resources: [{name: cpu, nominalQuota: 100}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: bystander, namespace: default}
spec: {clusterQueue: bystander}
---
apiVersion: autoscaling.x-k8s.io/v1
kind: ProvisioningRequest
metadata: {name: job-a-bystander-12345-order-1, namespace: default}
spec: {provisioningClassName: other.example.com, podSets: [{podTemplateRef: {name: none}, count: 7}]}
"""
BYSTANDER = """---
apiVersion: batch/v1
kind: Job
metadata: {name: a-bystander-NAME, namespace: default, labels: {LABELS}}
spec:
  parallelism: 2
  completions: 2
  completionMode: Indexed
  template:
    metadata:
      labels: {others: here, training.kubeflow.org/job-role: launcher}
    spec:
      schedulerName: SCHEDULER
      restartPolicy: Never
      nodeSelector: {topology.bayplan.dev/block: b01}
      containers: [{name: main, image: registry.example.com/other:1, resources: {requests: {cpu: "1"}}}]
"""
OTHERS = (
    ("in-a-queue", "kueue.x-k8s.io/queue-name: bystander", "default-scheduler"),
    ("alone", "team: other", "default-scheduler"),
    ("of-ours", "team: other", "bayplan"),
)
BYSTANDERS = BYSTANDER_QUEUE + "".join(
    BYSTANDER.replace("NAME", name).replace("LABELS", labels).replace("SCHEDULER", scheduler)
    for name, labels, scheduler in OTHERS
)
"""What others have in the cluster. No example may touch it, or show it."""


@dataclass(frozen=True, slots=True)
class InMemory:
    """What `bayplan up --grouper` starts, hosts and topology of its own and all, in virtual time."""

    home: LocalCluster
    clock: VirtualClock
    kubectl: Path
    kubeconfig: Path

    def play(self, seconds: float = 0.5) -> None:
        for _ in range(10):
            self.home.step()
        self.clock.advance(seconds)
        self.home.step()

    def patient(self) -> range:
        return range(60)

    def listed(self, kinds: str) -> list[Object]:
        """From the store: the commands of the examples show that kubectl gets the same."""
        store = self.home.store
        with self.home.lock:
            return [
                item
                for kind in kinds.split(",")
                for resource in store.resources.stored.values()
                if kind in (resource.plural, resource.qualified)
                for item in store.list(resource, "default").items
            ]


@pytest.fixture(scope="module")
def walk(program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    clock = VirtualClock(wall=time.time())
    settings = configure(str(CONFIGURATION)).settings
    home = LocalCluster(ClusterShape(blocks=1, racks=1, hosts=2), clock, settings=settings, grouper=True)
    kubeconfig = tmp_path_factory.mktemp("examples") / "kubeconfig"
    home.api_server.start()
    home.api_server.write_kubeconfig(kubeconfig)
    found = Walk(InMemory(home, clock, Path(program), kubeconfig))
    found.run("kubectl apply -f cluster/nodes.yaml -f cluster/queues.yaml")
    others = kubeconfig.with_name("others.yaml")
    others.write_text(BYSTANDERS, encoding="utf-8")
    found.run(f"kubectl apply -f {others}")
    found.until(lambda: found.run(RUNNING).split() == ["Running"] * 6, "the bystanders run")
    yield found
    home.api_server.stop()


def test_the_store_lists_what_kubectl_gets(walk: Walk) -> None:
    kinds = f"{KINDS},{WORKLOADS},{ASKED},nodes,clusterqueues"
    told = json.loads(walk.run(f"kubectl get {kinds} -o json"))["items"]
    uids = {(one["kind"], one["metadata"]["uid"]) for one in told}
    assert {"Job", "Pod", "Workload", "Node", "ClusterQueue"} <= {kind for kind, _ in uids}
    assert {(one["kind"], one["metadata"]["uid"]) for one in walk.stage.listed(kinds) or ()} == uids


@pytest.mark.parametrize("example", examples(), ids=lambda one: one.name)
def test_an_example_shows_what_it_says_and_leaves_nothing(walk: Walk, example: Example) -> None:
    replace(walk, folder=example.folder).through(example)


@pytest.mark.parametrize("example", examples(), ids=lambda one: one.name)
def test_an_example_tells_all_its_commands_on_one_page(example: Example) -> None:
    page = (example.folder / "README.md").read_text(encoding="utf-8")
    assert len(page.splitlines()) <= LINES_MAX
    assert commands(example) == [step["run"] for step in example.steps if "run" in step]
    for step in example.steps:
        assert step.get("shows", "") in page
    shown = [example.folder / step["shows"] for step in example.steps if "shows" in step]
    assert any(one.read_text(encoding="utf-8") in page for one in shown), "what one sees"
    assert f"({example.name}/README.md)" in (EXAMPLES / "README.md").read_text(encoding="utf-8")
