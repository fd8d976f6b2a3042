"""Which pods count as usage besides admitted gangs: those without a slot of a gang."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bayplan.dialects.api import Event, Happened, Kind
from bayplan.dialects.kube.decode.wire import NODES, PODS_KIND, NodeWire, PodWire
from bayplan.dialects.kueue.decode import events
from bayplan.dialects.kueue.names import api_kinds
from bayplan.state.admission.state import AdmissionState
from tests.support.queued_cluster import GPU, admitted, furniture, queued_workload, rack_node, template

Object = dict[str, Any]
PREFIX = "kueue.x-k8s.io/"
TOPOLOGY = "podset-required-topology"
WHOLE = 4  # GPUs of a host


class World:
    """The admission state, fed by watch events."""

    def __init__(self) -> None:
        self.state = AdmissionState()
        for kind, obj in furniture():
            self.tell(kind, obj)

    def tell(self, kind: Kind, obj: Object, happened: Happened = Happened.SEEN) -> None:
        wire = {NODES: NodeWire, PODS_KIND: PodWire}.get(kind)
        told = obj if wire is None else msgspec.convert(obj, wire)
        self.state.apply_all(events.decode(Event(happened, kind, told)))

    def gang(self, name: str, hosts: dict[str, int], gpus: int = 1, **notes: Any) -> Object:
        pods = sum(hosts.values())
        made = queued_workload(name, pods, gpus)
        made["metadata"]["annotations"] = {
            PREFIX + key.replace("_", "-"): text for key, text in notes.items()
        }
        made["status"] = admitted("left-queue", "a100", {GPU: str(gpus * pods)}, hosts)
        self.tell(api_kinds.WORKLOADS, made)
        return made

    def pod(self, name: str, on: str, gpus: int = 1, pod_set: str = "main", **notes: Any) -> Object:
        meta = {
            "name": name, "namespace": "ml", "uid": name, "labels": {PREFIX + "podset": pod_set},
            "annotations": {PREFIX + key.replace("_", "-"): text for key, text in notes.items()},
        }  # fmt: skip
        made = {
            "metadata": meta,
            "spec": {**template(gpus)["spec"], "nodeName": on},
            "status": {"phase": "Running"},
        }
        self.tell(PODS_KIND, made)
        return made

    def placed(self, name: str, on: str, of: str, **more: Any) -> Object:
        """A pod that says a gang of that name was placed by topology."""
        return self.pod(name, on, **{TOPOLOGY.replace("-", "_"): "x", "workload": of, **more})

    def free(self, name: str = "h1") -> int:
        cluster = next(iter(self.state.usage.topologies.values()))
        supply = cluster.snapshot()
        row = supply.row(name)
        assert row is not None
        return int(supply.free[supply.resources[GPU], row])


@pytest.fixture
def world() -> World:
    return World()


def test_pods_of_an_admitted_gang_are_counted_once(world: World) -> None:
    world.gang("train", {"h1": 2})
    world.placed("p0", "h1", "train")
    world.placed("p1", "h1", "train")
    assert world.free() == WHOLE - 2


def test_a_pod_that_names_a_gang_that_does_not_exist_is_counted(world: World) -> None:
    world.placed("p0", "h1", "nobody")
    assert world.free() == WHOLE - 1


@pytest.mark.parametrize("notes", [{}, {"workload_slice_name": "nobody"}, {"workload": "nobody"}])
def test_a_pod_with_a_topology_annotation_but_no_slot_is_counted(world: World, notes: dict[str, Any]) -> None:
    world.pod("p0", "h1", podset_unconstrained_topology="true", **notes)
    assert world.free() == WHOLE - 1


def test_more_pods_than_slots_count_beyond_the_slots(world: World) -> None:
    world.gang("train", {"h1": 1, "h2": 1})
    first = world.placed("p0", "h1", "train")
    world.placed("p1", "h1", "train")
    world.placed("p2", "h1", "train")
    assert (world.free("h1"), world.free("h2")) == (WHOLE - 3, WHOLE - 1)
    world.tell(PODS_KIND, first, Happened.GONE)
    assert world.free("h1") == WHOLE - 2, "another pod has the slot now"


def test_a_pod_of_another_pod_set_has_no_slot(world: World) -> None:
    world.gang("train", {"h1": 1})
    world.placed("p0", "h1", "train", pod_set="other")
    assert world.free() == WHOLE - 2


def test_usage_beyond_a_slot_is_counted(world: World) -> None:
    world.gang("train", {"h1": 1})
    world.placed("p0", "h1", "train", gpus=3)
    assert world.free() == WHOLE - 3


def test_pods_are_counted_once_their_gang_holds_no_quota(world: World) -> None:
    gang = world.gang("train", {"h1": 2})
    world.placed("p0", "h1", "train")
    world.placed("p1", "h1", "train")
    world.tell(api_kinds.WORKLOADS, gang, Happened.GONE)
    assert world.free() == WHOLE - 2
    world.gang("train", {"h2": 2})
    assert (world.free("h1"), world.free("h2")) == (WHOLE - 2, WHOLE - 2)
    world.gang("train", {"h1": 2})
    assert (world.free("h1"), world.free("h2")) == (WHOLE - 2, WHOLE)


def test_the_order_of_events_does_not_matter(world: World) -> None:
    world.tell(NODES, rack_node("h1", "b1", "r1", {"gpu": "yes"}), Happened.GONE)
    world.placed("p0", "h1", "train")
    world.gang("train", {"h1": 1})
    world.tell(NODES, rack_node("h1", "b1", "r1", {"gpu": "yes"}))
    assert world.free() == WHOLE - 1


def test_pods_of_all_slices_of_an_elastic_gang_use_slots_of_the_last_one(world: World) -> None:
    name: dict[str, Any] = {"elastic_job": "true", "workload_slice_name": "train"}
    first = world.gang("train", {"h1": 1}, **name)
    world.placed("p0", "h1", "train", workload_slice_name="train")
    assert world.free() == WHOLE - 1
    world.gang("train-2", {"h1": 2}, workload_slice_replacement_for="ml/train", **name)
    world.placed("p1", "h1", "train-2", workload_slice_name="train")
    assert world.free() == WHOLE - 2
    world.tell(api_kinds.WORKLOADS, first, Happened.GONE)
    assert world.free() == WHOLE - 2
    world.placed("p2", "h1", "train", workload_slice_name="train")
    assert world.free() == WHOLE - 3
