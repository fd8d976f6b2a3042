"""`bayplan place` and `bayplan explain` where nodes tell of their zones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bayplan.backends.crds import DEFINITIONS
from bayplan.backends.fake_controllers.manifests import job
from bayplan.cli.commands.main import main
from bayplan.dialects.nrt.wire import TOPOLOGIES
from tests.support.api_objects import node
from tests.support.numa_crd import definition, topology
from tests.support.queued_cluster import (
    RACK,
    QueuedCluster,
    admitted,
    furnish,
    queued_cluster,
    queued_workload,
)

GPU = "nvidia.com/gpu"
ZONE: dict[str, str | int] = {"cpu": "4", "memory": "32Gi", GPU: 2}
TORN = {**ZONE, GPU: 1}


def gpu_node(name: str, rack: str) -> dict[str, Any]:
    return node(name, {"cpu": "8", "memory": "64Gi", "pods": "110", GPU: "4"}, {"rack": rack})


def wide(name: str, pods: int) -> dict[str, Any]:
    found = job(name, pods, 2, {"kueue.x-k8s.io/podset-required-topology": "rack"}, 60)
    asks = {"cpu": "3", "memory": "4Gi", GPU: "2"}
    found["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": asks, "limits": asks}
    return found


NODES = [gpu_node("n0", "r0"), gpu_node("n1", "r0"), gpu_node("n2", "r1"), gpu_node("n3", "r1")]
ZONES = [topology(f"n{at}", (TORN, TORN) if at < 2 else (ZONE, ZONE)) for at in range(4)]


def place(folder: Path, *objects: dict[str, Any], options: tuple[str, ...] = ()) -> Result:
    file = folder / "all.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    return CliRunner().invoke(main, ["place", "-f", str(file), "--levels", "rack", *options])


def test_only_pods_that_nodes_can_align_are_counted(tmp_path: Path) -> None:
    found = place(tmp_path, *NODES, *ZONES, wide("a", 4), options=("--zones",))
    assert found.exit_code == 0, found.output
    assert "n2: requires one zone for each container" in found.output
    assert "zone 1: 2 gpu, 4 cpu, 32Gi memory free  ← 1 × main/main" in found.output
    assert "n0: requires" not in found.output


def test_the_next_gang_sees_the_zones_that_are_taken(tmp_path: Path) -> None:
    found = place(tmp_path, *NODES, *ZONES, wide("a", 2), wide("b", 2), wide("c", 1))
    assert found.exit_code == 1
    assert found.output.count("placed:") == 2
    assert "cannot align container: node n0: container main asks for 3 of cpu" in found.output
    assert "zone 0 has 1 of nvidia.com/gpu, zone 1 has 1 of nvidia.com/gpu" in found.output


def test_without_reports_only_amounts_count(tmp_path: Path) -> None:
    found = place(tmp_path, *NODES, wide("a", 4), options=("--zones",))
    assert found.exit_code == 0
    assert "NUMA zones are unknown" in found.output


def test_a_report_that_makes_no_sense_is_noted(tmp_path: Path) -> None:
    odd = topology("n0", (ZONE,), policy="always")
    found = place(tmp_path, *NODES, odd, wide("a", 1))
    assert found.exit_code == 0
    assert "attribute topologyManagerPolicy is 'always', which is not known" in found.output


def test_what_an_earlier_gang_took_is_gone_from_the_drawing(tmp_path: Path) -> None:
    found = place(tmp_path, *NODES, *ZONES, wide("a", 3), wide("b", 3), options=("--zones",))
    explanation = found.output.partition("default/b")[2]
    assert "2 with room for a pod, but not in one NUMA zone" in explanation
    assert "… 1 more rack     8 of 8   16 of 16   128Gi of 128Gi      0" in explanation, (
        "it fits none of them"
    )
    drawing = explanation.partition("    n3: requires one zone for each container\n")[2]
    assert drawing.splitlines() == [
        "      zone 0: 0 gpu, 1 cpu, 28Gi memory free",
        "      zone 1: 2 gpu, 4 cpu, 32Gi memory free",
    ]
    assert "room in zones" not in found.output, "no pod requests a resource of that name"


def test_pods_that_are_aligned_whole_and_nodes_that_do_not_insist_are_told_apart(tmp_path: Path) -> None:
    whole = topology("n0", (ZONE, ZONE), scope="pod")
    easy = topology("n1", (ZONE,), policy="best-effort")
    found = place(tmp_path, *NODES[:2], whole, easy, wide("a", 4), options=("--zones",))
    assert found.exit_code == 0, found.output
    assert [line.strip() for line in found.output.splitlines()[-5:]] == [
        "n0: requires one zone for the pod",
        "zone 0: 2 gpu, 4 cpu, 32Gi memory free  ← 1 × main",
        "zone 1: 2 gpu, 4 cpu, 32Gi memory free  ← 1 × main",
        "n1: aligns each container if possible",
        "zone 0: 2 gpu, 4 cpu, 32Gi memory free",
    ]


def test_pod_sets_that_differ_are_moved_apart(tmp_path: Path) -> None:
    """Each of them fits the first node of the rack by itself, and both do by amounts; not in its zones."""
    half = topology("n2", (ZONE, {**ZONE, GPU: 0})), topology("n3", (ZONE, {**ZONE, GPU: 0}))
    jobs = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "both"},
        "spec": {"replicatedJobs": [
            {"name": name, "replicas": 1, "template": {"spec": wide(name, 1)["spec"]}} for name in ("a", "b")
        ]},
    }  # fmt: skip
    second = jobs["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"]  # type: ignore[index]
    second["containers"][0]["resources"]["limits"] |= {GPU: "1"}
    second["containers"][0]["resources"]["requests"] |= {GPU: "1"}
    found = place(tmp_path, *NODES[2:], *half, jobs, options=("--zones",))
    assert found.exit_code == 0, found.output
    assert "placed: 2 pods on 2 hosts, 1 rack" in found.output


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueuedCluster]:
    """Only the last of eight hosts has a zone with two GPUs."""
    with queued_cluster(tmp_path_factory.mktemp("zones")) as made:
        furnish(made)
        made.store.create(DEFINITIONS, definition())
        torn: dict[str, str | int] = {"cpu": "32", GPU: 1}
        for number in range(1, 9):
            first = {**torn, GPU: 2 if number == 8 else 1}
            made.store.create(TOPOLOGIES, topology(f"h{number}", (first, torn)))
        made.submit(queued_workload("fits", 1, 2, required=RACK))
        made.submit(queued_workload("waits", 2, 2, required=RACK))
        usage = {"cpu": "8", GPU: "2"}
        made.submit(
            queued_workload("runs", 1, 2, required=RACK), admitted("left-queue", "a100", usage, {"h1": 1})
        )
        yield made


@pytest.mark.parametrize(("gang", "first"), [("fits", "h8"), ("runs", "h1")])
def test_explain_draws_the_zones_where_a_gang_goes_or_stands(
    cluster: QueuedCluster, gang: str, first: str
) -> None:
    found = cluster.run("explain", f"ml/{gang}", "--zones")
    drawing = found.output.partition("zones:\n")[2].splitlines()
    assert drawing[:3] == [
        f"  {first}: requires one zone for each container",
        f"    zone 0: {2 if first == 'h8' else 1} gpu, 32 cpu free",
        "    zone 1: 1 gpu, 32 cpu free",
    ]
    assert "requires" not in "".join(drawing[3:])
    assert "zones:" not in cluster.run("explain", f"ml/{gang}").output, "only if asked"


def test_explain_says_that_zones_keep_a_gang_waiting(cluster: QueuedCluster) -> None:
    told = cluster.run("explain", "ml/waits", "--zones").output
    assert "comes closest with room for 0 of 2 pods; the NUMA zones of its nodes do not fit the pods" in told
    assert "of 8 nodes: 8 with room for a pod, but not in one NUMA zone" in told
    assert "zone 0 has 1 of nvidia.com/gpu, zone 1 has 1 of nvidia.com/gpu" in told
    assert told.count("requires one zone") == 8


def test_explain_without_reports_says_so(tmp_path: Path) -> None:
    with queued_cluster(tmp_path) as made:
        furnish(made)
        made.submit(queued_workload("a", 1, 2, required=RACK))
        assert "zones: no node reports NUMA zones" in made.run("explain", "ml/a", "--zones").output
