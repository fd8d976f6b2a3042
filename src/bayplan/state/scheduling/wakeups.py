"""The wakeup events of an unschedulable gang, derived from its rejection."""

from __future__ import annotations

from bayplan.model.filter_failure import FilterReason, PodError
from bayplan.model.scheduling_rejection import (
    FairShareWakeup,
    PreemptionSearchOutcome,
    RejectionReason,
    SchedulingRejection,
)
from bayplan.state.scheduling.queue import WakeupEvent

_NODES_ALONE = frozenset(
    {
        FilterReason.OUTSIDE,
        FilterReason.CORDONED,
        FilterReason.OTHER_NODE,
        FilterReason.TAINT,
        FilterReason.AFFINITY,
    }
)
_BY_COMING = frozenset({FilterReason.SPREAD, FilterReason.NOT_NEAR})
_BY_STORAGE = frozenset(
    {
        FilterReason.ONE_POD,
        FilterReason.ATTACHED,
        FilterReason.VOLUME_ELSEWHERE,
        FilterReason.NO_VOLUME,
        FilterReason.NO_STORE_ROOM,
    }
    | {FilterReason.VOLUME_GONE, FilterReason.VOLUME_ZONE}
)
_IN_VAIN = (PreemptionSearchOutcome.NOBODY, PreemptionSearchOutcome.NO_HELP)


def hints_of(why: SchedulingRejection, lone: bool) -> frozenset[WakeupEvent]:
    """The events after which another attempt may succeed; rather one too many than one too few."""
    return _by_room(why, lone) | _by_going(why)


def _by_going(why: SchedulingRejection) -> frozenset[WakeupEvent]:
    """Events after which a preemption may succeed."""
    found = set[WakeupEvent]()
    if (
        why.sought in _IN_VAIN
        or why.hindrance is RejectionReason.KEPT_FREE
        or FairShareWakeup.OTHERS in why.hopes
    ):
        found.add(WakeupEvent.RULES)
    if FairShareWakeup.OTHERS in why.hopes:
        found.add(WakeupEvent.LOOSE)
    if FairShareWakeup.EXCESS in why.hopes:
        found.add(WakeupEvent.GROWN)
    return frozenset(found)


def _by_room(why: SchedulingRejection, lone: bool) -> frozenset[WakeupEvent]:
    """Events after which capacity may be available without preemption."""
    if FairShareWakeup.PLACE in why.hopes:
        return ROOMY | {WakeupEvent.KEPT, WakeupEvent.STORAGE, WakeupEvent.ZONES}
    if not why.hindrance.was_tried:
        return frozenset()
    found = {WakeupEvent.NODE, WakeupEvent.KEPT}  # not all nodes may have been tried
    if why.unfit is None:
        return (
            frozenset(found | {WakeupEvent.ROOM, WakeupEvent.STORAGE, WakeupEvent.CAME, WakeupEvent.ZONES})
            if why.misfit is None
            else ROOMY | found | {WakeupEvent.ZONES}
        )
    causes = {cause for cause, _ in why.unfit.counts}
    if why.unfit.bar is not None:
        found = found if lone else found | {WakeupEvent.ROOM}
        return frozenset(
            found if why.unfit.bar is PodError.AFFINITY_CONFLICT else found | {WakeupEvent.STORAGE}
        )
    if not lone or not causes or not causes <= _NODES_ALONE:  # other pods of the gang may lack something else
        found.add(WakeupEvent.ROOM)
    if FilterReason.UNALIGNED in causes or not lone:
        found.add(WakeupEvent.ZONES)
    if causes & _BY_COMING:
        found.add(WakeupEvent.CAME)
    if causes & _BY_STORAGE:
        found.add(WakeupEvent.STORAGE)
    return frozenset(found)


ROOMY = frozenset({WakeupEvent.NODE, WakeupEvent.ROOM})
