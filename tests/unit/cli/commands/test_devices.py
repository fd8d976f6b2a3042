"""`explain`, `plan` and `list topologies` where pods get devices by claim, on a cluster in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from bayplan.backends.fake_controllers.device_claims import CLAIMS, CLASSES, SLICES, TEMPLATES
from bayplan.backends.fake_controllers.manifests import job
from bayplan.dialects.api import Kind
from tests.support.api_objects import READY, node, pod
from tests.support.queued_cluster import Object, QueuedCluster, queued_cluster

NODES = Kind("", "v1", "Node", "nodes", namespaced=False)
PODS = Kind("", "v1", "Pod", "pods")
TOPOLOGIES = Kind("kueue.x-k8s.io", "v1beta2", "Topology", "topologies", namespaced=False)
DRIVER = "gpu.example.com"


def exactly(count: int, **more: Any) -> Object:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "count": count, **more}}
    return {"devices": {"requests": [request]}}


def big(value: str) -> list[Object]:
    return [{"cel": {"expression": f'device.attributes["{DRIVER}"].model == "{value}"'}}]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueuedCluster]:
    """Two racks: two nodes with two and four devices, and one with one tainted device and none."""
    with queued_cluster(tmp_path_factory.mktemp("devices")) as made:
        levels = [{"nodeLabel": label} for label in ("rack", "kubernetes.io/hostname")]
        made.put(TOPOLOGIES, {"metadata": {"name": "racks"}, "spec": {"levels": levels}})
        for number, (rack, devices) in enumerate((("a", 2), ("a", 4), ("b", 1), ("b", 0))):
            name = f"n{number}"
            amounts = {"cpu": "8", "memory": "8Gi", "pods": "10"}
            labels = {"rack": rack}
            made.put(NODES, node(name, amounts, labels, conditions=[READY]))
            made.put(SLICES, {"metadata": {"name": name}, "spec": published(name, devices)})
        selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
        made.put(CLASSES, {"metadata": {"name": "gpu"}, "spec": {"selectors": [selector]}})
        for name, spec in (
            ("three", exactly(3)),
            ("two", exactly(2)),
            ("huge", exactly(1, selectors=big("z"))),
        ):
            meta = {"name": name, "namespace": "default"}
            made.put(TEMPLATES, {"metadata": meta, "spec": {"spec": spec}})
        made.put(CLAIMS, {"metadata": {"name": "held", "namespace": "default"}, "spec": exactly(1)})
        result = {"request": "r", "driver": DRIVER, "pool": "n1", "device": "d0"}
        made.store.patch(
            CLAIMS, "default", "held", {"status": {"allocation": {"devices": {"results": [result]}}}},
            subresource="status",
        )  # fmt: skip
        made.put(CLAIMS, {"metadata": {"name": "five", "namespace": "default"}, "spec": exactly(5)})
        claims = [{"name": "mine", "resourceClaimName": "five"}]
        made.put(
            PODS,
            pod("greedy", {"cpu": "1"}, namespace="default", schedulerName="bayplan", resourceClaims=claims),
        )
        yield made


def published(node: str, devices: int) -> Object:
    taints = [{"key": "broken", "effect": "NoSchedule"}] if devices == 1 else []
    found = [
        {"name": f"d{number}", "attributes": {"model": {"string": "x"}}, "taints": taints}
        for number in range(devices)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": found}


def planned(cluster: QueuedCluster, pods: int, template: str) -> list[str]:
    made = job("new", pods, 0, {}, 10)
    spec = made["spec"]["template"]["spec"]
    spec["resourceClaims"] = [{"name": "own", "resourceClaimTemplateName": template}]
    spec["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    return cluster.run("plan", "-f", "-", stdin=yaml.safe_dump(made)).output.splitlines()


def test_explain_names_claim_request_and_step_with_the_number_of_nodes(cluster: QueuedCluster) -> None:
    lines = cluster.run("explain", "pod/greedy").output.splitlines()
    assert "devices: claim five: 5 x gpu; enough for 0 pods, on 0 of 4 nodes" in lines
    assert (
        "  claim five, request r: on 4 nodes too few devices are published (asked for 5, at most 4)" in lines
    )


def test_plan_makes_the_claims_of_templates_and_counts_devices(cluster: QueuedCluster) -> None:
    assert "would start now" in "\n".join(planned(cluster, 2, "two"))


def test_plan_says_at_which_step_nodes_fail(cluster: QueuedCluster) -> None:
    text = "\n".join(planned(cluster, 2, "three"))
    assert "would be pending" in text
    assert "claim own: 3 x gpu; enough for 1 pod, on 1 of 4 nodes" in text
    assert "claim own, request r: on 3 nodes too few devices are published (asked for 3, at most 2)" in text


def test_plan_names_the_selectors_that_select_too_few_devices(cluster: QueuedCluster) -> None:
    text = "\n".join(planned(cluster, 1, "huge"))
    assert "request r: on 3 nodes the selectors of the request select too few devices" in text
    assert "request r: on 1 node too few devices are published (asked for 1, at most 0)" in text


def test_list_topologies_counts_devices_by_class(cluster: QueuedCluster) -> None:
    text = cluster.run("list", "topologies").output
    assert [line.split() for line in text.splitlines() if line.split()[:1] == ["gpu"]] == [
        ["gpu", "6", "of", "7", "5", "3"]
    ]
    (record,) = json.loads(cluster.run("list", "topologies", "-o", "json").output)
    assert record["devices"] == [
        {"class": "gpu", "free": 6, "total": 7, "largest": {"rack": 5, "kubernetes.io/hostname": 3}}
    ]
