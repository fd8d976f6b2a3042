"""The reasons of rejections by role. A reason that is not listed here has to be explained by both."""

from __future__ import annotations

from bayplan.model.rejection import RejectionReason

_ADMISSION_ONLY = frozenset(
    {
        RejectionReason.TO_BE_EVALUATED,
        RejectionReason.NO_PLACE,
        RejectionReason.NO_QUOTA_NOW,
        RejectionReason.NEVER_ENOUGH_QUOTA,
        RejectionReason.NO_FLAVOR,
        RejectionReason.VICTIMS_LEAVING,
        RejectionReason.MISCONFIGURED,
        RejectionReason.CLOSED,
        RejectionReason.ON_HOLD,
        RejectionReason.OTHERS_STARTING,
    }
)
_BINDING_ONLY = frozenset(
    {
        RejectionReason.NO_SPEC,
        RejectionReason.NO_GROUP,
        RejectionReason.TOO_FEW,
        RejectionReason.INVALID,
        RejectionReason.UNSUPPORTED,
        RejectionReason.NO_QUEUE,
        RejectionReason.OVER_LIMIT,
        RejectionReason.OVER_QUOTA,
        RejectionReason.NO_CAPACITY,
        RejectionReason.PREEMPTING,
        RejectionReason.RESERVED,
        RejectionReason.NODE_TAKEN,
        RejectionReason.HELD_BACK,
        RejectionReason.UNDONE,
    }
)
ADMISSION_REASONS = [reason for reason in RejectionReason if reason not in _BINDING_ONLY]
BINDING_REASONS = [reason for reason in RejectionReason if reason not in _ADMISSION_ONLY]
