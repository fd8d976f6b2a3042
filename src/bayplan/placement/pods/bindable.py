"""Places a gang only on nodes where the filters of binding let its pods be bound.

The filters give each pod set a mask of nodes and caps of pods per node, which the search for a placement
counts like resources. What cannot be counted before the pods have nodes (one pod per rack, maximum skew,
affinity among the pods themselves) is checked afterwards: the pods of the placement found are bound on
trial. If some of them cannot be bound, caps that follow from the failure are added, and the search is
repeated a bounded number of times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from bayplan.model.assignment import Assignment, Code, Misfit, Path, Placement
from bayplan.model.filter_failure import FILTERED, FilterFailure, FilterReason
from bayplan.model.gang import Gang, PodSet
from bayplan.model.pod_spec import PodSignature, TopologySpread
from bayplan.placement.cluster.capacity import COUNT_MAX, with_slot
from bayplan.placement.cluster.node_index import NodeIndex, domains
from bayplan.placement.cluster.node_table import ABSENT
from bayplan.placement.cluster.pod_index import PodQuery
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.cluster.topology_tree import Ints
from bayplan.placement.domains.node_caps import with_node_caps
from bayplan.placement.filters.topology_spread import matching_pods, spread_totals
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.bind_check import (
    Unbound,
    bind_all,
    device_counts,
    own_spreads,
    self_conflicts,
    without_amounts,
)
from bayplan.placement.pods.domain_quotas import caps_within, spread_quotas

TRIES_MAX = 16
NO_ASSIGNMENTS: Mapping[str, Assignment] = MappingProxyType({})
NO_TEMPLATE = PodSignature()
REPELLED = (FilterReason.POD_ANTI_AFFINITY, FilterReason.EXISTING_ANTI_AFFINITY)

Find = Callable[[CapacitySnapshot, Gang], Placement]
_Cell = tuple[str, FilterReason]


@dataclass(frozen=True, slots=True, eq=False)
class BindingTrial:
    """All nodes with the pods that count, in which the pods of one gang are bound on trial."""

    overlay: NodeOverlay
    namespace: str
    labels: Mapping[str, str] = field(default_factory=dict)  # that the nodes of the gang have to have

    def signature_of(self, pod_set: PodSet) -> PodSignature:
        """The signature of a pod of a pod set, for the filters."""
        shape, rules = (pod_set.template or NO_TEMPLATE).in_namespace(self.namespace), pod_set.rules
        selector = tuple(sorted({**dict(rules.selector), **self.labels}.items()))
        return without_amounts(replace(shape, rules=replace(rules, selector=selector, preferred=())))

    def concerns(self, pod_set: PodSet) -> bool:
        """Whether other pods, ports or volumes may keep pods of a pod set from a node."""
        if pod_set.template is None:
            return False
        if pod_set.template.needs_trial or pod_set.template.node:
            return True
        index = self.overlay.filter_input.index
        if not index.affinity_terms:
            return False
        terms = index.matching_terms(pod_set.template.in_namespace(self.namespace))
        return any(entry.required and entry.weight < 0 for entry, _ in terms)

    def room(self, snapshot: CapacitySnapshot, pod_set: PodSet) -> Ints:
        """How many pods of a pod set each row of a topology can hold, by amounts and filters."""
        filter_input, shape = self.overlay.filter_input, self.signature_of(pod_set)
        fits = self.overlay.run_filters(shape).fits[rows_in(filter_input.node_snapshot.node_index, snapshot)]
        most = 1 if self_conflicts(filter_input, shape) else COUNT_MAX
        room = np.minimum(room_per_row(snapshot, pod_set), np.where(fits, most, 0))
        devices = device_counts(self.overlay, shape, pod_set.count)
        node_index = filter_input.node_snapshot.node_index
        return room if devices is None else np.minimum(room, devices[rows_in(node_index, snapshot)])


def place_bindable(
    snapshot: CapacitySnapshot, gang: Gang, trial: BindingTrial, find: Find,
    held: Mapping[str, Assignment] = NO_ASSIGNMENTS, *, lifted: bool = False,
) -> Placement:  # fmt: skip
    """Run `find` so that all pods of the placement can be bound, or say which filter prevents it.

    Pods that are `held` run already, and the trial counts them; with `lifted` the snapshot does not.
    """
    return _BindableSearch(snapshot, gang, trial, held, lifted).run(find)


def rows_in(node_index: NodeIndex, snapshot: CapacitySnapshot) -> Ints:
    """The row in the index of all nodes of each row of a topology."""
    nodes = snapshot.tree.nodes
    return node_index.remember(
        ("rows of", snapshot.tree),
        lambda: np.fromiter((node_index.row(node.name) for node in nodes), np.int64, len(nodes)),
    )


def room_per_row(snapshot: CapacitySnapshot, pod_set: PodSet) -> Ints:
    """How many pods of a pod set the free amounts of each node hold."""
    room = np.where(snapshot.active, COUNT_MAX, 0).astype(np.int64)
    for name, amount in with_slot(pod_set.requests).items():
        at = snapshot.resources.get(name)
        if amount:
            np.minimum(room, 0 if at is None else snapshot.free[at] // amount, out=room)
    return np.maximum(room, 0)


def pods_by_leaf(snapshot: CapacitySnapshot, place: Assignment, held: Assignment | None) -> dict[int, int]:
    """The pods of an assignment by leaf, less those that are held there already."""
    counts: dict[Path, int] = {}
    for share in place.shares:
        counts[share.values] = counts.get(share.values, 0) + share.count
    for share in held.shares if held is not None else ():
        if share.values in counts:
            counts[share.values] = max(counts[share.values] - share.count, 0)
    found: dict[int, int] = {}
    for values, count in counts.items():
        leaf = snapshot.leaf(values, usable=False)
        if leaf is not None and count:
            found[leaf] = found.get(leaf, 0) + count
    return found


def pods_by_node(
    node_index: NodeIndex, snapshot: CapacitySnapshot, place: Assignment, held: Assignment | None, room: Ints
) -> Ints:
    """The new pods of an assignment by node, in the index of all nodes.

    Which nodes of a leaf the pods get is open if it has several: the first with room are assumed.
    """
    pods = np.zeros(len(node_index), dtype=np.int64)
    rows, tree = rows_in(node_index, snapshot), snapshot.tree
    counts = pods_by_leaf(snapshot, place, held)
    if tree.topology.ends_at_host:
        pods[rows[list(counts)]] = list(counts.values())
        return pods
    starts = np.append(tree.starts[tree.lowest], tree.rows)
    for leaf, count in counts.items():
        here = slice(int(starts[leaf]), int(starts[leaf + 1]))
        before = np.cumsum(room[here]) - room[here]
        share = np.clip(count - before, 0, room[here])
        share[0] += count - int(share.sum())
        pods[rows[here]] += share
    return pods


class _BindableSearch:
    """One search. Caps are by pod set and filter, for the rows of the topology."""

    def __init__(
        self, snapshot: CapacitySnapshot, gang: Gang, trial: BindingTrial,
        held: Mapping[str, Assignment], lifted: bool,
    ) -> None:  # fmt: skip
        self.snapshot, self.gang, self.overlay, self.held, self.lifted = (
            snapshot, gang, trial.overlay, held, lifted,
        )  # fmt: skip
        self.pod_sets = {pod_set.name: pod_set for pod_set in gang.root.pod_sets()}
        self.shapes = {name: trial.signature_of(pod_set) for name, pod_set in self.pod_sets.items()}
        self.node_index = trial.overlay.filter_input.node_snapshot.node_index
        self.rows = rows_in(self.node_index, snapshot)
        self.held_rows = {name: self._rows_held(place) for name, place in held.items()}
        self.caps: dict[_Cell, Ints] = {}
        self.focus: dict[str, Ints] = {}  # by pod set: caps that leave one domain
        self.tried: dict[str, set[int]] = {}  # and the domains that were tried
        self.error: tuple[str, FilterFailure] | None = None
        for pod_set in self.pod_sets.values():
            if trial.concerns(pod_set):
                self._first_caps(pod_set, self.shapes[pod_set.name])

    def run(self, find: Find) -> Placement:
        if self.error is not None:
            return Placement({}, self._not_bindable(*self.error))
        misfit: Misfit | None = None
        unbound: dict[str, Unbound] = {}
        for _ in range(TRIES_MAX):
            placement = find(*self._capped())
            if placement.misfit is not None:
                misfit = misfit or placement.misfit
                if not [name for name in list(self.focus) if self._next_domain(name, {})]:
                    return replace(placement, misfit=misfit)
                continue
            unbound = self._unbound(placement)
            if not unbound:
                return placement
            self._tighten(placement, unbound)
        name = next(iter(unbound), next(iter(self.pod_sets)))
        return Placement({}, misfit or self._not_bindable(name, self._failure(unbound.get(name))))

    # ── caps before the search ─────────────────────────────────────────────────────────────────────

    def _first_caps(self, pod_set: PodSet, shape: PodSignature) -> None:
        name, filter_input = pod_set.name, self.overlay.filter_input
        result = self.overlay.run_filters(shape)
        if result.why.error is not None:
            self.error = self.error or (name, result.why)
            return
        for (reason, _), rejected in result.rejections.items():
            if not self._may_be_cured(name, reason):
                self._cap(name, reason, np.where(rejected[self.rows], 0, COUNT_MAX))
        if pod_set.count > 1:
            for key in self_conflicts(filter_input, shape):
                reason = FilterReason.POD_ANTI_AFFINITY if key else self._node_conflict(shape)
                apart = self._codes(key) != ABSENT if key else np.ones(len(self.rows), dtype=bool)
                self._cap(name, reason, np.where(apart, 1, COUNT_MAX).astype(np.int64))
        devices = device_counts(self.overlay, shape, pod_set.count)
        if devices is not None:
            self._cap(name, FilterReason.DEVICES, devices[self.rows])
        for spread in own_spreads(shape):
            if spread.min_domains > 1 and spread.honor_affinity:
                # a pod that is assigned to a host counts its own domain only, so never enough of them
                present = matching_pods(self.node_index, filter_input.index, shape, spread)[self.rows]
                self._cap(name, FilterReason.SPREAD, np.maximum(spread.max_skew - present, 0))

    def _node_conflict(self, shape: PodSignature) -> FilterReason:
        return FilterReason.PORT if shape.ports else FilterReason.DISK

    def _may_be_cured(self, name: str, reason: FilterReason) -> bool:
        """Whether other pods of the gang may make nodes fit that do not fit now."""
        shape = self.shapes[name]
        others = [other for peer, other in self.shapes.items() if peer != name]
        if reason is FilterReason.POD_AFFINITY:
            query = self._affinity_query(shape)
            return any(query.matches(other.namespace, dict(other.labels)) for other in others)
        if reason is FilterReason.SPREAD:
            spreads = [one for one in shape.spread if one.required]
            return any(
                one.selector.accepts(dict(peer.labels)) for one in spreads for peer in (shape, *others)
            )
        return False

    def _affinity_query(self, shape: PodSignature) -> PodQuery:
        index = self.overlay.filter_input.index
        return PodQuery(tuple((index.namespaces_of(term), term.selector) for term in shape.affinity.required))

    def _cap(self, name: str, reason: FilterReason, limit: Ints) -> bool:
        """Lower the caps of a pod set. Returns whether any is lower than before."""
        if self.lifted and name in self.held_rows:
            limit = limit + self.held_rows[name]
        before = self.caps.get((name, reason))
        after = limit if before is None else np.minimum(before, limit)
        self.caps[name, reason] = after
        return before is None or bool((after < before).any())

    def _capped(self) -> tuple[CapacitySnapshot, Gang]:
        """The snapshot and the gang with all caps that limit anything, as resources."""
        snapshot, root = self.snapshot, self.gang.root
        limits = dict(self.caps)
        for name, cap in self.focus.items():
            cell = (name, FilterReason.POD_AFFINITY)
            limits[cell] = np.minimum(limits[cell], cap) if cell in limits else cap
        for (name, reason), cap in limits.items():
            if (cap < self.pod_sets[name].count).any():
                what = f"{FILTERED}{reason.value}"
                snapshot, root = with_node_caps(snapshot, root, {name: cap}, what)
        return snapshot, replace(self.gang, root=root)

    # ── the check of a placement ───────────────────────────────────────────────────────────────────

    def _unbound(self, placement: Placement) -> dict[str, Unbound]:
        wanted = {
            name: self._by_node(name, place)
            for name, place in placement.assignments.items()
            if name in self.shapes
        }
        with self.overlay.tentative():
            return bind_all(self.overlay, self.shapes, wanted)

    def _by_node(self, name: str, place: Assignment) -> Ints:
        held, room = self.held.get(name), self._room(name)
        return pods_by_node(self.node_index, self.snapshot, place, held, room)

    def _room(self, name: str) -> Ints:
        """How many pods of a pod set each row can hold, by amounts and caps."""
        room = room_per_row(self.snapshot, self.pod_sets[name])
        for (capped, _), cap in self.caps.items():
            if capped == name:
                room = np.minimum(room, cap)
        if name in self.focus:
            room = np.minimum(room, self.focus[name])
        return room

    # ── caps that follow from a failed check ───────────────────────────────────────────────────────

    def _tighten(self, placement: Placement, unbound: Mapping[str, Unbound]) -> None:
        found = {
            name: self._by_node(name, place)[self.rows]
            for name, place in placement.assignments.items()
            if name in self.shapes
        }
        for name, failed in unbound.items():
            reasons, changed = set(failed.reasons.values()), False
            if FilterReason.SPREAD in reasons:
                for spread in own_spreads(self.shapes[name]):
                    changed |= self._limit_spread(name, spread, found[name])
            if not reasons.isdisjoint(REPELLED):
                changed |= self._one_per_domain(name, found[name])
            if FilterReason.POD_AFFINITY in reasons:
                changed |= self._next_domain(name, found)
            if not changed:
                self._exclude(name, failed)

    def _limit_spread(self, name: str, spread: TopologySpread, found: Ints) -> bool:
        index, shape = self.overlay.filter_input.index, self.shapes[name]
        total, known, fewest = spread_totals(self.node_index, index, shape, spread)
        codes, room = self._codes(spread.key), self._room(name)
        inside = codes != ABSENT
        by_domain = np.bincount(codes[inside], weights=room[inside], minlength=len(total)).astype(np.int64)
        quotas = np.maximum(spread.max_skew + fewest - total, 0)
        if known.sum() >= max(spread.min_domains, 1):
            pods = int(found.sum())
            quotas[known] = spread_quotas(total[known], by_domain[known], pods, spread.max_skew)
        return self._cap(name, FilterReason.SPREAD, caps_within(quotas, codes, room, found))

    def _one_per_domain(self, name: str, found: Ints) -> bool:
        """Leave one pod in each domain in which no two pods of the pod set may run."""
        changed = False
        for key in self_conflicts(self.overlay.filter_input, self.shapes[name]):
            if key:
                quotas = np.ones(len(self.node_index.table.codes(key)), dtype=np.int64)
                caps = caps_within(quotas, self._codes(key), self._room(name), found)
                changed |= self._cap(name, FilterReason.POD_ANTI_AFFINITY, caps)
        return changed

    def _next_domain(self, name: str, found: Mapping[str, Ints]) -> bool:
        """Leave one domain of the affinity of a pod set: the next with the most pods that it has to be near.

        Returns False if there is none left.
        """
        shape, pod_set = self.shapes[name], self.pod_sets[name]
        self.focus.pop(name, None)
        key = max((term.key for term in shape.affinity.required), key=lambda key: int(self._codes(key).max()))
        codes, room, query = self._codes(key), self._room(name), self._affinity_query(shape)
        near = self.overlay.filter_input.index.count(query)[self.node_index.slots][self.rows]
        for peer, pods in found.items():
            if query.matches(self.shapes[peer].namespace, dict(self.shapes[peer].labels)):
                near = near + pods
        tried = self.tried.setdefault(name, set())
        inside = codes != ABSENT
        size = int(codes.max()) + 1
        capacity = np.bincount(codes[inside], weights=room[inside], minlength=size)
        nearby = np.bincount(codes[inside], weights=near[inside], minlength=size)
        order = np.lexsort((-nearby, np.maximum(pod_set.count - capacity, 0)))
        chosen = next((code for code in order.tolist() if code not in tried and capacity[code] > 0), None)
        if chosen is None:
            return False
        tried.add(chosen)
        self.focus[name] = np.where(codes == chosen, COUNT_MAX, 0).astype(np.int64)
        return True

    def _exclude(self, name: str, failed: Unbound) -> None:
        """Cap every node that rejects the pods to those that it could get."""
        result = failed.result
        for reason in dict.fromkeys(failed.reasons.values()):
            stuck = [row for row, why in failed.reasons.items() if why is reason]
            rejected = np.zeros(len(self.node_index), dtype=bool)
            rejected[stuck] = True
            if reason is not FilterReason.SPREAD:
                for (why, _), nodes in result.rejections.items():
                    if why is reason:
                        rejected |= nodes
            self._cap(name, reason, np.where(rejected, failed.bound, COUNT_MAX)[self.rows])

    # ── facts ──────────────────────────────────────────────────────────────────────────────────────

    def _codes(self, key: str) -> Ints:
        """The domain of each row of the topology by a label."""
        return domains(self.node_index, key)[0][self.rows]

    def _rows_held(self, place: Assignment) -> Ints:
        pods = np.zeros(self.snapshot.tree.rows, dtype=np.int64)
        if self.snapshot.tree.topology.ends_at_host:
            for leaf, count in pods_by_leaf(self.snapshot, place, None).items():
                pods[leaf] += count
        return pods

    def _failure(self, failed: Unbound | None) -> FilterFailure:
        if failed is None:
            return FilterFailure(0)
        counts: dict[tuple[FilterReason, str], int] = {}
        for reason in failed.reasons.values():
            counts[reason, ""] = counts.get((reason, ""), 0) + 1
        return FilterFailure(sum(counts.values()), counts)

    def _not_bindable(self, name: str, failure: FilterFailure) -> Misfit:
        topology = self.snapshot.tree.topology.name
        return Misfit(Code.NOT_BINDABLE, (name,), topology=topology, filter_failure=failure)
