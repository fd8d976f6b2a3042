"""Which slot of its pod set's assignment each gated pod gets: by rank where pods have ranks, else in turn."""

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
    """The offset of a pod's index is no number."""


@dataclass(frozen=True, slots=True)
class SlottedPodSet:
    """One pod set of an admitted Workload: a slot for every pod in rank order, and how pods are numbered."""

    name: str
    count: int
    levels: tuple[str, ...]
    slots: tuple[Path, ...]
    numbering: Numbering
    first: int = 0  # the index of the pod with rank 0, unless the pod says otherwise


@dataclass(frozen=True, slots=True)
class PodSetPods:
    """The living pods of one pod set: those that stand somewhere, and those that wait for a slot."""

    standing: Mapping[str, Path]  # by uid
    waiting: tuple[PodWire, ...]
    ranks: Mapping[str, int] | None  # by uid, of all of them; None if ranks cannot be used


def crowd(part: SlottedPodSet, pods: Sequence[PodWire], standing: Mapping[str, Path]) -> PodSetPods:
    """The pods of a pod set, those waiting in the order of their numbers as far as they have any."""
    ranks = {pod.metadata.uid: _rank(part, pod) for pod in pods}
    living = _made_once(pods, standing, ranks)
    waiting = [pod for pod in living if pod.metadata.uid not in standing]
    waiting.sort(key=lambda pod: (*_numbers(pod, part), pod.metadata.name))
    return PodSetPods(standing, tuple(waiting), _usable(part, living, ranks))


def slots_for(
    part: SlottedPodSet, pods: PodSetPods, failed_nodes: Collection[str] = (), put_off: Collection[str] = ()
) -> list[tuple[PodWire, Path]]:
    """A free slot for each waiting pod that can have one now.

    Slots on failed nodes wait for their replacement, and pods that are put off for better times.
    """
    free, homeless = _free(part, pods)
    if pods.ranks is not None:
        by_rank = dict(zip(homeless, free, strict=False))
        offered = [
            (pod, by_rank[rank])
            for pod in pods.waiting
            if (rank := pods.ranks[pod.metadata.uid]) in by_rank and pod.metadata.uid not in put_off
        ]
        return [(pod, slot) for pod, slot in offered if node_of(part.levels, slot) not in failed_nodes]
    sound = (slot for slot in free if node_of(part.levels, slot) not in failed_nodes)
    ready = [pod for pod in pods.waiting if pod.metadata.uid not in put_off]
    return list(zip(ready, islice(sound, len(ready)), strict=False))


def _free(part: SlottedPodSet, pods: PodSetPods) -> tuple[list[Path], list[int]]:
    """The slots that nobody holds, and as many ranks (or more) that hold none, both in order.

    If every pod stands where its rank says, the n-th free slot is exactly that of the n-th such rank.
    """
    ranks = pods.ranks or {}
    taken: set[int] = set()
    astray: list[tuple[str, Path]] = []
    for uid, place in pods.standing.items():
        rank = ranks.get(uid, -1)
        if 0 <= rank < len(part.slots) and part.slots[rank] == place:
            taken.add(rank)
        else:
            astray.append((uid, place))
    housed = set(taken)
    if astray:
        spare: dict[Path, list[int]] = {}
        for index in range(len(part.slots) - 1, -1, -1):
            if index not in taken:
                spare.setdefault(part.slots[index], []).append(index)
        for uid, place in astray:
            if spare.get(place):
                taken.add(spare[place].pop())
                housed.add(ranks.get(uid, -1))
    everyone = range(len(part.slots))
    free = [part.slots[index] for index in everyone if index not in taken]
    return free, [rank for rank in everyone if rank not in housed]


def _made_once(
    pods: Sequence[PodWire], standing: Mapping[str, Path], ranks: Mapping[str, int | None]
) -> list[PodWire]:
    """The pods without those that their controller has made twice, as when the API server did not answer.

    The second one would take the slot of a rank that is yet to come, and the gang would never be whole.
    """

    def turn(pod: PodWire) -> tuple[bool, str, str]:
        meta = pod.metadata
        return meta.uid not in standing, meta.creation_timestamp or "", meta.name

    known: set[tuple[str, int]] = set()
    doubles: set[str] = set()
    for pod in sorted(pods, key=turn):
        owner = next((one.uid for one in pod.metadata.owner_references or () if one.controller), "")
        rank = ranks[pod.metadata.uid]
        if owner and rank is not None:
            if (owner, rank) in known and pod.metadata.uid not in standing:
                doubles.add(pod.metadata.uid)
            known.add((owner, rank))
    return [pod for pod in pods if pod.metadata.uid not in doubles]


def _usable(
    part: SlottedPodSet, pods: Sequence[PodWire], ranks: Mapping[str, int | None]
) -> dict[str, int] | None:
    """The rank of every pod; None unless all have one, each its own, and there is a slot for each."""
    found = {uid: rank for uid in (pod.metadata.uid for pod in pods) if (rank := ranks[uid]) is not None}
    several = set(found.values())
    fits = len(several) == len(found) == len(pods) and max(several, default=-1) < len(part.slots)
    return found if fits else None


def _rank(part: SlottedPodSet, pod: PodWire) -> int | None:
    """A pod's place in its pod set, if it has a number that makes sense there."""
    offset = _offset(pod)  # read even if not needed: a pod that makes no sense is told of
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
    """The number of a pod's sub-group and its own in it. One without goes first: a launcher, mostly."""
    labels, numbering = pod.metadata.labels or {}, part.numbering
    subgroup = 0 if numbering.subgroup_label is None else _number(labels.get(numbering.subgroup_label))
    return subgroup, _number(labels.get(numbering.index_label or ""))


def _number(text: str | None) -> int:
    number = whole_number(text, 10**18 - 1)
    return _UNNUMBERED if number is None else number


def _offset(pod: PodWire) -> int | None:
    """What a pod says is the index of rank 0, if it says so."""
    text = (pod.metadata.annotations or {}).get(OFFSET)
    if text is None:
        return None
    number = signed_number(text, 10**9 - 1)
    if number is None:
        raise UnreadableOffset(
            f'Pod "{pod.metadata.name}" has annotation {OFFSET}: "{text}"; it must be a whole number, '
            "and until it is none of the pods of this Workload starts"
        )
    return number
