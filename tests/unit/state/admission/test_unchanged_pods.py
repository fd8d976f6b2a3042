"""A pod that changes in nothing that decisions depend on costs no check of its node.

With NUMA zones such a check takes a millisecond, and a kubelet updates its pods all the time.
"""

from __future__ import annotations

from dataclasses import replace

from bayplan.model.change import NodeSeen, PodSeen
from bayplan.state.admission.state import AdmissionState
from tests.support.gang_snapshots import cpu_node, cpu_pod


def test_the_node_of_a_pod_is_checked_again_only_if_the_pod_is_another() -> None:
    state, pod = AdmissionState(), cpu_pod("a", 2, on="n")
    for change in (NodeSeen(cpu_node("n", 4)), PodSeen(pod)):
        state.apply(change)
    assert state.taken.changed == {"n"}
    state.heads(0.0)
    assert not state.taken.changed
    state.apply(PodSeen(replace(pod)))
    assert not state.taken.changed
    state.apply(PodSeen(replace(pod, terminating=True)))
    assert state.taken.changed == {"n"}
