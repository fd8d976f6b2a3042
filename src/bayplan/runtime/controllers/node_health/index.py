"""Index of nodes, admitted Workloads and their pods by host, and which hosts an event affects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from bayplan.dialects.api import Event, Happened
from bayplan.dialects.kube.decode.wire import PodWire
from bayplan.dialects.kueue.pods.node_health import (
    GangPod,
    Host,
    Key,
    WorkloadHosts,
    gang_pod,
    host_of,
    workload_hosts,
)

Object = dict[str, Any]
K = TypeVar("K")
V = TypeVar("V")
Index = dict[K, dict[V, None]]


class NodeUsageIndex:
    """Updated with every event; every query is answered from an index."""

    def __init__(self) -> None:
        self.nodes: dict[str, Host] = {}
        self.named: dict[str, tuple[str, ...]] = {}  # host → nodes of that name
        self.members: dict[Key, GangPod] = {}
        self.bound: Index[str, Key] = {}  # node → pods
        self.waiting: Index[str, Key] = {}  # host → pods that must be bound there
        self.workloads: dict[Key, Object] = {}
        self.hosts_of: dict[Key, WorkloadHosts] = {}
        self.workloads_on: Index[str, Key] = {}  # host → Workloads
        self.versions: Index[Key, Key] = {}  # gang → its Workloads; a resized gang has several

    # ── events ────────────────────────────────────────────────────────────────────────────────────

    def node(self, event: Event) -> list[str]:
        """A node was added, changed or deleted."""
        name = event.object.metadata.name
        before = self.nodes.pop(name, None)
        after = None if event.happened is Happened.GONE else host_of(event.object)
        if after is not None:
            self.nodes[name] = after
        if before == after:
            return []
        if before is not None:
            left = tuple(node for node in self.named.pop(before.name, ()) if node != name)
            if left:
                self.named[before.name] = left
        if after is not None:
            self.named[after.name] = (*self.named.get(after.name, ()), name)
        return [host.name for host in (before, after) if host is not None]

    def pod(self, wire: PodWire, *, gone: bool = False) -> list[str]:
        """A pod was added, changed or deleted. Pods without a gang are ignored."""
        key = (wire.metadata.namespace or "default", wire.metadata.name)
        before = self.members.pop(key, None)
        after = None if gone else gang_pod(wire)
        if before is not None:
            _drop(self.bound, before.node, key)
            _drop(self.waiting, before.host, key)
        if after is not None:
            self.members[key] = after
            if after.is_running:
                _add(self.bound, after.node, key)
            if after.is_pending:
                _add(self.waiting, after.host, key)
        return [host for member in (before, after) if member is not None for host in self._of(member)]

    def workload(self, workload: Object, *, gone: bool = False) -> list[str]:
        """A Workload was added, changed or deleted."""
        meta = workload["metadata"]
        key = (meta.get("namespace", "default"), meta["name"])
        known, before = self.workloads.pop(key, None), self.hosts_of.pop(key, None)
        if not gone:
            self.workloads[key] = workload
        same = before is not None and known is not None and _standing(known) == _standing(workload)
        after = (
            None if gone else workload_hosts(workload, before.hosts if before is not None and same else None)
        )
        if after is not None:
            self.hosts_of[key] = after
        if before == after:
            return []
        for host in _hosts(before):
            _drop(self.workloads_on, host, key)
        for gang in _gangs(before):
            _drop(self.versions, gang, key)
        for host in _hosts(after):
            _add(self.workloads_on, host, key)
        for gang in _gangs(after):
            _add(self.versions, gang, key)
        concerned = dict.fromkeys([*_hosts(before), *_hosts(after)])
        listed = set(after.failed if after is not None else ())
        return [
            host for host in concerned if host in listed or host in self.waiting or not self.is_healthy(host)
        ]

    # ── queries ───────────────────────────────────────────────────────────────────────────────────

    def host(self, name: str) -> Host | None:
        """The node of a hostname; if there are several, the healthiest."""
        found = [self.nodes[node] for node in self.named.get(name, ())]
        return next((host for host in found if host.is_healthy), found[0] if found else None)

    def is_healthy(self, name: str) -> bool:
        host = self.host(name)
        return host is not None and host.is_healthy

    def runs(self, gang: Key, host: str) -> bool:
        """Whether a pod of a gang runs on a host. A deleted node is known by its own name."""
        return any(
            self.members[pod].gang == gang
            for node in self.named.get(host) or (host,)
            for pod in self.bound.get(node, ())
        )

    def gangs_on(self, host: str) -> list[Key]:
        """The Workloads on a host whose pods may be moved."""
        return sorted(key for key in self.workloads_on.get(host, ()) if not self.hosts_of[key].is_immovable)

    def stranded(self, host: str, *, failed: bool) -> list[GangPod]:
        """Pods that wait for a host that their gang no longer uses, or that has failed for it."""
        return [
            member
            for pod in sorted(self.waiting.get(host, ()))
            if (member := self.members[pod]).gang in self.versions
            and (failed or not self._uses(member.gang, host))
        ]

    def _uses(self, gang: Key, host: str) -> bool:
        return any(host in self.hosts_of[key].hosts for key in self.versions.get(gang, ()))

    def _of(self, member: GangPod) -> Iterator[str]:
        if member.host:
            yield member.host
        if member.node:
            yield self.nodes[member.node].name if member.node in self.nodes else member.node


def _standing(workload: Object) -> tuple[object, object]:
    status = workload.get("status") or {}
    return status.get("admission"), status.get("reclaimablePods")


def _hosts(hosts_of_gang: WorkloadHosts | None) -> Iterable[str]:
    return hosts_of_gang.hosts if hosts_of_gang is not None else ()


def _gangs(hosts_of_gang: WorkloadHosts | None) -> Iterable[Key]:
    return (hosts_of_gang.gang,) if hosts_of_gang is not None else ()


def _add(index: Index[K, V], at: K, what: V) -> None:
    if at:
        index.setdefault(at, {})[what] = None


def _drop(index: Index[K, V], at: K, what: V) -> None:
    there = index.get(at)
    if there is not None:
        there.pop(what, None)
        if not there:
            del index[at]
