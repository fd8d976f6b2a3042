"""States of one process store equal usage of a node once, and none changes what another has stored."""

from __future__ import annotations

import gc
from dataclasses import replace

from bayplan.model.change import NodeSeen, PodLost, PodSeen, Started, TopologyLost, TopologySeen
from bayplan.model.node import HOSTNAME, PODS, Topology
from bayplan.model.pod import Pod, PodKey
from bayplan.state.admission.fork import fork
from bayplan.state.admission.state import AdmissionState
from bayplan.state.cluster.shared_state import ClusterState
from bayplan.state.scheduling.state import SchedulingState
from tests.support.model_objects import node

NODE = NodeSeen(node("n1", {HOSTNAME: "n1", "rack": "r"}, cpu=8, pods=10))
HALL = TopologySeen(Topology("hall", ("rack", HOSTNAME)))


def seen(name: str, cpu: int = 2) -> PodSeen:
    return PodSeen(Pod(PodKey("ns", name), name, {"cpu": cpu, PODS: 1}, "n1"))


def filled() -> tuple[ClusterState, SchedulingState, AdmissionState]:
    cluster = ClusterState()
    binding, admission = SchedulingState(cluster=cluster), AdmissionState(cluster=cluster)
    for state in (admission, binding):
        state.apply_all([HALL, NODE, seen("a"), seen("b")])
    return cluster, binding, admission


def test_equal_usage_of_a_node_is_stored_once_for_all_states_and_topologies() -> None:
    _, binding, admission = filled()
    stored = [one.used["n1"] for one in binding.store.nodes.topologies.values()]
    stored.append(admission.usage.topologies["hall"].used["n1"])
    assert len(stored) == 3 and stored[0] == {"cpu": 4, PODS: 2}
    assert len({id(one) for one in stored}) == 1


def test_what_one_state_applies_changes_nothing_in_another() -> None:
    _, binding, admission = filled()
    binding.apply(seen("c"))
    binding.apply(PodLost(PodKey("ns", "a")))
    binding.apply(PodSeen(replace(seen("b").pod, amounts={"cpu": 3, PODS: 1})))
    assert binding.store.nodes.flat.cluster.used["n1"] == {"cpu": 5, PODS: 2}
    assert admission.usage.topologies["hall"].used["n1"] == {"cpu": 4, PODS: 2}
    binding.apply(Started())
    assert admission.usage.topologies["hall"].used["n1"] == {"cpu": 4, PODS: 2}


def test_a_state_that_was_rebuilt_shares_again() -> None:
    _, binding, admission = filled()
    binding.apply_all([Started(), NODE, seen("a"), seen("b")])
    gc.collect()
    assert binding.store.nodes.flat.cluster.used["n1"] is admission.usage.topologies["hall"].used["n1"]


def test_topologies_that_came_and_went_are_forgotten() -> None:
    cluster = ClusterState()
    state = AdmissionState(cluster=cluster)
    for number in range(50):
        state.apply_all([TopologySeen(Topology(f"hall-{number}", (HOSTNAME,))), NODE, seen("a")])
        state.apply(TopologyLost(f"hall-{number}"))
    gc.collect()
    assert cluster.topologies() == []
    state.apply(HALL)
    assert cluster.topologies() == [state.usage.topologies["hall"]]


def test_a_copy_of_a_state_changes_on_its_own() -> None:
    _, _, admission = filled()
    copy = fork(admission)
    copy.apply(seen("c"))
    assert copy.usage.topologies["hall"].used["n1"] == {"cpu": 6, PODS: 3}
    assert admission.usage.topologies["hall"].used["n1"] == {"cpu": 4, PODS: 2}
