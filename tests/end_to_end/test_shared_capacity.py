"""Queued gangs and plain pods want the same hosts: each host is given once, in one process and in two."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.end_to_end.admission_site import (
    BLOCK,
    GPU,
    POOL,
    RACK,
    WORKLOADS,
    Site,
    flavor,
    gpu_queues,
    hosts,
    installed,
    made,
    running,
)
from tests.end_to_end.objects import Object, eventually
from tests.support.api_objects import container, job, pod

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

pytestmark = pytest.mark.minutes(4)
ROUNDS, POOLS = 10, 10
RACK_ROUNDS, RACK_POOLS = 4, ("racked0", "racked1", "racked2")  # their topology ends at the rack
PROCESSES = {
    "one process": [("admission", "scheduler")],
    "two processes": [("admission",), ("scheduler",)],
}
POD = {"schedulerName": "bayplan", "terminationGracePeriodSeconds": 0}
Objects = dict[str, Object]


@pytest.fixture(scope="module")
def site(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Pools of two hosts each, and a queue for each pool."""
    roles = ("admission", "scheduler", "webhooks")
    with installed(cluster, "shared-test", tmp_path_factory.mktemp("shared"), roles=roles) as found:
        pools = [f"shared{number}" for number in range(POOLS)]
        found.add_hosts(*(host for pool in pools for host in hosts(pool, racks=1)))
        found.apply(
            *(flavor(pool) for pool in pools), *(one for pool in pools for one in gpu_queues(pool, 64))
        )
        found.add_hosts(*(host for pool in RACK_POOLS for host in hosts(pool, racks=1)))
        levels = [{"nodeLabel": level} for level in (BLOCK, RACK)]
        found.apply(
            made("Topology", "racks", {"levels": levels}),
            *(flavor(pool, topologyName="racks") for pool in RACK_POOLS),
            *(one for pool in RACK_POOLS for one in gpu_queues(pool, 64)),
        )
        yield found


@contextmanager
def deciding(site: Site, folder: Path, processes: list[tuple[str, ...]]) -> Iterator[None]:
    with ExitStack() as stack:
        for names in processes:
            options = [f"--roles={','.join(names)}", "--pod-batch-seconds=0.1"]
            options += ["--no-elect"] if len(processes) > 1 else []  # they would share one Lease
            stack.enter_context(running(site, folder / names[0], *options))
        yield


def queued_gang(pool: str, **more: Any) -> Object:
    """A queued Job whose pods need a whole host each."""
    limits = {GPU: "4"}
    spec = {"restartPolicy": "Never", "containers": [container(limits, limits)], **POD, **more}
    notes = {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}
    template = {"metadata": {"annotations": notes}, "spec": spec}
    labels = {"kueue.x-k8s.io/queue-name": pool}
    return job(f"gang-{pool}", template, 2, namespace="default", labels=labels, suspend=True)


def plain_pod(pool: str, name: str = "plain", **more: Any) -> Object:
    """A pod that needs a whole host of the pool, and no queue."""
    limits = {GPU: "4"}
    spec: Object = {"containers": [container(limits, limits)], "nodeSelector": {POOL: pool}, **POD, **more}
    return pod(f"{name}-{pool}", namespace="default", **spec)


class Scene:
    """What the API shows of all pools, read at once."""

    def __init__(self, site: Site) -> None:
        listed = site.cluster.get(f"{WORKLOADS},pods", "-n", "default")["items"]
        self.pods = {o["metadata"]["name"]: o for o in listed if o["kind"] == "Pod"}
        self.workloads = {
            o["metadata"]["ownerReferences"][0]["name"]: o
            for o in listed
            if o["kind"] == "Workload" and o["metadata"].get("ownerReferences")
        }

    def is_true(self, name: str, kind: str) -> bool:
        conditions = (self.workloads.get(name, {}).get("status") or {}).get("conditions") or []
        return any(c["type"] == kind and c["status"] == "True" for c in conditions)

    def assigned(self, name: str) -> set[str]:
        """The hosts that an admitted Job has."""
        if not self.is_true(name, "Admitted") or self.is_true(name, "Evicted"):
            return set()
        parts = self.workloads[name]["status"]["admission"]["podSetAssignments"]
        return set(hosts_of(parts))

    def bound(self, prefix: str) -> set[str]:
        found = (o["spec"].get("nodeName") for n, o in self.pods.items() if n.startswith(prefix))
        return {host for host in found if host}

    def promised_twice(self, pool: str) -> set[str]:
        """Hosts of an admitted gang that another pod has."""
        return self.assigned(f"gang-{pool}") & self.bound(f"plain-{pool}")


def hosts_of(parts: list[Object]) -> list[str]:
    """The hosts in an admission of the newer version."""
    found: list[str] = []
    for part in parts:
        for piece in (part.get("topologyAssignment") or {}).get("slices") or ():
            values = piece["valuesPerLevel"][-1]
            if "universal" in values:
                found.append(values["universal"])
                continue
            given = values["individual"]
            prefix, suffix = given.get("prefix", ""), given.get("suffix", "")
            found += [f"{prefix}{root}{suffix}" for root in given["roots"]]
    return found


def is_settled(scene: Scene, pool: str) -> bool:
    """Either the gang runs on both hosts and the pod waits, or the pod runs and the gang has nothing."""
    runs, assigned = scene.bound(f"plain-{pool}"), scene.assigned(f"gang-{pool}")
    if runs:
        return not assigned and not scene.bound(f"gang-{pool}") and f"gang-{pool}" in scene.workloads
    return len(assigned) == 2 and scene.bound(f"gang-{pool}") == assigned


def delete(site: Site, *kinds: str) -> None:
    for kind in kinds:
        site.kubectl("delete", kind, "--all", "-n", "default", "--wait=false", "--ignore-not-found")

    def is_empty() -> bool:
        scene = Scene(site)
        return not scene.pods and not scene.workloads

    eventually(is_empty, "jobs and pods are gone")


@pytest.mark.parametrize("processes", PROCESSES.values(), ids=PROCESSES)
def test_a_gang_and_a_pod_of_the_same_moment_never_have_the_same_host(
    site: Site, tmp_path: Path, processes: list[tuple[str, ...]]
) -> None:
    pools = [f"shared{number}" for number in range(POOLS)]
    winners: set[bool] = set()
    with deciding(site, tmp_path, processes):
        for number in range(ROUNDS):
            pairs = [(queued_gang(pool), plain_pod(pool)) for pool in pools]
            together = [one for pair in pairs for one in (pair if number % 2 else reversed(pair))]
            site.apply(*together)

            def settled() -> bool:
                scene = Scene(site)
                if len(processes) == 1:
                    assert not any(scene.promised_twice(pool) for pool in pools)
                return all(is_settled(scene, pool) for pool in pools)

            eventually(settled, "in each pool one of the two runs and the other waits")
            scene = Scene(site)
            assert not any(scene.promised_twice(pool) for pool in pools)
            winners |= {bool(scene.bound(f"plain-{pool}")) for pool in pools}
            delete(site, "jobs", "pods")
    assert winners, "rounds were played"


def is_settled_in_rack(scene: Scene, pool: str) -> bool:
    """Either the gang runs on both hosts of the rack, or the pod runs and the gang has nothing."""
    admitted, gang = scene.assigned(f"gang-{pool}"), scene.bound(f"gang-{pool}")
    if scene.bound(f"plain-{pool}"):
        return not admitted and not gang and f"gang-{pool}" in scene.workloads
    return bool(admitted) and len(gang) == 2


@pytest.mark.parametrize("processes", PROCESSES.values(), ids=PROCESSES)
def test_a_gang_in_a_rack_and_a_pod_of_the_same_moment_never_have_the_same_host(
    site: Site, tmp_path: Path, processes: list[tuple[str, ...]]
) -> None:
    """The topology ends at the rack, so the hosts of an admitted gang are not known before its pods come."""
    with deciding(site, tmp_path, processes):
        for number in range(RACK_ROUNDS):
            pairs = [(queued_gang(pool), plain_pod(pool)) for pool in RACK_POOLS]
            site.apply(*(one for pair in pairs for one in (pair if number % 2 else reversed(pair))))

            def settled() -> bool:
                scene = Scene(site)
                if len(processes) == 1:
                    both = [
                        p for p in RACK_POOLS if scene.assigned(f"gang-{p}") and scene.bound(f"plain-{p}")
                    ]
                    assert not both, "a rack of two hosts is promised to two pods and used by a third"
                return all(is_settled_in_rack(scene, pool) for pool in RACK_POOLS)

            eventually(settled, "in each rack one of the two runs and the other waits")
            delete(site, "jobs", "pods")


@pytest.mark.parametrize("processes", PROCESSES.values(), ids=PROCESSES)
def test_the_rack_of_an_admitted_gang_is_held_until_its_pods_come(
    site: Site, tmp_path: Path, processes: list[tuple[str, ...]]
) -> None:
    pool = RACK_POOLS[0]
    with deciding(site, tmp_path, processes):
        site.apply(queued_gang(pool, schedulingGates=[{"name": "example.com/later"}]))
        eventually(lambda: bool(Scene(site).assigned(f"gang-{pool}")), "the gang is admitted")
        site.apply(plain_pod(pool))

        def told() -> bool:
            conditions = Scene(site).pods[f"plain-{pool}"].get("status", {}).get("conditions") or []
            return any(c["type"] == "PodScheduled" and c["status"] == "False" for c in conditions)

        eventually(told, "the pod is told that it waits")
        assert Scene(site).bound(f"plain-{pool}") == set()
        site.kubectl("delete", "job", f"gang-{pool}", "-n", "default", "--wait=false")
        eventually(lambda: len(Scene(site).bound(f"plain-{pool}")) == 1, "the pod has its turn")
        delete(site, "jobs", "pods")


@pytest.mark.parametrize("processes", PROCESSES.values(), ids=PROCESSES)
def test_the_hosts_of_an_admitted_gang_are_held_until_its_pods_come(
    site: Site, tmp_path: Path, processes: list[tuple[str, ...]]
) -> None:
    pool = "shared0"
    with deciding(site, tmp_path, processes):
        site.apply(queued_gang(pool))
        eventually(lambda: len(Scene(site).assigned(f"gang-{pool}")) == 2, "the gang is admitted")
        eventually(lambda: len(Scene(site).bound(f"gang-{pool}")) == 2, "the gang runs")
        site.kubectl("delete", "pods", "-n", "default", "-l", f"job-name=gang-{pool}", "--wait=false")
        site.apply(plain_pod(pool))  # while the Job makes its pods anew
        eventually(lambda: len(Scene(site).bound(f"gang-{pool}")) == 2, "the gang runs again")
        assert Scene(site).bound(f"plain-{pool}") == set()
        site.kubectl("delete", "job", f"gang-{pool}", "-n", "default", "--wait=false")
        eventually(lambda: len(Scene(site).bound(f"plain-{pool}")) == 1, "the pod has its turn")
        site.apply(queued_gang(pool))
        site.kubectl("wait", "-n", "default", "--for=create", f"job/gang-{pool}", "--timeout=30s")
        eventually(lambda: f"gang-{pool}" in Scene(site).workloads, "the gang is queued")
        assert Scene(site).assigned(f"gang-{pool}") == set()
        site.kubectl("delete", "pod", f"plain-{pool}", "-n", "default", "--wait=false")
        eventually(lambda: len(Scene(site).bound(f"gang-{pool}")) == 2, "the gang runs after the pod")
        delete(site, "jobs", "pods")


@pytest.mark.parametrize("processes", PROCESSES.values(), ids=PROCESSES)
def test_a_pod_of_high_priority_does_not_take_a_host_that_is_promised(
    site: Site, tmp_path: Path, processes: list[tuple[str, ...]]
) -> None:
    pool, high = "shared1", "shared-high"
    meta = {"metadata": {"name": high}, "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    site.apply({**meta, "value": 1000})
    with deciding(site, tmp_path, processes):
        waits = {"schedulingGates": [{"name": "example.com/later"}]}
        site.apply(queued_gang(pool, **waits))
        eventually(lambda: len(Scene(site).assigned(f"gang-{pool}")) == 2, "the gang is admitted")
        site.apply(plain_pod(pool, priorityClassName=high))

        def told() -> bool:
            conditions = Scene(site).pods[f"plain-{pool}"].get("status", {}).get("conditions") or []
            return any(c["type"] == "PodScheduled" and c["status"] == "False" for c in conditions)

        eventually(told, "the pod is told that it waits")
        assert Scene(site).bound(f"plain-{pool}") == set()
        delete(site, "jobs", "pods")
    site.kubectl("delete", "priorityclass", high)


@pytest.mark.parametrize("processes", PROCESSES.values(), ids=PROCESSES)
def test_a_replacement_for_a_failed_node_and_a_pod_never_have_the_same_host(
    site: Site, tmp_path: Path, processes: list[tuple[str, ...]]
) -> None:
    pool = "shared2"
    spare = hosts(pool, racks=1, each=3)[2]
    with deciding(site, tmp_path, processes):
        site.apply(queued_gang(pool))
        eventually(lambda: len(Scene(site).bound(f"gang-{pool}")) == 2, "the gang runs")
        failing = sorted(Scene(site).assigned(f"gang-{pool}"))[0]
        site.add_hosts(spare)
        site.apply(plain_pod(pool))
        site.kubectl("delete", "node", failing, "--wait=false")

        def settled() -> bool:
            scene = Scene(site)
            if len(processes) == 1:
                assert not scene.promised_twice(pool)
            runs, assigned = scene.bound(f"plain-{pool}"), scene.assigned(f"gang-{pool}")
            if runs:
                return not assigned or (len(assigned) == 2 and not runs & assigned)
            return len(assigned) == 2 and failing not in assigned and scene.bound(f"gang-{pool}") >= assigned

        eventually(settled, "the spare host has one owner")
        assert not Scene(site).promised_twice(pool)
        delete(site, "jobs", "pods")
    site.kubectl("delete", "node", spare["metadata"]["name"], "--ignore-not-found")
    site.add_hosts(*(one for one in hosts(pool, racks=1) if one["metadata"]["name"] == failing))
