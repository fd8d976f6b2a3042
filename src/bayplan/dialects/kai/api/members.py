"""The pods of a group by sub-group: what each sub-group asks for, and which rank each pod has in the tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bayplan.dialects.kai.api.gang_tree import Decoded, Pods
from bayplan.model.node import PODS
from bayplan.model.pod import Pod, PodKey

Members = Mapping[str, Sequence[Pod]]
"""Pods by the sub-group that they name; "" for none."""


def known_pods(members: Members) -> dict[str, Pods]:
    """What is known of each sub-group. Pods that differ are each counted as the most any of them asks for."""
    return {name: _pods(pods) for name, pods in members.items() if pods}


def seats(found: Decoded, members: Members) -> dict[PodKey, tuple[str, int]]:
    """The pod set and rank of every pod; within a sub-group by number, then by name."""
    given: dict[PodKey, tuple[str, int]] = {}
    next_of: dict[str, int] = {}
    for name, pods in members.items():
        home = found.home(name)
        folded = found.homes.get(name) is not None and home.pod_set != name
        start = home.first if folded else next_of.get(home.pod_set, 0)
        for at, pod in enumerate(sorted(pods, key=lambda pod: (pod.rank, pod.key.name)), start):
            given[pod.key] = (home.pod_set, at)
        next_of[home.pod_set] = max(next_of.get(home.pod_set, 0), start + len(pods))
    return given


def _pods(pods: Sequence[Pod]) -> Pods:
    requests: dict[str, int] = {}
    for pod in pods:
        for resource, amount in pod.amounts.items():
            if resource != PODS and amount:
                requests[resource] = max(requests.get(resource, 0), amount)
    first = pods[0].wants.shape
    return Pods(len(pods), requests, first.rules, first.zones)
