"""What is believed of the zones inside nodes: late reports, our pods that they cannot know yet, strangers.

As long as no node reports any zones, nothing is kept and nothing costs anything.
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
from bayplan.placement.numa.evictions import Seats
from bayplan.placement.numa.releases import NumaReleases
from bayplan.placement.numa.reports import NumaView, RunningPod
from bayplan.placement.numa.snapshot import NumaSnapshot

NOTHING = NumaRequest(QosClass.BEST_EFFORT, ())
CHECKED_MAX = 256  # nodes in doubt that are looked at in one go
NEVER = float("inf")
USUAL_CARE = NumaStalenessPolicy(caution=OverReserve.RESERVE, period=1.0)


class NumaCache:
    """One belief per node that reports zones."""

    def __init__(self, care: NumaStalenessPolicy = USUAL_CARE) -> None:
        self.care = care
        self.heard: dict[str, NodeZones] = {}  # the newest report of each node
        self.beliefs: dict[str, NumaView] = {}
        self.pods: dict[str, dict[PodKey, Pod]] = {}  # by node, once any reports
        self.checks: dict[str, None] = {}  # nodes whose newest report may have caught up
        self.checked_at = -NEVER
        self.touched: set[str] = set()  # nodes that look different since the columns were made
        self._names: list[str] = []
        self._nodes: object = None
        self._columns: NumaColumns | None = None
        self._believed: dict[str, NodeZones] = {}
        self._seats: dict[str, Seats | None] = {}  # of nodes where nothing changed since they were asked for
        self._gifts = NumaReleases()  # the same

    @property
    def active(self) -> bool:
        """Whether any node reports zones."""
        return bool(self.heard)

    # ── what happens ───────────────────────────────────────────────────────────────────────────────

    def report(self, report: NodeZones, pods: Iterable[Pod]) -> bool:
        """A node reports. `pods` are all that are known anywhere. Whether pods may fare better now."""
        if not self.active:
            for pod in pods:
                self.pods.setdefault(pod.node, {})[pod.key] = pod
            self._seats, self._gifts = {}, NumaReleases()
        node, before = report.node, self.heard.get(report.node)
        if before == report:
            return False
        self.heard[node] = report
        belief = self.beliefs.get(node)
        if belief is None or belief.report is None:
            belief = self._first(report)
        elif report.sign is None and self.care.caution is OverReserve.RESERVE:
            belief = self._taken_over(belief, report)
        else:
            belief = reports.heard(belief, report, self.care)
        self.checks[node] = None
        return self._believe(node, belief)

    def silent(self, node: str) -> bool:
        """A node reports no more: from now on its zones do not matter."""
        if self.heard.pop(node, None) is None:
            return False
        self.beliefs.pop(node, None)
        self.checks.pop(node, None)
        self._touch(node)
        if not self.active:
            self.pods, self._columns, self._believed = {}, None, {}
            self.touched.clear()
        return True

    def follow(self, pod: Pod, node: str, placed: Pod | None) -> None:
        """A pod is on a node as we believe, or on none; `placed` is what was believed of it before."""
        if placed is not None and placed.node != node:
            self.left(pod.key, placed.node, was_there=False)
        if node:
            self.came(pod if pod.node else replace(pod, node=node), assumed=not pod.node)

    def lost(self, key: PodKey, pod: Pod | None, placed: Pod | None) -> None:
        """A pod is no more. `pod` is as the API had it, `placed` as we believed."""
        if pod is not None and pod.node:
            self.left(key, pod.node, was_there=True)
        elif placed is not None:
            self.left(key, placed.node, was_there=False)

    def came(self, pod: Pod, *, assumed: bool) -> None:
        """A pod is on a node, or as good as there; or something about it changed."""
        there = self.pods.setdefault(pod.node, {})
        before = there.get(pod.key)
        there[pod.key] = pod
        self._stirred(pod.node)
        belief = self.beliefs.get(pod.node)
        if belief is None:
            return
        unsigned = belief.report is not None and belief.report.sign is None
        if before is None and not pod.over and not (unsigned and pod.up):  # that one was there before us
            belief = self._joined(belief, pod)
        elif unsigned and pod.over:  # it came and went between two reports
            belief = reports.releasing(belief, (pod.key.namespace, pod.key.name), pod.uid)
        if not assumed and belief.binding:
            belief = reports.bound(belief, pod.uid)
        self._note(pod.node, belief)
        self.checks[pod.node] = None

    def left(self, key: PodKey, node: str, *, was_there: bool) -> None:
        """A pod is no longer on a node. If it never was there, what was reserved for it is free again."""
        pod = self.pods.get(node, {}).pop(key, None)
        self._stirred(node)
        belief = self.beliefs.get(node)
        if pod is None or belief is None:
            return
        unsigned = belief.report is not None and belief.report.sign is None
        if not was_there or unsigned:  # a report that did not count it is as good as before
            self._note(node, reports.releasing(belief, (key.namespace, key.name), pod.uid))
        elif pod.uid in belief.binding:
            self._note(node, reports.bound(belief, pod.uid))
        self.checks[node] = None

    def node_changed(self, name: str) -> None:
        """A node came, went or changed in what it offers."""
        if self.active:
            self.touched.add(name)

    # ── catching up ────────────────────────────────────────────────────────────────────────────────

    def catch_up(self, now: float) -> bool:
        """Trust newer reports that know of the very pods that are there. Whether that changed anything."""
        if not self.checks or now < self.checked_at + self.care.period:
            return False
        self.checked_at = now
        some = list(self.checks)[:CHECKED_MAX]
        better = False
        for node in some:
            del self.checks[node]
            belief = self.beliefs.get(node)
            if belief is None:
                continue
            there = self._there(node)
            known = [self._running(pod) for pod in there if self._counts(pod)]
            late = (pod.key for pod in there if not (self._counts(pod) or pod.over))
            coming = {(key.namespace, key.name) for key in late}
            found = reports.caught_up(belief, self.heard[node], known, self.care, coming)
            if found is not None:
                for pod in self._there(node):  # others' pods that the node has not even heard of
                    if not (pod.ours or pod.started or pod.up):
                        found = self._joined(found, pod)
                better |= self._believe(node, found)
        return better

    def next_due(self) -> float:
        """When there is something to look at again."""
        return self.checked_at + self.care.period if self.checks else NEVER

    def _first(self, report: NodeZones) -> NumaView:
        """The first report of a node: pods that it may not know of are reserved for, or cast doubt on it."""
        belief = NumaView(report)
        pods = [pod for pod in self._there(report.node) if not pod.over]
        signed = report.sign is not None
        if signed and reports.knows(report, map(self._running, filter(self._counts, pods)), self.care):
            pods = [pod for pod in pods if not self._counts(pod)]
        for pod in pods:
            if signed or not self._counts(pod):
                belief = self._joined(belief, pod)
        return belief

    def _taken_over(self, belief: NumaView, report: NodeZones) -> NumaView:
        """Nobody knows whom an unsigned report counts: those that had started by then, most likely."""
        coming = {(pod.key.namespace, pod.key.name) for pod in self._there(report.node) if not pod.up}
        kept = {name: amounts for name, amounts in belief.reserved.items() if name in coming}
        return NumaView(report, kept, binding=belief.binding)

    def _joined(self, belief: NumaView, pod: Pod) -> NumaView:
        wants, report = pod.wants.shape.zones or NOTHING, belief.report
        if pod.ours:
            return reports.reserving(belief, (pod.key.namespace, pod.key.name), wants, self.care, pod.uid)
        if report is None or report.sign is None:
            return belief  # without a sign nobody could ever say that the report has caught up
        stranger = reports.is_stranger(wants, report.resources, self.care, ours=False)
        return reports.visited(belief) if stranger else belief

    def _there(self, node: str) -> list[Pod]:
        return list(self.pods.get(node, {}).values())

    def _counts(self, pod: Pod) -> bool:
        """Whether it is one that a report should know of."""
        return pod.up and (self.care.starting or not pod.over)

    @staticmethod
    def _running(pod: Pod) -> RunningPod:
        return RunningPod((pod.key.namespace, pod.key.name), pod.wants.shape.zones or NOTHING)

    def _note(self, node: str, belief: NumaView) -> None:
        """The same where nobody asks whether it makes a difference."""
        if self.beliefs.get(node) is not belief:
            self.beliefs[node] = belief
            self._touch(node)

    def _believe(self, node: str, belief: NumaView) -> bool:
        """Whether that makes a difference."""
        before = self.beliefs.get(node)
        self.beliefs[node] = belief
        self._stirred(node)
        now = reports.believed(belief, self.care)
        if before is not None and reports.believed(before, self.care) == now:
            return False
        self._touch(node)
        return True

    def _touch(self, node: str) -> None:
        """A node's zones look different."""
        self.touched.add(node)
        self._stirred(node)

    def _stirred(self, node: str) -> None:
        """Who sits where on a node has to be looked at again."""
        self._seats.pop(node, None)
        self._gifts.forget(node)

    # ── the view ───────────────────────────────────────────────────────────────────────────────────

    def ground(self, nodes: NDArray[np.object_]) -> NumaSnapshot | None:
        """The zones of these nodes, row by row; None if nobody tells of any."""
        if not self.active:
            return None
        columns = self._laid_out(nodes)
        fresh: dict[str, bool] = {}
        for name in self.touched:
            self._stirred(name)
            found, good = reports.believed(self.beliefs.get(name, reports.NOTHING_KNOWN), self.care)
            fresh[name] = good
            if found is None:
                self._believed.pop(name, None)
            else:
                self._believed[name] = found
        if columns is None:
            stale = [name for name, good in fresh.items() if not good]
            columns = zone_columns(nodes.tolist(), self._believed, stale)
        elif fresh:
            rows = {name: row for row, name in enumerate(self._names) if name in fresh}
            now = [(row, nodes[row], self._believed.get(name), fresh[name]) for name, row in rows.items()]
            columns = changed_rows(columns, now) if now else columns
        self.touched.clear()
        self._gifts.tidy()
        self._columns = columns
        return NumaSnapshot(
            columns, care=self.care, believed=self._believed, seats=self.seats, gifts=self._gifts
        )

    def _laid_out(self, nodes: NDArray[np.object_]) -> NumaColumns | None:
        """The columns as they were, with rows as they are now; None if everything has to be laid out."""
        columns = self._columns
        if nodes is self._nodes and columns is not None:
            return columns
        names = [node.name for node in nodes]
        before, self._names, self._nodes = self._names, names, nodes
        if columns is None or not before:
            self.touched.update(self.beliefs)
            return None
        if names == before:
            return columns
        known = {name: row for row, name in enumerate(before)}
        self.touched.update(name for name in names if name not in known)
        return narrowed(columns, np.array([known.get(name, 0) for name in names], dtype=np.int64))

    def seats(self, node: str) -> Seats | None:
        """The zone of every pinned container of a node, if its report says where they sit."""
        if node not in self._seats:
            report = self.beliefs.get(node, reports.NOTHING_KNOWN).report
            there = [self._running(pod) for pod in self._there(node) if self._counts(pod)]
            self._seats[node] = None if report is None else reports.seats(report, there)
        return self._seats[node]

    def zones_of(self, node: str) -> NodeZones | None:
        """What is believed of one node."""
        return reports.believed(self.beliefs.get(node, reports.NOTHING_KNOWN), self.care)[0]
