"""Injection into pods: the topology gate, or the node selector of a single domain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bayplan.dialects.kueue.jobs.injection import injections
from bayplan.dialects.kueue.names.annotations import TOPOLOGY_GATE
from bayplan.dialects.kueue.names.feature_switches import RULES
from tests.support.api_objects import workload

ALONE = replace(RULES, selector_without_gate=True)
FLAVORS = {"gpu": {"spec": {"nodeLabels": {"pool": "gpu"}}}}


def assigned_workload(levels: list[str], *slices: dict[str, Any]) -> dict[str, Any]:
    given = {
        "name": "main",
        "count": 4,
        "flavors": {"cpu": "gpu"},
        "topologyAssignment": {"levels": levels, "slices": list(slices)},
    }
    pod_set = {"name": "main", "count": 4, "template": {"spec": {}}}
    admission = {"clusterQueue": "q", "podSetAssignments": [given]}
    return workload("w", pod_set, namespace="team", queueName="door", status={"admission": admission})


def in_domain(count: int, *values: str) -> dict[str, Any]:
    where = [{"universal": value} for value in values]
    return {"domainCount": 1, "podCounts": {"universal": count}, "valuesPerLevel": where}


HOST = assigned_workload(["kubernetes.io/hostname"], in_domain(4, "h1"))
RACK = assigned_workload(["block", "rack"], in_domain(4, "b1", "r1"))
TWO_RACKS = assigned_workload(["block", "rack"], in_domain(2, "b1", "r1"), in_domain(2, "b1", "r2"))


@pytest.mark.parametrize("found", [HOST, RACK, TWO_RACKS])
def test_by_default_every_pod_gets_the_topology_gate(found: dict[str, Any]) -> None:
    (extra,) = injections(found, FLAVORS)
    assert extra.gates == (TOPOLOGY_GATE,)
    assert extra.node_selector == {"pool": "gpu"}


@pytest.mark.parametrize(
    ("found", "where"),
    [(HOST, {"kubernetes.io/hostname": "h1"}), (RACK, {"block": "b1", "rack": "r1"})],
)
def test_pods_in_one_domain_may_get_a_node_selector_instead_of_a_gate(
    found: dict[str, Any], where: dict[str, str]
) -> None:
    (extra,) = injections(found, FLAVORS, ALONE)
    assert extra.gates == ()
    assert extra.node_selector == {"pool": "gpu", **where}


def test_pods_in_several_domains_get_the_gate_in_any_case() -> None:
    (extra,) = injections(TWO_RACKS, FLAVORS, ALONE)
    assert extra.gates == (TOPOLOGY_GATE,)
    assert extra.node_selector == {"pool": "gpu"}
