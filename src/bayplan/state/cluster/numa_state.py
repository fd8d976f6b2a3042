"""State of NUMA zones: late reports, our pods that they do not include yet, and pods of other schedulers.

As long as no node reports zones, nothing is stored and nothing is computed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bayplan.model.numa import NodeZones, NumaRequest, NumaStalenessPolicy, OverReserve, QosClass
from bayplan.model.pod import Pod, PodKey
from bayplan.placement.numa import reports
from bayplan.placement.numa.columns import NumaColumns, changed_rows, narrowed, zone_columns
from bayplan.placement.numa.evictions import ContainerZones
from bayplan.placement.numa.fingerprint import Name, pods_fingerprint
from bayplan.placement.numa.releases import NumaReleases
from bayplan.placement.numa.reports import NumaView, RunningPod
from bayplan.placement.numa.snapshot import NumaSnapshot

NOTHING = NumaRequest(QosClass.BEST_EFFORT, ())
CHECKED_MAX = 256  # outdated nodes that are checked at once
NEVER = float("inf")
DEFAULT_NUMA_POLICY = NumaStalenessPolicy(over_reserve=OverReserve.RESERVE, period=1.0)


def expected_fingerprint(pods: Iterable[Name]) -> int:
    """The fingerprint of a report that counts exactly these pods."""
    return pods_fingerprint(pods)


class NumaCache:
    """The NUMA report of each node, reconciled with the pods that we know to be there."""

    def __init__(self, policy: NumaStalenessPolicy = DEFAULT_NUMA_POLICY) -> None:
        self.policy = policy
        self.reports: dict[str, NodeZones] = {}  # the newest report of each node
        self.views: dict[str, NumaView] = {}
        self.pods: dict[str, dict[PodKey, Pod]] = {}  # by node, once any node reports
        self.checks: dict[str, None] = {}  # nodes whose newest report may include all pods by now
        self.checked_at = -NEVER
        self.touched: set[str] = set()  # nodes that changed since the columns were built
        self._names: list[str] = []
        self._nodes: object = None
        self._columns: NumaColumns | None = None
        self._zones: dict[str, NodeZones] = {}
        self._seats: dict[str, ContainerZones | None] = {}  # cached until the node changes
        self._releases = NumaReleases()  # likewise

    @property
    def active(self) -> bool:
        """Whether any node reports zones."""
        return bool(self.reports)

    # ── what happens ───────────────────────────────────────────────────────────────────────────────

    def report_received(self, report: NodeZones, pods: Iterable[Pod]) -> bool:
        """Store a node's report; `pods` are all known pods. Returns whether pods may fit better now."""
        if not self.active:
            for pod in pods:
                self.pods.setdefault(pod.node, {})[pod.key] = pod
            self._seats, self._releases = {}, NumaReleases()
        node, before = report.node, self.reports.get(report.node)
        if before == report:
            return False
        self.reports[node] = report
        view = self.views.get(node)
        if view is None or view.report is None:
            view = self._first_view(report)
        elif report.fingerprint is None and self.policy.over_reserve is OverReserve.RESERVE:
            view = self._unsigned_view(view, report)
        else:
            view = reports.report_received(view, report, self.policy)
        self.checks[node] = None
        return self._set_view(node, view)

    def report_removed(self, node: str) -> bool:
        """A node stopped reporting: its zones no longer matter. Returns whether it had reported."""
        if self.reports.pop(node, None) is None:
            return False
        self.views.pop(node, None)
        self.checks.pop(node, None)
        self._touch(node)
        if not self.active:
            self.pods, self._columns, self._zones = {}, None, {}
            self.touched.clear()
        return True

    def update_pod(self, pod: Pod, node: str, placed: Pod | None) -> None:
        """A pod has a node, bound or assumed, or none; `placed` is the pod with its node before."""
        if placed is not None and placed.node != node:
            self.pod_removed(pod.key, placed.node, was_there=False)
        if node:
            self.pod_added(pod if pod.node else replace(pod, node=node), assumed=not pod.node)

    def pod_deleted(self, key: PodKey, pod: Pod | None, placed: Pod | None) -> None:
        """A pod was deleted. `pod` is its last version in the API, `placed` the one with its assumed node."""
        if pod is not None and pod.node:
            self.pod_removed(key, pod.node, was_there=True)
        elif placed is not None:
            self.pod_removed(key, placed.node, was_there=False)

    def pod_added(self, pod: Pod, *, assumed: bool) -> None:
        """A pod was bound to a node, or is assumed to be, or changed."""
        there = self.pods.setdefault(pod.node, {})
        before = there.get(pod.key)
        there[pod.key] = pod
        self._drop_cached(pod.node)
        view = self.views.get(pod.node)
        if view is None:
            return
        unsigned = view.report is not None and view.report.fingerprint is None
        if (
            before is None and not pod.finished and not (unsigned and pod.was_started)
        ):  # the report includes it
            view = self._with_pod(view, pod)
        elif unsigned and pod.finished:  # it started and ended between two reports
            view = reports.without_reservation(view, (pod.key.namespace, pod.key.name), pod.uid)
        if not assumed and view.binding:
            view = reports.with_bound_pod(view, pod.uid)
        self._put_view(pod.node, view)
        self.checks[pod.node] = None

    def pod_removed(self, key: PodKey, node: str, *, was_there: bool) -> None:
        """A pod is no longer on a node. If it never was there, release what was reserved for it."""
        pod = self.pods.get(node, {}).pop(key, None)
        self._drop_cached(node)
        view = self.views.get(node)
        if pod is None or view is None:
            return
        unsigned = view.report is not None and view.report.fingerprint is None
        if not was_there or unsigned:  # a report that did not include the pod is still correct
            self._put_view(node, reports.without_reservation(view, (key.namespace, key.name), pod.uid))
        elif pod.uid in view.binding:
            self._put_view(node, reports.with_bound_pod(view, pod.uid))
        self.checks[node] = None

    def node_changed(self, name: str) -> None:
        """A node was added, removed, or changed its allocatable amounts."""
        if self.active:
            self.touched.add(name)

    # ── catching up ────────────────────────────────────────────────────────────────────────────────

    def catch_up(self, now: float) -> bool:
        """Accept newer reports that include exactly the pods of the node. Returns whether any changed."""
        if not self.checks or now < self.checked_at + self.policy.period:
            return False
        self.checked_at = now
        some = list(self.checks)[:CHECKED_MAX]
        better = False
        for node in some:
            del self.checks[node]
            view = self.views.get(node)
            if view is None:
                continue
            there = self._pods_on(node)
            known = [self._running(pod) for pod in there if self._is_included(pod)]
            late = (pod.key for pod in there if not (self._is_included(pod) or pod.finished))
            coming = {(key.namespace, key.name) for key in late}
            found = reports.accept_report(view, self.reports[node], known, self.policy, coming)
            if found is not None:
                for pod in self._pods_on(
                    node
                ):  # pods of other schedulers that their node has not started yet
                    if not (pod.ours or pod.started or pod.was_started):
                        found = self._with_pod(found, pod)
                better |= self._set_view(node, found)
        return better

    def next_due(self) -> float:
        """When the next check of outdated reports is due."""
        return self.checked_at + self.policy.period if self.checks else NEVER

    def _first_view(self, report: NodeZones) -> NumaView:
        """The view after a node's first report: pods it may lack are reserved for, or make it outdated."""
        view = NumaView(report)
        pods = [pod for pod in self._pods_on(report.node) if not pod.finished]
        signed = report.fingerprint is not None
        if signed and reports.counts_exactly(
            report, map(self._running, filter(self._is_included, pods)), self.policy
        ):
            pods = [pod for pod in pods if not self._is_included(pod)]
        for pod in pods:
            if signed or not self._is_included(pod):
                view = self._with_pod(view, pod)
        return view

    def _unsigned_view(self, view: NumaView, report: NodeZones) -> NumaView:
        """An unsigned report does not say which pods it includes: most likely those that had started."""
        coming = {
            (pod.key.namespace, pod.key.name) for pod in self._pods_on(report.node) if not pod.was_started
        }
        kept = {name: amounts for name, amounts in view.reserved.items() if name in coming}
        return NumaView(report, kept, binding=view.binding)

    def _with_pod(self, view: NumaView, pod: Pod) -> NumaView:
        wants, report = pod.spec.signature.zones or NOTHING, view.report
        if pod.ours:
            return reports.with_reservation(
                view, (pod.key.namespace, pod.key.name), wants, self.policy, pod.uid
            )
        if report is None or report.fingerprint is None:
            return view  # without a fingerprint no report is known to be up to date
        stranger = reports.is_foreign_pod(wants, report.resources, self.policy, ours=False)
        return reports.with_foreign_pod(view) if stranger else view

    def _pods_on(self, node: str) -> list[Pod]:
        return list(self.pods.get(node, {}).values())

    def _is_included(self, pod: Pod) -> bool:
        """Whether a report should include the pod."""
        return pod.was_started and (self.policy.count_starting or not pod.finished)

    @staticmethod
    def _running(pod: Pod) -> RunningPod:
        return RunningPod((pod.key.namespace, pod.key.name), pod.spec.signature.zones or NOTHING)

    def _put_view(self, node: str, view: NumaView) -> None:
        """Update a view where the caller does not need to know whether it matters."""
        if self.views.get(node) is not view:
            self.views[node] = view
            self._touch(node)

    def _set_view(self, node: str, view: NumaView) -> bool:
        """Update a view. Returns whether the resulting zones changed."""
        before = self.views.get(node)
        self.views[node] = view
        self._drop_cached(node)
        now = reports.current_zones(view, self.policy)
        if before is not None and reports.current_zones(before, self.policy) == now:
            return False
        self._touch(node)
        return True

    def _touch(self, node: str) -> None:
        """The zones of a node changed."""
        self.touched.add(node)
        self._drop_cached(node)

    def _drop_cached(self, node: str) -> None:
        """Drop the cached container placement of a node."""
        self._seats.pop(node, None)
        self._releases.forget(node)

    # ── the view ───────────────────────────────────────────────────────────────────────────────────

    def snapshot(self, nodes: NDArray[np.object_]) -> NumaSnapshot | None:
        """The NUMA snapshot of these nodes, row by row; None if no node reports zones."""
        if not self.active:
            return None
        columns = self._current_columns(nodes)
        fresh: dict[str, bool] = {}
        for name in self.touched:
            self._drop_cached(name)
            found, good = reports.current_zones(self.views.get(name, reports.EMPTY_VIEW), self.policy)
            fresh[name] = good
            if found is None:
                self._zones.pop(name, None)
            else:
                self._zones[name] = found
        if columns is None:
            stale = [name for name, good in fresh.items() if not good]
            columns = zone_columns(nodes.tolist(), self._zones, stale)
        elif fresh:
            rows = {name: row for row, name in enumerate(self._names) if name in fresh}
            now = [(row, nodes[row], self._zones.get(name), fresh[name]) for name, row in rows.items()]
            columns = changed_rows(columns, now) if now else columns
        self.touched.clear()
        self._releases.tidy()
        self._columns = columns
        return NumaSnapshot(
            columns,
            policy=self.policy,
            reports=self._zones,
            container_zones=self.container_zones,
            releases=self._releases,
        )

    def _current_columns(self, nodes: NDArray[np.object_]) -> NumaColumns | None:
        """The columns with rows in the current order; None if they have to be built."""
        columns = self._columns
        if nodes is self._nodes and columns is not None:
            return columns
        names = [node.name for node in nodes]
        before, self._names, self._nodes = self._names, names, nodes
        if columns is None or not before:
            self.touched.update(self.views)
            return None
        if names == before:
            return columns
        known = {name: row for row, name in enumerate(before)}
        self.touched.update(name for name in names if name not in known)
        return narrowed(columns, np.array([known.get(name, 0) for name in names], dtype=np.int64))

    def container_zones(self, node: str) -> ContainerZones | None:
        """The zone of every pinned container of a node, if its report contains them."""
        if node not in self._seats:
            report = self.views.get(node, reports.EMPTY_VIEW).report
            there = [self._running(pod) for pod in self._pods_on(node) if self._is_included(pod)]
            self._seats[node] = None if report is None else reports.container_zones_of(report, there)
        return self._seats[node]

    def zones_of(self, node: str) -> NodeZones | None:
        """The zones of one node, as far as known."""
        return reports.current_zones(self.views.get(node, reports.EMPTY_VIEW), self.policy)[0]
