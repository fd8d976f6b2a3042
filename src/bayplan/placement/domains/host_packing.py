"""Which hosts of one domain pods get that are promised the domain and have no host yet.

A domain has few hosts, and the pods are of few kinds. Pods are placed kind by kind, large ones first, on the
hosts that they fill best; if that fails, a bounded search looks for another way. The result depends on the
arguments alone, so that two processes that know the same find the same hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

ROOM_MAX = 2**31 - 1
SEARCH_STEPS = 4_000
SEARCH_SIZE = 256  # hosts times kinds of pods; more are not searched
Amounts = Mapping[str, int]
Hosts = Mapping[str, Amounts]
"""Free amounts by host."""


@dataclass(frozen=True, slots=True)
class HostDemand:
    """Equal pods that need hosts of a domain. `caps` are the most pods by host; a missing host takes none."""

    name: str
    amounts: Amounts
    count: int
    caps: Mapping[str, int] | None = None

    def room(self, host: str, free: Amounts) -> int:
        """How many such pods a host with these free amounts can take; they may be more than there are."""
        most = ROOM_MAX if self.caps is None else self.caps.get(host, 0)
        for name, amount in self.amounts.items():
            if amount > 0 and most > 0:
                most = min(most, free.get(name, 0) // amount)
        return max(most, 0)


@dataclass(frozen=True, slots=True)
class HostPacking:
    """By demand: how many pods each host gets."""

    pods: tuple[Mapping[str, int], ...]
    missing: int = 0  # pods without a host

    @property
    def is_complete(self) -> bool:
        return self.missing == 0


def pack_hosts(free: Hosts, demands: Sequence[HostDemand]) -> HostPacking:
    """A host for every pod; or for as many as were placed, if no way was found to place all of them."""
    best: HostPacking | None = None
    for order in _orders(free, demands):
        found = _greedy(free, demands, order)
        if found.is_complete:
            return found
        if best is None or found.missing < best.missing:
            best = found
    if best is None:
        return HostPacking(())
    if len(free) * len(demands) <= SEARCH_SIZE and _may_fit(free, demands):
        exact = _Search(free, demands, _by_size(free, demands)).run()
        if exact is not None:
            return exact
    return best


def without_pods(
    free: Hosts, demands: Sequence[HostDemand], packing: HostPacking
) -> dict[str, dict[str, int]]:
    """What the packed pods leave free."""
    left = {host: dict(amounts) for host, amounts in free.items()}
    for demand, pods in zip(demands, packing.pods, strict=True):
        for host, count in pods.items():
            _take(left[host], demand.amounts, count)
    return left


def _orders(free: Hosts, demands: Sequence[HostDemand]) -> Iterator[list[int]]:
    """Orders to try: the largest pods first; those with the fewest hosts first."""
    by_size = _by_size(free, demands)
    yield by_size
    choice = {
        at: sum(demands[at].room(host, amounts) > 0 for host, amounts in free.items()) for at in by_size
    }
    by_choice = sorted(by_size, key=lambda at: choice[at])
    if by_choice != by_size:
        yield by_choice


def _by_size(free: Hosts, demands: Sequence[HostDemand]) -> list[int]:
    most: dict[str, int] = {}
    for amounts in free.values():
        for name, amount in amounts.items():
            most[name] = max(most.get(name, 0), amount)

    def size(at: int) -> tuple[int, str]:
        parts = (amount * 1_000_000 // max(most.get(n, 0), 1) for n, amount in demands[at].amounts.items())
        return -max(parts, default=0), demands[at].name

    return sorted((at for at, demand in enumerate(demands) if demand.count > 0), key=size)


def _greedy(free: Hosts, demands: Sequence[HostDemand], order: Iterable[int]) -> HostPacking:
    left = {host: dict(amounts) for host, amounts in free.items()}
    pods: list[dict[str, int]] = [{} for _ in demands]
    missing = 0
    for at in order:
        demand = demands[at]
        rooms = ((demand.room(host, amounts), host) for host, amounts in left.items())
        wanted = demand.count
        for room, host in sorted(pair for pair in rooms if pair[0] > 0):  # large holes stay for others
            taken = min(room, wanted)
            pods[at][host] = taken
            _take(left[host], demand.amounts, taken)
            wanted -= taken
            if not wanted:
                break
        missing += wanted
    return HostPacking(tuple(pods), missing)


def _may_fit(free: Hosts, demands: Sequence[HostDemand]) -> bool:
    """Whether each kind fits alone, and all fit by the sums of the hosts."""
    total: dict[str, int] = {}
    asked: dict[str, int] = {}
    for amounts in free.values():
        for name, amount in amounts.items():
            total[name] = total.get(name, 0) + max(amount, 0)
    for demand in demands:
        if sum(demand.room(host, amounts) for host, amounts in free.items()) < demand.count:
            return False
        for name, amount in demand.amounts.items():
            asked[name] = asked.get(name, 0) + amount * demand.count
    return all(amount <= total.get(name, 0) for name, amount in asked.items())


class _Search:
    """Tries all ways to share out the pods, up to a limit of steps."""

    def __init__(self, free: Hosts, demands: Sequence[HostDemand], order: Sequence[int]) -> None:
        self.hosts = sorted(free)
        self.left = {host: dict(amounts) for host, amounts in free.items()}
        self.demands, self.order = demands, order
        self.pods: list[dict[str, int]] = [{} for _ in demands]
        self.steps = SEARCH_STEPS

    def run(self) -> HostPacking | None:
        return HostPacking(tuple(self.pods)) if self._next(0) else None

    def _next(self, number: int) -> bool:
        """Place the demands from this one on."""
        if number == len(self.order):
            return True
        at = self.order[number]
        return self._share(at, 0, self.demands[at].count, lambda: self._next(number + 1))

    def _share(self, at: int, first: int, wanted: int, follow: Callable[[], bool]) -> bool:
        """Share out the pods of one demand over the hosts from the first one on."""
        if not wanted:
            return follow()
        self.steps -= 1
        demand = self.demands[at]
        rooms = [demand.room(host, self.left[host]) for host in self.hosts[first:]]
        if self.steps <= 0 or sum(rooms) < wanted:
            return False
        host, others = self.hosts[first], sum(rooms[1:])
        for count in range(min(rooms[0], wanted), max(wanted - others, 0) - 1, -1):
            self._put(at, host, count)
            if self._share(at, first + 1, wanted - count, follow):
                return True
            self._put(at, host, -count)
        return False

    def _put(self, at: int, host: str, count: int) -> None:
        if count:
            pods = self.pods[at]
            pods[host] = pods.get(host, 0) + count
            if not pods[host]:
                del pods[host]
            _take(self.left[host], self.demands[at].amounts, count)


def _take(left: dict[str, int], amounts: Amounts, count: int) -> None:
    for name, amount in amounts.items():
        left[name] = left.get(name, 0) - amount * count
