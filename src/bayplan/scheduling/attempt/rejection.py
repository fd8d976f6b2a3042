"""The rejection of a gang, built from the result of the attempt."""

from __future__ import annotations

from collections.abc import Mapping

from bayplan.model.filter_failure import FilterFailure
from bayplan.model.pod import PodKey
from bayplan.model.rejection import Rejection, RejectionReason
from bayplan.placement.subgroups.members import missing_in_gang
from bayplan.scheduling.attempt.gang import AttemptRequest, AttemptResult


def rejection_for(reason: RejectionReason, request: AttemptRequest, result: AttemptResult) -> Rejection:
    """The rejection that describes a failed attempt."""
    pod, failure = _first_unassigned(request, result.unassigned)
    return Rejection(
        reason,
        result.minimum or request.candidate.spec.minimum,
        request.bound + len(request.pending),
        _counted_bound(request) + max(sum(one.key in result.rows for one in request.pending), result.fit),
        pod,
        failure,
        result.misfit,
        incomplete=result.unsure,
        part=result.part,
    )


def earliest(*times: float | None) -> float | None:
    """The earliest of these times; None if there is none."""
    return min((at for at in times if at is not None), default=None)


def _counted_bound(request: AttemptRequest) -> int:
    """Number of bound pods that count toward the minimum; surplus pods of a pod set do not."""
    candidate, spec = request.candidate, request.candidate.spec
    if not spec.has_minima or spec.tree is None:
        return request.bound
    missing = missing_in_gang(spec.tree, candidate.pending, candidate.bound)
    return min(request.bound, max(spec.minimum - missing, 0)) if missing else request.bound


def _first_unassigned(
    request: AttemptRequest, unassigned: Mapping[PodKey, FilterFailure]
) -> tuple[PodKey | None, FilterFailure | None]:
    for pod in request.pending:
        if pod.key in unassigned:
            return pod.key, unassigned[pod.key]
    return None, None
