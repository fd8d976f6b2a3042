"""Decoding of nodes, pods, quantities and node constraints."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bayplan.dialects.kube.decode.node_fields import node
from bayplan.dialects.kube.decode.node_rule_fields import node_rules
from bayplan.dialects.kube.decode.pod_fields import pod_requests, usage_by_node, usage_of
from bayplan.dialects.kube.decode.relevance import (
    NodeChange,
    node_changes,
    pod_removal_matters,
    pod_update_matters,
)
from bayplan.dialects.kube.decode.volumes import ClaimWire, claim_of
from bayplan.dialects.kube.decode.wire import NodeWire, PodSpecWire, node_of, pod_amounts
from bayplan.dialects.kube.fields.quantity import AMOUNT_MAX, REQUEST_MAX, amount
from bayplan.dialects.kube.fields.reader import Field, FieldError
from bayplan.model.node import ROOM_MAX
from bayplan.model.node_rules import NodeRules, NodeSelectorTerm, Requirement, Taint, Toleration


@pytest.mark.parametrize(
    ("resource", "text", "want"),
    [
        ("cpu", "1", 1000),
        ("cpu", "500m", 500),
        ("cpu", "0.1", 100),
        ("cpu", ".5", 500),
        ("cpu", "1.", 1000),
        ("cpu", "100u", 1),
        ("cpu", "1n", 1),
        ("cpu", 2, 2000),
        ("cpu", 0.25, 250),
        ("cpu", "+3", 3000),
        ("cpu", "-1500m", -1500),
        ("cpu", "-1u", -1),
        ("memory", "1Ki", 2**10),
        ("memory", "1.5Gi", 3 * 2**29),
        ("memory", "1Ei", 2**60),
        ("memory", "1k", 1000),
        ("memory", "128M", 128_000_000),
        ("memory", "1E", 10**18),
        ("memory", "1E3", 1000),
        ("memory", "1e3", 1000),
        ("memory", "12e-1", 2),
        ("memory", "1e-999", 1),
        ("memory", "400m", 1),
        ("memory", "0", 0),
        ("nvidia.com/gpu", "8", 8),
        ("nvidia.com/gpu", 8, 8),
        ("pods", "110", 110),
    ],
)
def test_quantities_become_whole_numbers_rounded_up(resource: str, text: object, want: int) -> None:
    assert amount(resource, text) == want


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "must be a quantity such as"),
        ("abc", "must be a quantity such as"),
        ("64GB", "units are k, M, G"),
        ("1 Gi", "must be a quantity such as"),
        (" 1", "without blanks"),
        ("1e", "must be a quantity such as"),
        ("--1", "must be a quantity such as"),
        ("1KI", "must be a quantity such as"),
        (".", "must be a quantity such as"),
        ("٣", "must be a quantity such as"),
        pytest.param("9" * 100_001, "must be a quantity such as", id="far too long"),
        (True, "must be a quantity such as"),
        (None, "must be a quantity such as"),
        ([], "must be a quantity such as"),
        (float("nan"), "must be a quantity such as"),
    ],
)
def test_an_invalid_quantity_is_rejected_with_a_reason(text: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        amount("memory", text)


@pytest.mark.parametrize(
    ("resource", "text"),
    [
        ("cpu", "10P"),
        ("memory", "9223372036854775808"),
        ("memory", "1e308"),
        ("storage", "1e99999999999"),
        ("memory", "9" * 5000),
        ("cpu", "1e" + "9" * 5000),
        ("nvidia.com/gpu", 10**4000),
    ],
)
def test_a_quantity_beyond_the_largest_counts_as_the_largest(resource: str, text: object) -> None:
    assert amount(resource, text) == AMOUNT_MAX


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("0" * 5000 + "7", 7),
        ("1" + "0" * 100 + "e-100", 1),
        ("1e-" + "9" * 5000, 1),
        ("0e" + "9" * 5000, 0),
        ("0." + "0" * 5000 + "1", 1),
        ("-1e400", -AMOUNT_MAX),
    ],
)
def test_long_spellings_of_a_quantity_are_read_exactly(text: str, want: int) -> None:
    assert amount("memory", text) == want


def test_requests_are_limited_to_an_amount_that_no_node_has() -> None:
    huge = {"resources": {"requests": {"memory": "7Ei", "cpu": "10P"}}}
    spec = {"containers": [huge, huge, huge], "overhead": {"memory": "1e308"}}
    field = Field(spec)
    assert pod_requests(field) == {"memory": REQUEST_MAX, "cpu": REQUEST_MAX}
    assert field.errors == ()
    wire = msgspec.convert(spec, PodSpecWire)
    assert pod_amounts(wire) == {"memory": ROOM_MAX, "cpu": ROOM_MAX, "pods": 1}


def test_a_node_never_has_room_for_a_pod_at_the_bound() -> None:
    status = {"allocatable": {"cpu": "10P", "memory": "1e308", "pods": "many"}}
    found = node_of(msgspec.convert({"metadata": {"name": "x1"}, "status": status}, NodeWire))
    assert found.allocatable == {"cpu": ROOM_MAX - 1, "memory": ROOM_MAX - 1, "pods": 0}


def test_a_claim_of_an_absurd_size_is_larger_than_any_volume() -> None:
    claim = {"metadata": {"name": "c"}, "spec": {"resources": {"requests": {"storage": "1e308"}}}}
    assert claim_of(msgspec.convert(claim, ClaimWire)).size == AMOUNT_MAX


def test_a_node_with_everything() -> None:
    field = Field(
        {
            "metadata": {"name": "x1", "labels": {"rack": "r1"}},
            "spec": {"unschedulable": True, "taints": [{"key": "gpu", "value": "y", "effect": "NoSchedule"}]},
            "status": {
                "allocatable": {"cpu": "4", "nvidia.com/gpu": "8"},
                "capacity": {"cpu": "5"},
                "conditions": [
                    {"type": "DiskPressure", "status": "False"},
                    {"type": "Ready", "status": "True"},
                ],
            },
        }
    )
    found = node(field)
    assert field.errors == ()
    assert (found.name, found.labels, found.ready, found.schedulable) == ("x1", {"rack": "r1"}, True, False)
    assert found.allocatable == {"cpu": 4000, "nvidia.com/gpu": 8}
    assert found.taints == (Taint("gpu", "y", "NoSchedule"),)


def test_a_node_without_conditions_is_not_ready_and_capacity_replaces_allocatable() -> None:
    found = node(Field({"metadata": {"name": "x1"}, "status": {"capacity": {"cpu": "5"}}}))
    assert not found.ready
    assert found.schedulable
    assert found.allocatable == {"cpu": 5000}


def test_every_error_of_a_node_is_noted_at_once() -> None:
    field = Field(
        {
            "metadata": {"labels": {"rack": 1, 2: "x"}},
            "spec": {"taints": [{"effect": "Never"}], "unschedulable": "yes"},
            "status": {"allocatable": {"cpu": "four", "memory": "-1"}, "conditions": {}},
        }
    )
    node(field)
    assert {(error.path, error.why.split(":")[0]) for error in field.errors} == {
        ("metadata.name", "must be set"),
        ("metadata.labels.rack", "must be text, not a number"),
        ("metadata.labels.2", "the key must be text, not a number"),
        ("spec.taints[0].key", "must be set"),
        ("spec.taints[0].effect", "must be one of NoSchedule, PreferNoSchedule, NoExecute"),
        ("spec.unschedulable", "must be true or false, not text"),
        ("status.allocatable.cpu", "must be a quantity such as 500m, 2 or 64Gi"),
        ("status.allocatable.memory", "must not be negative"),
        ("status.conditions", "must be a list, not a mapping"),
    }


def test_errors_print_path_value_and_why() -> None:
    assert str(FieldError("spec.count", -1, "must not be less than 0")) == (
        "spec.count: -1: must not be less than 0"
    )
    assert str(FieldError("a[b/c]", "x" * 99, "too long")) == f'a[b/c]: "{"x" * 60}…": too long'
    assert str(FieldError("a", None, "must be set")) == "a: must be set"
    assert "a number of" in str(FieldError("a", 10**5000, "too large"))


def container(**requests: Any) -> dict[str, Any]:
    return {"resources": {"requests": requests}}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({}, {}),
        (
            {"containers": [container(cpu="1"), container(cpu="500m", memory="1Ki")]},
            {"cpu": 1500, "memory": 1024},
        ),
        ({"containers": [container(cpu="1")], "initContainers": [container(cpu="3")]}, {"cpu": 3000}),
        (
            {
                "containers": [container(cpu="1")],
                "initContainers": [
                    container(cpu="2") | {"restartPolicy": "Always"},
                    container(cpu="4"),
                    container(cpu="1") | {"restartPolicy": "Always"},
                ],
            },
            {"cpu": 6000},
        ),
        (
            {
                "containers": [container(cpu="5")],
                "initContainers": [container(cpu="2") | {"restartPolicy": "Always"}, container(cpu="4")],
            },
            {"cpu": 7000},
        ),
        ({"containers": [container(cpu="1")], "overhead": {"cpu": "250m"}}, {"cpu": 1250}),
        ({"containers": [container(cpu="1")], "resources": {"requests": {"cpu": "3"}}}, {"cpu": 3000}),
        ({"containers": [container(cpu="1")], "resources": {"limits": {"cpu": "3"}}}, {"cpu": 1000}),
        ({"containers": [{}], "resources": {"limits": {"memory": "3"}}}, {"memory": 3}),
        ({"containers": [{"resources": {"limits": {"nvidia.com/gpu": 8}}}]}, {"nvidia.com/gpu": 8}),
        ({"containers": [container(cpu="0")]}, {}),
    ],
)
def test_the_effective_requests_of_a_pod(spec: dict[str, Any], want: dict[str, int]) -> None:
    assert pod_requests(Field(spec)) == want


def bound(node_name: str = "x1", phase: str = "Running", cpu: str = "1") -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": "n"},
        "spec": {"nodeName": node_name, "containers": [container(cpu=cpu)]},
        "status": {"phase": phase},
    }


def test_bound_pods_use_resources_and_a_slot_until_they_finish() -> None:
    use = usage_of(Field(bound()))
    assert use is not None
    assert usage_by_node([use, use]) == {"x1": {"cpu": 2000, "pods": 2}}
    assert usage_of(Field(bound(node_name=""))) is None
    assert usage_of(Field(bound(phase="Succeeded"))) is None
    assert usage_of(Field(bound(phase="Failed"))) is None


def test_pod_updates_matter_if_the_usage_changes() -> None:
    assert pod_update_matters(Field(bound()), Field(bound(cpu="2")))
    assert pod_update_matters(Field(bound()), Field(bound(node_name="x2")))
    assert pod_update_matters(Field(bound()), Field(bound(phase="Failed")))
    assert not pod_update_matters(Field(bound(phase="Pending")), Field(bound()))
    assert pod_removal_matters(Field(bound(phase="Failed")))


def test_a_node_heartbeat_is_no_change() -> None:
    old = {"status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "1"}]}}
    new = {"status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2"}]}}
    assert node_changes(Field(old), Field(new)) is NodeChange.NOTHING
    new["status"]["allocatable"] = {"cpu": "1"}  # type: ignore[assignment]
    assert node_changes(Field(old), Field(new)) is NodeChange.ALLOCATABLE


def test_node_rules_of_a_pod_spec() -> None:
    field = Field(
        {
            "nodeSelector": {"b": "2", "a": "1"},
            "tolerations": [
                {"operator": "Exists"},
                {"key": "k", "value": "v", "effect": "NoExecute", "tolerationSeconds": 3},
            ],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "z", "operator": "In", "values": ["1", "2"]}]},
                            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["x1"]}]},
                        ]
                    },
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 5,
                            "preference": {"matchExpressions": [{"key": "s", "operator": "Exists"}]},
                        }
                    ],
                }
            },
        }
    )
    assert node_rules(field) == NodeRules(
        selector=(("a", "1"), ("b", "2")),
        affinity=(
            NodeSelectorTerm((Requirement("z", "In", ("1", "2")),)),
            NodeSelectorTerm((Requirement("metadata.name", "In", ("x1",), field=True),)),
        ),
        preferred=((5, NodeSelectorTerm((Requirement("s", "Exists"),))),),
        tolerations=(Toleration("", "Exists"), Toleration("k", "Equal", "v", "NoExecute")),
    )
    assert field.errors == ()


def test_every_error_of_node_rules_is_noted_at_once() -> None:
    terms = [
        {"matchExpressions": [{"key": "z", "operator": "Gt", "values": ["x"]}, {"operator": "Like"}]},
        {"matchFields": [{"key": "spec.x", "operator": "Exists"}]},
    ]
    field = Field(
        {
            "tolerations": [{"value": "v"}, {"key": "k", "operator": "Maybe", "effect": "Now"}],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 101}],
                }
            },
        }
    )
    node_rules(field)
    required = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    preferred = "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"
    assert {error.path for error in field.errors} == {
        f"{required}[0].matchExpressions[0].values",
        f"{required}[0].matchExpressions[1].key",
        f"{required}[0].matchExpressions[1].operator",
        f"{required}[1].matchFields[0].key",
        f"{required}[1].matchFields[0].operator",
        f"{preferred}[0].weight",
        "tolerations[0].operator",
        "tolerations[1].operator",
        "tolerations[1].effect",
    }
