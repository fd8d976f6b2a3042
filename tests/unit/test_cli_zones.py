"""`bayplan place` where nodes tell of their zones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from bayplan.cli.main import main
from bayplan.simulator.objects import job
from tests.numa_definition import topology

GPU = "nvidia.com/gpu"
ZONE: dict[str, str | int] = {"cpu": "4", "memory": "32Gi", GPU: 2}
TORN = {**ZONE, GPU: 1}


def node(name: str, rack: str) -> dict[str, Any]:
    amounts = {"cpu": "8", "memory": "64Gi", "pods": "110", GPU: "4"}
    labels = {"kubernetes.io/hostname": name, "rack": rack}
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": amounts},
    }  # fmt: skip


def wide(name: str, pods: int) -> dict[str, Any]:
    found = job(name, pods, 2, {"kueue.x-k8s.io/podset-required-topology": "rack"}, 60)
    asks = {"cpu": "3", "memory": "4Gi", GPU: "2"}
    found["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": asks, "limits": asks}
    return found


NODES = [node("n0", "r0"), node("n1", "r0"), node("n2", "r1"), node("n3", "r1")]
ZONES = [topology(f"n{at}", (TORN, TORN) if at < 2 else (ZONE, ZONE)) for at in range(4)]


def place(folder: Path, *objects: dict[str, Any], options: tuple[str, ...] = ()) -> Result:
    file = folder / "all.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    return CliRunner().invoke(main, ["place", "-f", str(file), "--levels", "rack", *options])


def test_only_pods_that_nodes_can_align_are_counted(tmp_path: Path) -> None:
    found = place(tmp_path, *NODES, *ZONES, wide("a", 4), options=("--zones",))
    assert found.exit_code == 0, found.output
    assert "n2: insists on one zone for each container" in found.output
    assert "zone 1: 2 gpu, 4 cpu, 32Gi memory free  ← 1 × main/main" in found.output
    assert "n0: insists" not in found.output


def test_the_next_gang_sees_the_zones_that_are_taken(tmp_path: Path) -> None:
    found = place(tmp_path, *NODES, *ZONES, wide("a", 2), wide("b", 2), wide("c", 1))
    assert found.exit_code == 1
    assert found.output.count("placed:") == 2
    assert "cannot align container: node n0: container main asks for 3 of cpu" in found.output
    assert "zone 0 has 1 of nvidia.com/gpu, zone 1 has 1 of nvidia.com/gpu" in found.output


def test_without_reports_only_amounts_count(tmp_path: Path) -> None:
    found = place(tmp_path, *NODES, wide("a", 4), options=("--zones",))
    assert found.exit_code == 0
    assert "nothing is known of zones" in found.output


def test_a_report_that_makes_no_sense_is_noted(tmp_path: Path) -> None:
    odd = topology("n0", (ZONE,), policy="always")
    found = place(tmp_path, *NODES, odd, wide("a", 1))
    assert found.exit_code == 0
    assert "attribute topologyManagerPolicy is 'always', which is not known" in found.output
