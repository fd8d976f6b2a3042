"""`bayplan explain` for gangs and pods that name us as their scheduler, on a cluster in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from bayplan.assembly.gang_api import gang_api_words, gang_versions
from bayplan.backends.crds import DEFINITIONS
from bayplan.dialects.api import Kind
from bayplan.dialects.kube.gang_api.gates import GROUP, V1ALPHA1, V1ALPHA2, V1ALPHA3, V1BETA1
from bayplan.dialects.nrt.wire import TOPOLOGIES
from bayplan.state.cluster.topology_state import TopologyState
from tests.support.api_objects import pod
from tests.support.numa_crd import definition, topology
from tests.support.queued_cluster import Object, QueuedCluster, queued_cluster

NODES = Kind("", "v1", "Node", "nodes", namespaced=False)
PODS = Kind("", "v1", "Pod", "pods")
WORKLOADS = Kind(GROUP, V1ALPHA1, "Workload", "workloads")
COMPOSITES = Kind(GROUP, V1ALPHA3, "CompositePodGroup", "compositepodgroups")
GROUPS = Kind(GROUP, V1BETA1, "PodGroup", "podgroups")
CLASSES = Kind(GROUP, "v1", "PriorityClass", "priorityclasses", namespaced=False)


def cpu_pod(name: str, cpu: int, **spec: Any) -> Object:
    return pod(name, {"cpu": str(cpu)}, namespace="default", schedulerName="bayplan", **spec)


def _put_composite(made: QueuedCluster) -> None:
    """Two groups, of which one has too few pods."""
    origin = {"workloadName": "w", "templateName": "t"}
    policy = {"gang": {"minGroupCount": 2}}
    meta = {"name": "both", "namespace": "default"}
    made.put(COMPOSITES, {"metadata": meta, "spec": {"schedulingPolicy": policy, "workloadRef": origin}})
    for name in ("left", "right"):
        spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "workloadRef": origin}
        spec["parentCompositePodGroupName"] = "both"
        made.put(GROUPS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
    for name in ("left-0", "left-1", "right-0"):
        made.put(PODS, cpu_pod(name, 1, schedulingGroup={"podGroupName": name.partition("-")[0]}))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueuedCluster]:
    """Two nodes of four CPUs, one of them taken, and no queues."""
    with queued_cluster(tmp_path_factory.mktemp("explain"), defined=False) as made:
        for name in ("n1", "n2"):
            amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
            made.put(NODES, {"metadata": {"name": name}, "status": {"allocatable": amounts}})
        made.put(CLASSES, {"metadata": {"name": "urgent"}, "value": 100})
        made.put(PODS, cpu_pod("low", 4, nodeName="n1"))
        for name, minimum in (("wide", 3), ("short", 4)):
            groups = [{"name": "g", "policy": {"gang": {"minCount": minimum}}}]
            meta = {"name": name, "namespace": "default"}
            made.put(WORKLOADS, {"metadata": meta, "spec": {"podGroups": groups}})
            for number in range(3):
                made.put(PODS, cpu_pod(f"{name}-{number}", 2, workloadRef={"name": name, "podGroup": "g"}))
        _put_composite(made)
        made.put(PODS, cpu_pod("high", 3, priorityClassName="urgent", nodeSelector={"no": "such"}))
        made.put(PODS, cpu_pod("easy", 1))
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        made.put(PODS, cpu_pod("pushy", 4, priorityClassName="urgent", affinity={"nodeAffinity": required}))
        yield made


def told(cluster: QueuedCluster, name: str) -> list[str]:
    result = cluster.run("explain", name)
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


def test_all_nodes_are_indexed_together(cluster: QueuedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one by one, which takes time that grows with their square."""

    def moved(*_: object) -> None:
        raise AssertionError("a node was put in by itself")

    monkeypatch.setattr(TopologyState, "_move", moved)
    assert told(cluster, "default/wide")


def test_a_gang_that_does_not_fit(cluster: QueuedCluster) -> None:
    lines = told(cluster, "default/wide")
    assert lines[:4] == [
        "Workload default/wide/g: pending",
        "  needs 3 pods at once",
        "  0 pods with a node, 3 without",
        "  3 x 2 cpu, priority 0",
    ]
    assert lines[4].startswith("reason: pod group is unschedulable: 2 of 3 pods fit")
    assert lines[-1].startswith("gang API: gangs are PodGroups of scheduling.k8s.io/v1beta1")


def test_a_pod_is_explained_by_its_gang_and_an_incomplete_gang_says_so(cluster: QueuedCluster) -> None:
    lines = told(cluster, "default/short-1")
    assert lines[0] == "Workload default/short/g: incomplete"
    assert any("3 of 4 are there" in line for line in lines)


@pytest.mark.parametrize("name", ["both", "right", "left-0"])
def test_groups_of_groups_are_explained_part_by_part(cluster: QueuedCluster, name: str) -> None:
    lines = told(cluster, f"default/{name}")
    assert lines[:5] == [
        "CompositePodGroup default/both: incomplete",
        "  needs 4 pods at once",
        "  left: 2 pods, 0 with a node, 2 needed",
        "  right: 1 pod, 0 with a node, 2 needed",
        "  0 pods with a node, 3 without",
    ]
    assert any('"both" tree to meet quorum: of pod group "right", 1 of 2 pods' in line for line in lines)


def test_lone_pods(cluster: QueuedCluster) -> None:
    assert "now: 1 pod would start on n2" in told(cluster, "default/easy")
    (reason,) = [line for line in told(cluster, "default/high") if line.startswith("reason")]
    assert "2 node(s) didn't match Pod's node affinity/selector" in reason


def test_the_pods_that_it_would_preempt(cluster: QueuedCluster) -> None:
    assert "would preempt: default/low (priority 0, on n1)" in told(cluster, "default/pushy")


def test_for_machines(cluster: QueuedCluster) -> None:
    result = cluster.run("explain", "default/easy", "-o", "json")
    assert json.loads(result.output)["explanation"][0]["lines"][0] == "Pod default/easy: pending"


def test_what_is_not_there_is_told_as_ever(cluster: QueuedCluster) -> None:
    result = cluster.run("explain", "default/nobody")
    assert result.exit_code == 1
    assert "no queues" in result.output


def test_a_cluster_without_the_gang_api_says_what_is_missing() -> None:
    assert gang_versions(lambda *_: (404, b"")) == gang_versions(lambda *_: (200, b"?")) == ()
    served = b'{"versions": [{"version": "v1"}, {"version": "v1alpha1"}]}'
    assert gang_versions(lambda *_: (200, served)) == (V1ALPHA1,)
    assert "does not serve" in gang_api_words(())
    assert "Workloads of scheduling.k8s.io/v1alpha1" in gang_api_words((V1ALPHA1,))
    assert "PodGroups" in gang_api_words((V1ALPHA2,))


def test_zones_are_drawn_if_asked(cluster: QueuedCluster) -> None:
    bare = cluster.run("explain", "default/easy", "--zones")
    assert "without a NUMA report" in bare.output
    cluster.store.create(DEFINITIONS, definition())
    for name in ("n1", "n2"):
        cluster.store.create(TOPOLOGIES, topology(name, ({"cpu": "2"}, {"cpu": "1"})))
    result = cluster.run("explain", "default/easy", "--zones")
    assert result.output.splitlines()[-3:] == [
        "n2: requires one zone for each container",
        "  zone 0: 2 cpu free",
        "  zone 1: 1 cpu free",
    ]


def test_a_pod_that_is_larger_than_any_node_is_told_the_largest(cluster: QueuedCluster) -> None:
    cluster.put(PODS, cpu_pod("huge", 9))
    lines = told(cluster, "default/huge")
    assert "no node that it may use is large enough for one pod: the largest, n1, has 4 of 9 cpu" in lines
