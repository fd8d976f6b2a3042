"""Small clusters with running gangs that may move, and the cheapest moves found by trying everything."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random

from bayplan.model.change import Change, GangSpecSeen
from bayplan.model.gang import GangSpec, Locality
from bayplan.model.pod import Pod
from bayplan.scheduling.defragment.problem import MovableGang, RoomRequest, fresh_pods
from bayplan.state.scheduling.snapshot import SchedulingSnapshot
from tests.support.scheduling_scene import NOW, board, node, pod, ref

RACK = "rack"
GPUS = 4

Placement = tuple[tuple[int, int], ...]
"""Rack and host of each pod."""

HostKey = tuple[int, tuple[tuple[int, int], ...]]
"""Free GPUs of a host, and the pods of gangs that have not moved: gang and their number."""

RackKey = tuple[HostKey, ...]


@dataclass(frozen=True, slots=True)
class SmallGang:
    """A running gang: equal pods, in one rack if it asks for that."""

    gpus: int
    together: bool
    cost: int
    hosts: Placement


@dataclass(frozen=True, slots=True)
class SmallWorld:
    """Racks of hosts with four GPUs, what cannot move there, gangs, and a request for one rack."""

    racks: int
    hosts: int
    fixed: Mapping[tuple[int, int], int]
    gangs: tuple[SmallGang, ...]
    pods: int
    gpus: int

    def snapshot(self) -> SchedulingSnapshot:
        """The same as the scheduler sees it."""
        changes: list[Change] = [
            node(host_name(rack, host), rack_name(rack), GPUS)
            for rack in range(self.racks)
            for host in range(self.hosts)
        ]
        for at, ((rack, host), gpus) in enumerate(sorted(self.fixed.items())):
            changes.append(pod(f"fixed{at}", 0, on=host_name(rack, host), gpus=gpus, gang=None))
        for at, gang in enumerate(self.gangs):
            spec = self.spec(at)
            changes.append(GangSpecSeen(spec))
            changes += [
                pod(spec.source.name, rank, on=host_name(*where), gpus=gang.gpus, pod_set="", started=1.0)
                for rank, where in enumerate(gang.hosts)
            ]
        return board(*changes).snapshot([], NOW)

    def spec(self, at: int) -> GangSpec:
        gang = self.gangs[at]
        locality = Locality(required=RACK) if gang.together else Locality()
        return GangSpec(ref(f"gang{at}"), len(gang.hosts), locality=locality, created=1.0)

    def movers(self, snapshot: SchedulingSnapshot) -> list[MovableGang]:
        """All gangs, as the search takes them."""
        found = []
        for at, gang in enumerate(self.gangs):
            spec = self.spec(at)
            pods = tuple(snapshot.pods[key] for key in sorted(snapshot.members[spec.source], key=str))
            levels = (RACK,) if gang.together else ()
            found.append(MovableGang(spec, pods, fresh_pods(pods), gang.cost, gang.cost, levels))
        return found

    def request(self) -> RoomRequest:
        """The gang that needs room in one rack."""
        return room_request(self.pods, self.gpus)


def room_request(pods: int, gpus: int, levels: tuple[str, ...] = (RACK,)) -> RoomRequest:
    """A gang of equal pods that asks for room."""
    wanted: list[Pod] = [pod("wanted", rank, gpus=gpus, pod_set="").pod for rank in range(pods)]
    return RoomRequest(GangSpec(ref("wanted"), pods), tuple(wanted), levels)


def rack_name(rack: int) -> str:
    return f"r{rack:02d}"


def host_name(rack: int, host: int) -> str:
    return f"{rack_name(rack)}h{host}"


def small_world(seed: int, racks: int = 12, gangs: int = 8) -> SmallWorld:
    """A fragmented cluster: gangs on hosts at random."""
    dice = Random(seed)
    racks, hosts = dice.randint(2, racks), dice.randint(1, 3)
    free = {(rack, host): GPUS for rack in range(racks) for host in range(hosts)}
    fixed = {}
    for where in free:
        taken = dice.choice((0, 0, 1, 2, 3, 4)) if dice.random() < 0.6 else 0
        if taken:
            fixed[where] = taken
            free[where] -= taken
    found = []
    for _ in range(dice.randint(2, gangs)):
        together = dice.random() < 0.6
        pods, gpus = dice.randint(1, 3 if together else 2), dice.randint(1, 4)
        places = list(_placements(free, racks, hosts, pods, gpus, together))
        if places:
            hosts_of = dice.choice(places)
            for where in hosts_of:
                free[where] -= gpus
            found.append(SmallGang(gpus, together, dice.choice((3, 5, 8, 13, 21)) * pods, hosts_of))
    gpus = dice.randint(1, 4)
    fits_now = max(sum(free[rack, host] // gpus for host in range(hosts)) for rack in range(racks))
    return SmallWorld(
        racks, hosts, fixed, tuple(found), fits_now + dice.choice((0, 1, 1, 1, 1, 2)) or 1, gpus
    )


def _placements(
    free: Mapping[tuple[int, int], int], racks: int, hosts: int, pods: int, gpus: int, together: bool
) -> Iterator[Placement]:
    every = [(rack, host) for rack in range(racks) for host in range(hosts)]
    groups = [[one for one in every if one[0] == rack] for rack in range(racks)] if together else [every]
    for group in groups:
        yield from _spread(group, free, pods, gpus)


def _spread(
    group: Sequence[tuple[int, int]], free: Mapping[tuple[int, int], int], pods: int, gpus: int
) -> Iterator[Placement]:
    """All ways to put equal pods on the hosts of a group."""
    if not pods:
        yield ()
        return
    if not group:
        return
    first, rest = group[0], group[1:]
    for here in range(min(pods, max(free[first], 0) // gpus), -1, -1):
        for others in _spread(rest, free, pods - here, gpus):
            yield (first,) * here + others


def cheapest_cost(world: SmallWorld, work_max: int = 30_000) -> int | None:
    """The cost of the cheapest moves by exhaustive search; None if there are none.

    Every gang moves at most once, whole, to a place that is free while it still runs. Raises if it takes
    too long.
    """
    start = _state(world)
    heap: list[tuple[int, int, tuple[RackKey, ...]]] = [(0, 0, start)]
    seen, number = set(), count(1)
    while heap:
        cost, _, state = heapq.heappop(heap)
        if state in seen:
            continue
        seen.add(state)
        if any(sum(max(free, 0) // world.gpus for free, _ in rack) >= world.pods for rack in state):
            return cost
        staying = sorted({gang for rack in state for _, pods in rack for gang, _ in pods})
        for gang in staying:
            for following in _moved(world, state, gang):
                work_max -= 1
                if not work_max:
                    raise TooManyStatesError
                if following not in seen:
                    heapq.heappush(heap, (cost + world.gangs[gang].cost, next(number), following))
    return None


class TooManyStatesError(Exception):
    """The world is too large to try everything."""


def _state(world: SmallWorld) -> tuple[RackKey, ...]:
    free = {(rack, host): GPUS for rack in range(world.racks) for host in range(world.hosts)}
    pods: dict[tuple[int, int], dict[int, int]] = {where: {} for where in free}
    for where, gpus in world.fixed.items():
        free[where] -= gpus
    for at, gang in enumerate(world.gangs):
        for where in gang.hosts:
            free[where] -= gang.gpus
            pods[where][at] = pods[where].get(at, 0) + 1
    return _canonical(
        [[(free[rack, host], tuple(sorted(pods[rack, host].items()))) for host in range(world.hosts)]
         for rack in range(world.racks)]
    )  # fmt: skip


def _canonical(racks: Sequence[Sequence[HostKey]]) -> tuple[RackKey, ...]:
    """Equal hosts of a rack, and equal racks, are interchangeable."""
    return tuple(sorted(tuple(sorted(rack)) for rack in racks))


def _moved(world: SmallWorld, state: tuple[RackKey, ...], gang: int) -> Iterator[tuple[RackKey, ...]]:
    one = world.gangs[gang]
    free = {(rack, host): amount for rack, key in enumerate(state) for host, (amount, _) in enumerate(key)}
    for places in _placements(free, world.racks, world.hosts, len(one.hosts), one.gpus, one.together):
        racks = []
        for rack, key in enumerate(state):
            hosts = []
            for host, (amount, pods) in enumerate(key):
                left = dict(pods)
                gone = left.pop(gang, 0)
                arrived = places.count((rack, host))
                hosts.append((amount + (gone - arrived) * one.gpus, tuple(sorted(left.items()))))
            racks.append(hosts)
        yield _canonical(racks)
