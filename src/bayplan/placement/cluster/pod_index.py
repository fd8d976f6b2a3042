"""The pods that run, by what may be asked about them, kept up to date as they come and go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from bayplan.model.pod_spec import ClaimUse, Disk, HostPort, PodAffinityTerm, PodSignature, Selector
from bayplan.placement.cluster.counters import ByLabel, NodeCounter, NodeIds
from bayplan.placement.cluster.pod_columns import PodColumns
from bayplan.placement.cluster.topology_tree import Ints

T = TypeVar("T")
QUESTIONS_MAX = 256
Spaces = frozenset[str] | None
"""Namespaces; None: all of them."""


class PodQuery(NamedTuple):
    """Pods that are in one of the namespaces and accepted by the selector, for every such pair."""

    pairs: tuple[tuple[Spaces, Selector], ...]
    leaving: bool = True  # those being deleted count too

    def means(self, namespace: str, labels: Mapping[str, str]) -> bool:
        return all(
            (spaces is None or namespace in spaces) and selector.accepts(labels)
            for spaces, selector in self.pairs
        )


class AffinityTermIndex(NamedTuple):
    """What pods that run say about others: a term, how much it weighs, and whether it is a must."""

    term: PodAffinityTerm
    weight: int  # below zero: rather apart
    must: bool


@dataclass(frozen=True, slots=True)
class _Running:
    node: int
    shape: PodSignature
    leaving: bool
    row: int


class PodIndex:
    """All pods on nodes. `version` changes with every change; whoever takes a change back may put it back."""

    def __init__(self) -> None:
        self.slots = NodeIds()
        self.slots.users.append(self._has_pods)
        self.version = 0
        self.changes = 0
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self.damaged = False  # a change of it did not come to its end
        self.pods: dict[Hashable, _Running] = {}
        self.crowds: dict[int, int] = {}  # how many pods are on each slot
        self.columns = PodColumns()
        self.questions: dict[PodQuery, NodeCounter] = {}
        self.asked: ByLabel[PodQuery] = ByLabel()
        self.stances: dict[AffinityTermIndex, NodeCounter] = {}
        self.taken: ByLabel[AffinityTermIndex] = ByLabel()
        self.keys: dict[str, int] = {}  # labels that stances look at, and how many do
        self.ports: dict[HostPort, NodeCounter] = {}
        self.disks: dict[Disk, NodeCounter] = {}
        self.claims: dict[tuple[str, str], NodeCounter] = {}
        self.claims_version = 0
        self.weight = np.zeros((2, 0), dtype=np.int64)

    # ── what happens ───────────────────────────────────────────────────────────────────────────────

    def add(self, key: Hashable, node: str, shape: PodSignature, *, leaving: bool = False) -> None:
        """A pod runs on a node (or is as good as there). Said again, it replaces what was said before."""
        before = self.pods.get(key)
        slot = self.slots.number(node)
        if before is not None:
            if (before.node, before.leaving) == (slot, leaving) and before.shape == shape:
                return
            self.remove(key)
        self._put(key, slot, shape, leaving)

    def _put(self, key: Hashable, slot: int, shape: PodSignature, leaving: bool) -> None:
        assert key not in self.pods, key
        row = self.columns.add(slot, shape, leaving=leaving)
        self.pods[key] = _Running(slot, shape, leaving, row)
        self._count({slot: 1}, shape, leaving, 1)

    def add_many(
        self, keys: Sequence[Hashable], slots: Sequence[int], shape: PodSignature, own: Sequence[PodSignature] = (),
        *, leaving: bool = False,
    ) -> None:  # fmt: skip
        """Equal pods run, one on each slot given (each with its `own` labels). None of them is known yet."""
        if own or len(keys) == 1:
            for key, slot, shape_of_it in zip(keys, slots, own or (shape,), strict=True):
                self._put(key, slot, shape_of_it, leaving)
            return
        rows = self.columns.add_many(slots, shape, leaving=leaving)
        for key, slot, row in zip(keys, slots, rows, strict=True):
            assert key not in self.pods, key
            self.pods[key] = _Running(slot, shape, leaving, row)
        self._count(Counter(slots), shape, leaving, 1)

    def remove_many(self, keys: Sequence[Hashable], *, alike: bool = True) -> None:
        """Known pods are gone; those that are alike are of one shape."""
        if not alike:
            for key in keys:
                self.remove(key)
            return
        gone = [self.pods.pop(key) for key in keys]
        for running in gone:
            self.columns.remove(running.row)
        if gone:
            counts = Counter(running.node for running in gone)
            self._count(counts, gone[0].shape, gone[0].leaving, -1)

    def remove(self, key: Hashable) -> None:
        """A pod is gone, or over."""
        running = self.pods.pop(key, None)
        if running is not None:
            self.columns.remove(running.row)
            self._count({running.node: 1}, running.shape, running.leaving, -1)

    def name_space(self, name: str, labels: Mapping[str, str] | None) -> None:
        """A namespace has these labels; None: there is no such namespace."""
        if self.namespaces.get(name) == labels:
            return
        if labels is None:
            del self.namespaces[name]
        else:
            self.namespaces[name] = dict(labels)
        self.changes += 1
        self.version = self.changes

    def _count(self, counts: Mapping[int, int], shape: PodSignature, leaving: bool, sign: int) -> None:
        """So many pods more (or less) of one shape, by slot."""
        self.changes += 1
        self.version = self.changes
        labels = dict(shape.labels)
        self._weigh(counts, shape, sign)
        for question in self.asked.near(labels):
            if (question.leaving or not leaving) and question.means(shape.namespace, labels):
                self.questions[question].add_all(counts, sign)
        for stance in stances_of(shape):
            self._take(stance, counts, sign)
        for port in shape.ports:
            _bump(self.ports, port, counts, sign)
        for disk in shape.disks:
            _bump(self.disks, disk, counts, sign)
        for claim in shape.claims:
            _bump(self.claims, (shape.namespace, claim.name), counts, sign)
        self.claims_version += bool(shape.claims)

    def _has_pods(self, node: str) -> bool:
        return self.slots.numbers[node] in self.crowds

    def _weigh(self, counts: Mapping[int, int], shape: PodSignature, sign: int) -> None:
        cpu, memory = sign * shape.weighs[0], sign * shape.weighs[1]
        for slot, count in counts.items():
            there = self.crowds.get(slot, 0) + sign * count
            if there:
                self.crowds[slot] = there
            else:
                del self.crowds[slot]
                self.slots.idle.add(slot)
            if slot >= self.weight.shape[1]:
                self._widen(slot)
            self.weight[0, slot] += cpu * count
            self.weight[1, slot] += memory * count

    def weight_of(self, slots: Ints) -> Ints:
        """What the pods on these slots weigh: CPU, then memory."""
        most = int(slots.max()) if len(slots) else 0
        if most >= self.weight.shape[1]:
            self._widen(most)
        return self.weight[:, slots]

    def _widen(self, slot: int) -> None:
        wider = np.zeros((2, max(2 * slot, 64)), dtype=np.int64)
        wider[:, : self.weight.shape[1]] = self.weight
        self.weight = wider

    def _take(self, stance: AffinityTermIndex, counts: Mapping[int, int], sign: int) -> None:
        if stance not in self.stances:
            self.stances[stance] = NodeCounter()
            self.taken.put(stance, stance.term.selector)
            for key in stance.term.selector.keys:
                self.keys[key] = self.keys.get(key, 0) + 1
        tally = self.stances[stance]
        tally.add_all(counts, sign)
        if not tally:
            del self.stances[stance]
            self.taken.drop(stance, stance.term.selector)
            for key in stance.term.selector.keys:
                self.keys[key] -= 1
                if not self.keys[key]:
                    del self.keys[key]

    # ── what is asked ──────────────────────────────────────────────────────────────────────────────

    def count(self, question: PodQuery) -> Ints:
        """How many such pods run, by slot."""
        tally = self.questions.pop(question, None)
        if tally is None:
            tally = self._first_answer(question)
        self.questions[question] = tally  # asked last, forgotten last
        return tally.dense(len(self.slots))

    def _first_answer(self, question: PodQuery) -> NodeCounter:
        while len(self.questions) >= QUESTIONS_MAX:
            oldest = next(iter(self.questions))
            del self.questions[oldest]
            self.asked.drop(oldest, oldest.pairs[0][1])
        counts = self.columns.count(question.pairs, len(self.slots), leaving=question.leaving)
        at = np.flatnonzero(counts)
        tally = NodeCounter(dict(zip(at.tolist(), counts[at].tolist(), strict=True)))
        self.asked.put(question, question.pairs[0][1])
        return tally

    def spaces(self, term: PodAffinityTerm) -> Spaces:
        """The namespaces that a term means."""
        if term.namespace_selector.requirements == ():
            return None
        found = {n for n, labels in self.namespaces.items() if term.namespace_selector.accepts(labels)}
        return frozenset(found.union(term.namespaces))

    def stances_towards(self, shape: PodSignature) -> Iterator[tuple[AffinityTermIndex, NodeCounter]]:
        """What running pods say about such a pod, and where they run."""
        labels = dict(shape.labels)
        about = self.namespaces.get(shape.namespace, {})
        for stance in self.taken.near(labels):
            if stance.term.means(shape.namespace, about, labels):
                yield stance, self.stances[stance]

    def signature(self, shape: PodSignature) -> PodSignature:
        """The shape without labels that nobody looks at now; good until somebody does."""
        return shape.signature(self.keys)

    def users_of(self, namespace: str, claim: ClaimUse) -> NodeCounter | None:
        """Where a claim is in use."""
        return self.claims.get((namespace, claim.name))


def stances_of(shape: PodSignature) -> Iterator[AffinityTermIndex]:
    """What a pod says about others, once it runs."""
    neighbours = shape.neighbours
    for term in neighbours.near:
        yield AffinityTermIndex(term, 1, must=True)
    for term in neighbours.apart:
        yield AffinityTermIndex(term, -1, must=True)
    for weight, term in neighbours.rather_near:
        yield AffinityTermIndex(term, weight, must=False)
    for weight, term in neighbours.rather_apart:
        yield AffinityTermIndex(term, -weight, must=False)


def _bump(tallies: dict[T, NodeCounter], what: T, counts: Mapping[int, int], sign: int) -> None:
    tally = tallies.setdefault(what, NodeCounter())
    tally.add_all(counts, sign)
    if not tally:
        del tallies[what]
