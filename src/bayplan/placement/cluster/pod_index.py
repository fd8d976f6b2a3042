"""Index of the pods on nodes by labels, affinity terms, ports and volumes, updated incrementally."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np

from bayplan.model.pod_spec import ClaimUse, Disk, HostPort, PodAffinityTerm, PodSignature, Selector
from bayplan.placement.cluster.counters import SIZE_MIN, SIZE_RATIO, ByLabel, NodeCounter, NodeIds
from bayplan.placement.cluster.pod_columns import PodColumns
from bayplan.placement.cluster.topology_tree import Ints

T = TypeVar("T")
QUERIES_MAX = 256
Namespaces = frozenset[str] | None
"""Namespaces; None means all of them."""


class PodQuery(NamedTuple):
    """A query for pods that match every pair of namespaces and label selector."""

    pairs: tuple[tuple[Namespaces, Selector], ...]
    leaving: bool = True  # terminating pods count, too

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        return all(
            (namespaces is None or namespace in namespaces) and selector.accepts(labels)
            for namespaces, selector in self.pairs
        )


class AffinityTermIndex(NamedTuple):
    """An affinity or anti-affinity term of running pods: the term, its weight, and whether it is required."""

    term: PodAffinityTerm
    weight: int  # below zero: anti-affinity
    required: bool


@dataclass(frozen=True, slots=True)
class _Running:
    node: int
    shape: PodSignature
    leaving: bool
    row: int


class PodIndex:
    """All pods on nodes. Every update changes `version`; a caller that reverts an update may restore it."""

    def __init__(self) -> None:
        self.slots = NodeIds()
        self.slots.users.append(self._has_pods)
        self.version = 0
        self.changes = 0
        self.claims_version = 0
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self.damaged = False  # an update was interrupted by an error
        self._clear()

    def _clear(self) -> None:
        """Without pods."""
        self.pods: dict[Hashable, _Running] = {}
        self.nominated: dict[Hashable, None] = {}  # pods of `pods` that may still get another node
        self._slots_by_shape: Mapping[PodSignature, Ints] | None = None  # of nominated pods
        self.pod_counts: dict[int, int] = {}  # how many pods are on each node id
        self.columns = PodColumns()
        self.queries: dict[PodQuery, NodeCounter] = {}
        self.queries_by_label: ByLabel[PodQuery] = ByLabel()
        self.affinity_terms: dict[AffinityTermIndex, NodeCounter] = {}
        self.terms_by_label: ByLabel[AffinityTermIndex] = ByLabel()
        self.keys: dict[str, int] = {}  # label keys that affinity terms select by, and how many terms do
        self.ports: dict[HostPort, NodeCounter] = {}
        self.disks: dict[Disk, NodeCounter] = {}
        self.claims: dict[tuple[str, str], NodeCounter] = {}
        self.weight = np.zeros((2, 0), dtype=np.int64)

    # ── updates ────────────────────────────────────────────────────────────────────────────────────

    def add(self, key: Hashable, node: str, shape: PodSignature, *, leaving: bool = False) -> None:
        """Add a pod that runs on a node or is assumed there; it replaces the pod of the same key."""
        before = self.pods.get(key)
        slot = self.slots.number(node)
        if before is not None:
            if (before.node, before.leaving) == (slot, leaving) and before.shape == shape:
                return
            self.remove(key)
        self._insert(key, slot, shape, leaving)

    def _insert(self, key: Hashable, slot: int, shape: PodSignature, leaving: bool) -> None:
        assert key not in self.pods, key
        row = self.columns.add(slot, shape, leaving=leaving)
        self.pods[key] = _Running(slot, shape, leaving, row)
        self._count({slot: 1}, shape, leaving, 1)

    def add_many(
        self, keys: Sequence[Hashable], slots: Sequence[int], shape: PodSignature,
        own: Sequence[PodSignature] = (), *, leaving: bool = False,
    ) -> None:  # fmt: skip
        """Add new pods of equal signature, one per node id; `own` are their signatures if labels differ."""
        if own or len(keys) == 1:
            for key, slot, own_shape in zip(keys, slots, own or (shape,), strict=True):
                self._insert(key, slot, own_shape, leaving)
            return
        rows = self.columns.add_many(slots, shape, leaving=leaving)
        for key, slot, row in zip(keys, slots, rows, strict=True):
            assert key not in self.pods, key
            self.pods[key] = _Running(slot, shape, leaving, row)
        self._count(Counter(slots), shape, leaving, 1)

    def set_nominated(self, keys: Sequence[Hashable], *, nominated: bool) -> None:
        """These pods, which were just added or removed, are nominated pods, or are so no longer."""
        self._slots_by_shape = None
        for key in keys:
            if nominated:
                self.nominated[key] = None
            else:
                del self.nominated[key]

    def remove_many(self, keys: Sequence[Hashable], *, alike: bool = True) -> None:
        """Remove known pods; `alike`: all have the same signature."""
        if not alike:
            for key in keys:
                self.remove(key)
            return
        removed = [self.pods.pop(key) for key in keys]
        for running in removed:
            self.columns.remove(running.row)
        if removed:
            counts = Counter(running.node for running in removed)
            self._count(counts, removed[0].shape, removed[0].leaving, -1)

    def rebuild(self, pods: Mapping[Hashable, tuple[int, PodSignature, bool]]) -> None:
        """Start over with these pods: the node id, the signature, and whether it is terminating."""
        self._clear()
        for key, (slot, shape, leaving) in pods.items():
            self._insert(key, slot, shape, leaving)

    def remove(self, key: Hashable) -> None:
        """Remove a pod that was deleted or is finished."""
        running = self.pods.pop(key, None)
        if running is not None:
            self.columns.remove(running.row)
            self._count({running.node: 1}, running.shape, running.leaving, -1)

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """Set the labels of a namespace; None if the namespace was deleted."""
        if self.namespaces.get(name) == labels:
            return
        if labels is None:
            del self.namespaces[name]
        else:
            self.namespaces[name] = dict(labels)
        self.changes += 1
        self.version = self.changes

    def _count(self, counts: Mapping[int, int], shape: PodSignature, leaving: bool, sign: int) -> None:
        """Update all counters for pods of one signature, by node id; `sign` is 1 or -1."""
        self.changes += 1
        self.version = self.changes
        labels = dict(shape.labels)
        self._add_requests(counts, shape, sign)
        for query in self.queries_by_label.candidates_for(labels):
            if (query.leaving or not leaving) and query.matches(shape.namespace, labels):
                self.queries[query].add_all(counts, sign)
        for term_entry in affinity_terms_of(shape):
            self._add_term(term_entry, counts, sign)
        for port in shape.ports:
            _add_counts(self.ports, port, counts, sign)
        for disk in shape.disks:
            _add_counts(self.disks, disk, counts, sign)
        for claim in shape.claims:
            _add_counts(self.claims, (shape.namespace, claim.name), counts, sign)
        self.claims_version += bool(shape.claims)

    def _has_pods(self, node: str) -> bool:
        return self.slots.numbers[node] in self.pod_counts

    def _add_requests(self, counts: Mapping[int, int], shape: PodSignature, sign: int) -> None:
        cpu, memory = sign * shape.score_requests[0], sign * shape.score_requests[1]
        for slot, count in counts.items():
            pod_count = self.pod_counts.get(slot, 0) + sign * count
            if pod_count:
                self.pod_counts[slot] = pod_count
            else:
                del self.pod_counts[slot]
                self.slots.idle.add(slot)
            if slot >= self.weight.shape[1]:
                self._widen(slot)
            self.weight[0, slot] += cpu * count
            self.weight[1, slot] += memory * count

    def weight_of(self, slots: Ints) -> Ints:
        """The requests that count for scores of the pods on these node ids: CPU, then memory."""
        last = int(slots.max()) if len(slots) else 0
        if last >= self.weight.shape[1]:
            self._widen(last)
        return self.weight[:, slots]

    def _widen(self, slot: int) -> None:
        wider = np.zeros((2, max(2 * slot, 64)), dtype=np.int64)
        wider[:, : self.weight.shape[1]] = self.weight
        self.weight = wider

    def _add_term(self, term_entry: AffinityTermIndex, counts: Mapping[int, int], sign: int) -> None:
        if term_entry not in self.affinity_terms:
            self.affinity_terms[term_entry] = NodeCounter()
            self.terms_by_label.put(term_entry, term_entry.term.selector)
            for key in term_entry.term.selector.keys:
                self.keys[key] = self.keys.get(key, 0) + 1
        counter = self.affinity_terms[term_entry]
        counter.add_all(counts, sign)
        if not counter:
            del self.affinity_terms[term_entry]
            self.terms_by_label.drop(term_entry, term_entry.term.selector)
            for key in term_entry.term.selector.keys:
                self.keys[key] -= 1
                if not self.keys[key]:
                    del self.keys[key]

    def tidy(self) -> None:
        """Give up room of pods and nodes that are gone. Not during a cycle: what-ifs bring pods back."""
        self.slots.tidy()
        if self.columns.is_sparse:
            self.columns = PodColumns()
            for key, pod in self.pods.items():
                row = self.columns.add(pod.node, pod.shape, leaving=pod.leaving)
                self.pods[key] = replace(pod, row=row)
        if self.weight.shape[1] > SIZE_RATIO * len(self.slots) + SIZE_MIN:
            self.weight = self.weight[:, : len(self.slots)].copy()

    # ── queries ────────────────────────────────────────────────────────────────────────────────────

    def count(self, query: PodQuery) -> Ints:
        """How many pods match a query, by node id."""
        counter = self.queries.pop(query, None)
        if counter is None:
            counter = self._counter_for(query)
        self.queries[query] = counter  # most recently used, evicted last
        return counter.dense(len(self.slots))

    def counts(self, query: PodQuery) -> tuple[Ints, ...]:
        """How many pods match a query, by node id: all pods, and if some are nominated, those without them.

        A nominated pod may be bound or not, so what a pod requires of others has to be true either way.
        """
        every = self.count(query)
        nominated = [
            slots
            for shape, slots in (self._nominated_slots() if self.nominated else {}).items()
            if query.matches(shape.namespace, dict(shape.labels))
        ]
        if not nominated:
            return (every,)
        return every, every - np.bincount(np.concatenate(nominated), minlength=len(every))

    def _nominated_slots(self) -> Mapping[PodSignature, Ints]:
        """The node ids of nominated pods, by signature."""
        if self._slots_by_shape is None:
            slots: dict[PodSignature, list[int]] = {}
            for key in self.nominated:
                slots.setdefault(self.pods[key].shape, []).append(self.pods[key].node)
            self._slots_by_shape = {shape: np.array(some, dtype=np.int64) for shape, some in slots.items()}
        return self._slots_by_shape

    def _counter_for(self, query: PodQuery) -> NodeCounter:
        while len(self.queries) >= QUERIES_MAX:
            oldest = next(iter(self.queries))
            del self.queries[oldest]
            self.queries_by_label.drop(oldest, oldest.pairs[0][1])
        counts = self.columns.count(query.pairs, len(self.slots), leaving=query.leaving)
        slots = np.flatnonzero(counts)
        counter = NodeCounter(dict(zip(slots.tolist(), counts[slots].tolist(), strict=True)))
        self.queries_by_label.put(query, query.pairs[0][1])
        return counter

    def namespaces_of(self, term: PodAffinityTerm) -> Namespaces:
        """The namespaces that a term selects."""
        if term.namespace_selector.requirements == ():
            return None
        selected = {n for n, labels in self.namespaces.items() if term.namespace_selector.accepts(labels)}
        return frozenset(selected.union(term.namespaces))

    def matching_terms(self, shape: PodSignature) -> Iterator[tuple[AffinityTermIndex, NodeCounter]]:
        """The terms of running pods that match such a pod, with the nodes those pods run on."""
        labels = dict(shape.labels)
        namespace_labels = self.namespaces.get(shape.namespace, {})
        for term_entry in self.terms_by_label.candidates_for(labels):
            if term_entry.term.selects(shape.namespace, namespace_labels, labels):
                yield term_entry, self.affinity_terms[term_entry]

    def signature(self, shape: PodSignature) -> PodSignature:
        """The signature without labels that no affinity term selects by; valid until one does."""
        return shape.reduced(self.keys)

    def users_of(self, namespace: str, claim: ClaimUse) -> NodeCounter | None:
        """The nodes on which pods use a claim."""
        return self.claims.get((namespace, claim.name))


def affinity_terms_of(shape: PodSignature) -> Iterator[AffinityTermIndex]:
    """The affinity and anti-affinity terms of a pod."""
    pod_affinity = shape.affinity
    for term in pod_affinity.required:
        yield AffinityTermIndex(term, 1, required=True)
    for term in pod_affinity.required_anti:
        yield AffinityTermIndex(term, -1, required=True)
    for weight, term in pod_affinity.preferred:
        yield AffinityTermIndex(term, weight, required=False)
    for weight, term in pod_affinity.preferred_anti:
        yield AffinityTermIndex(term, -weight, required=False)


def _add_counts(counters: dict[T, NodeCounter], key: T, counts: Mapping[int, int], sign: int) -> None:
    counter = counters.setdefault(key, NodeCounter())
    counter.add_all(counts, sign)
    if not counter:
        del counters[key]
