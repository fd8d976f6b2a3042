"""Whether, from when and at what loss a running gang may be moved, as its labels and annotations say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bayplan.dialects.kube.fields.times import seconds

MOVABLE = "bayplan.dev/movable"
"""A label or annotation of pods, jobs, pod groups and Workloads: `true` or `false`."""
NOT_BEFORE = "bayplan.dev/move-not-before"
"""An annotation: the gang is not moved before this time."""
CHECKPOINT = "bayplan.dev/last-checkpoint"
"""An annotation: when the work of the gang was last saved."""
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"


@dataclass(frozen=True, slots=True)
class MoveRules:
    """What labels and annotations say about moving. Times are in seconds; 0: not stated."""

    movable: bool | None = None  # None: not stated
    not_before: float = 0.0
    checkpoint: float = 0.0
    problem: str = ""  # a value that cannot be read


def move_rules(*metadata: Mapping[str, str] | None) -> MoveRules:
    """What labels and annotations of the pods and objects of a gang say; earlier ones count more."""
    found: dict[str, str] = {}
    for one in reversed(metadata):
        found |= one or {}
    movable, problem = None, ""
    for key in (SAFE_TO_EVICT, MOVABLE):
        text = found.get(key)
        if text in ("true", "false"):
            movable = text == "true" if key == MOVABLE or text == "false" else movable
        elif text is not None and key == MOVABLE:
            problem = f"{key} is {text[:40]!r}; give true or false"
    times = {}
    for key in (NOT_BEFORE, CHECKPOINT):
        text = found.get(key, "")
        times[key] = seconds(text) if text else 0.0
        if text and not times[key]:
            problem = f"{key} is {text[:40]!r}; give a time such as 2026-11-17T12:00:00Z"
    return MoveRules(movable, times[NOT_BEFORE], times[CHECKPOINT], problem)
