"""Segments: equal parts of a replica type whose pods are placed close together.

A segment is a sub-group below the one of its replica type. Segments that cover the minimum of the replica
type are mandatory; the rest is elastic, has no minimum, and does not delay the gang.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from bayplan.dialects.jobs.kinds import TABLE
from bayplan.dialects.kai.api.names import (
    POD_INDEX_LABEL,
    SEGMENT_PREFERRED,
    SEGMENT_REQUIRED,
    SEGMENT_SIZE,
    TOPOLOGY_NAME,
)
from bayplan.dialects.kai.api.pod_group import Constraint, SubGroup
from bayplan.dialects.kube.fields.reader import INT32_MAX
from bayplan.model.whole_numbers import whole_number as digits_only

INDEX_LABELS: Mapping[str, str] = {kind.kind: kind.index_label for kind in TABLE if kind.index_label}
"""The default index label of the pods of each kind. Other kinds have none."""

SEGMENT_ANNOTATIONS = (SEGMENT_SIZE, SEGMENT_REQUIRED, SEGMENT_PREFERRED)
"""The annotations that request segments."""
_DIGITS_MAX = 100
SEGMENTS_MAX = 4096
"""The limit of sub-groups in one object."""


class WrongSegments(ValueError):
    """The segments are invalid; the message tells users why."""


@dataclass(frozen=True, slots=True)
class SegmentPlan:
    """How a replica type is split into segments."""

    size: int
    constraint: Constraint | None = None
    index_label: str = ""


@dataclass(frozen=True, slots=True)
class SegmentAnnotations:
    """The annotations that define segments: of the pod template, of the pod itself, and of the root owner."""

    template: Mapping[str, str]
    root: Mapping[str, str]
    pod: Mapping[str, str]
    where: str = ""  # the pod, for messages
    replica_type: str = "worker"

    def get(self, key: str) -> str:
        return self.pod.get(key) or self.template.get(key) or ""

    @property
    def topology(self) -> str:
        """The topology; the annotation of the pod or template wins over that of the root owner."""
        return self.get(TOPOLOGY_NAME) or self.root.get(TOPOLOGY_NAME, "")


def read_plan(
    notes: SegmentAnnotations, kind: str, warn: list[str], *, indexed: bool = True
) -> SegmentPlan | None:
    """The segments that annotations request; None if there are none, or they are ignored with a warning.

    Raises WrongSegments if the size is invalid. `indexed` is False for jobs whose pods have no index.
    """
    size = _size(notes)
    requested = [key for key in SEGMENT_ANNOTATIONS if notes.get(key)]
    if not requested:
        return None
    if size is None:
        warn.append(f"{', '.join(requested)}: ignored without {SEGMENT_SIZE}")
        return None
    if not notes.topology:
        warn.append(f"{', '.join(requested)}: ignored, because {TOPOLOGY_NAME} names no topology")
        return None
    label = notes.get(POD_INDEX_LABEL) or (INDEX_LABELS.get(kind, "") if indexed else "")
    if not label:
        warn.append(
            f"{', '.join(requested)}: ignored, because pods of a {kind or 'workload'} bear no index; "
            f"name the label that numbers them in {POD_INDEX_LABEL}"
        )
        return None
    return SegmentPlan(size, segment_constraint(notes), label)


def segment_constraint(notes: SegmentAnnotations) -> Constraint | None:
    """The constraint of each segment; None without a topology and a level in it."""
    constraint = Constraint(notes.topology, notes.get(SEGMENT_REQUIRED), notes.get(SEGMENT_PREFERRED))
    return constraint if constraint.topology and constraint.has_level else None


def count(replicas: int, size: int) -> int:
    """The number of segments; the last may be smaller."""
    return -(-replicas // size)


def segment_of(index: int, size: int) -> int:
    """The segment of a pod, by its index within the replica type."""
    return index // size


def worker_number(worker_index: int, leaders: int) -> int:
    """The index of a worker among the workers, if leaders are counted first."""
    return worker_index - leaders


@dataclass(frozen=True, slots=True)
class SegmentSize:
    """One segment: the number of its pods, and how many of them are mandatory."""

    size: int
    minimum: int


def segment_sizes(replicas: int, minimum: int, size: int) -> tuple[SegmentSize, ...]:
    """All segments of a replica type. A minimum within a segment is rounded up to the whole segment."""
    if count(replicas, size) > SEGMENTS_MAX:
        raise WrongSegments(f"{replicas} pods in segments of {size} make more than {SEGMENTS_MAX} segments")
    segments = []
    for start in range(0, replicas, size):
        pods = min(size, replicas - start)
        segments.append(SegmentSize(pods, pods if start < minimum else 0))
    return tuple(segments)


def sub_groups(
    name: str, replicas: int, minimum: int, plan: SegmentPlan, warn: list[str], prefix: str = ""
) -> tuple[SubGroup, ...]:
    """The sub-groups of all segments, below the sub-group of their replica type."""
    if replicas and plan.size > replicas:
        warn.append(f"{SEGMENT_SIZE}: {plan.size} is more than the {replicas} pods of {name}: one segment")
    return _cut(name, replicas, minimum, plan.size, plan.constraint, prefix or name)


@lru_cache(maxsize=64)  # the same for every pod of a gang
def _cut(
    name: str, replicas: int, minimum: int, size: int, constraint: Constraint | None, prefix: str
) -> tuple[SubGroup, ...]:
    return tuple(
        SubGroup(f"{prefix}-{number}", share.minimum, name, constraint)
        for number, share in enumerate(segment_sizes(replicas, minimum, size))
    )


def read_index(labels: Mapping[str, str], label: str, pod: str) -> int:
    """The index of a pod. Raises WrongSegments if it has none."""
    text = labels.get(label)
    if text is None:
        raise WrongSegments(f"pod {pod} has no label {label}, which would tell its segment")
    number = digits_only(text, INT32_MAX)
    if number is None:
        raise WrongSegments(f'pod {pod}: label {label} must be a whole number, not "{text}"')
    return number


def read_size(text: str, where: str) -> int:
    """The size of segments. Raises WrongSegments if it is invalid."""
    size = whole_number(text)
    if size is None:
        why = f'strconv.Atoi: parsing "{text}": invalid syntax'
        raise WrongSegments(f"invalid segment size {text} on {where}, err: {why}")
    if not 1 <= size <= INT32_MAX:
        why = f"must be between 1 and {INT32_MAX}"
        raise WrongSegments(f"invalid segment size {text} on {where}, err: {why}")
    return size


def whole_number(text: str) -> int | None:
    """An integer with or without a sign; None if it is invalid. Very long numbers are clamped."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        return None
    return int(text if len(digits) <= _DIGITS_MAX else text[:1] + "9" * _DIGITS_MAX)


def _size(notes: SegmentAnnotations) -> int | None:
    of_pod, of_template = notes.pod.get(SEGMENT_SIZE), notes.template.get(SEGMENT_SIZE)
    text = of_pod if of_pod is not None else of_template
    if text is None:
        return None
    return read_size(
        text, f"pod {notes.where}" if of_pod is not None else f"{notes.replica_type} podTemplate"
    )
