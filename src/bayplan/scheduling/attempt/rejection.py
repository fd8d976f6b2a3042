"""The rejection of a gang, built from the result of the attempt."""

from __future__ import annotations

from collections.abc import Mapping

from bayplan.model.filter_failure import FilterFailure
from bayplan.model.pod import PodKey
from bayplan.model.scheduling_rejection import RejectionReason, SchedulingRejection
from bayplan.placement.subgroups.members import lacking_in
from bayplan.scheduling.attempt.gang import AttemptRequest, AttemptResult


def standstill(
    hindrance: RejectionReason, asked: AttemptRequest, found: AttemptResult
) -> SchedulingRejection:
    """The rejection that describes a failed attempt."""
    pod, unfit = _first_left(asked, found.left)
    return SchedulingRejection(
        hindrance,
        found.minimum or asked.candidate.charter.minimum,
        asked.standing + len(asked.waiting),
        _standing(asked) + max(sum(one.key in found.seats for one in asked.waiting), found.fit),
        pod,
        unfit,
        found.misfit,
        unsure=found.unsure,
        part=found.part,
    )


def _standing(asked: AttemptRequest) -> int:
    """Number of bound pods that count toward the minimum; surplus pods of a pod set do not."""
    candidate, charter = asked.candidate, asked.candidate.charter
    if not charter.has_minima or charter.tree is None:
        return asked.standing
    lack = lacking_in(charter.tree, candidate.waiting, candidate.standing)
    return min(asked.standing, max(charter.minimum - lack, 0)) if lack else asked.standing


def _first_left(
    asked: AttemptRequest, left: Mapping[PodKey, FilterFailure]
) -> tuple[PodKey | None, FilterFailure | None]:
    for pod in asked.waiting:
        if pod.key in left:
            return pod.key, left[pod.key]
    return None, None
