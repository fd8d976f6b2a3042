"""The simulation of one admission cycle: quota, capacity and admitted gangs, changed tentatively."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from bayplan.model.assignment import Assignment, Path
from bayplan.model.gang import PodSet, Ref
from bayplan.model.node import HOSTNAME
from bayplan.model.node_rules import ANY_NODE
from bayplan.model.profile import Profile
from bayplan.model.queued_gang import QueuedGang
from bayplan.model.quota import Cell, Check, CheckKind, Flavor, Queue
from bayplan.model.watchdog import Watchdog
from bayplan.placement.cluster.capacity import with_slot
from bayplan.placement.overlay.topology_overlay import TopologyOverlay
from bayplan.placement.overlay.undo_log import UndoLog
from bayplan.placement.pods.host_rooms import DomainPods, HostRooms
from bayplan.scheduling.admission.pod_trials import PodTrials
from bayplan.state.admission.quota_tree import QuotaAccount, QuotaTree
from bayplan.state.admission.reservations import Reservation
from bayplan.state.admission.usage import GangUsage, PlacedPods, usage_of


@dataclass(frozen=True, slots=True, eq=False)
class GangLoad:
    """What a gang uses: quota by flavor and resource, and placed pods."""

    quota: Mapping[Cell, int]
    placed: tuple[PlacedPods, ...] = ()


@dataclass(slots=True, eq=False, weakref_slot=True)
class AdmissionSimulation:
    """All inputs of one admission cycle. Quota tree and topology overlay are copies to change freely."""

    quota_tree: QuotaTree
    overlay: TopologyOverlay
    queues: Mapping[str, Queue]
    flavors: Mapping[str, Flavor]
    checks: Mapping[str, Check]
    admitted: Mapping[str, Mapping[Ref, QueuedGang]]  # by queue
    profile: Profile
    now: float
    closed: frozenset[str] = frozenset()  # queues that admit no gang at present
    reserved: Mapping[str, Reservation] = field(default_factory=dict)  # domains, by topology
    reserved_quota: Mapping[str, Reservation] = field(default_factory=dict)  # by queue
    backfilled: dict[str, dict[Cell, int]] = field(default_factory=dict)  # by queue, at first
    loads: dict[Ref, GangLoad] = field(default_factory=dict)
    # placements in the empty or unchanged cluster, by shape
    placement_cache: dict[object, Any] = field(default_factory=dict)
    usage: Mapping[Ref, GangUsage] = field(default_factory=dict)  # of admitted gangs
    removed: set[Ref] = field(default_factory=set)  # admitted gangs that count as removed
    watchdog: Watchdog = field(default_factory=Watchdog)  # checked in every loop that may run long
    trials: PodTrials | None = None  # for the filters of binding; None: none is used
    rooms: HostRooms | None = None  # for topologies that end above the host; None: sums of hosts count
    quota_log: UndoLog[tuple[str, Mapping[Cell, int], int]] = field(init=False)

    def gangs_of(self, queue: str) -> Iterator[QueuedGang]:
        """Admitted gangs of a queue that do not count as removed."""
        for ref, queued_gang in self.admitted.get(queue, {}).items():
            if ref not in self.removed:
                yield queued_gang

    def previous_version(self, queued_gang: QueuedGang) -> QueuedGang | None:
        """The admitted version of a gang that this one replaces."""
        ref = replace(queued_gang.gang.source, name=queued_gang.replaces) if queued_gang.replaces else None
        return next((gangs[ref] for gangs in self.admitted.values() if ref in gangs), None) if ref else None

    def reserved_domains(self, queued_gang: QueuedGang, flavor: str) -> tuple[Path, ...]:
        """The domains of the flavor's topology that are reserved for a gang before this one."""
        reservation = self.reserved.get(self.flavors[flavor].topology)
        return reservation.domains if reservation is not None and reservation.excludes(queued_gang) else ()

    def set_aside_reserved(self, queued_gang: QueuedGang, queue: str) -> None:
        """Count free quota that is reserved for gangs before this one as used.

        Gangs of the same queue that started ahead of their turn use only what the reservation leaves over, so
        that it is covered once the others have ended. Other queues leave alone the queue's own quota.
        """
        for owner_queue, reservation in self.reserved_quota.items():
            account = self.quota_tree.queues.get(owner_queue)
            if account is None or not reservation.excludes(queued_gang):
                continue
            quota: dict[Cell, int] = {}
            for cell, amount in reservation.capacity.quota.items():
                used, available = account.usage.get(cell, 0), account.available(cell)
                if owner_queue == queue:
                    left = used + available - amount - self._backfilled(owner_queue, reservation).get(cell, 0)
                    quota[cell] = available - min(max(left, 0), available)
                else:
                    quota[cell] = max(min(amount, account.quota(cell).nominal - used), 0)
            self.apply(owner_queue, GangLoad(quota))

    def _backfilled(self, queue: str, reservation: Reservation) -> Mapping[Cell, int]:
        """What gangs of the queue use that come after the owner of its reservation."""
        if queue not in self.backfilled:
            total = self.backfilled[queue] = dict[Cell, int]()
            for queued_gang in filter(reservation.precedes, self.admitted.get(queue, {}).values()):
                for cell, amount in self.load_of(queued_gang).quota.items():
                    total[cell] = total.get(cell, 0) + amount
        return self.backfilled[queue]

    def account(self, queue: str) -> QuotaAccount:
        return self.quota_tree.queues[queue]

    def load_of(self, queued_gang: QueuedGang) -> GangLoad:
        """What an admitted gang uses."""
        ref = queued_gang.gang.source
        if ref not in self.loads:
            usage = self.usage.get(ref)
            current = (
                usage
                if usage is not None and usage.queued_gang is queued_gang
                else usage_of(queued_gang, self.flavors)
            )
            self.loads[ref] = GangLoad(current.quota, current.placements)
        return self.loads[ref]

    def __post_init__(self) -> None:
        self.quota_log = UndoLog(self._use)

    def apply(self, queue: str, load: GangLoad, sign: int = 1) -> None:
        """Add the load of a gang (sign -1: remove it)."""
        self.watchdog.check()
        self.quota_log.push((queue, load.quota, sign))
        for pods in load.placed:
            self.use(pods, sign)

    def use(self, pods: PlacedPods, sign: int = 1) -> None:
        """Add placed pods (sign -1: remove them)."""
        self.overlay.add_usage(pods.flavor, pods.place, pods.requests, sign, pods.zones)
        if self.trials is not None:
            self.trials.use(pods, sign)
        if self.rooms is not None and pods.gang is not None and pods.place.levels[-1] != HOSTNAME:
            self.rooms.use(self._domain_pods(pods, pods.gang), pods.place, pods.requests, sign)

    def _domain_pods(self, pods: PlacedPods, ref: Ref) -> DomainPods:
        usage = self.usage.get(ref)
        gang = ref if usage is None else usage.queued_gang.family
        rules = pods.shape.rules if pods.shape is not None else ANY_NODE
        return DomainPods(gang, pods.pod_set, pods.flavor, with_slot(pods.requests), 0, rules)

    def rooms_of(self, flavor: str) -> HostRooms | None:
        """The hosts below the domains of the flavor's topology, if it ends above them."""
        return None if self.overlay.levels(flavor)[-1] == HOSTNAME else self.rooms

    def is_filtered(self, queued_gang: QueuedGang) -> bool:
        """Whether a filter of binding may keep pods of the gang from a node."""
        gang = queued_gang.gang
        return self.trials is not None and self.trials.concern(gang.source.namespace, gang.root.pod_sets())

    def close(self) -> None:
        """Undo what was tried in parts that the state shares."""
        if self.trials is not None:
            self.trials.close()

    def _use(self, step: tuple[str, Mapping[Cell, int], int], undone: bool) -> None:
        queue, quota, sign = step
        self.quota_tree.use(queue, quota, -sign if undone else sign)

    @contextmanager
    def tentative(self) -> Iterator[None]:
        """Roll back at the end what happens inside: quota, capacity and zones."""
        with ExitStack() as stack:
            stack.enter_context(self.overlay.tentative())
            stack.enter_context(self.quota_log.tentative())
            if self.trials is not None:
                stack.enter_context(self.trials.tentative())
            if self.rooms is not None:
                stack.enter_context(self.rooms.tentative())
            yield

    def remove(self, queued_gangs: Iterable[QueuedGang]) -> None:
        """Remove admitted gangs from the simulation."""
        for queued_gang in queued_gangs:
            assert queued_gang.admission is not None
            self.apply(queued_gang.admission.queue, self.load_of(queued_gang), -1)

    def restore(self, queued_gangs: Iterable[QueuedGang]) -> None:
        """Restore removed gangs."""
        for queued_gang in queued_gangs:
            assert queued_gang.admission is not None
            self.apply(queued_gang.admission.queue, self.load_of(queued_gang), 1)

    def fits_quota(self, queue: str, quota: Mapping[Cell, int]) -> bool:
        account = self.account(queue)
        return all(amount <= account.available(cell) for cell, amount in quota.items())

    def fits_placed(self, needs: Iterable[PlacedPods]) -> bool:
        """Whether all of them fit together: pod sets of one gang may share a host."""
        taken = list(needs)
        with self.overlay.tentative():
            for pods in taken:
                if not self.overlay.fits(pods.flavor, pods.place, pods.requests, pods.zones):
                    return False
                self.overlay.add_usage(pods.flavor, pods.place, pods.requests, 1, pods.zones)
        return self._find_hosts(taken) and self._binds(taken)

    def _find_hosts(self, needs: Sequence[PlacedPods]) -> bool:
        """Whether pods that are placed in domains above the host find hosts there."""
        by_flavor: dict[str, list[tuple[PodSet, Assignment]]] = {}
        for pods in needs:
            if pods.shape is not None:
                by_flavor.setdefault(pods.flavor, []).append((pods.shape, pods.place))
        return all(
            rooms.fit(self.overlay.supply(flavor), wanted)
            for flavor, wanted in by_flavor.items()
            if (rooms := self.rooms_of(flavor)) is not None
        )

    def _binds(self, needs: Sequence[PlacedPods]) -> bool:
        """Whether the filters of binding accept pods of one gang where they are placed."""
        gang = needs[0].gang if needs else None
        if self.trials is None or gang is None:
            return True
        shapes = [pods.shape for pods in needs if pods.shape is not None]
        if not self.trials.concern(gang.namespace, shapes):
            return True
        return self.trials.binds(gang, [(pods, self.overlay.supply(pods.flavor)) for pods in needs])

    def topology_only(self, queue: Queue) -> bool:
        """Whether every flavor of a queue has a topology, so that all its gangs are placed."""
        flavors = queue.flavors()
        return bool(flavors) and all(self.overlay.has_topology(name) for name in flavors)

    def checks_of(self, queue: Queue, flavor: str, sort: CheckKind) -> bool:
        """Whether the queue requires a check of that kind for the flavor."""
        return any(
            (not flavors or flavor in flavors) and name in self.checks and self.checks[name].kind is sort
            for name, flavors in queue.checks.items()
        )


def is_over(account: QuotaAccount) -> bool:
    """Whether an account uses more of any cell than the quota of its subtree."""
    return account.parent is not None and any(account.borrows(cell) for cell in account.subtree)
