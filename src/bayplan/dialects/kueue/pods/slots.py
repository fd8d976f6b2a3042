"""Which slot of the assignment each gated pod gets: by rank if pods have ranks, else in order."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from bayplan.dialects.kube.decode.wire import PodWire
from bayplan.dialects.kueue.fields.assignment_encode import node_of
from bayplan.dialects.kueue.fields.topology_request import Numbering
from bayplan.dialects.kueue.names.annotations import OFFSET
from bayplan.model.assignment import Path
from bayplan.model.whole_numbers import signed_number, whole_number

_UNNUMBERED = -1


class UnreadableOffset(ValueError):
    """The index offset of a pod is not a number."""


@dataclass(frozen=True, slots=True)
class SlottedPodSet:
    """One pod set of an admitted Workload: a slot for every pod in rank order, and how pods are numbered."""

    name: str
    count: int
    levels: tuple[str, ...]
    slots: tuple[Path, ...]
    numbering: Numbering
    first: int = 0  # the index of the pod with rank 0, unless the pod has an offset


@dataclass(frozen=True, slots=True)
class PodSetPods:
    """The active pods of one pod set: those with a slot, and those that need one."""

    placed: Mapping[str, Path]  # domains by uid
    pending: tuple[PodWire, ...]
    ranks: Mapping[str, int] | None  # by uid, of all pods; None if ranks cannot be used


def sort_pods(part: SlottedPodSet, pods: Sequence[PodWire], placed: Mapping[str, Path]) -> PodSetPods:
    """The pods of a pod set, the pending ones in the order of their indexes, if they have any."""
    ranks = {pod.metadata.uid: _rank(part, pod) for pod in pods}
    active = _without_duplicates(pods, placed, ranks)
    pending = [pod for pod in active if pod.metadata.uid not in placed]
    pending.sort(key=lambda pod: (*_numbers(pod, part), pod.metadata.name))
    return PodSetPods(placed, tuple(pending), _usable_ranks(part, active, ranks))


def slots_for(
    part: SlottedPodSet, pods: PodSetPods, failed_nodes: Collection[str] = (), put_off: Collection[str] = ()
) -> list[tuple[PodWire, Path]]:
    """A free slot for each pending pod that can have one now.

    Slots on failed nodes wait for the replacement of the node; `put_off` are pods that get no slot now.
    If a placed pod is not in the slot of its rank, the replacement also changes which slot belongs to which
    free rank, so all wait for it.
    """
    free, free_ranks = _free_slots(part, pods)
    if pods.ranks is not None:
        is_failed = (
            any(node_of(part.levels, slot) in failed_nodes for slot in free) if failed_nodes else False
        )
        if is_failed and not all(part.slots[pods.ranks[uid]] == slot for uid, slot in pods.placed.items()):
            return []
        by_rank = dict(zip(free_ranks, free, strict=False))
        offered = [
            (pod, by_rank[rank])
            for pod in pods.pending
            if (rank := pods.ranks[pod.metadata.uid]) in by_rank and pod.metadata.uid not in put_off
        ]
        return [(pod, slot) for pod, slot in offered if node_of(part.levels, slot) not in failed_nodes]
    healthy = (slot for slot in free if node_of(part.levels, slot) not in failed_nodes)
    ready = [pod for pod in pods.pending if pod.metadata.uid not in put_off]
    return list(zip(ready, islice(healthy, len(ready)), strict=False))


def _free_slots(part: SlottedPodSet, pods: PodSetPods) -> tuple[list[Path], list[int]]:
    """The free slots, and at least as many ranks without a slot, both in order.

    If every placed pod is in the slot of its rank, the n-th free slot is that of the n-th free rank.
    """
    ranks = pods.ranks or {}
    taken: set[int] = set()
    misplaced: list[tuple[str, Path]] = []
    for uid, domain in pods.placed.items():
        rank = ranks.get(uid, -1)
        if 0 <= rank < len(part.slots) and part.slots[rank] == domain:
            taken.add(rank)
        else:
            misplaced.append((uid, domain))
    ranks_with_slot = set(taken)
    if misplaced:
        spare: dict[Path, list[int]] = {}
        for index in range(len(part.slots) - 1, -1, -1):
            if index not in taken:
                spare.setdefault(part.slots[index], []).append(index)
        for uid, domain in misplaced:
            if spare.get(domain):
                taken.add(spare[domain].pop())
                ranks_with_slot.add(ranks.get(uid, -1))
    indexes = range(len(part.slots))
    free = [part.slots[index] for index in indexes if index not in taken]
    return free, [rank for rank in indexes if rank not in ranks_with_slot]


def _without_duplicates(
    pods: Sequence[PodWire], placed: Mapping[str, Path], ranks: Mapping[str, int | None]
) -> list[PodWire]:
    """The pods without duplicates that a controller created, for example after a timeout of the API server.

    A duplicate would take the slot of another rank, and the gang would never be complete.
    """

    def order(pod: PodWire) -> tuple[bool, str, str]:
        meta = pod.metadata
        return meta.uid not in placed, meta.creation_timestamp or "", meta.name

    seen: set[tuple[str, int]] = set()
    duplicates: set[str] = set()
    for pod in sorted(pods, key=order):
        owner = next((one.uid for one in pod.metadata.owner_references or () if one.controller), "")
        rank = ranks[pod.metadata.uid]
        if owner and rank is not None:
            if (owner, rank) in seen and pod.metadata.uid not in placed:
                duplicates.add(pod.metadata.uid)
            seen.add((owner, rank))
    return [pod for pod in pods if pod.metadata.uid not in duplicates]


def _usable_ranks(
    part: SlottedPodSet, pods: Sequence[PodWire], ranks: Mapping[str, int | None]
) -> dict[str, int] | None:
    """The rank of every pod; None unless all ranks are known, distinct and within the slots."""
    known = {uid: rank for uid in (pod.metadata.uid for pod in pods) if (rank := ranks[uid]) is not None}
    distinct = set(known.values())
    fits = len(distinct) == len(known) == len(pods) and max(distinct, default=-1) < len(part.slots)
    return known if fits else None


def _rank(part: SlottedPodSet, pod: PodWire) -> int | None:
    """A pod's rank in its pod set; None if its index is missing or out of range."""
    offset = _offset(pod)  # read even if not needed, so that an invalid one is reported
    if part.numbering.index_label is None:
        return None
    size, subgroups = part.count, 1
    if part.numbering.subgroup_label is not None:
        subgroups = part.numbering.subgroup_count or 0
        if subgroups <= 0:
            return None
        size //= subgroups
    subgroup, index = _numbers(pod, part)
    local = index - (part.first if offset is None else offset)
    if index == _UNNUMBERED or not 0 <= local < size or not 0 <= subgroup < subgroups:
        return None
    return subgroup * size + local


def _numbers(pod: PodWire, part: SlottedPodSet) -> tuple[int, int]:
    """The subgroup index and the index of a pod. One without goes first, usually a launcher."""
    labels, numbering = pod.metadata.labels or {}, part.numbering
    subgroup = 0 if numbering.subgroup_label is None else _number(labels.get(numbering.subgroup_label))
    return subgroup, _number(labels.get(numbering.index_label or ""))


def _number(text: str | None) -> int:
    number = whole_number(text, 10**18 - 1)
    return _UNNUMBERED if number is None else number


def _offset(pod: PodWire) -> int | None:
    """The index of rank 0 in the annotation of a pod, or None."""
    text = (pod.metadata.annotations or {}).get(OFFSET)
    if text is None:
        return None
    number = signed_number(text, 10**9 - 1)
    if number is None:
        raise UnreadableOffset(
            f'Pod "{pod.metadata.name}" has annotation {OFFSET}: "{text}"; it must be a whole number. '
            "No pod of this Workload is started until the annotation is corrected"
        )
    return number
