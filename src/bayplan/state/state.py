"""What we believe now: changes folded into clusters, ledger and queues; plans assumed and settled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bayplan.model.assignment import Misfit
from bayplan.model.change import (
    Change,
    GangLost,
    GangSeen,
    NodeLost,
    NodeSeen,
    PodLost,
    PodSeen,
    Started,
    TopologyLost,
    TopologySeen,
)  # fmt: skip
from bayplan.model.gang import AUTO, Gang, Group, PodSet, Ref
from bayplan.model.node import HOSTNAME, LEVELS_MAX, Node, Topology
from bayplan.model.plan import Bind, Plan, Refuse
from bayplan.model.pod import Pod, PodKey
from bayplan.placement.supply import Supply
from bayplan.state.cluster import Cluster
from bayplan.state.ledger import Claim, Ledger, Shift
from bayplan.state.queues import Place, Queues

HEADS_MAX = 64
ASSUMED_SECONDS = 30.0  # how long a decided pod may stay unseen before we decide again
FLAT = Topology("", (HOSTNAME,))


@dataclass(frozen=True, slots=True)
class Pending:
    """A gang to decide on: what waits, and what of it runs, or did its part, where."""

    gang: Gang
    topology: str
    waiting: tuple[Pod, ...]
    standing: tuple[Pod, ...]
    refused: Misfit | None  # what it was told last


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """Everything one decision may look at, frozen."""

    supplies: Mapping[str, Supply]
    pending: tuple[Pending, ...]


@dataclass(slots=True)
class Member:
    """What is known of one gang."""

    gang: Gang | None = None
    created: float = 0.0
    pods: dict[PodKey, Pod] = field(default_factory=dict)
    refused: Misfit | None = None


class State:
    """The fold of all changes. Nothing here reads a clock or does I/O."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        """Know nothing."""
        self.nodes: dict[str, Node] = {}
        self.clusters: dict[str, Cluster] = {FLAT.name: Cluster(FLAT)}
        self.pods: dict[PodKey, Pod] = {}
        self.members: dict[Ref, Member] = {}
        self.ledger = Ledger()
        self.queues = Queues()

    def apply(self, change: Change) -> None:
        """Fold one change in."""
        match change:
            case Started():
                self._begin()
            case NodeSeen(node):
                self._node_seen(node)
            case NodeLost(name):
                self.nodes.pop(name, None)
                for cluster in self.clusters.values():
                    cluster.remove(name)
            case TopologySeen(topology):
                self._topology_seen(topology)
            case TopologyLost(name):
                if name in self.clusters and name != FLAT.name:
                    del self.clusters[name]
            case PodSeen(pod):
                self._pod_seen(pod)
            case PodLost(key):
                self._pod_lost(key)
            case GangSeen(gang, created):
                member = self.members.setdefault(gang.source, Member())
                member.gang, member.created = gang, created
                self.queues.put(gang.source, gang.priority, created)
                self._stand(gang.source)
            case GangLost(ref):
                member = self.members.get(ref, Member())
                member.gang = None
                self.queues.drop(ref)
                if not member.pods:
                    self.members.pop(ref, None)

    def apply_all(self, changes: Iterable[Change]) -> None:
        """Fold many changes in; nodes that arrive together are laid out together."""
        fresh: dict[str, Node] = {}
        for change in changes:
            if isinstance(change, NodeSeen) and change.node.name not in self.nodes:
                fresh[change.node.name] = change.node
                continue
            if fresh:
                self._load(fresh)
                fresh = {}
            self.apply(change)
        if fresh:
            self._load(fresh)

    def heads(self, now: float) -> list[Ref]:
        """The gangs to decide on now."""
        for entry in list(self.queues.entries.values()):
            if entry.place is Place.COMMITTED and entry.due <= now:
                self._forget_assumed(entry.ref)
                self._stand(entry.ref, settled=True)
        return self.queues.heads(now, HEADS_MAX)

    def snapshot(self, heads: Iterable[Ref]) -> Snapshot:
        """A frozen view for deciding on these gangs."""
        pending = tuple(found for ref in heads if (found := self._pending(ref)) is not None)
        supplies = {name: self.clusters[name].snapshot() for name in {entry.topology for entry in pending}}
        return Snapshot(supplies, pending)

    def assume(self, plan: Plan, now: float) -> None:
        """Believe the plan until its writes end or the API says otherwise."""
        for action in plan.actions:
            match action:
                case Bind(gang, pod, node):
                    self._shift(self.ledger.hold(Claim(pod.key, node, pod.amounts, assumed=True)))
                    self.queues.move(gang, Place.COMMITTED, now + ASSUMED_SECONDS)
                case Refuse(gang, misfit):
                    self.queues.move(gang, Place.PARKED)
                    if gang in self.members:
                        self.members[gang].refused = misfit

    def bind_failed(self, action: Bind, now: float, unknown: bool) -> None:
        """A bind did not happen (or nobody knows): give back what was assumed and try again later."""
        if unknown:
            return  # the watch will tell, or the assumption runs out
        pod = self.pods.get(action.pod.key)
        if pod is None or not pod.node:
            self._shift(self.ledger.release_assumed(action.pod.key))
        self.queues.back_off(action.gang, now)

    def _load(self, fresh: Mapping[str, Node]) -> None:
        self.nodes |= fresh
        for cluster in self.clusters.values():
            cluster.load(fresh.values())
        self.queues.wake()

    def _node_seen(self, node: Node) -> None:
        before = self.nodes.get(node.name)
        if before == node:
            return
        self.nodes[node.name] = node
        for cluster in self.clusters.values():
            cluster.upsert(node)
        self.queues.wake()

    def _topology_seen(self, topology: Topology) -> None:
        """Pods are bound to hosts, so every topology is continued down to them."""
        levels = topology.levels
        if not topology.ends_at_host and len(levels) < LEVELS_MAX:
            levels = (*levels, HOSTNAME)
        known = self.clusters.get(topology.name)
        if known is not None and known.topology.levels == levels:
            return
        cluster = Cluster(Topology(topology.name, levels))
        for name, amounts in self.ledger.by_node().items():
            cluster.use_node(name, amounts)
        cluster.load(self.nodes.values())
        self.clusters[topology.name] = cluster
        self.queues.wake()

    def _pod_seen(self, pod: Pod) -> None:
        before = self.pods.get(pod.key)
        if before is not None and before.uid != pod.uid:
            self._pod_lost(pod.key)
        self.pods[pod.key] = pod
        if pod.takes_room:
            self._shift(self.ledger.hold(Claim(pod.key, pod.node, pod.amounts)))
        elif pod.over or pod.leaving:
            self._shift(self.ledger.release(pod.key))
        if pod.gang is not None:
            self.members.setdefault(pod.gang, Member()).pods[pod.key] = pod
            self._stand(pod.gang)

    def _pod_lost(self, key: PodKey) -> None:
        pod = self.pods.pop(key, None)
        self._shift(self.ledger.release(key))
        if pod is not None and pod.gang is not None:
            member = self.members.get(pod.gang)
            if member is not None:
                member.pods.pop(key, None)
                if member.gang is None and not member.pods:
                    del self.members[pod.gang]
            self._stand(pod.gang)

    def _stand(self, ref: Ref, settled: bool = False) -> None:
        """Put a gang where its pods say it belongs; what is under way is left alone."""
        member, entry = self.members.get(ref), self.queues.entries.get(ref)
        if member is None or member.gang is None or entry is None:
            return
        waiting = [pod for pod in member.pods.values() if pod.waits]
        asked = sum(pod_set.count for pod_set in member.gang.root.pod_sets())
        if not waiting:
            running = any(pod.takes_room for pod in member.pods.values())
            self.queues.move(ref, Place.RUNNING if running else Place.INCOMPLETE)
        elif len([pod for pod in member.pods.values() if not pod.leaving]) < asked:
            self.queues.move(ref, Place.INCOMPLETE)
        elif entry.place in (Place.INCOMPLETE, Place.RUNNING) or settled:
            self.queues.move(ref, Place.READY)

    def _pending(self, ref: Ref) -> Pending | None:
        member = self.members.get(ref)
        if member is None or member.gang is None:
            return None
        waiting = sorted((p for p in member.pods.values() if p.waits), key=_order)
        standing = sorted((p for p in member.pods.values() if p.takes_room or p.did_its_part), key=_order)
        topology = self._topology_of(member.gang)
        return Pending(member.gang, topology, tuple(waiting), tuple(standing), member.refused)

    def _topology_of(self, gang: Gang) -> str:
        """The first topology, by name, that has every level the gang names; the flat one if it names none."""
        wanted = set(_levels(gang.root)) - {AUTO}
        named = sorted(name for name in self.clusters if name != FLAT.name)
        for name in named:
            if wanted <= set(self.clusters[name].topology.levels):
                return name
        return named[0] if named else FLAT.name

    def _shift(self, shifts: Iterable[Shift]) -> None:
        for shift in shifts:
            for cluster in self.clusters.values():
                cluster.use_node(shift.node, shift.amounts, shift.sign)
            if shift.sign < 0:
                self.queues.wake()

    def _forget_assumed(self, ref: Ref) -> None:
        for key in self.members.get(ref, Member()).pods:
            self._shift(self.ledger.release_assumed(key))


def _order(pod: Pod) -> tuple[str, int, str, str]:
    return (pod.pod_set, pod.rank, pod.key.namespace, pod.key.name)


def _levels(member: Group | PodSet) -> Iterable[str]:
    """Every level that a gang names anywhere."""
    for level in (member.locality.required, member.locality.preferred):
        if level:
            yield level
    if isinstance(member, PodSet):
        yield from (segment.level for segment in member.segments)
    else:
        for inner in member.members:
            yield from _levels(inner)
