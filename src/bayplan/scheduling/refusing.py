"""What is said of a gang that did not get its places, read off the attempt."""

from __future__ import annotations

from collections.abc import Mapping

from bayplan.model.pod import PodKey
from bayplan.model.standstill import Hindrance, Standstill
from bayplan.model.unfit import Unfit
from bayplan.scheduling.attempt import Asked, Outcome


def standstill(hindrance: Hindrance, asked: Asked, found: Outcome) -> Standstill:
    """The facts of a refusal."""
    pod, unfit = _first_left(asked, found.left)
    return Standstill(
        hindrance,
        found.minimum or asked.candidate.charter.minimum,
        asked.standing + len(asked.waiting),
        asked.standing + max(sum(one.key in found.seats for one in asked.waiting), found.fit),
        pod,
        unfit,
        found.misfit,
        unsure=found.unsure,
        part=found.part,
    )


def _first_left(asked: Asked, left: Mapping[PodKey, Unfit]) -> tuple[PodKey | None, Unfit | None]:
    for pod in asked.waiting:
        if pod.key in left:
            return pod.key, left[pod.key]
    return None, None
