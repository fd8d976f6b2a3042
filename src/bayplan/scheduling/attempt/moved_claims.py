"""Open slots of domains move to other hosts of their domain for pods that fit nowhere else.

Such slots are held on hosts that were chosen for them, but any host of the domain will do. A pod that gets no
node is tried again as if none of them were held. It may have the node found if all slots of that domain still
find hosts beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Protocol, TypeVar

from bayplan.model.pod import Domain, PodKey
from bayplan.placement.cluster.topology_tree import Bools
from bayplan.placement.domains.host_packing import HostDemand, pack_hosts
from bayplan.placement.overlay.node_overlay import ClaimShift, NodeOverlay
from bayplan.state.scheduling.domain_claims import HeldDomain

TRIES_MAX = 32
NOWHERE = -1
Places = list[dict[int, int]]
"""By demand: how many pods are held in each row."""


class HasRows(Protocol):
    """The result of an attempt."""

    @property
    def rows(self) -> Mapping[PodKey, int]:
        """The row of every assigned pod."""
        ...


Result = TypeVar("Result", bound=HasRows)


def assign_beside_moved_claims(
    overlay: NodeOverlay,
    domains: Mapping[Domain, HeldDomain],
    need: int,
    allowed: Bools | None,
    run: Callable[[Bools], Result],
) -> Result | None:
    """Assign at least `need` pods so that all slots still find hosts; None, and nothing changed, if not.

    Where nodes report NUMA zones, slots whose pods may have to be aligned stay where they are.
    """
    aligns = overlay.zones is not None
    movable = [
        _OpenSlots(overlay, domain, held) for domain, held in domains.items() if _can_move(held, aligns)
    ]
    if not movable:
        return None
    mark = overlay.checkpoint()
    for slots in movable:
        overlay.shift_claims(slots.shifts(slots.places, -1))
    lifted = overlay.checkpoint()
    good = overlay.mask_without(()) if allowed is None else allowed.copy()
    for _ in range(TRIES_MAX):
        result = run(good)
        rows = set(result.rows.values())
        if len(result.rows) < need:
            break
        blocked = [row for slots in movable for row in slots.put_back(overlay, rows)]
        if not blocked:
            return result
        overlay.rollback(lifted)
        good[blocked] = False
    overlay.rollback(mark)
    return None


class _OpenSlots:
    """The open slots of a domain, and the rows on which they are held now."""

    def __init__(self, overlay: NodeOverlay, domain: Domain, held: HeldDomain) -> None:
        self.domain = domain
        found = zip(held.demands, held.wanted, held.pods, strict=True)
        parts = [(wanted, pods) for demand, wanted, pods in found if demand.pod is None]
        self.wanted: list[HostDemand] = [wanted for wanted, _ in parts]
        self.rows = {host: row for host in held.hosts if (row := overlay.row(host)) != NOWHERE}
        self.places: Places = [
            {self.rows[host]: count for host, count in pods.items() if host in self.rows} for _, pods in parts
        ]
        for shift in overlay.shifted_claims():
            if isinstance(shift.claim, tuple) and shift.claim[0] == domain:
                here = self.places[shift.claim[1]]
                here[shift.row] = here.get(shift.row, 0) + shift.count

    def shifts(self, places: Places, sign: int) -> Iterator[ClaimShift]:
        for at, here in enumerate(places):
            for row, count in here.items():
                if count:
                    yield ClaimShift((self.domain, at), row, sign * count, self.wanted[at].amounts)

    def put_back(self, overlay: NodeOverlay, taken: Collection[int]) -> list[int]:
        """Hold the slots again, on other hosts if needed. If they have no hosts: the rows to give back."""
        inside = sorted(row for row in self.rows.values() if row in taken)
        places = self.places
        if inside:
            free = {host: self._free(overlay, row) for host, row in self.rows.items()}
            packing = pack_hosts(free, self.wanted)
            if not packing.is_complete:
                return inside
            places = [{self.rows[host]: count for host, count in pods.items()} for pods in packing.pods]
        overlay.shift_claims(self.shifts(places, 1))
        return []

    def _free(self, overlay: NodeOverlay, row: int) -> dict[str, int]:
        nodes = overlay.filter_input.node_snapshot
        names = {name for wanted in self.wanted for name in wanted.amounts}
        return {
            name: int(nodes.free[nodes.resources[name], row]) for name in names if name in nodes.resources
        }


def _can_move(held: HeldDomain, aligns: bool) -> bool:
    slots = [demand for demand in held.demands if demand.pod is None]
    if not slots or held.is_lost:
        return False
    return not aligns or all(demand.zones is None for demand in slots)
