"""The stand-in for kube-scheduler: who is bound where, and who is left alone."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.backends.fake_controllers.binding import HOSTNAME, RETRY_SECONDS, Binder, bindings
from bayplan.backends.fake_controllers.manifests import node
from bayplan.backends.fake_controllers.objects import NODES, PODS
from tests.support.api_objects import pod
from tests.unit.backends.embedded.storage.test_store import store_at

Object = dict[str, Any]
NOW = 1_700_000_000.0


def pinned_pod(**spec: Any) -> Object:
    return pod(namespace="default", metadata={"uid": "u"}, **{"nodeSelector": {HOSTNAME: "n1"}, **spec})


def bound(found: Object, *nodes: Object) -> list[str]:
    return [host for _, host in bindings([found], nodes or [node("n1", "b", "r", 4)])]


def test_a_pod_that_was_told_its_host_goes_there() -> None:
    assert bound(pinned_pod()) == ["n1"]


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {}},
        {"nodeSelector": {HOSTNAME: "n2"}},
        {"nodeSelector": {HOSTNAME: "n1", "example.com/pool": "other"}},
        {"schedulerName": "bayplan"},
        {"schedulingGates": [{"name": "kueue.x-k8s.io/topology"}]},
        {"nodeName": "n1"},
    ],
    ids=["anywhere", "unknown", "mismatch", "other-scheduler", "gated", "bound"],
)
def test_others_are_left_alone(spec: Object) -> None:
    assert bound(pinned_pod(**spec)) == []


@pytest.mark.parametrize(
    "spec", [{"unschedulable": True}, {"taints": [{"key": "down", "effect": "NoExecute"}]}], ids=str
)
def test_an_unschedulable_host_gets_no_pod(spec: Object) -> None:
    assert bound(pinned_pod(), node("n1", "b", "r", 4) | {"spec": spec}) == []


def test_a_pod_is_bound_as_soon_as_its_host_is_there() -> None:
    store = store_at(NOW)
    binder = Binder(EmbeddedBackend(store))
    store.create(PODS, pinned_pod())
    binder.step(NOW)
    store.create(NODES, node("n1", "b", "r", 4))
    assert binder.step(NOW) == NOW + RETRY_SECONDS
    assert store.get(PODS, "default", "p")["spec"]["nodeName"] == "n1"
    assert binder.step(NOW + RETRY_SECONDS) == float("inf")
