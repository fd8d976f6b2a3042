"""The status and the finalizers of ClusterQueues, LocalQueues, Cohorts and AdmissionChecks.

Every function takes a v1beta2 object. None: unchanged, nothing to write.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import groupby
from math import ceil, isinf

from bayplan.dialects.kube.fields.quantity import formatted
from bayplan.dialects.kueue.fields.queues import PROVISIONING
from bayplan.dialects.kueue.names.annotations import IN_USE
from bayplan.dialects.kueue.status.conditions import Draft, Object
from bayplan.dialects.kueue.status.misfit_messages import quoted
from bayplan.model.quota import QUEUE_DEPTH_MAX
from bayplan.model.summary import (
    CellUse,
    Flaw,
    GangCounts,
    NamespaceQueueSummary,
    QueueFault,
    QueueSummary,
    SharedSummary,
    Summaries,
)

ACTIVE = "Active"
GROUP, CONFIG = "kueue.x-k8s.io", "ProvisioningRequestConfig"
SHARE_MAX = 2**63 - 1
"""The weightedShare that stands for infinity."""

_REASONS = {
    Flaw.STOPPED: "Stopped",
    Flaw.FLAVOR_MISSING: "FlavorNotFound",
    Flaw.CHECK_MISSING: "AdmissionCheckNotFound",
    Flaw.CHECK_INACTIVE: "AdmissionCheckInactive",
    Flaw.SEVERAL_MULTI_CLUSTER: "MultipleMultiKueueAdmissionChecks",
    Flaw.MULTI_CLUSTER_PER_FLAVOR: "MultiKueueAdmissionCheckAppliedPerFlavor",
    Flaw.MULTI_CLUSTER_AND_PROVISIONING: "MultiKueueWithProvisioningRequest",
    Flaw.TOPOLOGY_MISSING: "TopologyNotFound",
    Flaw.CYCLE: "CohortCycle",
    Flaw.TOO_DEEP: "CohortTooDeep",
}
_SENTENCES = {
    Flaw.STOPPED: "is stopped",
    Flaw.FLAVOR_MISSING: "references missing ResourceFlavor(s): {names}",
    Flaw.CHECK_MISSING: "references missing AdmissionCheck(s): {names}",
    Flaw.CHECK_INACTIVE: "references inactive AdmissionCheck(s): {names}",
    Flaw.SEVERAL_MULTI_CLUSTER: (
        "Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: {names}"
    ),
    Flaw.MULTI_CLUSTER_PER_FLAVOR: "Cannot specify MultiKueue AdmissionCheck per flavor, found: {names}",
    Flaw.MULTI_CLUSTER_AND_PROVISIONING: (
        "Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, found: {names}"
    ),
    Flaw.CYCLE: "the Cohort is its own ancestor: {names}",
    Flaw.TOO_DEEP: f"Cohort {{names}} is more than {QUEUE_DEPTH_MAX} levels deep",
}


def cluster_queue(obj: Object, summary: QueueSummary, now: float, refused: str = "") -> Object | None:
    """The status of a ClusterQueue. `refused`: why its finalizer could not be added; it is then inactive."""
    draft = Draft.of(obj, now)
    _put_counts(draft, summary.counts)
    draft.put("flavorsReservation", _flavors(summary.cells, used=False, borrowed=True))
    draft.put("flavorsUsage", _flavors(summary.cells, used=True, borrowed=True))
    draft.put("fairSharing", _fair_sharing(summary.share))
    draft.mark(ACTIVE, *_readiness(obj, summary.faults, refused))
    return draft.done()


def local_queue(obj: Object, summary: NamespaceQueueSummary, now: float) -> Object | None:
    """The status of a LocalQueue."""
    draft = Draft.of(obj, now)
    _put_counts(draft, summary.counts if summary.queue_known else GangCounts(summary.counts.pending))
    draft.put("flavorsReservation", _flavors(summary.cells, used=False, borrowed=False))
    draft.put("flavorsUsage", _flavors(summary.cells, used=True, borrowed=False))
    if summary.stopped:
        draft.mark(ACTIVE, False, "Stopped", "LocalQueue is stopped")
    elif summary.active:
        draft.mark(ACTIVE, True, "Ready", "Can submit new workloads to localQueue")
    else:
        why = "ClusterQueueIsInactive" if summary.queue_known else "ClusterQueueDoesNotExist"
        draft.mark(ACTIVE, False, why, "Can't submit new workloads to clusterQueue")
    return draft.done()


def cohort(obj: Object, summary: SharedSummary, now: float) -> Object | None:
    """The status of a Cohort."""
    draft = Draft.of(obj, now)
    draft.put("fairSharing", _fair_sharing(summary.share))
    return draft.done()


def admission_check(obj: Object, configs: Collection[str], now: float) -> Object | None:
    """The status of a provisioning AdmissionCheck; `configs` are the names of the existing configurations."""
    spec = obj.get("spec") or {}
    if spec.get("controllerName") != PROVISIONING:
        return None
    draft = Draft.of(obj, now)
    error = _parameters_error(spec.get("parameters"), configs)
    if error:
        draft.mark(ACTIVE, False, "BadParametersRef", error)
    else:
        draft.mark(ACTIVE, True, "Active", "The admission check is active")
    return draft.done()


def finalizers(kind: str, obj: Object, summaries: Summaries) -> list[str] | None:
    """The finalizers of an object: Bayplan's is set while other objects use it. None: unchanged."""
    if kind not in _IN_USE_BY_KIND:
        return None
    meta = obj.get("metadata") or {}
    present: list[str] = list(meta.get("finalizers") or ())
    name, terminating = str(meta.get("name", "")), bool(meta.get("deletionTimestamp"))
    used = _IN_USE_BY_KIND[kind](name, summaries)
    if kind == "ClusterQueue" and not terminating:  # always: gangs are admitted only by a protected queue
        used = True
    if used and IN_USE not in present and not terminating:
        return [*present, IN_USE]
    if IN_USE in present and not used:
        return [name for name in present if name != IN_USE]
    return None


def _queue_in_use(name: str, summaries: Summaries) -> bool:
    """Whether gangs hold quota of a ClusterQueue."""
    queue = summaries.queues.get(name)
    return queue is not None and queue.counts.reserving > 0


_IN_USE_BY_KIND: dict[str, Callable[[str, Summaries], bool]] = {
    "ClusterQueue": _queue_in_use,
    "ResourceFlavor": lambda name, summaries: name in summaries.flavors_in_use,
    "Topology": lambda name, summaries: name in summaries.topologies_in_use,
    "AdmissionCheck": lambda name, summaries: name in summaries.checks_in_use,
}


def _put_counts(draft: Draft, counts: GangCounts) -> None:
    draft.status |= {
        "pendingWorkloads": counts.pending,
        "reservingWorkloads": counts.reserving,
        "admittedWorkloads": counts.admitted,
    }


def _flavors(cells: Iterable[CellUse], *, used: bool, borrowed: bool) -> list[Object]:
    """Amounts by flavor and resource: used by admitted gangs, or reserved by all that hold quota."""

    def usage(cell: CellUse) -> Object:
        amount = cell.used if used else cell.reserved
        entry = {"name": cell.resource, "total": formatted(cell.resource, amount)}
        return entry | ({"borrowed": formatted(cell.resource, cell.borrowed(amount))} if borrowed else {})

    by_flavor = groupby(cells, key=lambda cell: cell.flavor)
    return [
        {"name": flavor, "resources": [usage(cell) for cell in cells_of_flavor]}
        for flavor, cells_of_flavor in by_flavor
    ]


def _fair_sharing(share: float | None) -> Object | None:
    if share is None:
        return None
    return {"weightedShare": SHARE_MAX if isinf(share) else ceil(share)}


def _readiness(obj: Object, faults: tuple[QueueFault, ...], refused: str) -> tuple[bool, str, str]:
    """Whether a ClusterQueue admits gangs: status, reason and message."""
    terminating = bool((obj.get("metadata") or {}).get("deletionTimestamp"))
    if terminating or any(fault.flaw is Flaw.TERMINATING for fault in faults):
        return False, "Terminating", "Can't admit new workloads; clusterQueue is terminating"
    if refused:
        wrong = f"its finalizer {IN_USE} was refused ({refused})"
        return False, "NotProtected", f"Can't admit new workloads: {wrong}; let Bayplan patch ClusterQueues."
    if not faults:
        return True, "Ready", "Can admit new workloads"
    messages = [(_REASONS[fault.flaw], _fault_message(fault)) for fault in faults if fault.flaw in _REASONS]
    if not messages:
        return False, "Unknown", "Can't admit new workloads."
    return (
        False,
        messages[0][0],
        f"Can't admit new workloads: {', '.join(message for _, message in messages)}.",
    )


def _fault_message(fault: QueueFault) -> str:
    if fault.flaw is Flaw.TOPOLOGY_MISSING:
        flavor, topology = fault.names
        return f"there is no Topology {quoted(topology)} for TAS flavor {quoted(flavor)}"
    return _SENTENCES[fault.flaw].format(names=",".join(fault.names))


def _parameters_error(reference: Object | None, configs: Collection[str]) -> str:
    """The error in the reference to a configuration; empty if it is valid."""
    if reference is None:
        return "missing parameters reference"
    group, kind, name = (str(reference.get(key) or "") for key in ("apiGroup", "kind", "name"))
    if not name:
        return "empty name: bad parameters reference"
    for field, actual, expected in (("group", group, GROUP), ("kind", kind, CONFIG)):
        if actual != expected:
            return f"wrong {field} {quoted(actual)}, expecting {quoted(expected)}: bad parameters reference"
    return "" if name in configs else f"{CONFIG}.{GROUP} {quoted(name)} not found"
