"""The wakeup events of an unschedulable gang, derived from its rejection."""

from __future__ import annotations

from bayplan.model.filter_failure import FilterReason, PodError
from bayplan.model.rejection import (
    FairShareWakeup,
    PreemptionSearchOutcome,
    Rejection,
    RejectionReason,
)
from bayplan.state.pending_queue import WakeupEvent

_NODES_ALONE = frozenset(
    {
        FilterReason.OUTSIDE,
        FilterReason.CORDONED,
        FilterReason.OTHER_NODE,
        FilterReason.TAINT,
        FilterReason.AFFINITY,
    }
)
_BY_POD = frozenset({FilterReason.SPREAD, FilterReason.POD_AFFINITY})
_BY_STORAGE = frozenset(
    {
        FilterReason.CLAIM_IN_USE,
        FilterReason.ATTACHED,
        FilterReason.VOLUME_NODE_AFFINITY,
        FilterReason.NO_VOLUME,
        FilterReason.NO_STORAGE_CAPACITY,
    }
    | {FilterReason.VOLUME_GONE, FilterReason.VOLUME_ZONE}
)
_BY_DEVICES = frozenset({FilterReason.DEVICES, FilterReason.DEVICES_ELSEWHERE})
_NO_VICTIMS = (PreemptionSearchOutcome.NO_CANDIDATES, PreemptionSearchOutcome.INSUFFICIENT)


def wakeups_for(rejection: Rejection, lone: bool) -> frozenset[WakeupEvent]:
    """The events after which another attempt may succeed; rather one too many than one too few."""
    return _capacity_events(rejection, lone) | _preemption_events(rejection)


def _preemption_events(rejection: Rejection) -> frozenset[WakeupEvent]:
    """Events after which a preemption may succeed."""
    found = set[WakeupEvent]()
    if (
        rejection.preemption in _NO_VICTIMS
        or rejection.reason is RejectionReason.RESERVED
        or FairShareWakeup.VICTIMS in rejection.wakeups
    ):
        found.add(WakeupEvent.SPEC_CHANGED)
    if FairShareWakeup.VICTIMS in rejection.wakeups:
        found.add(WakeupEvent.VICTIMS_ADDED)
    if FairShareWakeup.EXCESS in rejection.wakeups:
        found.add(WakeupEvent.USAGE_GROWN)
    return frozenset(found)


def _capacity_events(rejection: Rejection, lone: bool) -> frozenset[WakeupEvent]:
    """Events after which capacity may be available without preemption."""
    if FairShareWakeup.NODES in rejection.wakeups:
        return CAPACITY_EVENTS | {
            WakeupEvent.RESERVATION_ENDED,
            WakeupEvent.STORAGE_CHANGED,
            WakeupEvent.NUMA_CHANGED,
            WakeupEvent.DEVICES_CHANGED,
        }
    if rejection.reason is RejectionReason.NODE_TAKEN:  # its slots are elsewhere, or the other pod is gone
        return CAPACITY_EVENTS | {WakeupEvent.NUMA_CHANGED}
    if not rejection.reason.was_tried:
        return frozenset()
    found = {WakeupEvent.NODE_CHANGED, WakeupEvent.RESERVATION_ENDED}  # not all nodes may have been tried
    if rejection.filter_failure is None:
        return (
            frozenset(
                found
                | {
                    WakeupEvent.CAPACITY_FREED,
                    WakeupEvent.STORAGE_CHANGED,
                    WakeupEvent.POD_BOUND,
                    WakeupEvent.NUMA_CHANGED,
                    WakeupEvent.DEVICES_CHANGED,
                }
            )
            if rejection.misfit is None
            else CAPACITY_EVENTS | found | {WakeupEvent.NUMA_CHANGED, WakeupEvent.DEVICES_CHANGED}
        )
    causes = {cause for cause, _ in rejection.filter_failure.counts}
    if rejection.filter_failure.error is not None:
        found = found if lone else found | {WakeupEvent.CAPACITY_FREED}
        return frozenset(
            found
            if rejection.filter_failure.error is PodError.AFFINITY_CONFLICT
            else found | {WakeupEvent.STORAGE_CHANGED}
        )
    if not lone or not causes or not causes <= _NODES_ALONE:  # other pods of the gang may lack something else
        found.add(WakeupEvent.CAPACITY_FREED)
    if FilterReason.UNALIGNED in causes or not lone:
        found.add(WakeupEvent.NUMA_CHANGED)
    if causes & _BY_POD:
        found.add(WakeupEvent.POD_BOUND)
    if causes & _BY_DEVICES or not lone:
        found.add(WakeupEvent.DEVICES_CHANGED)
    if causes & _BY_STORAGE:
        found.add(WakeupEvent.STORAGE_CHANGED)
    return frozenset(found)


CAPACITY_EVENTS = frozenset({WakeupEvent.NODE_CHANGED, WakeupEvent.CAPACITY_FREED})
