"""Pods that no gang accounts for where they are: those of others, and those whose gang has moved on."""

from __future__ import annotations

from collections.abc import Mapping

from bayplan.model.gang import Ref
from bayplan.model.node import HOSTNAME, Node
from bayplan.model.pod import Pod, PodKey
from bayplan.state.holdings import Holding
from bayplan.state.ledger import Claim, Ledger, Shift


class Strangers:
    """A pod that goes on running on a node which its gang left takes room there, like anybody else's."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self.nodes = nodes
        self.ledger = Ledger()
        self.pods: dict[PodKey, Pod] = {}
        self.crews: dict[Ref, dict[PodKey, None]] = {}  # pods by their gang
        self.hosts: dict[Ref, frozenset[str]] = {}  # where gangs with such pods stand

    def seen(self, pod: Pod) -> list[Shift]:
        """A pod is there, or changed."""
        before, shifts = self.pods.get(pod.key), []
        if before is not None and (before.uid != pod.uid or before.gang != pod.gang):
            shifts = self.gone(pod.key)
        self.pods[pod.key] = pod
        if pod.gang is not None:
            self.crews.setdefault(pod.gang, {})[pod.key] = None
        return shifts + self._claim(pod)

    def gone(self, key: PodKey) -> list[Shift]:
        """A pod is no more."""
        pod = self.pods.pop(key, None)
        if pod is not None and pod.gang is not None:
            crew = self.crews[pod.gang]
            crew.pop(key, None)
            if not crew:
                del self.crews[pod.gang]
        return self.ledger.release(key)

    def moved(self, ref: Ref, holding: Holding | None) -> list[Shift]:
        """A gang stands elsewhere than before, or nowhere: then its pods are on their way out."""
        self.hosts.pop(ref, None)
        if holding is not None and all(spot.place.levels[-1] == HOSTNAME for spot in holding.spots):
            shares = (share for spot in holding.spots for share in spot.place.shares)
            self.hosts[ref] = frozenset(share.values[-1] for share in shares)
        return [shift for key in list(self.crews.get(ref, ())) for shift in self._claim(self.pods[key])]

    def _claim(self, pod: Pod) -> list[Shift]:
        if pod.takes_room and not self._is_accounted_for(pod):
            return self.ledger.hold(Claim(pod.key, pod.node, pod.amounts))
        return self.ledger.release(pod.key)

    def _is_accounted_for(self, pod: Pod) -> bool:
        if pod.gang is None:
            return False
        node, hosts = self.nodes.get(pod.node), self.hosts.get(pod.gang)
        host = node.labels.get(HOSTNAME, pod.node) if node is not None else pod.node
        return hosts is None or host in hosts
