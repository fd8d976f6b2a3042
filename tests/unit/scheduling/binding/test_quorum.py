"""A gang with a quorum: which pods are bound, which stay pending, and their rejection."""

from __future__ import annotations

from bayplan.model.gang import Group, PodSet
from bayplan.model.rejection import RejectionReason
from tests.support.scheduling_scene import binds, board, gang, node, pod, refusals, step

MEMBERS = tuple(PodSet(name, 1, 1) for name in "abc")
TWO_OF_THREE = gang("g", 2, tree=Group("", MEMBERS, 2), quorum=True)


def test_a_pod_without_a_node_is_rejected_in_the_cycle_that_binds_the_quorum() -> None:
    sizes = {"a": 1, "b": 1, "c": 9}
    waiting = [pod("g", at, gpus=gpus, pod_set=name) for at, (name, gpus) in enumerate(sizes.items())]
    plan = step(board(TWO_OF_THREE, node("n1"), *waiting))
    assert binds(plan) == {"g-0": "n1", "g-1": "n1"}
    (refused,) = refusals(plan)
    assert refused.rejection.reason is RejectionReason.NO_CAPACITY
    assert [one.key.name for one in refused.pods] == ["g-2"]
