"""The status that a Workload should have between decisions, and the Workloads that a queue event affects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from bayplan.dialects.api import Event, Happened
from bayplan.dialects.kueue.status import reconcile
from bayplan.dialects.kueue.status.reconcile import QueueOnPath
from bayplan.model.quota import NamespaceQueue, Queue

Key = tuple[str, str]
Object = dict[str, Any]
Queues = Mapping[str, Queue]
NamespaceQueues = Mapping[Key, NamespaceQueue]

_OPEN = ("None", None)  # a queue that is not stopped and has no checks
DELETED_MAX = 1024  # deleted queues that are remembered in case they are created again


def status_due(
    workload: Object, queues: Queues, local_queues: NamespaceQueues, now: float,
    in_words: Callable[[Object, Object | None], Object | None] = lambda workload, status: status,
) -> Object | None:  # fmt: skip
    """The status that a Workload should have, or None if it has that status.

    `in_words` chooses the reasons of a new status; None if the Workload has it already.
    """
    status = in_words(workload, reconcile.synced(workload, _checks(workload, queues, local_queues), now))
    if status is None and (workload.get("spec") or {}).get("active") is not False:
        path = list(_queue_path(workload, queues, local_queues))
        status = in_words(workload, reconcile.apply_stop_policies(workload, path, now))
    if status is None and not reconcile.has_owner(workload):
        # without an owner, no job controller releases it
        status = in_words(workload, reconcile.released(workload, now))
    return status


class QueueChanges:
    """Notices when a queue is stopped, resumed, created again or deleted; status changes do not count."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str, str], object] = {}
        self.gone: dict[tuple[str, str, str], None] = {}  # the last deleted queues

    def concerns(self, event: Event, workloads: Mapping[Key, Object]) -> Iterable[Key]:
        """The Workloads to reconcile because of an event."""
        kind = event.kind.kind
        if kind not in ("ClusterQueue", "LocalQueue") or event.happened is Happened.SYNCED:
            return ()
        meta, spec = event.object["metadata"], event.object.get("spec") or {}
        namespace, name = (meta.get("namespace", "") if kind == "LocalQueue" else ""), meta["name"]
        gone = event.happened is Happened.GONE
        rule = None if gone else (spec.get("stopPolicy") or "None", spec.get("admissionChecksStrategy"))
        key = (kind, namespace, name)
        before = None if key in self.gone else self.known.get(key, _OPEN)
        self._note(key, rule)
        if before == rule:
            return ()
        if kind == "LocalQueue":
            return _of_local_queue(namespace, name, workloads)
        return list(workloads)  # which LocalQueues point to it may change at the same time

    def _note(self, key: tuple[str, str, str], rule: object) -> None:
        self.gone.pop(key, None)
        if rule is not None:
            self.known[key] = rule
            return
        self.known.pop(key, None)
        self.gone[key] = None
        if len(self.gone) > DELETED_MAX:
            del self.gone[next(iter(self.gone))]


def _of_local_queue(namespace: str, name: str, workloads: Mapping[Key, Object]) -> list[Key]:
    return [
        key
        for key, workload in workloads.items()
        if key[0] == namespace and (workload.get("spec") or {}).get("queueName") == name
    ]


def _admission(workload: Object) -> Object:
    return (workload.get("status") or {}).get("admission") or {}


def _queue_path(workload: Object, queues: Queues, local_queues: NamespaceQueues) -> Iterator[QueueOnPath]:
    """The queues on the path of a Workload, or those that gave it quota."""
    local_queue_name = str((workload.get("spec") or {}).get("queueName") or "")
    if not local_queue_name:
        return
    namespace = workload["metadata"].get("namespace", "default")
    local_queue = local_queues.get((namespace, local_queue_name))
    yield QueueOnPath("LocalQueue", local_queue_name, local_queue.stop if local_queue is not None else None)
    name = str(
        _admission(workload).get("clusterQueue") or (local_queue.queue if local_queue is not None else "")
    )
    if name:
        queue = queues.get(name)
        yield QueueOnPath("ClusterQueue", name, queue.stop if queue is not None else None)


def _checks(workload: Object, queues: Queues, local_queues: NamespaceQueues) -> tuple[str, ...]:
    """The checks that a Workload has to pass, by its assigned flavors.

    An evicted Workload keeps its checks: they hold the retry counts.
    """
    admission = _admission(workload)
    namespace, spec = workload["metadata"].get("namespace", "default"), workload.get("spec") or {}
    local_queue = local_queues.get((namespace, str(spec.get("queueName") or "")))
    queue = queues.get(admission.get("clusterQueue") or (local_queue.queue if local_queue else ""))
    if queue is None:
        return ()
    if not admission:
        known = (workload.get("status") or {}).get("admissionChecks") or ()
        return tuple(check["name"] for check in known if check["name"] in queue.checks)
    parts = admission.get("podSetAssignments") or []
    flavors = {flavor for part in parts for flavor in (part.get("flavors") or {}).values()}
    return tuple(
        name for name, only in sorted(queue.checks.items()) if not only or flavors.intersection(only)
    )
