"""The pods of a PodGroup by sub-group: the requests of each sub-group, and the rank of each pod."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bayplan.dialects.kai.api.gang_tree import Decoded, Pods
from bayplan.model.node import PODS
from bayplan.model.pod import Pod, PodKey

Members = Mapping[str, Sequence[Pod]]
"""Pods by the sub-group that they name; "" for none."""


def known_pods(members: Members) -> dict[str, Pods]:
    """What is known of each sub-group. If its pods differ, each counts with the largest request of any."""
    return {name: _pods(pods) for name, pods in members.items() if pods}


def pod_positions(tree: Decoded, members: Members) -> dict[PodKey, tuple[str, int]]:
    """The pod set and rank of every pod; within a sub-group ordered by index, then by name."""
    positions: dict[PodKey, tuple[str, int]] = {}
    next_rank: dict[str, int] = {}
    for name, pods in members.items():
        position = tree.position(name)
        folded = tree.positions.get(name) is not None and position.pod_set != name
        start = position.first if folded else next_rank.get(position.pod_set, 0)
        for rank, pod in enumerate(sorted(pods, key=lambda pod: (pod.rank, pod.key.name)), start):
            positions[pod.key] = (position.pod_set, rank)
        next_rank[position.pod_set] = max(next_rank.get(position.pod_set, 0), start + len(pods))
    return positions


def _pods(pods: Sequence[Pod]) -> Pods:
    requests: dict[str, int] = {}
    for pod in pods:
        for resource, amount in pod.amounts.items():
            if resource != PODS and amount:
                requests[resource] = max(requests.get(resource, 0), amount)
    first = pods[0].spec.signature
    return Pods(len(pods), requests, first.rules, first.zones)
