"""Victim units of running gangs in queues: pods beyond the minimum one by one, then the core of the gang."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import inf

from bayplan.model.gang import GangSpec, Ref
from bayplan.model.pod import Pod, PodKey
from bayplan.scheduling.fair_share.accounts import NONE, Accounts, Use, amounts_of
from bayplan.scheduling.preemption.victim_units import VictimUnit, beyond_minimum
from bayplan.state.scheduling.snapshot import SchedulingSnapshot


class FairVictimPool:
    """All victim units of one cycle. Non-preemptible gangs are left out, and those that are dropped."""

    def __init__(self, snapshot: SchedulingSnapshot, accounts: Accounts, removed: Collection[PodKey]) -> None:
        self.snapshot, self.removed = snapshot, removed
        self.dropped: set[Ref] = set()
        self._by_queue: dict[str, list[VictimUnit]] | None = None
        self._by_gang: dict[Ref, list[VictimUnit]] = {}
        members: dict[Ref, list[Pod]] = {}
        for key, pod in snapshot.pods.items():
            if pod.gang is not None and not pod.terminating and key not in removed:
                spec = snapshot.specs.get(pod.gang)
                if spec is not None and spec.queue in accounts.queues and not spec.non_preemptible:
                    members.setdefault(pod.gang, []).append(pod)
        for gang, pods in members.items():
            self._by_gang[gang] = list(_units_of(snapshot.specs[gang], pods))

    def by_queue(self) -> dict[str, list[VictimUnit]]:
        """Units by queue, first victim first."""
        if self._by_queue is None:
            self._by_queue = {}
            for units in self._by_gang.values():
                self._by_queue.setdefault(units[0].queue, []).extend(units)
            for some in self._by_queue.values():
                some.sort(key=_first_victim_first)  # stable: the units of one gang keep their order
        return self._by_queue

    def drop(self, gang: Ref) -> None:
        """Protect a gang from preemption."""
        self.dropped.add(gang)
        if self._by_gang.pop(gang, None) is not None:
            self._by_queue = None

    def rebuild(self, gang: Ref) -> None:
        """Rebuild the units of a gang after some of its pods were preempted."""
        if gang in self.dropped:
            return
        mine = (
            self.snapshot.pods.get(key)
            for key in self.snapshot.members.get(gang, ())
            if key not in self.removed
        )
        pods = [pod for pod in mine if pod is not None and not pod.terminating]
        self._by_gang.pop(gang, None)
        if pods:
            self._by_gang[gang] = list(_units_of(self.snapshot.specs[gang], pods))
        self._by_queue = None


def _units_of(spec: GangSpec, pods: list[Pod]) -> Iterator[VictimUnit]:
    """The pods beyond the minimum of each pod set, from the set grown most; then the core."""
    surplus, core = beyond_minimum(spec, pods)
    for pod in surplus:
        yield fair_unit_of(spec, (pod,), placed=pods)
    if core:
        yield fair_unit_of(spec, core, core=True, placed=pods)


def fair_unit_of(
    spec: GangSpec, pods: Sequence[Pod], *, core: bool = False, placed: Sequence[Pod] = ()
) -> VictimUnit:
    """A victim unit of some pods of a gang. `placed`: all its pods, if they set priority and start time."""
    every = placed or pods
    said = spec.priority
    priority = said if said is not None else max(pod.spec.priority for pod in every)
    started = min(pod.started or inf for pod in every)
    return VictimUnit(
        tuple(pods), priority, True, started, False, spec.queue, core, amounts_of(pods), spec.created
    )


def _first_victim_first(unit: VictimUnit) -> tuple[object, ...]:
    """Sort key: low priority, beyond the minimum, young."""
    return unit.priority, unit.core, -unit.created


class FairVictims:
    """Iterates over units of several queues, the queue furthest above its share first.

    Yielded units count as removed.
    """

    def __init__(self, accounts: Accounts, units: Mapping[str, list[VictimUnit]]) -> None:
        self.accounts = accounts
        self.left = {queue: list(reversed(some)) for queue, some in units.items() if some}
        self.taken: dict[str, Use] = {}
        self.units_below: dict[str, int] = {}
        for queue, some in self.left.items():
            for name in accounts.path_up(queue):
                self.units_below[name] = self.units_below.get(name, 0) + len(some)

    def __iter__(self) -> Iterator[VictimUnit]:
        while (found := self._first(self.accounts.below.get("", ()))) is not None:
            self.left[found.queue].pop()
            for name in self.accounts.path_up(found.queue):
                self.units_below[name] -= 1
                taken = self.taken.setdefault(name, {})
                for resource, amount in found.amounts.items():
                    taken[resource] = taken.get(resource, 0) + amount
            yield found

    def skip(self, queue: str) -> None:
        """Yield no more units of this queue."""
        for name in self.accounts.path_up(queue):
            self.units_below[name] -= len(self.left[queue])
        self.left[queue].clear()

    def _first(self, names: Iterable[str]) -> VictimUnit | None:
        best: tuple[tuple[object, ...], VictimUnit] | None = None
        some = [name for name in names if self.units_below.get(name)]
        for name in some:
            below = self.accounts.below.get(name)
            unit = self._first(below) if below else self.left[name][-1]
            if unit is None or len(some) == 1:
                return unit
            less = dict(self.taken.get(name, NONE))
            for resource, amount in unit.amounts.items():
                less[resource] = less.get(resource, 0) + amount
            key = ("piece", unit.pods[0].key, self.units_below[name])
            rank = self.accounts.rank(name, key, NONE, less)
            if best is None or rank > best[0]:
                best = rank, unit
        return None if best is None else best[1]


def protected_until(accounts: Accounts, unit: VictimUnit, now: float, *, reclaim: bool) -> float:
    """When the core of a gang may be preempted: its queue, or an ancestor, may guarantee a minimum runtime.

    The minimum runtime of a gang that has not started begins now or later.
    """
    for name in accounts.path_up(unit.queue):
        queue = accounts.queues[name]
        seconds = queue.reclaim_after if reclaim else queue.preempt_after
        if seconds is not None:
            return min(unit.started, now) + seconds if seconds > 0 else 0.0
    return 0.0
