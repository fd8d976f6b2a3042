"""Assigns a gang to one topology domain: the nodes with one value of a node label."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from bayplan.model.assignment import Code, Misfit, NearMiss
from bayplan.model.node import PODS
from bayplan.model.profile import Profile
from bayplan.placement.cluster.node_index import domains as values_of
from bayplan.placement.cluster.node_table import ABSENT
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.assign import assign_pods, unassigned
from bayplan.placement.pods.batches import NodeAssignment, PodBatch
from bayplan.placement.pods.counting import most_pods

TRIES_MAX = 64
NOT_COUNTED = (PODS, "ephemeral-storage")


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """The nodes with one value of a label."""

    value: str
    nodes: Bools
    max_pods: int  # pods that fit by resources


@dataclass(frozen=True, slots=True)
class OneDomainAssignment:
    """The assignment in the best domain; the misfit says how many pods fit if fewer than needed."""

    assignment: NodeAssignment
    domain: str = ""  # the value of the label; empty if no domain was tried
    misfit: Misfit | None = None


def candidate_domains(
    overlay: NodeOverlay, batches: Sequence[PodBatch], key: str, bound_rows: Iterable[int] = (), *, need: int,
    allowed_nodes: Bools | None = None,
) -> list[Domain]:  # fmt: skip
    """The domains of label `key` that could hold `need` pods by resources, best first.

    If pods of the gang are bound already (`bound_rows`), only their domains are returned.
    """
    return [
        domain
        for domain in _best(overlay, batches, key, bound_rows, allowed_nodes)[0]
        if domain.max_pods >= need
    ]


def _best(
    overlay: NodeOverlay,
    batches: Sequence[PodBatch],
    key: str,
    bound_rows: Iterable[int],
    allowed_nodes: Bools | None,
) -> tuple[list[Domain], int]:
    """The candidate domains: most pods first, then the fullest, then by value; at most TRIES_MAX.

    Also the number of pods that the best of the domains left out could hold.
    """
    node_index = overlay.filter_input.node_snapshot.node_index
    value, size = values_of(node_index, key)
    value = value if allowed_nodes is None else np.where(allowed_nodes, value, ABSENT)
    max_pods = _max_pods(overlay, batches, value, size)
    eligible = np.bincount(value[value != ABSENT], minlength=size) > 0
    bound_domains = {int(node_index.table.column(key)[row]) for row in bound_rows if row != ABSENT} - {ABSENT}
    if bound_domains:
        eligible &= np.isin(np.arange(size), list(bound_domains))
    numbers = np.flatnonzero(eligible).tolist()
    fullness = _fullness(overlay, batches, value, size)
    names = list(node_index.table.codes(key))
    numbers.sort(key=lambda number: (-max_pods[number], -fullness[number], names[number]))
    candidates = [
        Domain(names[number], value == number, int(max_pods[number])) for number in numbers[:TRIES_MAX]
    ]
    return candidates, int(max_pods[numbers[TRIES_MAX]]) if len(numbers) > TRIES_MAX else 0


def _max_pods(overlay: NodeOverlay, batches: Sequence[PodBatch], value: Ints, size: int) -> Ints:
    """By domain: an upper bound of the pods it holds."""
    total = np.zeros(size, dtype=np.int64)
    inside = value != ABSENT
    for batch in batches:
        rows, counts = most_pods(overlay, batch.shape, inside, len(batch.keys))
        per_domain = np.bincount(value[rows], weights=counts, minlength=size).astype(np.int64)
        total += np.minimum(per_domain, len(batch.keys))
    return total


def _fullness(
    overlay: NodeOverlay, batches: Sequence[PodBatch], value: Ints, size: int
) -> NDArray[np.float64]:
    """By domain: the share of its resources in use with all pods added; the mean over resources."""
    node_snapshot, inside = overlay.filter_input.node_snapshot, value != ABSENT
    asked: dict[str, int] = {}
    for batch in batches:
        for name, amount in batch.shape.amounts:
            asked[name] = asked.get(name, 0) + amount * len(batch.keys)
    shares, resources = np.zeros(size), np.zeros(size)
    for name, at in node_snapshot.resources.items():
        if name not in NOT_COUNTED:
            total = np.bincount(value[inside], weights=node_snapshot.allocatable[at][inside], minlength=size)
            free = np.bincount(value[inside], weights=node_snapshot.free[at][inside], minlength=size)
            shares += np.where(total > 0, (total - free + asked.get(name, 0)) / np.maximum(total, 1), 0.0)
            resources += total > 0
    return np.round(shares / np.maximum(resources, 1), 9)


def assign_in_domain(
    overlay: NodeOverlay, batches: Sequence[PodBatch], key: str, bound_rows: Iterable[int] = (), *, need: int,
    profile: Profile, allowed_nodes: Bools | None = None,
) -> OneDomainAssignment:  # fmt: skip
    """Assign as many pods as possible in one domain of label `key`: most pods, then fullest, then name."""
    assign = partial(assign_pods, overlay, batches, need=need, profile=profile)
    return _in_best_domain(overlay, batches, key, bound_rows, need, allowed_nodes, assign)


def assign_most_in_domain(
    overlay: NodeOverlay, batches: Sequence[PodBatch], key: str, bound_rows: Iterable[int] = (), *, need: int,
    profile: Profile, allowed_nodes: Bools | None = None,
) -> OneDomainAssignment:  # fmt: skip
    """The same, with the most pods of several sizes, not the largest, in each domain that is tried."""
    assign = partial(assign_pods, overlay, batches, need=need, profile=profile, most=True)
    return _in_best_domain(overlay, batches, key, bound_rows, need, allowed_nodes, assign)


def _in_best_domain(
    overlay: NodeOverlay, batches: Sequence[PodBatch], key: str, bound_rows: Iterable[int], need: int,
    allowed_nodes: Bools | None, assign: Callable[..., NodeAssignment],
) -> OneDomainAssignment:  # fmt: skip
    checkpoint, asked = overlay.checkpoint(), sum(len(batch.keys) for batch in batches)
    best: tuple[NodeAssignment, Domain] | None = None
    eligible, best_left_out = _best(overlay, batches, key, bound_rows, allowed_nodes)
    unsure = best_left_out >= need > 0
    for domain in eligible:
        if best is not None and domain.max_pods <= len(best[0].rows):
            break
        attempt = assign(allowed_nodes=domain.nodes)
        unsure |= attempt.unsure
        if len(attempt.rows) == asked:
            return OneDomainAssignment(attempt, domain.value)
        overlay.rollback(checkpoint)
        if best is None or len(attempt.rows) > len(best[0].rows):
            best = attempt, domain
    if best is None:
        none_assigned = NodeAssignment({}, unassigned(overlay, batches, {}, allowed_nodes), False)
        return OneDomainAssignment(none_assigned, "", Misfit(Code.NO_DOMAINS, (), level=key, asked=need))
    domain = best[1]
    assignment = assign(allowed_nodes=domain.nodes)
    fit = len(assignment.rows)
    if fit >= need:
        return OneDomainAssignment(NodeAssignment(assignment.rows, assignment.unassigned), domain.value)
    nearest = NearMiss((domain.value,), key, fit, need - fit)
    misfit = Misfit(Code.NO_ROOM, (), level=key, fit=fit, asked=need, nearest=nearest)
    left = (
        assignment.unassigned if fit else unassigned(overlay, batches, {}, allowed_nodes)
    )  # no domain comes closest
    return OneDomainAssignment(NodeAssignment(assignment.rows, left, unsure), domain.value, misfit)
