"""Admission configuration: flavors, quota nodes, queues, namespace queues, checks and namespace labels."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from bayplan.model.change import (
    Change,
    CheckLost,
    CheckSeen,
    FlavorLost,
    FlavorSeen,
    NamespaceLost,
    NamespaceQueueLost,
    NamespaceQueueSeen,
    NamespaceSeen,
    QueueLost,
    QueueSeen,
    QuotaNodeLost,
    QuotaNodeSeen,
)
from bayplan.model.queued_gang import QueuedGang
from bayplan.model.quota import Check, Flavor, NamespaceQueue, Queue, QuotaNode, StopPolicy, VictimPolicy
from bayplan.model.rejection import AdmissionRemark, Rejection, RejectionReason
from bayplan.model.summary import Flaw


class ConfigChange(StrEnum):
    """What a configuration change means for gangs."""

    NONE = "none"
    REJECTIONS = "rejections"  # rejected gangs may get another answer
    QUOTA = "quota"  # the usage of admitted gangs has to be counted again as well
    ROUTING = "routing"  # gangs may belong to another queue now, or to none


@dataclass(slots=True)
class AdmissionConfig:
    """All configured objects by name."""

    flavors: dict[str, Flavor] = field(default_factory=dict)
    shared: dict[str, QuotaNode] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    namespace_queues: dict[tuple[str, str], NamespaceQueue] = field(default_factory=dict)
    checks: dict[str, Check] = field(default_factory=dict)
    namespaces: dict[str, Mapping[str, str]] = field(default_factory=dict)
    by_topology: dict[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # queues by topology, filled on demand

    def apply(self, change: Change) -> ConfigChange:
        """Apply a change and return what it means for gangs."""
        effect = self._fold(change)
        if effect is ConfigChange.QUOTA:
            self.by_topology.clear()
        return effect

    def _fold(self, change: Change) -> ConfigChange:
        match change:
            case FlavorSeen(flavor):
                return _put(self.flavors, flavor.name, flavor, ConfigChange.QUOTA)
            case FlavorLost(name):
                return _drop(self.flavors, name, ConfigChange.QUOTA)
            case QuotaNodeSeen(node):
                return _put(self.shared, node.name, node, ConfigChange.QUOTA)
            case QuotaNodeLost(name):
                return _drop(self.shared, name, ConfigChange.QUOTA)
            case QueueSeen(queue):
                known = self.queues.get(queue.name)
                if known is not None and replace(known, unprotected=queue.unprotected) == queue:
                    self.queues[queue.name] = queue
                    return ConfigChange.NONE  # the pending queue of this queue handles it
                return _put(self.queues, queue.name, queue, ConfigChange.QUOTA)
            case QueueLost(name):
                return _drop(self.queues, name, ConfigChange.QUOTA)
            case NamespaceQueueSeen(namespace_queue):
                return _put(
                    self.namespace_queues,
                    (namespace_queue.namespace, namespace_queue.name),
                    namespace_queue,
                    ConfigChange.ROUTING,
                )
            case NamespaceQueueLost(namespace, name):
                return _drop(self.namespace_queues, (namespace, name), ConfigChange.ROUTING)
            case CheckSeen(check):
                return _put(self.checks, check.name, check, ConfigChange.REJECTIONS)
            case CheckLost(name):
                return _drop(self.checks, name, ConfigChange.REJECTIONS)
            case NamespaceSeen(name, labels):
                return _put(self.namespaces, name, labels, ConfigChange.REJECTIONS)
            case NamespaceLost(name):
                return _drop(self.namespaces, name, ConfigChange.NONE)
        return ConfigChange.NONE

    def flaws(
        self, queue: Queue, topologies: Collection[str], misplaced: Mapping[str, Flaw]
    ) -> Iterator[tuple[Flaw, str]]:
        """Each problem that makes a queue inactive, with the name of the object at fault."""
        if queue.terminating:
            yield Flaw.TERMINATING, queue.name
        if queue.stop is not StopPolicy.OPEN:
            yield Flaw.STOPPED, queue.name
        for name in queue.flavors():
            flavor = self.flavors.get(name)
            if flavor is None:
                yield Flaw.FLAVOR_MISSING, name
            elif flavor.topology and flavor.topology not in topologies:
                yield Flaw.TOPOLOGY_MISSING, name
        for name in queue.checks:
            if name not in self.checks:
                yield Flaw.CHECK_MISSING, name
            elif not self.checks[name].active:
                yield Flaw.CHECK_INACTIVE, name
        if queue.node.parent in misplaced:
            yield misplaced[queue.node.parent], queue.node.parent

    def topologies_of(self, queued: QueuedGang) -> set[str]:
        """The topologies in which an admitted gang is placed, or is to be placed."""
        given = queued.admission.pod_sets if queued.admission is not None else ()
        named = {flavor for part in given for flavor in part.flavors.values()}
        return {self.flavors[name].topology for name in named if name in self.flavors}

    def queues_on(self, topology: str) -> tuple[str, ...]:
        """The queues with a flavor of the topology."""
        if topology not in self.by_topology:
            mine = {name for name, flavor in self.flavors.items() if flavor.topology == topology}
            self.by_topology[topology] = tuple(
                n for n, queue in self.queues.items() if mine & {*queue.flavors()}
            )
        return self.by_topology[topology]

    def may_reclaim(self, queue: str) -> bool:
        """Whether gangs of this queue may preempt gangs of other queues."""
        known = self.queues.get(queue)
        return known is not None and known.preemption.reclaim is not VictimPolicy.NEVER

    def queue_of(self, queued: QueuedGang) -> str:
        """The queue that the gang's namespace queue points at; empty if there is none."""
        namespace_queue = self.namespace_queues.get(queued.namespace_queue)
        return namespace_queue.queue if namespace_queue is not None else ""

    def shape_of(self, queued: QueuedGang, queue: str, rank: Hashable) -> Hashable:
        """The equivalence key of a pending gang: gangs with the same key get the same answer."""
        known = self.queues.get(queue)
        policies = (known.preemption.within, known.preemption.reclaim) if known is not None else ()
        by_age = VictimPolicy.LOWER_OR_NEWER in policies
        statuses = tuple((status.check, status.state) for status in queued.check_statuses)
        counts = tuple(ask.count for ask in queued.requests)  # smaller once some pods have finished
        return (
            queue, queued.gang.source.namespace, queued.shape, queued.gang.priority, statuses, counts,
            queued.elastic, self.is_stopped(queued), rank if by_age or queued.replaces else (),
        )  # fmt: skip

    def is_stopped(self, queued: QueuedGang) -> bool:
        """Whether the gang's namespace queue is stopped."""
        namespace_queue = self.namespace_queues.get(queued.namespace_queue)
        return namespace_queue is not None and namespace_queue.stop is not StopPolicy.OPEN

    def ineligible(self, queued: QueuedGang, queue: str) -> Rejection | None:
        """Why a gang may not enter a queue at all; None if it may."""
        namespace_queue, known = self.namespace_queues.get(queued.namespace_queue), self.queues.get(queue)
        if queued.admission is not None:
            return None
        if queued.refusal:
            return Rejection(
                RejectionReason.MISCONFIGURED, remark=AdmissionRemark.REFUSED, about=queued.refusal
            )
        if namespace_queue is not None and self.is_stopped(queued):
            return Rejection(
                RejectionReason.CLOSED,
                remark=AdmissionRemark.NAMESPACE_QUEUE_STOPPED,
                queue=namespace_queue.name,
            )
        labels = self.namespaces.get(queued.gang.source.namespace)
        if known is None or labels is None:
            return None
        if known.namespaces is None or not all(r.accepts(labels.get(r.key)) for r in known.namespaces):
            return Rejection(RejectionReason.MISCONFIGURED, remark=AdmissionRemark.NAMESPACE, queue=queue)
        return None


def _put(known: dict[Any, Any], name: object, value: object, effect: ConfigChange) -> ConfigChange:
    if known.get(name) == value:
        return ConfigChange.NONE
    known[name] = value
    return effect


def _drop(known: dict[Any, Any], name: object, effect: ConfigChange) -> ConfigChange:
    return ConfigChange.NONE if known.pop(name, None) is None else effect
