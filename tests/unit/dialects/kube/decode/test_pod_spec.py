"""The scheduling-relevant part of a pod spec."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bayplan.dialects.kube.decode.pod_spec import (
    default_spread_selector,
    image_name,
    pod_signature,
    pod_spec,
    selector,
)
from bayplan.dialects.kube.decode.wire import LabelSelector, PodWire
from bayplan.model.node_rules import Requirement
from bayplan.model.pod_spec import EVERYTHING, NOTHING, ClaimUse, Disk, HostPort, PodSignature, Selector

MIB = 1 << 20


def shape(spec: dict[str, Any], **metadata: Any) -> PodSignature:
    known = {"name": "p", "namespace": "red", "uid": "u1", "labels": {"app": "web", "version": "v1"}}
    return pod_signature(msgspec.convert({"metadata": known | metadata, "spec": spec}, PodWire))


def test_a_selector_that_is_absent_selects_nothing_and_an_empty_one_everything() -> None:
    assert selector(None) == NOTHING
    assert not NOTHING.accepts({})
    assert selector(LabelSelector()) == EVERYTHING
    assert EVERYTHING.accepts({"any": "thing"})


def test_equal_specs_have_the_same_signature_in_any_order() -> None:
    one = shape({"nodeSelector": {"a": "1", "b": "2"}}, labels={"x": "1", "y": "2"})
    other = shape({"nodeSelector": {"b": "2", "a": "1"}}, labels={"y": "2", "x": "1"})
    assert one == other
    assert hash(one) == hash(other)
    assert len({one: 1, other: 2}) == 1


def test_different_specs_have_different_signatures() -> None:
    assert shape({"nodeSelector": {"a": "1"}}) != shape({"nodeSelector": {"a": "2"}})


def test_labels_that_no_selector_uses_are_left_out_of_a_signature() -> None:
    near = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}}}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}
    found = shape({"affinity": affinity}, labels={"app": "web", "index": "7", "version": "v1"})
    assert found.reduced(()).labels == (("app", "web"),)
    assert found.reduced({"version"}).labels == (("app", "web"), ("version", "v1"))
    assert found.reduced({"app", "index", "version"}) is found


def test_match_label_keys_take_the_values_of_the_pod() -> None:
    term = {
        "topologyKey": "zone",
        "labelSelector": {"matchLabels": {"app": "web"}},
        "matchLabelKeys": ["version", "absent"],
        "mismatchLabelKeys": ["tier"],
    }
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    found = shape({"affinity": affinity}, labels={"version": "v1", "tier": "a"}).affinity.required_anti[0]
    assert found.selector.requirements == (
        Requirement("app", "In", ("web",)),
        Requirement("version", "In", ("v1",)),
        Requirement("tier", "NotIn", ("a",)),
    )
    assert found.namespaces == ("red",)


def test_a_term_for_all_namespaces_is_not_for_the_pods_own_alone() -> None:
    term = {"topologyKey": "zone", "labelSelector": {}, "namespaceSelector": {}}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    found = shape({"affinity": affinity}).affinity.required[0]
    assert found.namespaces == ()
    assert found.selects("elsewhere", {}, {})


def test_host_ports_are_those_of_containers_and_sidecars() -> None:
    port = {"containerPort": 80, "hostPort": 80}
    spec = {
        "initContainers": [
            {"ports": [port | {"hostPort": 1}]},
            {"ports": [port | {"hostPort": 2}], "restartPolicy": "Always"},
        ],
        "containers": [{"ports": [port | {"hostIP": "10.0.0.1", "protocol": "UDP"}, {"containerPort": 9}]}],
    }
    assert shape(spec).ports == (HostPort(2), HostPort(80, "UDP", "10.0.0.1"))


def test_a_container_without_requests_has_default_requests_for_scoring() -> None:
    spec = {
        "containers": [
            {"resources": {"requests": {"cpu": "1"}}},
            {"resources": {"requests": {"memory": "1Mi", "cpu": "0"}}},
        ]
    }
    found = shape(spec)
    assert found.score_requests == (1000, 201 * MIB)
    assert found.amounts == (("cpu", 1000), ("memory", MIB), ("pods", 1))


def test_claims_and_inline_disks() -> None:
    spec = {
        "volumes": [
            {"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "b", "ephemeral": {"volumeClaimTemplate": {}}},
            {"name": "c", "gcePersistentDisk": {"pdName": "one", "readOnly": True}},
            {"name": "d", "rbd": {"monitors": ["m1", "m2"], "image": "i", "pool": "p"}},
            {"name": "e", "awsElasticBlockStore": {"volumeID": "v"}},
            {"name": "f", "iscsi": {"iqn": "q"}},
            {"name": "g", "emptyDir": {}},
        ]
    }
    found = shape(spec)
    assert found.claims == (ClaimUse("data"), ClaimUse("p-b", "u1", "p"))
    assert found.disks == (
        Disk("gce", "one", read_only=True),
        Disk("rbd", "m1 p i"),
        Disk("rbd", "m2 p i"),
        Disk("aws", "v"),
        Disk("iscsi", "q"),
    )


def test_priority_preemption_policy_nomination_and_gates() -> None:
    obj = {
        "metadata": {"name": "p"},
        "spec": {"priority": 7, "preemptionPolicy": "Never", "schedulingGates": [{"name": "g"}]},
        "status": {"nominatedNodeName": "n1"},
    }
    found = pod_spec(msgspec.convert(obj, PodWire))
    assert (found.priority, found.preempts, found.nominated, found.gates) == (7, False, "n1", ("g",))
    assert found.signature.namespace == "default"


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("nginx", "nginx:latest"),
        ("nginx:1", "nginx:1"),
        ("host:5000/nginx", "host:5000/nginx:latest"),
        ("host:5000/nginx:1", "host:5000/nginx:1"),
    ],
)
def test_an_image_has_a_tag(name: str, full: str) -> None:
    assert image_name(name) == full


def test_the_default_spread_selector_is_that_of_services_and_owner() -> None:
    labels = {"app": "web", "tier": "a"}
    services = [{"app": "web"}, {"app": "db"}, None, {"tier": "a"}]
    owner = Selector((Requirement("hash", "In", ("1",)),))
    assert default_spread_selector(labels, services, owner) == Selector(
        (
            Requirement("app", "In", ("web",)),
            Requirement("tier", "In", ("a",)),
            Requirement("hash", "In", ("1",)),
        )
    )
    assert default_spread_selector(labels, [{"app": "db"}]) is None
