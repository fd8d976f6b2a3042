"""The domains that a pending gang nearly fits: how many of its pods each would hold now, and who is there."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from bayplan.cli.live.scheduled_state import Scheduled
from bayplan.cli.live.state import Live
from bayplan.cli.watching.gang_owners import GangOwners
from bayplan.dashboard.host_map import GangKey, occupants
from bayplan.explanation.text import short_levels
from bayplan.model.gang import Group, Ref
from bayplan.model.node import HOSTNAME, PODS
from bayplan.state.cluster.node_state import FLAT
from bayplan.state.reports.queries import pods_by_domain

DOMAINS_MAX = 8
HOLDERS_MAX = 5


class Wanted(NamedTuple):
    """What the largest part of a gang asks for."""

    pods: int
    requests: dict[str, int]
    level: str  # the label of the level whose domain has to hold it; empty: anywhere


def near_domains(live: Live, scheduled: Scheduled, owners: GangOwners, key: GangKey) -> dict[str, Any] | None:
    """The domains with room for most pods of a pending gang; None if it runs, or asks for no domain."""
    wanted = _wanted(live, scheduled, key)
    if wanted is None:
        return None
    clusters = scheduled.controller.state.store.nodes.topologies
    named = [one for name, one in sorted(clusters.items()) if name != FLAT.name]
    fitting = [one for one in named if wanted.level in one.topology.levels[:-1]]
    if not fitting:
        return None
    supply, levels = fitting[0].snapshot(), fitting[0].topology.levels
    number = levels.index(wanted.level)
    fits = pods_by_domain(supply, number, wanted.requests)
    best = np.argsort(-fits, kind="stable")[:DOMAINS_MAX]
    found = []
    on_node = {
        (node, gang) if gang is not None else (node, None)
        for node, gang, _ in occupants(scheduled.controller.state, owners.key_of)
    }
    by_node: dict[str, list[GangKey]] = {}
    for node, gang in on_node:
        if gang is not None:
            by_node.setdefault(node, []).append(gang)
    for domain in best.tolist():
        first, last = supply.tree.row_range(number, domain)
        hosts = Counter(
            gang for row in range(first, last) for gang in by_node.get(supply.tree.nodes[row].name, ())
        )
        found.append(
            {
                "domain": list(supply.tree.path(number, domain)),
                "hosts": [first, last],
                "fits": int(fits[domain]),
                "lacks": max(0, wanted.pods - int(fits[domain])),
                "holders": [f"{gang.namespace}/{gang.name}" for gang, _ in hosts.most_common(HOLDERS_MAX)],
            }
        )
    return {
        "topology": fitting[0].topology.name,
        "level": short_levels(levels)[wanted.level],
        "pods": wanted.pods,
        "domains": found,
    }


def _wanted(live: Live, scheduled: Scheduled, key: GangKey) -> Wanted | None:
    state = scheduled.controller.state
    if key.kind == "Workload":
        entry = live.state.pending.entries.get(Ref("kueue", "Workload", key.namespace, key.name))
        if entry is None or entry.queued_gang.admission is not None:
            return None
        return _of_tree(entry.queued_gang.gang.root, "")
    for ref, spec in state.store.specs.items():
        if (ref.namespace, ref.kind, ref.name.rstrip("/")) != tuple(key):
            continue
        pending = state.pending(ref)
        level = spec.locality.required or spec.locality.preferred or ""
        if not pending:
            return None
        found = _of_tree(spec.tree, level) if spec.tree is not None else None
        amounts = {name: amount for name, amount in pending[0].amounts.items() if name != PODS}
        return found or (Wanted(len(pending), amounts, level) if level else None)
    return None


def _of_tree(root: Group, above: str) -> Wanted | None:
    """The part with a locality that has most pods."""
    best: Wanted | None = None
    level = root.locality.required or root.locality.preferred or above
    for pod_set in root.pod_sets():
        own = pod_set.locality.required or pod_set.locality.preferred or level
        if own and own != HOSTNAME and (best is None or pod_set.count > best.pods):
            best = Wanted(pod_set.count, dict(pod_set.requests), own)
    return best
