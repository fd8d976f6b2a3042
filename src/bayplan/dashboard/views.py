"""What a user may see: gangs of namespaces that the user may not list appear as anonymous occupancy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayplan.dashboard.host_map import HIDDEN_GANG, NO_GANG, Array, HostMap
from bayplan.dashboard.snapshot import DashboardSnapshot, GangEntry, Record

HIDDEN = "a gang of another namespace"
WITHHELD = "not shown: it names {what}, which you may not list"
NEEDS_NODES = ("closest domain", "placement", "where it would be placed", "zones", "closest", "near")
NEEDS_QUEUES = ("quota of ", "used by")
"""Sections of an explanation, by how their titles begin, that show nodes or the use of cluster queues."""
PODS_EVERYWHERE, PODS_HERE = "list pods in all namespaces", "list pods in the namespace"


@dataclass(frozen=True, slots=True)
class UserView:
    """The permissions of one user, as the cluster answered."""

    everything: bool = True  # gangs of all namespaces
    namespaces: frozenset[str] = frozenset()  # otherwise of these
    nodes: bool = True
    queues: bool = True  # cluster-scoped queues

    def sees(self, namespace: str) -> bool:
        return self.everything or namespace in self.namespaces


ALL = UserView()
"""The view of a user on loopback, where the kubeconfig's own permissions are the limit."""


def entries_for(view: UserView, snapshot: DashboardSnapshot) -> list[GangEntry]:
    """The gangs that the view includes; names of other namespaces do not occur in their texts."""
    if view.everything:
        return list(snapshot.gangs.values())
    hide = hider(view, snapshot)
    seen = (entry for entry in snapshot.gangs.values() if view.sees(entry.key.namespace))
    return [GangEntry(one.id, one.key, hide(dict(one.record)), one.pending) for one in seen]


def gang_layer(view: UserView, snapshot: DashboardSnapshot, shown: HostMap) -> Array:
    """The layer of gangs; those that the view does not include are HIDDEN_GANG."""
    layer = shown.layers["gang"]
    if view.everything:
        return layer
    allowed = [one.id for one in snapshot.gangs.values() if view.sees(one.key.namespace)]
    keep = np.isin(layer, np.array([NO_GANG, *allowed], np.uint32))
    return np.where(keep, layer, np.uint32(HIDDEN_GANG)).astype("<u4")


def more_for(view: UserView, snapshot: DashboardSnapshot, shown: HostMap) -> Mapping[int, tuple[int, ...]]:
    """The gangs of hosts that have several."""
    if view.everything:
        return shown.more
    known = {one.id for one in snapshot.gangs.values() if view.sees(one.key.namespace)}
    return {
        host: tuple(number if number in known else HIDDEN_GANG for number in ids)
        for host, ids in shown.more.items()
    }


def queues_for(view: UserView, queues: Record) -> dict[str, Any]:
    """Cluster-scoped queues if the view has them, and the namespaced queues of its namespaces."""
    found = dict(queues)
    if not view.queues:
        found.pop("clusterQueues", None)
        found.pop("queues", None)
    local = queues.get("localQueues", ())
    found["localQueues"] = [one for one in local if view.sees(one["namespace"])]
    return found


def explanation_for(view: UserView, snapshot: DashboardSnapshot, record: Record) -> dict[str, Any]:
    """An explanation without names of other namespaces, nodes or queues that the view does not include."""
    if view == ALL:
        return dict(record)
    hide = hider(view, snapshot)
    found = dict(record)
    found["explanation"] = [_section(view, dict(one)) for one in record.get("explanation", ())]
    if not view.nodes:
        found.pop("near", None)
    hidden: dict[str, Any] = hide(found)
    return hidden


class hider:  # noqa: N801 - used like a function
    """Replaces names of gangs and pods of hidden namespaces in texts, wherever they are in a record."""

    def __init__(self, view: UserView, snapshot: DashboardSnapshot, more: Iterable[str] = ()) -> None:
        namespaces = {entry.key.namespace for entry in snapshot.gangs.values()} | set(more)
        hidden = sorted((name for name in namespaces if name and not view.sees(name)), key=len, reverse=True)
        words = "|".join(map(re.escape, hidden))
        self._pattern = re.compile(rf"(?<![\w./-])(?:{words})/[\w./-]*\w") if hidden else None

    def __call__(self, value: Any) -> Any:
        if self._pattern is None:
            return value
        match value:
            case str():
                return self._pattern.sub(HIDDEN, value)
            case dict():
                return {key: self(item) for key, item in value.items()}
            case list() | tuple():
                return [self(item) for item in value]
        return value


def _section(view: UserView, section: dict[str, Any]) -> dict[str, Any]:
    title = str(section.get("title", ""))
    if not view.nodes and title.startswith(NEEDS_NODES):
        return {"title": title, "lines": [WITHHELD.format(what="nodes")]}
    if not view.queues and title.startswith(NEEDS_QUEUES):
        return {"title": title, "lines": [WITHHELD.format(what="cluster queues")]}
    return section
