"""Decoding of NodeResourceTopology objects in both versions, of pods, and of the plugin arguments."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bayplan.dialects.kube.decode.numa_request import numa_request, qos_class_of
from bayplan.dialects.kube.decode.wire import PodWire
from bayplan.dialects.nrt.fingerprint import fingerprint_with, hash_of
from bayplan.dialects.nrt.hints import ASSUMED_ZONES, hinted_zones, zone_hint
from bayplan.dialects.nrt.numa_placement import decoded_vector, encoded_vector, zone_assignment
from bayplan.dialects.nrt.topologies import new_problems, node_zones
from bayplan.dialects.nrt.wire import OLDER_TOPOLOGIES, TOPOLOGIES
from bayplan.model.numa import (
    Alignment,
    ContainerType,
    OverReserve,
    QosClass,
    TopologyManagerPolicy,
    TopologyManagerScope,
    Whose,
    ZoneAssignment,
    ZoneScore,
)
from tests.support.numa_nodes import topology, wire_zone
from tests.support.numa_plugin_arguments import numa_settings


def attribute(name: str, value: str) -> dict[str, str]:
    return {"name": name, "value": value}


def spec(*containers: dict[str, Any], **more: Any) -> Any:
    made = [{"name": f"c{number}", **one} for number, one in enumerate(containers)]
    return msgspec.convert({"spec": {"containers": made, **more}}, PodWire).spec


def test_both_versions_are_watched_only_where_they_exist() -> None:
    for kind in (TOPOLOGIES, OLDER_TOPOLOGIES):
        assert kind.optional and not kind.namespaced
    assert TOPOLOGIES.path(name="n") == "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies/n"


def test_zones_costs_and_amounts_are_read() -> None:
    zone = wire_zone("node-3", costs=[{"name": "node-3", "value": 10}, {"name": "node-9", "value": 21}])
    found, problems = node_zones(topology(zones=[zone, {"name": "socket-0", "type": "Socket"}]))
    assert problems == ()
    (only,) = found.zones
    assert (only.number, only.available, only.allocatable) == (3, {"cpu": 4000}, {"cpu": 8000})
    assert only.distances == {3: 10, 9: 21}


def test_the_oldest_reports_have_only_allocatable_amounts() -> None:
    resource = {"name": "cpu", "allocatable": 4, "capacity": 8}
    found, problems = node_zones(
        topology(
            topologyPolicies=["SingleNUMANodePodLevel"], zones=[wire_zone("node-0", resources=[resource])]
        )
    )
    assert (found.zones[0].available, problems) == ({"cpu": 4000}, ())
    assert found.alignment == Alignment(TopologyManagerPolicy.SINGLE_ZONE, TopologyManagerScope.POD)


def test_attributes_override_policies_and_the_last_attribute_wins() -> None:
    found, _ = node_zones(
        topology(
            topologyPolicies=["SingleNUMANodeContainerLevel"],
            attributes=[
                attribute("topologyManagerPolicy", "restricted"),
                attribute("topologyManagerMaxNUMANodes", "5000"),
                attribute("topologyManagerScope", "pod"),
            ],
        )
    )
    assert found.alignment == Alignment(TopologyManagerPolicy.RESTRICTED, TopologyManagerScope.POD, 1024)


@pytest.mark.parametrize(
    ("wire", "message"),
    [
        ({"topologyPolicies": ["Sometimes"]}, "topologyPolicies[0] is 'Sometimes'"),
        (
            {"attributes": [attribute("topologyManagerPolicy", "Restricted")]},
            "topologyManagerPolicy is 'Restricted'",
        ),
        ({"attributes": [attribute("topologyManagerScope", "rack")]}, "topologyManagerScope is 'rack'"),
        (
            {"attributes": [attribute("topologyManagerMaxNUMANodes", "1")]},
            "topologyManagerMaxNUMANodes is '1'",
        ),
        ({"attributes": [attribute("topologyManagerMaxNUMANodes", "٣")]}, "topologyManagerMaxNUMANodes is"),
        ({"attributes": [attribute("nodeTopologyPodsFingerprint", "x")]}, "malformed fingerprint"),
        (
            {"attributes": [attribute("nodeTopologyPodsFingerprint", "pfp0v002" + "0" * 16)]},
            "incompatible version",
        ),
        ({"zones": [wire_zone("numa-node-0")]}, "zone 'numa-node-0' is left out"),
        ({"zones": [wire_zone("node-65")]}, "zone 'node-65' is left out"),
        ({"zones": [wire_zone("node--1")]}, "zone 'node--1' is left out"),
        ({"zones": [wire_zone("node-0"), wire_zone("node-0")]}, "listed twice"),
        ({"zones": [wire_zone("node-0", resources=[{"name": "cpu", "available": "4 cores"}])]}, "'4 cores'"),
        ({"zones": [wire_zone("node-0", resources=[{"name": "cpu"}])]}, "has no valid amount of cpu"),
        (
            {"attributes": [attribute("topology.node.k8s.io/numaplacement-metadata", "npv0v001::cc=x")]},
            "unsupported vector encoding",
        ),
    ],
)
def test_invalid_fields_are_reported_and_ignored(wire: dict[str, Any], message: str) -> None:
    found, problems = node_zones(topology(**wire))
    assert any(message in problem for problem in problems), problems
    assert found.alignment == Alignment()
    assert found.fingerprint is None and found.assignment is None
    assert len(found.zones) <= 1


def test_a_problem_is_reported_once_until_it_is_fixed_and_returns() -> None:
    told_before: dict[str, tuple[str, ...]] = {}
    assert new_problems(told_before, "n", ("a", "b")) == ("a", "b")
    assert new_problems(told_before, "n", ("a", "b")) == ()
    assert new_problems(told_before, "m", ("a",)) == ("a",)
    assert new_problems(told_before, "n", ("b", "c")) == ("c",)
    assert new_problems(told_before, "n", ()) == ()
    assert new_problems(told_before, "n", ("a",)) == ("a",)


def test_a_fingerprint_is_read_from_the_attribute_and_else_from_the_annotation() -> None:
    older = {"name": "n", "annotations": {"topology.node.k8s.io/fingerprint": fingerprint_with(1)}}
    found, problems = node_zones(topology(metadata=older))
    assert (found.fingerprint, found.exclusive_only, problems) == (1, False, ())
    attributes = [
        attribute("nodeTopologyPodsFingerprint", fingerprint_with(2**63)),
        attribute("nodeTopologyPodsFingerprintMethod", "with-exclusive-resources"),
    ]
    found, problems = node_zones(topology(metadata=older, attributes=attributes))
    assert (found.fingerprint, found.exclusive_only, problems) == (2**63, True, ())
    assert hash_of(fingerprint_with(0xB92008C14168B3A6)) == 0xB92008C14168B3A6


# ── NUMA placement ─────────────────────────────────────────────────────────────────────────────────


def test_a_vector_is_decoded_as_it_was_encoded() -> None:
    for places in ((), (0,), (0, 1, 2), (63,), (64,), (5, 70, 1734, 41800, 10**8)):
        assert decoded_vector(encoded_vector(places)) == places
    assert encoded_vector((0, 1)) == "!#"  # neither a quote nor anything else that JSON would escape


def test_the_containers_of_zones_are_read_from_the_node_and_its_zones() -> None:
    zones = [
        wire_zone("node-0"),
        wire_zone(
            "node-1",
            attributes=[attribute("topology.node.k8s.io/numaplacement-vector", encoded_vector((1, 3)))],
        ),
    ]
    metadata = attribute(
        "topology.node.k8s.io/numaplacement-metadata", "npv0v001::ve=leb89::cc=5::nn=2::bn=0"
    )
    found, problems = node_zones(topology(zones=zones, attributes=[metadata]))
    assert (found.assignment, problems) == (ZoneAssignment(5, 0, {1: (1, 3)}), ())


@pytest.mark.parametrize(
    ("metadata", "vectors", "said"),
    [
        ("npv0v002::ve=leb89::cc=1::nn=1::bn=0", [], "malformed metadata"),
        ("npv0v001::ve=leb89::cc=1::nn=1::bn", [], "malformed metadata pair"),
        ("npv0v001::ve=leb89::cc=1::nn=1::xx=0", [], "unknown metadata field"),
        ("npv0v001::ve=plain::cc=1::nn=1::bn=0", [], "unsupported vector encoding"),
        ("npv0v001::ve=leb89::nn=1::bn=0", [], "inconsistent container set"),
        ("npv0v001::ve=leb89::cc=1::nn=0::bn=0", [], "inconsistent NUMA node count"),
        ("npv0v001::ve=leb89::cc=1::nn=1::bn=1", [], "inconsistent busiest node data"),
        ("npv0v001::ve=leb89::cc=0::nn=2::bn=0", [(1, "!")], "inconsistent NUMA vector data"),
        ("npv0v001::ve=leb89::cc=1::nn=2::bn=0", [(1, "#")], "corrupted NUMA vector"),
        ("npv0v001::ve=leb89::cc=1::nn=2::bn=0", [(1, "é")], "corrupted NUMA vector"),
        ("npv0v001::ve=leb89::cc=1::nn=2::bn=0", [(1, "~")], "corrupted NUMA vector"),
        ("npv0v001::ve=leb89::cc=2::nn=3::bn=0", [(1, "!"), (2, "!")], "duplicated data"),
        ("npv0v001::ve=leb89::cc=1x::nn=3::bn=0", [], "cc is no number"),
    ],
)
def test_inconsistent_placements_are_rejected(
    metadata: str, vectors: list[tuple[int, str]], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        zone_assignment(metadata, vectors)


# ── pods ───────────────────────────────────────────────────────────────────────────────────────────


def limited(**amounts: str) -> dict[str, Any]:
    return {"resources": {"limits": amounts, "requests": amounts}}


@pytest.mark.parametrize(
    ("pod", "qos_class"),
    [
        (spec(limited(cpu="1", memory="1Gi")), QosClass.GUARANTEED),
        (spec({"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}), QosClass.GUARANTEED),
        (spec(limited(cpu="1", memory="1Gi"), limited(cpu="1")), QosClass.BURSTABLE),
        (spec({"resources": {"requests": {"cpu": "1"}}}), QosClass.BURSTABLE),
        (
            spec({"resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}}),
            QosClass.BURSTABLE,
        ),
        (spec({"resources": {"requests": {"vendor.com/nic": "1"}}}), QosClass.BEST_EFFORT),
        (spec({}), QosClass.BEST_EFFORT),
        (spec({}, resources={"limits": {"cpu": "1", "memory": "1Gi"}}), QosClass.GUARANTEED),
        (spec(limited(cpu="0", memory="0")), QosClass.BEST_EFFORT),
    ],
)
def test_the_qos_class_is_the_one_that_the_api_server_writes(pod: Any, qos_class: QosClass) -> None:
    assert qos_class_of(pod) is qos_class


def test_the_qos_class_in_the_status_wins() -> None:
    assert numa_request(spec({}), "Guaranteed").qos is QosClass.GUARANTEED


def test_containers_are_read_in_the_order_of_their_start() -> None:
    wants = numa_request(
        spec(
            limited(cpu="1", memory="1Gi"),
            initContainers=[{"name": "first"}, {"name": "side", "restartPolicy": "Always"}],
            overhead={"cpu": "250m"},
        )
    )
    assert [(one.name, one.type) for one in wants.containers] == [
        ("first", ContainerType.INIT),
        ("side", ContainerType.SIDECAR),
        ("c0", ContainerType.APP),
    ]
    assert wants.overhead == (("cpu", 250),)
    assert hash(wants) == hash(wants)


def test_a_hint_says_which_zones_were_assumed() -> None:
    assert zone_hint((("a", 0), ("b", 12))) == {ASSUMED_ZONES: "a=0,b=12"}
    assert hinted_zones(zone_hint((("a", 0), ("b", 12)))) == {"a": 0, "b": 12}
    assert hinted_zones(zone_hint((("", 3),))) == {"": 3}
    assert zone_hint(()) == {}
    assert hinted_zones({}) == hinted_zones({ASSUMED_ZONES: "a=x"}) == {}


# ── arguments ──────────────────────────────────────────────────────────────────────────────────────


def test_the_arguments_of_the_plugin() -> None:
    rules, care, wrong = numa_settings(
        {
            "scoringStrategy": {"type": "LeastNUMANodes", "resources": [{"name": "cpu", "weight": 3}]},
            "cacheResyncPeriodSeconds": 5,
            "cache": {
                "foreignPodsDetect": "OnlyExclusiveResources",
                "resyncMethod": "All",
                "informerMode": "Shared",
                "resyncScope": "OnlyResources",
            },
            "preemptionMode": "Enabled",
        }
    )
    assert wrong == ()
    assert (rules.score, rules.weight("cpu"), rules.weight("memory")) == (ZoneScore.FEWEST_ZONES, 3, 1)
    assert (care.over_reserve, care.period, care.foreign_pods) == (OverReserve.RESERVE, 5.0, Whose.EXCLUSIVE)
    assert (care.counted, care.count_starting, care.follow_settings) == (Whose.ALL, False, False)
    assert care.simulate_evictions


def test_reserved_nodes_are_discarded_whatever_the_period() -> None:
    assert (
        numa_settings({"discardReservedNodes": True, "cacheResyncPeriodSeconds": 5})[1].over_reserve
        is OverReserve.SKIP
    )
    assert numa_settings({})[1].over_reserve is OverReserve.NONE


def test_all_unsupported_values_are_reported() -> None:
    wrong = numa_settings({"scoringStrategy": {"type": "x"}, "cache": {"resyncMethod": "y"}})[2]
    assert wrong[0] == 'scoringStrategy.type: Invalid value: "x": invalid ScoringStrategyType'
    assert wrong[1].startswith('cache.resyncMethod: Unsupported value: "y"')
