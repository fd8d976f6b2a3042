"""The node health controller: finds failed nodes of gangs and records them in Workloads and pods.

The admission controller reads the list and searches replacement nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from bayplan.dialects.api import Ended, Event, Happened, Kind, Write, WriteOutcome
from bayplan.dialects.kube.decode.wire import NODES, PODS_KIND, PodWire
from bayplan.dialects.kueue.jobs.writes import status_write
from bayplan.dialects.kueue.names import api_kinds
from bayplan.dialects.kueue.pods.node_failures import fail_pod, pod_event, with_unhealthy_nodes
from bayplan.dialects.kueue.pods.node_health import (
    NEVER,
    Finding,
    GangPod,
    HealthRules,
    Host,
    Key,
    check_host,
    pod_set_tolerations,
)
from bayplan.dialects.kueue.status.events import reconcile_events, workload_event_write
from bayplan.model.change import Change
from bayplan.runtime.controllers.node_health.index import NodeUsageIndex
from bayplan.runtime.core.controller import StatelessController
from bayplan.runtime.core.object_cache import Object, is_newer
from bayplan.runtime.core.reconciler import Reconciler

Unit = tuple[str, str]
"""Kind and name: a node by its hostname, or a Workload."""
RETRY_SECONDS = 1.0  # after a failed write


@dataclass(frozen=True, slots=True)
class FailedNodesWriteTag:
    """The tag of a write that lists failed nodes in a Workload, or evicts it."""

    key: Key
    before: Object
    status: Object


@dataclass(frozen=True, slots=True)
class PodFailureWriteTag:
    """The tag of a write that fails a pod which can never be bound to its node."""

    member: GangPod


@dataclass(slots=True)
class HostChanges:
    """Changes about the nodes of one Workload in one step."""

    failed: list[str] = field(default_factory=list)
    recovered: list[str] = field(default_factory=list)


class NodeHealthController(StatelessController):
    """Makes no plans. Evaluates each changed node for every Workload that uses it."""

    name = "node_health"
    kinds: tuple[Kind, ...] = (NODES, PODS_KIND, api_kinds.FLAVORS, api_kinds.WORKLOADS)

    def __init__(self, rules: HealthRules | None = None) -> None:
        self.rules = rules or HealthRules()
        self.index = NodeUsageIndex()
        self.flavors: dict[str, Object] = {}
        self.reconciler: Reconciler[Unit, None] = Reconciler(lambda unit: unit)  # evaluates nodes
        self.noticed: dict[str, float] = {}  # NotReady nodes without a transition time
        # by node: pods by uid, and since when they wait for it
        self.stranded: dict[str, dict[str, float]] = {}

    # ── events ────────────────────────────────────────────────────────────────────────────────────

    def decode(self, event: Event) -> Iterator[Change]:
        """Cache the object; nothing here is decided on."""
        gone = event.happened is Happened.GONE
        if event.happened is Happened.SYNCED:
            return iter(())
        if event.kind == NODES:
            self._evaluate_soon(self.index.node(event))
        elif event.kind == PODS_KIND:
            self._evaluate_soon(self.index.pod(event.object, gone=gone))
        elif event.kind == api_kinds.WORKLOADS:
            self._evaluate_soon(self.index.workload(event.object, gone=gone))
        elif event.kind == api_kinds.FLAVORS:
            self._flavor(event.object, gone)
        return iter(())

    # ── writes ────────────────────────────────────────────────────────────────────────────────────

    def reconcile(self, now: float) -> Iterator[Write]:
        """List failed nodes, remove recovered ones, and fail pods that can never be bound."""
        attempt, changes = self.reconciler.attempt, dict[Key, HostChanges]()
        lost: dict[str, list[GangPod]] = {}
        due = sorted(name for _, name in self.reconciler.take(now))
        for name in sorted(due, key=lambda host: self.index.host(host) is not None):  # deleted nodes first
            lost[name] = attempt(_node(name), self._evaluate(name, changes, now), now, self.containment)
        evicted: set[Key] = set()
        for key, found in changes.items():
            hosts, work = (*found.failed, *found.recovered), self._list(key, found, evicted, now)
            yield from attempt(_workload(key), work, now, self.containment, *map(_node, hosts))
        for name, members in lost.items():
            there = [member for member in members if member.gang not in evicted]
            yield from attempt(_node(name), self._fail(name, there, now), now, self.containment)

    def on_outcome(self, outcome: WriteOutcome, now: float) -> Iterator[Write]:
        """Publish the events of a write; evaluate again what was not written."""
        done, refused = outcome.ended is Ended.DONE, outcome.ended is Ended.REFUSED
        pause = 0.0 if done else RETRY_SECONDS
        match outcome.write.tag:
            case FailedNodesWriteTag(key, before, status):
                known = self.reconciler.ended(_workload(key), now, pause, refused=refused)
                if done and known:
                    notices = reconcile_events(before, status, now)
                    yield from (workload_event_write(notice, now) for notice in notices)
                    if is_newer(outcome.object, self.index.workloads.get(key)):
                        self._evaluate_soon(self.index.workload(outcome.object))
            case PodFailureWriteTag(member):
                ended = self.reconciler.ended(_pod(member), now, pause, refused=refused)
                if not done:
                    self._evaluate_soon([member.host], now + (ended.pause if ended else pause))
                    return
                yield pod_event(member, now)
                if isinstance(outcome.object, PodWire):
                    self.index.pod(outcome.object)

    def next_due(self, now: float) -> float:
        return self.reconciler.next_due()

    # ── details ───────────────────────────────────────────────────────────────────────────────────

    def _evaluate_soon(self, hosts: Iterable[str], when: float = 0.0) -> None:
        for host in hosts:
            self.reconciler.queue.put_early(_node(host), when)

    def _flavor(self, flavor: Object, gone: bool) -> None:
        """The tolerations of a flavor may make a tainted node usable or unusable."""
        name = flavor["metadata"]["name"]
        before = self.flavors.pop(name, None)
        if not gone:
            self.flavors[name] = flavor
        if (before or {}).get("spec") != (None if gone else flavor.get("spec")):
            self._evaluate_soon(host.name for host in self.index.nodes.values() if host.taints)

    def _evaluate(self, name: str, changes: dict[Key, HostChanges], now: float) -> Iterator[GangPod]:
        """Evaluate a node for all Workloads on it; returns the pods that wait for it in vain."""
        if (NODES.kind, "", name) in self.unread:
            return  # it exists, and is evaluated once it is decoded
        host = self._dated(name, now)
        failed: set[Key] = set()
        for key in self.index.gangs_on(name):
            hosts_of_gang = self.index.hosts_of[key]
            if self.reconciler.wait_for(_workload(key), _node(name)):
                continue
            finding = self._finding(host, key, name, now)
            if finding.failed:
                failed.add(hosts_of_gang.gang)
            self._evaluate_soon([name] if finding.due < NEVER else (), finding.due)
            if finding.failed and name not in hosts_of_gang.failed:
                changes.setdefault(key, HostChanges()).failed.append(name)
            elif not finding.failed and name in hosts_of_gang.failed:
                changes.setdefault(key, HostChanges()).recovered.append(name)
        if not self.rules.fail_pods_of_lost_nodes and (host is None or host.ready is None):
            return
        yield from self.index.stranded(name, failed=False)
        if self.rules.fail_pods_at_once:
            yield from (m for m in self.index.stranded(name, failed=True) if m.gang in failed)

    def _dated(self, name: str, now: float) -> Host | None:
        """A node, and since when it is NotReady: its transition time, or when it was noticed."""
        host = self.index.host(name)
        if host is None or host.ready is not False:
            self.noticed.pop(name, None)
            return host
        noticed = self.noticed.setdefault(name, now)
        return host if host.since is not None else replace(host, since=noticed)

    def _finding(self, host: Host | None, key: Key, name: str, now: float) -> Finding:
        if host is not None and host.is_healthy:
            return Finding(failed=False)
        hosts_of_gang, workload = self.index.hosts_of[key], self.index.workloads[key]
        consents = pod_set_tolerations(workload, self.flavors, hosts_of_gang.hosts[name])
        return check_host(host, consents, self.index.runs(hosts_of_gang.gang, name), self.rules, now)

    def _list(self, key: Key, changes: HostChanges, evicted: set[Key], now: float) -> Iterator[Write]:
        workload = self.index.workloads[key]
        status = with_unhealthy_nodes(workload, changes.failed, changes.recovered, self.rules, now)
        if status is None:
            return
        if not status.get("unhealthyNodes") and changes.failed:
            evicted.add(self.index.hosts_of[key].gang)
        self.reconciler.begin(_workload(key), None, *map(_node, (*changes.failed, *changes.recovered)))
        yield status_write(workload, status, FailedNodesWriteTag(key, workload, status))

    def _fail(self, host: str, members: list[GangPod], now: float) -> Iterator[Write]:
        """Fail pods that have waited too long."""
        known = self.stranded.pop(host, {})
        for member in members:
            since = self.stranded.setdefault(host, {}).setdefault(member.uid, known.get(member.uid, now))
            if since + self.rules.unbindable_seconds > now:
                self._evaluate_soon([host], since + self.rules.unbindable_seconds)
            elif _pod(member) not in self.reconciler.in_flight:
                self.reconciler.begin(_pod(member), None)
                yield fail_pod(member, now, PodFailureWriteTag(member))


def _node(host: str) -> Unit:
    return NODES.kind, host


def _workload(key: Key) -> Unit:
    return api_kinds.WORKLOADS.kind, "/".join(key)


def _pod(member: GangPod) -> Unit:
    return PODS_KIND.kind, member.uid
