"""Seats for a gang whose pods stay together: within one value of a node label."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bayplan.model.assignment import Code, Misfit, NearMiss
from bayplan.model.node import PODS
from bayplan.model.profile import Profile
from bayplan.placement.cluster.node_index import domains as values_of
from bayplan.placement.cluster.node_table import ABSENT
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.assign import seat_all, unassigned
from bayplan.placement.pods.batches import NodeAssignment, PodBatch
from bayplan.placement.pods.counting import most_pods

TRIES_MAX = 64
NOT_COUNTED = (PODS, "ephemeral-storage")


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """The nodes with one value of a label."""

    value: str
    nodes: Bools
    most: int  # pods that it could take by a plain count


@dataclass(frozen=True, slots=True)
class OneDomainAssignment:
    """The answer for one domain: the best. The misfit says how many fit where, if fewer than needed do."""

    seated: NodeAssignment
    domain: str = ""  # the value of the label; empty: there was none to try
    misfit: Misfit | None = None


def domains(
    overlay: NodeOverlay, batches: Sequence[PodBatch], key: str, bound: Iterable[int] = (), *, need: int,
    within: Bools | None = None,
) -> list[Domain]:  # fmt: skip
    """The domains of label `key` that could take `need` pods by a plain count, best first.

    If pods stand already (rows), only their domains. To be tried one by one: `seat_all(within=domain.nodes)`.
    """
    return [domain for domain in _best(overlay, batches, key, bound, within)[0] if domain.most >= need]


def _best(
    overlay: NodeOverlay,
    batches: Sequence[PodBatch],
    key: str,
    bound: Iterable[int],
    allowed_nodes: Bools | None,
) -> tuple[list[Domain], int]:
    """Those that could take most first, then those that would be fullest, then by value.

    If they are many, not all: how many pods the best of the others could take.
    """
    node_index = overlay.scene.ground.land
    value, size = values_of(node_index, key)
    value = value if allowed_nodes is None else np.where(allowed_nodes, value, ABSENT)
    most = _most(overlay, batches, value, size)
    open_to = np.bincount(value[value != ABSENT], minlength=size) > 0
    bound_by_set = {int(node_index.table.column(key)[row]) for row in bound if row != ABSENT} - {ABSENT}
    if bound_by_set:
        open_to &= np.isin(np.arange(size), list(bound_by_set))
    numbers = np.flatnonzero(open_to).tolist()
    full = _fullness(overlay, batches, value, size)
    names = list(node_index.table.codes(key))
    numbers.sort(key=lambda number: (-most[number], -full[number], names[number]))
    found = [Domain(names[number], value == number, int(most[number])) for number in numbers[:TRIES_MAX]]
    return found, int(most[numbers[TRIES_MAX]]) if len(numbers) > TRIES_MAX else 0


def _most(overlay: NodeOverlay, batches: Sequence[PodBatch], value: Ints, size: int) -> Ints:
    """By domain: how many pods it could take at best."""
    total = np.zeros(size, dtype=np.int64)
    inside = value != ABSENT
    for batch in batches:
        rows, counts = most_pods(overlay, batch.shape, inside, len(batch.keys))
        there = np.bincount(value[rows], weights=counts, minlength=size).astype(np.int64)
        total += np.minimum(there, len(batch.keys))
    return total


def _fullness(
    overlay: NodeOverlay, batches: Sequence[PodBatch], value: Ints, size: int
) -> NDArray[np.float64]:
    """By domain: the share in use of what it has, if all pods were there; the mean over resources."""
    node_snapshot, inside = overlay.scene.ground, value != ABSENT
    asked: dict[str, int] = {}
    for batch in batches:
        for name, amount in batch.shape.amounts:
            asked[name] = asked.get(name, 0) + amount * len(batch.keys)
    shares, kinds = np.zeros(size), np.zeros(size)
    for name, at in node_snapshot.resources.items():
        if name not in NOT_COUNTED:
            whole = np.bincount(value[inside], weights=node_snapshot.allocatable[at][inside], minlength=size)
            free = np.bincount(value[inside], weights=node_snapshot.free[at][inside], minlength=size)
            shares += np.where(whole > 0, (whole - free + asked.get(name, 0)) / np.maximum(whole, 1), 0.0)
            kinds += whole > 0
    return np.round(shares / np.maximum(kinds, 1), 9)


def seat_in_domain(
    overlay: NodeOverlay, batches: Sequence[PodBatch], key: str, bound: Iterable[int] = (), *, need: int,
    profile: Profile, within: Bools | None = None,
) -> OneDomainAssignment:  # fmt: skip
    """Seat as many as possible within one value of node label `key`: most pods, then fullest, then name."""
    checkpoint, asked = overlay.mark(), sum(len(batch.keys) for batch in batches)
    best: tuple[NodeAssignment, Domain] | None = None
    open_to, others = _best(overlay, batches, key, bound, within)
    unsure = others >= need > 0
    for domain in open_to:
        if best is not None and domain.most <= len(best[0].seats):
            break
        seated = seat_all(overlay, batches, need=need, profile=profile, within=domain.nodes)
        unsure |= seated.unsure
        if len(seated.seats) == asked:
            return OneDomainAssignment(seated, domain.value)
        overlay.undo(checkpoint)
        if best is None or len(seated.seats) > len(best[0].seats):
            best = seated, domain
    if best is None:
        nobody = NodeAssignment({}, unassigned(overlay, batches, {}, within), False)
        return OneDomainAssignment(nobody, "", Misfit(Code.NO_DOMAINS, (), level=key, asked=need))
    domain = best[1]
    again = seat_all(overlay, batches, need=need, profile=profile, within=domain.nodes)
    fit = len(again.seats)
    if fit >= need:
        return OneDomainAssignment(NodeAssignment(again.seats, again.left), domain.value)
    nearest = NearMiss((domain.value,), key, fit, need - fit)
    misfit = Misfit(Code.NO_ROOM, (), level=key, fit=fit, asked=need, nearest=nearest)
    left = again.left if fit else unassigned(overlay, batches, {}, within)  # no domain is nearer than another
    return OneDomainAssignment(NodeAssignment(again.seats, left, unsure), domain.value, misfit)
