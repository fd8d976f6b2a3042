"""Queue objects: quota, limit and over-quota weight of each resource, and the parent queue."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from fractions import Fraction

from bayplan.dialects.kai.api.wire import QueueResourceWire, QueueWire, ResourcesWire
from bayplan.dialects.kube.fields.times import seconds
from bayplan.model.quota import Entitlement, FairQueue

CPU, MEMORY, GPU = "cpu", "memory", "nvidia.com/gpu"
PRIORITY = 100
UNLIMITED = -1
_UNITS = {CPU: 1, MEMORY: 10**6, GPU: 1}
"""Quotas are written in milli-CPU, megabytes and GPUs."""
_PART = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)")
_DURATION = re.compile(rf"(?:{_PART.pattern})+")
_LONGEST = 1e9  # seconds
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def queue(wire: QueueWire) -> FairQueue:
    """A Queue object as a queue of the model."""
    meta, spec = wire.metadata, wire.spec
    resources = spec.resources or ResourcesWire()
    by_resource = {CPU: resources.cpu, MEMORY: resources.memory, GPU: resources.gpu}
    return FairQueue(
        name=meta.name,
        parent=spec.parent_queue or "",
        priority=PRIORITY if spec.priority is None else spec.priority,
        entitlements={name: _entitlement(name, one) for name, one in by_resource.items()},
        created=seconds(meta.creation_timestamp or ""),
        preempt_after=duration(spec.preempt_min_runtime),
        reclaim_after=duration(spec.reclaim_min_runtime),
    )


def ancestors(name: str, parents: Mapping[str, str]) -> list[str]:
    """A queue and its ancestors. If they lead to no root, the last one does not exist or is in a cycle.

    `parents` has the parent of each existing queue; empty for a root.
    """
    path: list[str] = []
    seen: set[str] = set()
    while name:
        path.append(name)
        if name not in parents or name in seen:
            break
        seen.add(name)
        name = parents[name]
    return path


def subtree(name: str, children: Mapping[str, Collection[str]]) -> set[str]:
    """A queue and all queues below it. Queues in a cycle are below each other."""
    found, unvisited = {name}, [name]
    while unvisited:
        below = [one for one in children.get(unvisited.pop(), ()) if one not in found]
        found.update(below)
        unvisited.extend(below)
    return found


def _entitlement(name: str, wire: QueueResourceWire | None) -> Entitlement:
    """The quota of one resource. No quota means 0 and no limit means the quota; -1 means unlimited."""
    if wire is None:
        return Entitlement(Fraction(0), Fraction(0), Fraction(1))
    weight = Fraction(1) if wire.over_quota_weight is None else Fraction(str(wire.over_quota_weight))
    quota = _amount(name, wire.quota)
    limit = Fraction(0) if wire.limit is None else _amount(name, wire.limit)
    if limit == 0:
        limit = quota  # no over-quota
    return Entitlement(quota, limit, max(weight, Fraction(0)))


def _amount(name: str, value: float | None) -> Fraction | None:
    if value is None:
        return Fraction(0)
    return None if value == UNLIMITED else max(Fraction(str(value)), Fraction(0)) * _UNITS[name]


def duration(text: str | None) -> float | None:
    """A duration such as 1h30m in seconds; None if it is missing or invalid."""
    if not text or not _DURATION.fullmatch(text):
        return None
    return min(sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text)), _LONGEST)
