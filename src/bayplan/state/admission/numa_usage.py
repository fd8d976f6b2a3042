"""NUMA zones for admission: node reports, and pods of admitted gangs that the reports do not include yet.

As long as no node reports zones, nothing is stored and nothing is computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bayplan.model.gang import Ref
from bayplan.model.node import HOSTNAME, Node
from bayplan.model.numa import NodeZones, NumaRequest, NumaStalenessPolicy
from bayplan.model.pod import Pod
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.numa import reports
from bayplan.placement.numa.columns import NumaColumns, changed_rows, narrowed, zone_columns
from bayplan.placement.numa.fingerprint import Name
from bayplan.placement.numa.reports import NumaView
from bayplan.placement.overlay.topology_numa_overlay import Key, NumaStock, PendingPods
from bayplan.state.admission.usage import GangUsage
from bayplan.state.cluster.numa_state import DEFAULT_NUMA_POLICY, NumaCache


@dataclass(frozen=True, slots=True, eq=False)
class HostPods:
    """Pods of one pod set that are, or will be, on a host."""

    gang: Ref
    pod_set: str
    request: NumaRequest
    count: int
    owner: object  # keeps the objects alive whose ids form the key


@dataclass(frozen=True, slots=True, eq=False)
class _Layout:
    """The zones of one topology as of the last snapshot."""

    nodes: NDArray[np.object_]
    names: list[str]
    pending_pods: dict[int, dict[Key, PendingPods]]
    stock: NumaStock


class NumaUsage:
    """The cache of NUMA reports, and the pods of admitted gangs by host."""

    def __init__(self, policy: NumaStalenessPolicy = DEFAULT_NUMA_POLICY) -> None:
        self.policy = policy
        self._reset()

    def _reset(self) -> None:
        self.cache = NumaCache(self.policy)
        self.host_pods: dict[str, dict[Key, HostPods]] = {}  # by host
        self.changed: set[str] = set()  # hosts or nodes whose pods changed
        self.layouts: dict[str, _Layout] = {}

    @property
    def active(self) -> bool:
        """Whether any node reports zones."""
        return self.cache.active

    # ── what happens ───────────────────────────────────────────────────────────────────────────────

    def report_received(self, report: NodeZones, pods: Iterable[Pod], usages: Iterable[GangUsage]) -> bool:
        """Store a report; the first one loads all pods and gangs. Returns whether pods may fit better."""
        if not self.active:
            for usage in usages:
                self._count_gang(usage, 1)
        return self.cache.report_received(report, map(_as_ours, pods))

    def report_removed(self, node: str) -> bool:
        """A node stopped reporting. Returns whether that changed anything."""
        changed = self.cache.report_removed(node)
        if changed and not self.active:
            self._reset()
        return changed

    def update_pod(self, before: Pod | None, pod: Pod | None) -> None:
        """A pod was bound to a node, changed, or was removed from it."""
        if before is not None and (pod is None or (before.uid, before.node) != (pod.uid, pod.node)):
            self.cache.pod_removed(before.key, before.node, was_there=before.was_started)
            self.changed.add(before.node)
        if pod is not None:
            self.cache.pod_added(_as_ours(pod), assumed=not pod.was_started)
            self.changed.add(pod.node)

    def count_gang(self, usage: GangUsage, sign: int) -> None:
        """Count the pods of a gang on the hosts of its usage (sign -1: remove them)."""
        if self.active:
            self._count_gang(usage, sign)

    def _count_gang(self, usage: GangUsage, sign: int) -> None:
        """Only placements on hosts count: in wider domains the zones of the pods are unknown."""
        ref = usage.queued_gang.family
        for placement in usage.placements:
            if placement.zones is None or placement.place.levels[-1] != HOSTNAME:
                continue
            key = (id(placement.place), id(placement.requests))
            for share in placement.place.shares:
                host = share.values[-1]
                self.changed.add(host)
                here = self.host_pods.setdefault(host, {})
                before = here.pop(key, None)
                count = sign * share.count + (before.count if before is not None else 0)
                if count > 0:
                    here[key] = HostPods(ref, placement.pod_set, placement.zones, count, placement)
                elif not here:
                    del self.host_pods[host]

    def nodes_changed(self, names: Iterable[str]) -> None:
        """Nodes were added, removed or changed."""
        if self.active:
            self.cache.touched.update(names)

    def catch_up(self, now: float) -> bool:
        """Accept newer reports that include exactly the pods of the node. Returns whether any changed."""
        return self.cache.catch_up(now)

    def next_due(self) -> float:
        """When the next check of outdated reports is due."""
        return self.cache.next_due()

    def promised_on(self, node: Node) -> tuple[NumaColumns, dict[Ref, list[tuple[NumaRequest, int]]]] | None:
        """The zones of a node by a report that counts all its pods, and the pods that gangs miss there.

        None if there is no such report: then it is not known what is left. A report without a fingerprint
        does not tell which pods it counts.
        """
        view = self.cache.views.get(node.name, reports.EMPTY_VIEW)
        pending, theirs = self._pending_on(node, view)
        if view.report is None or view.report.fingerprint is None or view.reserved.keys() - theirs:
            return None
        zones, is_fresh = reports.current_zones(replace(view, reserved={}), self.cache.policy)
        if zones is None or not is_fresh:
            return None
        guests = self.host_pods.get(node.labels.get(HOSTNAME, node.name), {})
        missing: dict[Ref, list[tuple[NumaRequest, int]]] = {}
        for key, pods in pending.items():
            if pods.pending:
                missing.setdefault(guests[key].gang, []).append((pods.request, pods.pending))
        return zone_columns([node], {node.name: zones}), missing

    # ── the view ───────────────────────────────────────────────────────────────────────────────────

    def stocks(self, supplies: Mapping[str, CapacitySnapshot]) -> dict[str, NumaStock]:
        """The zones of every topology; empty if no node reports any."""
        if not self.active:
            return {}
        touched, self.cache.touched, self.changed = self.cache.touched | self.changed, set(), set()
        before, self.layouts = self.layouts, {}
        for name, supply in supplies.items():
            self.layouts[name] = self._layout(before.get(name), supply.tree.nodes, touched)
        return {name: layout.stock for name, layout in self.layouts.items()}

    def _layout(self, before: _Layout | None, nodes: NDArray[np.object_], touched: set[str]) -> _Layout:
        if before is not None and before.nodes is nodes and not touched:
            return before
        names = [node.name for node in nodes]
        rows = {node.labels.get(HOSTNAME, node.name): row for row, node in enumerate(nodes)}
        rows |= {name: row for row, name in enumerate(names)}
        if before is None or not before.stock.reported.rows:
            pending_pods: dict[int, dict[Key, PendingPods]] = {}
            now = self._told(nodes, range(len(nodes)), pending_pods)
            told = {node.name: found for _, node, found, _ in now if found is not None}
            stale = [node.name for _, node, _, good in now if not good]
            columns = zone_columns(nodes.tolist(), told, stale)
        else:
            columns, pending_pods, new = before.stock.reported, before.pending_pods.copy(), set[int]()
            if before.nodes is not nodes and names != before.names:
                known = {name: row for row, name in enumerate(before.names)}
                was = np.array([known.get(name, 0) for name in names], dtype=np.int64)
                columns = narrowed(columns, was)
                moved = {known[name]: row for row, name in enumerate(names) if name in known}
                pending_pods = {moved[row]: here for row, here in pending_pods.items() if row in moved}
                new = {row for row, name in enumerate(names) if name not in known}
            changed = sorted(new | {rows[name] for name in touched if name in rows})
            now = self._told(nodes, changed, pending_pods)
            columns = changed_rows(columns, now) if now else columns
        totals = NumaStock(
            columns, lambda: self._whole(nodes), names, pending_pods, self.cache.container_zones
        )
        return _Layout(nodes, names, pending_pods, totals)

    def _told(
        self, nodes: NDArray[np.object_], rows: Iterable[int], pending_pods: dict[int, dict[Key, PendingPods]]
    ) -> list[tuple[int, Node, NodeZones | None, bool]]:
        """Per node: row, node, zones, and whether they are up to date. Updates the pending pods."""
        found = []
        for row in rows:
            node: Node = nodes[row]
            view = self.cache.views.get(node.name, reports.EMPTY_VIEW)
            here, settled = self._pending_on(node, view)
            if here:
                pending_pods[row] = here
            else:
                pending_pods.pop(row, None)
            if settled:
                left = {name: what for name, what in view.reserved.items() if name not in settled}
                view = replace(view, reserved=left)
            found.append((row, node, *reports.current_zones(view, self.cache.policy)))
        return found

    def _pending_on(self, node: Node, view: NumaView) -> tuple[dict[Key, PendingPods], set[Name]]:
        """The pending pods of gangs on a node, and which pods are theirs."""
        guests = self.host_pods.get(node.labels.get(HOSTNAME, node.name), {})
        pods = self.cache.pods.get(node.name, {}).values() if guests else ()
        found: dict[Key, PendingPods] = {}
        theirs: set[Name] = set()
        for key, guest in guests.items():
            mine = [pod for pod in pods if pod.gang == guest.gang and pod.pod_set in (guest.pod_set, "")]
            names = {(pod.key.namespace, pod.key.name): pod for pod in mine}
            theirs |= names.keys()
            counted = {
                name: pod for name, pod in names.items() if pod.was_started and name not in view.reserved
            }
            running = tuple(sorted(name for name, pod in counted.items() if not pod.finished))
            found[key] = PendingPods(guest.request, max(guest.count - len(counted), 0), running)
        return found, theirs

    def _whole(self, nodes: NDArray[np.object_]) -> NumaColumns:
        """The zones without any pod."""
        told = {}
        for node in nodes:
            report = self.cache.views.get(node.name, reports.EMPTY_VIEW).report
            if report is not None:
                zones = tuple(replace(zone, available=zone.allocatable) for zone in report.zones)
                told[node.name] = replace(report, zones=zones)
        return zone_columns(nodes.tolist(), told)


def _as_ours(pod: Pod) -> Pod:
    """The pod as one of ours: reserve what a report does not include yet, whatever its scheduler."""
    return replace(pod, ours=True)
