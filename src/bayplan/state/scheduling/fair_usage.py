"""Fair-share queues, and the usage and pending requests of each, updated pod by pod."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from bayplan.model.gang import GangSpec, Ref
from bayplan.model.node import Node
from bayplan.model.pod import Pod, PodKey
from bayplan.model.quota import Entitlement, FairQueue
from bayplan.state.scheduling.gang_state import MemberState, state_of

Sums = dict[str, int]
NO_ENTITLEMENT = Entitlement()


class UsageKind(IntEnum):
    """How a pod counts for its queue."""

    NOTHING = 0
    REQUESTED = 1
    USED = 2


@dataclass(frozen=True, slots=True)
class FairView:
    """Fair-share usage at one moment: amounts by leaf queue, then by resource."""

    queues: Mapping[str, FairQueue]
    usage: Mapping[str, Mapping[str, int]]
    non_preemptible: Mapping[str, Mapping[str, int]]  # the part of the usage that may not be preempted
    requested: Mapping[str, Mapping[str, int]]
    capacity: Mapping[str, int]  # of all ready nodes, without the usage of pods of no queue


@dataclass(slots=True)
class _Account:
    """Usage and requests of one gang; pods without a gang share one account."""

    queue: str = ""
    lasting: bool = False
    has: Sums = field(default_factory=dict)
    wants: Sums = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _CountedPod:
    gang: Ref | None
    amounts: Mapping[str, int]
    hold: UsageKind


class FairUsage:
    """Usage by fair-share queue. Pods are not tracked until the first queue exists."""

    def __init__(self) -> None:
        self.queues: dict[str, FairQueue] = {}
        self._pods: dict[PodKey, _CountedPod] = {}
        self._gangs: dict[Ref | None, _Account] = {}
        self._usage: dict[str, Sums] = {}  # by queue; "" for pods of no queue
        self._non_preemptible: dict[str, Sums] = {}
        self._requests: dict[str, Sums] = {}
        self._nodes: dict[str, Mapping[str, int]] = {}
        self._capacity: Sums = {}
        self._grown: set[str] = set()  # queues with more usage; "": shares of all queues shrank
        self.active = False

    def start_tracking(self, specs: Mapping[Ref, GangSpec], pods: Iterable[Pod]) -> None:
        """Track all existing gangs and pods: the first queue was created. Nodes are tracked already."""
        self.active = True
        for ref, spec in specs.items():
            self.set_spec(ref, spec)
        for pod in pods:
            self.set_pod(pod, usage_kind(pod))

    # ── what happened ──────────────────────────────────────────────────────────────────────────────

    def queue_seen(self, queue: FairQueue) -> bool:
        """Store a queue. Returns whether it changed."""
        known = self.queues.get(queue.name)
        self.queues[queue.name] = queue
        return known != queue

    def queue_lost(self, name: str) -> bool:
        """Remove a queue. Returns whether it existed."""
        return self.queues.pop(name, None) is not None

    def set_spec(self, ref: Ref, spec: GangSpec | None) -> bool:
        """The queue of a gang was set, changed or removed. Returns whether any usage or request decreased."""
        account = self._gangs.get(ref)
        if account is None:
            account = self._gangs[ref] = _Account()
        queue, lasting = (spec.queue, spec.non_preemptible) if spec is not None else ("", False)
        changed = (account.queue, account.lasting) != (queue, lasting)
        has, wants = any(account.has.values()), any(account.wants.values())
        less = changed and (has or (wants and bool(account.queue)))
        if changed:
            self._count_account(account, -1)
            account.queue, account.lasting = queue, lasting
            self._count_account(account, 1)
            self._grown |= ({queue} if has else set()) | ({""} if wants else set())
        if spec is None:
            self._forget_if_empty(ref)
        return less

    def set_pod(self, pod: Pod, hold: UsageKind) -> bool:
        """Update a pod. Returns whether the usage or requests of a queue decreased."""
        counted = self._pods.get(pod.key)
        if (
            counted is not None
            and (counted.gang, counted.hold) == (pod.gang, hold)
            and counted.amounts == pod.amounts
        ):
            return False
        less = self.remove_pod(pod.key)
        if hold is not UsageKind.NOTHING:
            self._pods[pod.key] = _CountedPod(pod.gang, pod.amounts, hold)
            account = self._count(self._pods[pod.key], 1)
            if hold is UsageKind.USED:
                self._grown.add(account.queue)
            elif account.queue and counted is None:
                self._grown.add("")
        return less and hold is not UsageKind.USED

    def remove_pod(self, key: PodKey) -> bool:
        """Remove a pod. Returns whether the usage or requests of a queue decreased."""
        counted = self._pods.pop(key, None)
        if counted is None:
            return False
        account = self._count(counted, -1)
        if not account.queue:
            self._forget_if_empty(counted.gang)
        return bool(account.queue)

    def set_node(self, name: str, node: Node | None) -> None:
        """A node was added, changed, or removed (None)."""
        before, now = self._nodes.pop(name, {}), node.allocatable if node is not None and node.ready else None
        _add(self._capacity, before, -1)
        if now is not None:
            self._nodes[name] = now
            _add(self._capacity, now, 1)
        if any(amount > (now or {}).get(resource, 0) for resource, amount in before.items()):
            self._grown.add("")  # there is less to share

    # ── asking ─────────────────────────────────────────────────────────────────────────────────────

    def has_queue(self, gang: Ref | None) -> bool:
        """Whether a gang belongs to a queue."""
        return gang in self._gangs and bool(self._gangs[gang].queue)

    def shares_exceeded(self) -> bool:
        """Whether queues may be reclaimed from that could not be when this was called last.

        Its usage grew, or its share shrank because there is less capacity or more demand; and its usage,
        with all queues below it, exceeds its quota.
        """
        grown, self._grown = self._grown, set()
        if not grown or not self.queues:
            return False
        use: dict[str, Sums] = {}
        affected: set[str] = set(self.queues) if "" in grown else set()
        for leaf, sums in self._usage.items():
            for name in self._with_ancestors(leaf):
                _add(use.setdefault(name, {}), sums, 1)
                if leaf in grown:
                    affected.add(name)
        shared = {resource for queue in self.queues.values() for resource in queue.entitlements}
        return any(
            (quota := self.queues[name].entitlements.get(resource, NO_ENTITLEMENT).quota) is not None
            and amount > quota
            for name in affected
            for resource, amount in use.get(name, {}).items()
            if resource in shared
        )

    def _with_ancestors(self, name: str) -> Iterator[str]:
        """A queue and its ancestors; a cycle of parents ends the walk."""
        seen: set[str] = set()
        while name in self.queues and name not in seen:
            yield name
            seen.add(name)
            name = self.queues[name].parent

    def view(self) -> FairView | None:
        """The fair-share usage now; None without queues."""
        if not self.queues:
            return None
        capacity = dict(self._capacity)
        _add(capacity, self._usage.get("", {}), -1)
        has, lasting, wants = (
            {name: dict(sums) for name, sums in kept.items() if name}
            for kept in (self._usage, self._non_preemptible, self._requests)
        )
        return FairView(dict(self.queues), has, lasting, wants, capacity)

    # ── counting ───────────────────────────────────────────────────────────────────────────────────

    def _count(self, counted: _CountedPod, sign: int) -> _Account:
        account = self._gangs.get(counted.gang)
        if account is None:
            account = self._gangs[counted.gang] = _Account()
        _add(account.has if counted.hold is UsageKind.USED else account.wants, counted.amounts, sign)
        kept = self._usage if counted.hold is UsageKind.USED else self._requests
        _add_to(kept, account.queue, counted.amounts, sign)
        if account.lasting and counted.hold is UsageKind.USED:
            _add_to(self._non_preemptible, account.queue, counted.amounts, sign)
        return account

    def _count_account(self, account: _Account, sign: int) -> None:
        """Add or remove the usage and requests of a gang."""
        _add_to(self._usage, account.queue, account.has, sign)
        _add_to(self._requests, account.queue, account.wants, sign)
        if account.lasting:
            _add_to(self._non_preemptible, account.queue, account.has, sign)

    def _forget_if_empty(self, ref: Ref | None) -> None:
        account = self._gangs.get(ref)
        if (
            account is not None
            and not account.queue
            and not any((*account.has.values(), *account.wants.values()))
        ):
            del self._gangs[ref]


def usage_kind(pod: Pod) -> UsageKind:
    """How a pod counts for its queue. Terminating pods do not count as usage."""
    if pod.uses_capacity:
        return UsageKind.NOTHING if pod.terminating else UsageKind.USED
    return UsageKind.REQUESTED if state_of(pod) is MemberState.PENDING else UsageKind.NOTHING


def _add_to(kept: dict[str, Sums], queue: str, amounts: Mapping[str, int], sign: int) -> None:
    """Add to the sums of one queue; drop the queue once all sums are zero."""
    sums = kept.setdefault(queue, {})
    _add(sums, amounts, sign)
    if not sums:
        del kept[queue]


def _add(sums: Sums, amounts: Mapping[str, int], sign: int) -> None:
    """Add amounts and drop zero sums: resource names come and go, and must not pile up."""
    for resource, amount in amounts.items():
        remaining = sums.get(resource, 0) + sign * amount
        if remaining:
            sums[resource] = remaining
        else:
            sums.pop(resource, None)
