"""Whether pods can be bound to given nodes in some order, by the filters of binding, without amounts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from bayplan.model.filter_failure import FilterReason
from bayplan.model.pod import PodKey
from bayplan.model.pod_spec import PodSignature, TopologySpread
from bayplan.model.storage import ONE_POD
from bayplan.placement.cluster.node_index import domains
from bayplan.placement.cluster.node_table import ABSENT, labelled
from bayplan.placement.cluster.topology_tree import Ints
from bayplan.placement.filters.pipeline import FilterInput, FilterResult
from bayplan.placement.filters.topology_spread import spread_allowance, spread_totals
from bayplan.placement.filters.volumes import conflicts_with_itself
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.counting import needs_own_batch, shares_devices

TRIAL_NAMESPACE = "/"  # no pod has it: the keys of pods on trial are their own


@dataclass(frozen=True, slots=True, eq=False)
class Unbound:
    """Pods of a pod set that the filters reject: the reason by row, and which pods are bound."""

    reasons: Mapping[int, FilterReason]
    bound: Ints  # by row
    result: FilterResult


def self_conflicts(filter_input: FilterInput, shape: PodSignature) -> tuple[str, ...]:
    """The label keys in whose domains no two pods of this signature may run; "" means the node."""
    about, labels = filter_input.index.namespaces.get(shape.namespace, {}), dict(shape.labels)
    keys = [""] if shape.ports or conflicts_with_itself(shape) else []
    terms = shape.affinity.required_anti
    keys += [term.key for term in terms if term.selects(shape.namespace, about, labels)]
    return tuple(dict.fromkeys(keys))


def own_spreads(shape: PodSignature) -> tuple[TopologySpread, ...]:
    """The required spread constraints that count the pods of this signature themselves."""
    labels = dict(shape.labels)
    return tuple(one for one in shape.spread if one.required and one.selector.accepts(labels))


def bind_all(
    overlay: NodeOverlay, shapes: Mapping[str, PodSignature], wanted: Mapping[str, Ints]
) -> dict[str, Unbound]:
    """Add the wanted pods, by pod set and row, to the overlay wherever the filters allow it.

    Pods are added in rounds, because some may be bound only after others. Returns the pod sets with pods
    that no round could add. The caller rolls the overlay back.
    """
    left = {name: pods.copy() for name, pods in wanted.items() if pods.any()}
    added, progress = 0, True
    while progress and left:
        progress = False
        for name in list(left):
            rows = _next_rows(overlay, shapes[name], left[name])
            if not len(rows):
                continue
            rows = _add(overlay, shapes[name], name, added, rows)
            np.subtract.at(left[name], rows, 1)
            added, progress = added + len(rows), True
            if not left[name].any():
                del left[name]
    if left:
        return {name: _unbound(overlay, shapes[name], wanted[name], pods) for name, pods in left.items()}
    return _uneven(overlay, shapes, wanted)


def _add(overlay: NodeOverlay, shape: PodSignature, name: str, first: int, rows: Ints) -> Ints:
    """Add pods to rows; only the first of them if devices do not suffice for all. Returns their rows."""
    keys = [PodKey(TRIAL_NAMESPACE, f"{name}/{first + at}") for at in range(len(rows))]
    mark = overlay.checkpoint()
    overlay.add_pods(shape, keys, rows)
    if not overlay.lacks_devices(keys):
        return rows
    overlay.rollback(mark)  # nodes share devices: counts of each node alone were too high
    overlay.add_pods(shape, keys[:1], rows[:1])
    return rows[:1]


def rows_in_domain(
    overlay: NodeOverlay, labels: Mapping[str, str], shape: PodSignature, count: int
) -> list[int]:
    """Rows for pods in a domain of which only the labels are known: the first node, or those with devices."""
    rows = np.flatnonzero(labelled(overlay.filter_input.node_snapshot.node_index.table, labels))
    if not len(rows):
        return []
    room = device_counts(overlay, shape, count)
    found: list[int] = [] if room is None else np.repeat(rows, room[rows])[:count].tolist()
    return found + [int(rows[0])] * (count - len(found))


def device_counts(overlay: NodeOverlay, shape: PodSignature, most: int) -> Ints | None:
    """By row: how many such pods the devices suffice for, at most `most`; None if they need none."""
    supply = overlay.filter_input.devices
    if shape.devices is None or supply is None:
        return None
    return supply.counts(overlay.filter_input.node_snapshot.node_index, shape.devices, most)


def _uneven(
    overlay: NodeOverlay, shapes: Mapping[str, PodSignature], wanted: Mapping[str, Ints]
) -> dict[str, Unbound]:
    """Pod sets on nodes that their spread rejects once all others are bound: the order may be another one."""
    found: dict[str, Unbound] = {}
    node_index, index = overlay.filter_input.node_snapshot.node_index, overlay.filter_input.index
    for name, pods in wanted.items():
        for spread in shapes[name].spread if len(wanted) > 1 else ():
            total, _, fewest = spread_totals(node_index, index, shapes[name], spread)
            rows = np.flatnonzero(pods)
            uneven = rows[total[domains(node_index, spread.key)[0][rows]] - fewest > spread.max_skew]
            if len(uneven):
                reasons = dict.fromkeys(uneven.tolist(), FilterReason.SPREAD)
                bound = np.where(np.isin(np.arange(len(pods)), uneven), 0, pods)
                found[name] = Unbound(reasons, bound, overlay.run_filters(shapes[name]))
    return found


def _unbound(overlay: NodeOverlay, shape: PodSignature, wanted: Ints, left: Ints) -> Unbound:
    result = overlay.run_filters(shape)
    reasons = {row: next(iter(result.reasons(row)))[0] for row in np.flatnonzero(left).tolist()}
    return Unbound(reasons, wanted - left, result)


def _next_rows(overlay: NodeOverlay, shape: PodSignature, left: Ints) -> Ints:
    """Rows for pods that can be added together, one entry for each pod."""
    filter_input = overlay.filter_input
    rows = np.flatnonzero((left > 0) & overlay.run_filters(shape).fits)
    if not len(rows) or _is_alone(overlay, shape):
        return rows[:1]
    keys, spreads = self_conflicts(filter_input, shape), own_spreads(shape)
    if not keys and not spreads:
        devices = device_counts(overlay, shape, int(left.max()))
        pods = left if devices is None else np.minimum(left, np.maximum(devices, 1))
        return np.repeat(rows, pods[rows])
    node_index, index = filter_input.node_snapshot.node_index, filter_input.index
    for key in keys:
        if key:
            codes, size = domains(node_index, key)
            rows = _first_of_each(rows, codes[rows], np.ones(size, dtype=np.int64))
    for spread in spreads:
        codes, _ = domains(node_index, spread.key)
        rows = _first_of_each(rows, codes[rows], spread_allowance(node_index, index, shape, spread))
    return rows


def _is_alone(overlay: NodeOverlay, shape: PodSignature) -> bool:
    """Whether only one more pod can be added at first: then the others may follow it, or nowhere else."""
    claims = overlay.filter_input.storage.claims
    uses = (claims.get((shape.namespace, use.name)) for use in shape.claims)
    if any(claim is not None and ONE_POD in claim.modes for claim in uses):
        return True
    if shares_devices(shape):
        return True  # the devices that the first pod gets decide on the nodes of the others
    return needs_own_batch(overlay, shape)


def _first_of_each(rows: Ints, codes: Ints, limits: Ints) -> Ints:
    """The first rows of each domain, up to its limit; rows without a domain are all kept."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    rank = np.arange(len(ordered)) - np.repeat(starts, np.diff(np.append(starts, len(ordered))))
    keep = (ordered == ABSENT) | (rank < np.append(limits, 0)[ordered])
    kept: Ints = rows[np.sort(order[keep])]
    return kept


def without_amounts(shape: PodSignature) -> PodSignature:
    """The signature for the filters alone: amounts and zones are counted elsewhere."""
    return replace(shape, amounts=(), score_requests=(0, 0), images=(), default_spread=None, zones=None)
