"""What the guide to segments tells people to apply can be applied, and does what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from bayplan.assembly.local_cluster import ClusterShape, LocalCluster
from bayplan.backends.fake_controllers.manifests import RACK
from bayplan.dialects.api import Kind
from bayplan.runtime.core.clock import VirtualClock

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "segments.md"
PODS = Kind("", "v1", "Pod", "pods")
NAMESPACES = Kind("", "v1", "Namespace", "namespaces", namespaced=False)
SEGMENT = "kai.scheduler/segment-index"


def manifests() -> list[dict[str, Any]]:
    blocks = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    return [one for block in blocks for one in yaml.safe_load_all(block)]


def test_every_manifest_of_the_guide_can_be_applied_and_its_segments_are_in_racks() -> None:
    home = LocalCluster(ClusterShape(2, 4, 4, 8), VirtualClock(wall=1_800_000_000.0), grouper=True)
    store = home.store
    store.create(NAMESPACES, {"metadata": {"name": "bayplan-system"}})
    for found in manifests():
        group, _, version = found["apiVersion"].rpartition("/")
        served = [one for one in store.resources.by_place.values() if one.kind == found["kind"]]
        resource = next(one for one in served if (one.group, one.version) == (group, version))
        store.create(resource, found, found["metadata"].get("namespace", ""))
    for _ in range(20):
        home.step()
        assert isinstance(home.clock, VirtualClock)
        home.clock.advance(0.5)
    pods = store.list(PODS, "default").items
    racks: dict[str, set[str]] = {}
    nodes = {node.name: node.labels[RACK] for node in home.scheduler.state.store.nodes.by_name.values()}
    for pod in pods:
        racks.setdefault(pod["metadata"]["annotations"][SEGMENT], set()).add(nodes[pod["spec"]["nodeName"]])
    assert len(pods) == 16 and [len(rack) for rack in racks.values()] == [1, 1, 1, 1]
