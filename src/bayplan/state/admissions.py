"""What admission believes now: quota trees, topologies, who holds what, and who waits in which line."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from bayplan.model.change import (
    Change,
    CheckLost,
    CheckSeen,
    DemandLost,
    DemandSeen,
    EntranceLost,
    EntranceSeen,
    FlavorLost,
    FlavorSeen,
    NamespaceLost,
    NamespaceSeen,
    NodeLost,
    NodeSeen,
    PodLost,
    PodSeen,
    QueueLost,
    QueueSeen,
    QuotaNodeLost,
    QuotaNodeSeen,
    TopologyLost,
    TopologySeen,
)
from bayplan.model.demand import Admission, Demand
from bayplan.model.gang import Ref
from bayplan.model.node import Node, Topology
from bayplan.model.plan import Admit, Again, Decline, Evict, Plan
from bayplan.model.pod import Pod, PodKey
from bayplan.model.quota import Cell, Check, Entrance, Flavor, Queue, QuotaNode, Stop, Victims
from bayplan.model.refusal import Refusal, Remark, Token
from bayplan.placement.supply import Supply
from bayplan.state.holdings import Holding, Holdings, holding_of
from bayplan.state.ledger import Claim, Ledger
from bayplan.state.lines import BACKOFF_FIRST, BACKOFF_MAX, NEVER, Lines, Place, Standing
from bayplan.state.quotas import Books

ASSUMED_SECONDS = 60.0
PLACING_FIRST = 10.0
PLACING_MAX = 300.0
ALIKE_MAX = 1000  # told at once; the others of the shape the next time
REPLACE_FIRST = 1.0


@dataclass(frozen=True, slots=True)
class Head:
    """A gang whose turn it is: its queue, where its last search for flavors ended, others just like it."""

    demand: Demand
    queue: str
    progress: tuple[Mapping[str, int], ...] = ()
    barred: Refusal | None = None  # may not enter at all, for a reason that needs no look at quota
    alike: tuple[Demand, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class AdmissionSnapshot:
    """All that one decision looks at. Books are a copy; the rest is not changed by anybody."""

    books: Books
    supplies: Mapping[str, Supply]
    flavors: Mapping[str, Flavor]
    queues: Mapping[str, Queue]
    checks: Mapping[str, Check]
    admitted: Mapping[str, Mapping[Ref, Demand]]
    closed: frozenset[str]
    heads: tuple[Head, ...]


@dataclass(slots=True)
class Rules:
    """What administrators defined."""

    flavors: dict[str, Flavor] = field(default_factory=dict)
    shared: dict[str, QuotaNode] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    entrances: dict[tuple[str, str], Entrance] = field(default_factory=dict)
    checks: dict[str, Check] = field(default_factory=dict)
    namespaces: dict[str, Mapping[str, str]] = field(default_factory=dict)


class AdmissionState:
    """Folds changes; hands out heads and snapshots; believes plans until the API says otherwise."""

    def __init__(self) -> None:
        self.rules = Rules()
        self.holdings = Holdings()
        self.ledger = Ledger()  # pods that no admitted gang accounts for
        self.pods: dict[PodKey, Pod] = {}
        self.lines = Lines()
        self.assumed: dict[Ref, Admission] = {}
        self.leaving: set[Ref] = set()  # told to leave; the API does not say so yet

    # ── folding changes ───────────────────────────────────────────────────────────────────────────

    def apply(self, change: Change) -> None:
        """Fold one change in."""
        rules = self.rules
        match change:
            case NodeSeen(node):
                self.nodes_seen({node.name: node})
            case NodeLost(name):
                self.holdings.remove_node(name)
            case TopologySeen(topology):
                self._topology(topology.name, topology)
            case TopologyLost(name):
                self._topology(name, None)
            case PodSeen(pod):
                self._pod_seen(pod)
            case PodLost(key):
                self._pod_gone(key)
            case FlavorSeen(flavor):
                if rules.flavors.get(flavor.name) != flavor:
                    rules.flavors[flavor.name] = flavor
                    self._rules_changed()
            case FlavorLost(name):
                if rules.flavors.pop(name, None) is not None:
                    self._rules_changed()
            case QuotaNodeSeen(node):
                if rules.shared.get(node.name) != node:
                    rules.shared[node.name] = node
                    self._rules_changed()
            case QuotaNodeLost(name):
                if rules.shared.pop(name, None) is not None:
                    self._rules_changed()
            case DemandSeen(demand):
                self._demand_seen(demand)
            case DemandLost(ref):
                self._demand_lost(ref)
            case _:
                self._apply_queue_change(change)

    def _apply_queue_change(self, change: Change) -> None:
        rules = self.rules
        match change:
            case QueueSeen(queue):
                if rules.queues.get(queue.name) != queue:
                    rules.queues[queue.name] = queue
                    self.lines.line(queue.name).strict = queue.strict
                    self._rules_changed()
                    self._stand_again(lambda standing: standing.queue in ("", queue.name))
            case QueueLost(name):
                if rules.queues.pop(name, None) is not None:
                    self._rules_changed()
            case EntranceSeen(entrance):
                key = (entrance.namespace, entrance.name)
                if rules.entrances.get(key) != entrance:
                    rules.entrances[key] = entrance
                    self._stand_again(lambda standing: standing.demand.entrance == key)
            case EntranceLost(namespace, name):
                rules.entrances.pop((namespace, name), None)
                self._stand_again(lambda standing: standing.demand.entrance == (namespace, name))
            case CheckSeen(check):
                if rules.checks.get(check.name) != check:
                    rules.checks[check.name] = check
                    self._wake_all()
            case CheckLost(name):
                rules.checks.pop(name, None)
                self._wake_all()
            case NamespaceSeen(name, labels):
                if rules.namespaces.get(name) != labels:
                    rules.namespaces[name] = labels
                    self._wake_all()
            case NamespaceLost(name):
                rules.namespaces.pop(name, None)

    def apply_all(self, changes: Iterable[Change]) -> None:
        """Fold many changes in; nodes that arrive together are laid out together."""
        fresh: dict[str, Node] = {}
        for change in changes:
            if isinstance(change, NodeSeen):
                fresh[change.node.name] = change.node
                continue
            if fresh:
                self.nodes_seen(fresh)
                fresh = {}
            self.apply(change)
        if fresh:
            self.nodes_seen(fresh)

    def nodes_seen(self, nodes: Mapping[str, Node]) -> None:
        """Nodes are there, or changed. Whoever waits for room on such nodes may be helped."""
        for topology in self.holdings.put_nodes(nodes):
            self._wake_topology(topology)

    def _topology(self, name: str, topology: Topology | None) -> None:
        if self.holdings.set_topology(name, topology, self.ledger.by_node()):
            self._rules_changed()

    def _rules_changed(self) -> None:
        rules = self.rules
        self.holdings.set_rules(rules.flavors, rules.shared.values(), rules.queues.values())
        self._wake_all()

    def _pod_seen(self, pod: Pod) -> None:
        before = self.pods.get(pod.key)
        if before is not None and before.uid != pod.uid:
            self._pod_gone(pod.key)
        self.pods[pod.key] = pod
        if pod.takes_room:
            shifts = self.ledger.hold(Claim(pod.key, pod.node, pod.amounts))
        else:
            shifts = self.ledger.release(pod.key)
        self._shift(shifts)

    def _pod_gone(self, key: PodKey) -> None:
        self.pods.pop(key, None)
        self._shift(self.ledger.release(key))

    def _shift(self, shifts: Iterable[object]) -> None:
        for topology in self.holdings.shift(shifts):  # type: ignore[arg-type]
            self._wake_topology(topology)

    # ── gangs ─────────────────────────────────────────────────────────────────────────────────────

    def _demand_seen(self, demand: Demand) -> None:
        ref = demand.gang.source
        standing = self.lines.standings.get(ref)
        if standing is not None and standing.demand.gang.uid != demand.gang.uid:
            self._demand_lost(ref)
            standing = None
        if standing is None:
            standing = self.lines.standings[ref] = Standing(demand)
        before, standing.demand = standing.demand, demand
        if demand.evicted:
            self.leaving.discard(ref)
        if demand.admission is not None:
            self.assumed.pop(ref, None)
        elif before.admission is not None and demand.admission is None:
            self.leaving.discard(ref)
        self._hold(standing)
        self._stand(standing)

    def _demand_lost(self, ref: Ref) -> None:
        standing = self.lines.standings.pop(ref, None)
        self.assumed.pop(ref, None)
        self.leaving.discard(ref)
        self._release(ref)
        if standing is not None:
            self.lines.move(standing, Place.OUT)

    def _hold(self, standing: Standing) -> None:
        """Account for what a gang has, or is about to get."""
        demand, ref = standing.demand, standing.demand.gang.source
        admission = self.assumed.get(ref) or demand.admission
        if admission is None:
            self._release(ref)
            return
        known = self.holdings.by_gang.get(ref)
        shown = replace(demand, admission=admission, evicted=demand.evicted or ref in self.leaving)
        if known is not None and known.demand == shown:
            return
        if known is not None and known.demand.admission == admission:
            self.holdings.by_gang[ref] = replace(known, demand=shown)
            self.holdings.by_queue[admission.queue][ref] = shown
            return
        self._release(ref)
        self.holdings.take(holding_of(shown, self.rules.flavors))

    def _release(self, ref: Ref) -> None:
        holding = self.holdings.give_back(ref)
        if holding is not None:
            self._wake_beside(holding)

    def _stand(self, standing: Standing) -> None:
        """Put a gang where its demand says it belongs; what is under way is left alone."""
        demand, ref = standing.demand, standing.demand.gang.source
        entrance = self.rules.entrances.get(demand.entrance)
        standing.queue = entrance.queue if entrance is not None else ""
        if ref in self.assumed:
            return
        if demand.admission is not None:
            if demand.places_pending and ref not in self.leaving:
                if standing.place is not Place.PLACING:
                    standing.tries = 0
                    self.lines.move(standing, Place.PLACING, 0.0)
            else:
                self.lines.move(standing, Place.HOLDING)
            return
        if not demand.active or entrance is None:
            self.lines.move(standing, Place.OUT)
            return
        shape = self._shape(standing)
        if standing.place is Place.WAITING and shape == standing.shape:
            return
        standing.shape = shape
        standing.place = Place.OUT
        if demand.not_before > 0:
            self.lines.move(standing, Place.BACKOFF, demand.not_before)
        else:
            self.lines.move(standing, Place.WAITING)

    def _shape(self, standing: Standing) -> Hashable:
        """Gangs of one shape get one answer."""
        demand, queue = standing.demand, self.rules.queues.get(standing.queue)
        by_age = queue is not None and Victims.LOWER_OR_NEWER in (
            queue.preemption.within,
            queue.preemption.reclaim,
        )
        verdicts = tuple((verdict.check, verdict.state) for verdict in demand.verdicts)
        return (
            standing.queue, demand.gang.source.namespace, demand.shape, demand.gang.priority, verdicts,
            standing.rank if by_age or demand.replaces else (),
        )  # fmt: skip

    def _stand_again(self, concerns: object) -> None:
        for standing in list(self.lines.standings.values()):
            if concerns(standing):  # type: ignore[operator]
                standing.shape = None
                self._stand(standing)

    # ── waking ────────────────────────────────────────────────────────────────────────────────────

    def _wake_all(self) -> None:
        for queue in self.rules.queues:
            self.lines.wake(queue)

    def _wake_topology(self, topology: str) -> None:
        for name, queue in self.rules.queues.items():
            flavors = (self.rules.flavors.get(flavor) for flavor in queue.flavors())
            if any(flavor is not None and flavor.topology == topology for flavor in flavors):
                self.lines.wake(name)

    def _wake_beside(self, holding: Holding) -> None:
        """Quota came back in one tree, and room in the topologies where the gang stood."""
        account = self.holdings.books().queues.get(holding.queue)
        if account is not None:
            for queue in account.root().queues():
                self.lines.wake(queue.name)
        for topology in self.holdings.topologies_of(holding):
            self._wake_topology(topology)

    # ── deciding ──────────────────────────────────────────────────────────────────────────────────

    def heads(self, now: float) -> list[Head]:
        """The gangs to decide on now: those that wait for a place, and the first of every line."""
        for standing in self.lines.due(now):
            self._come_due(standing, now)
        heads = [self._head(s) for s in list(self.lines.holding.values()) if s.due <= now]
        if not heads and not any(line.is_ready() for line in self.lines.lines.values()):
            return []
        for name in sorted(self.lines.lines):
            first = self.lines.lines[name].first()
            if first is not None:
                heads.append(self._head(first))
        return heads

    def _come_due(self, standing: Standing, now: float) -> None:
        ref = standing.demand.gang.source
        match standing.place:
            case Place.BACKOFF:
                self.lines.move(standing, Place.WAITING)
            case Place.COMMITTED:  # nobody ever said how the write ended
                self.admission_failed(ref, now)

    def _head(self, standing: Standing) -> Head:
        line = self.lines.lines.get(standing.queue)
        alike: list[Demand] = []
        if line is not None and standing.place is Place.WAITING and not line.strict:
            for other in line.alike(standing):
                if other.told is None or other.told != standing.told:
                    alike.append(other.demand)
                if len(alike) >= ALIKE_MAX:
                    break
        progress = tuple(standing.progress)
        return Head(standing.demand, standing.queue, progress, self._barred(standing), tuple(alike))  # type: ignore[arg-type]

    def _barred(self, standing: Standing) -> Refusal | None:
        demand, entrance = standing.demand, self.rules.entrances.get(standing.demand.entrance)
        queue = self.rules.queues.get(standing.queue)
        if demand.admission is not None:
            return None
        if entrance is not None and entrance.stop is not Stop.OPEN:
            return Refusal(Token.CLOSED, Remark.ENTRANCE_CLOSED, queue=entrance.name)
        labels = self.rules.namespaces.get(demand.gang.source.namespace)
        if queue is None or labels is None:
            return None
        if queue.namespaces is None or not all(r.accepts(labels.get(r.key)) for r in queue.namespaces):
            return Refusal(Token.MISCONFIGURED, Remark.NAMESPACE, queue=queue.name)
        return None

    def snapshot(self, heads: Iterable[Head]) -> AdmissionSnapshot:
        """A frozen view for deciding on these gangs."""
        return AdmissionSnapshot(
            self.holdings.books().copy(),
            self.holdings.supplies(),
            self.rules.flavors,
            self.rules.queues,
            self.rules.checks,
            self.holdings.by_queue,
            frozenset(self.closed_queues()),
            tuple(heads),
        )

    def closed_queues(self) -> Iterator[str]:
        """Queues that admit nobody: stopped, misconfigured, or in a tree that bites its tail."""
        for name, queue in self.rules.queues.items():
            if queue.stop is not Stop.OPEN or self.flaws(queue):
                yield name

    def flaws(self, queue: Queue) -> list[tuple[str, str]]:
        """What keeps a queue from working: (what is missing, its name)."""
        found = [("flavor", f) for f in queue.flavors() if f not in self.rules.flavors]
        for name in queue.flavors():
            flavor = self.rules.flavors.get(name)
            if flavor is not None and flavor.topology and flavor.topology not in self.holdings.clusters:
                found.append(("topology", name))
        found += [("check", c) for c in queue.checks if c not in self.rules.checks]
        found += [
            ("inactive_check", c)
            for c in queue.checks
            if c in self.rules.checks and not self.rules.checks[c].active
        ]
        if queue.node.parent and queue.node.parent in self.holdings.books().cyclic:
            found.append(("cycle", queue.node.parent))
        return found

    # ── believing ─────────────────────────────────────────────────────────────────────────────────

    def assume(self, plan: Plan, now: float) -> None:
        """Believe the plan until its writes end or the API says otherwise."""
        for action in plan.actions:
            match action:
                case Admit():
                    self._assume_admitted(action, now)
                case Evict():
                    self._assume_leaving(action.gang)
                case Decline():
                    self._assume_declined(action, now)

    def _assume_admitted(self, action: Admit, now: float) -> None:
        standing = self.lines.standings.get(action.gang)
        if standing is None:
            return
        self.assumed[action.gang] = action.admission
        standing.progress, standing.tries, standing.told = (), 0, None
        self._hold(standing)
        self.lines.move(standing, Place.COMMITTED, now + ASSUMED_SECONDS)

    def _assume_leaving(self, ref: Ref) -> None:
        standing = self.lines.standings.get(ref)
        if standing is not None and standing.demand.admission is not None:
            self.leaving.add(ref)
            self._hold(standing)
            if standing.place is Place.PLACING:
                self.lines.move(standing, Place.HOLDING)

    def _assume_declined(self, action: Decline, now: float) -> None:
        standing = self.lines.standings.get(action.gang)
        if standing is None:
            return
        standing.told, standing.progress = action.refusal.token, tuple(action.progress)
        match action.again:
            case Again.AFTER_A_WHILE:
                first = REPLACE_FIRST if standing.demand.failed_nodes else PLACING_FIRST
                self.lines.back_off(standing, Place.PLACING, now, first, PLACING_MAX)
            case Again.WHEN_IT_MAY_HELP:
                self.lines.line(standing.queue).refused.add(standing.shape)
            case Again.AT_ONCE:
                if action.refusal.remark in (Remark.LEAVING, Remark.SAME_VICTIMS_WILL_FIT):
                    line = self.lines.line(standing.queue)
                    line.refused.add(standing.shape)  # until they have left
                    line.sticky = standing

    def admission_failed(self, ref: Ref, now: float) -> None:
        """The write of an admission did not happen: give back what was assumed and try again later."""
        standing = self.lines.standings.get(ref)
        if self.assumed.pop(ref, None) is None or standing is None:
            return
        self._hold(standing)
        standing.shape = None
        if standing.demand.admission is not None:
            self._stand(standing)
        else:
            self.lines.back_off(standing, Place.BACKOFF, now, BACKOFF_FIRST, BACKOFF_MAX)

    def eviction_failed(self, ref: Ref) -> None:
        """The write of an eviction did not happen: the gang may be chosen again."""
        if ref in self.leaving:
            self.leaving.discard(ref)
            standing = self.lines.standings.get(ref)
            if standing is not None:
                self._hold(standing)
                self._stand(standing)
            for queue in self.rules.queues:
                self.lines.wake(queue)

    def next_due(self, now: float) -> float:
        """When something has to be done even if nothing happens."""
        if any(line.is_ready() for line in self.lines.lines.values()):
            return now
        placing = min((s.due for s in self.lines.holding.values()), default=NEVER)
        return min(self.lines.next_due(), placing)


def usage_by_cell(holdings: Iterable[Holding]) -> dict[Cell, int]:
    """The sum of quota that gangs hold."""
    total: dict[Cell, int] = {}
    for holding in holdings:
        for cell, amount in holding.quota.items():
            total[cell] = total.get(cell, 0) + amount
    return total
