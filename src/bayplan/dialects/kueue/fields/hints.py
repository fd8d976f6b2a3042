"""Hints about an accepted job or Workload: annotation keys and topology levels that may be misspelt."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any

from bayplan.dialects.jobs.kinds import is_known, parts
from bayplan.dialects.jobs.part import GROUP_POD_INDEX, Find, find_nothing
from bayplan.dialects.kube.fields.key_hints import HINTS_MAX, Keys, key_hints, level_hint
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.job_gang import job_gang
from bayplan.dialects.kueue.names import annotations as known
from bayplan.model.gang import AUTO, Group, PodSet

Object = dict[str, Any]
TEMPLATE = (
    known.REQUIRED, known.PREFERRED, known.UNCONSTRAINED, known.SEGMENT_LEVEL, known.SEGMENT_SIZE,
    known.SEGMENT_LAYERS, known.GROUP,
)  # fmt: skip
"""Annotations that are read from pod templates."""
_EITHER = (known.POD_GROUP, known.PREBUILT)
KEYS = Keys(
    known.PREFIX.rstrip("/"),
    labels=(
        known.QUEUE, known.PRIORITY_CLASS, known.SECONDS_MAX, known.MANAGED, GROUP_POD_INDEX, *_EITHER,
    ),
    notes=(
        *TEMPLATE, known.REQUIRE, known.PREFER, known.MINIMUM, known.SYNCED, known.ELASTIC, known.GATED_BY,
        known.PRIORITY_BOOST, known.POD_GROUP_COUNT, known.FAST_ADMISSION, known.RETRIABLE, known.INDEX_FROM,
        known.OFFSET, *_EITHER,
    ),
    others=(
        known.REPLACES, known.SLICE_NAME, known.ROLE_HASH, known.SERVING, known.SUSPENDED_BY,
        known.WORKLOAD_NAME, known.POD_SET, known.LOCAL_QUEUE, known.CLUSTER_QUEUE, known.STOPPING,
        known.JOB_UID, known.IS_GROUP_WORKLOAD, known.OWNER_KIND, known.OWNER_NAME, known.REPLICA,
    ),
)  # fmt: skip


def object_hints(new: Object, levels: Collection[str] = (), find: Find = find_nothing) -> list[str]:
    """Hints for an object; `levels` are those of all topologies, empty if they are not known."""
    return list(islice(dict.fromkeys(_hints(Field(new), levels, find)), HINTS_MAX))


def workload_hints(workload: Object, levels: Collection[str] = ()) -> list[str]:
    """Hints for a Workload."""
    return object_hints({**workload, "kind": "Workload"}, levels)


def named_levels(member: Group | PodSet) -> Iterator[str]:
    """Every level that a gang requests by name, with repetitions."""
    levels = [member.locality.required, member.locality.preferred]
    if isinstance(member, PodSet):
        levels += [segment.level for segment in member.segments]
    else:
        for inner in member.members:
            yield from named_levels(inner)
    yield from (level for level in levels if level and level != AUTO)


def _hints(obj: Field, levels: Collection[str], find: Find) -> Iterator[str]:
    yield from key_hints(obj.at("metadata"), KEYS)
    if obj.at("kind").text() == "Workload":
        for one in obj.at("spec", "podSets").items():
            yield from key_hints(one.at("template", "metadata"), KEYS)
            yield from _unknown_levels(one.at("topologyRequest"), levels)
        return
    if not is_known(obj):
        return
    for part in parts(obj, find):
        if part.metadata.path != obj.at("metadata").path:
            yield from key_hints(part.metadata, KEYS)
            yield from _misplaced(obj, part.metadata)
    for level in named_levels(job_gang(obj, find).root) if levels else ():
        if level not in levels:
            yield level_hint(level, levels)


def _misplaced(job: Field, template: Field) -> Iterator[str]:
    """Annotations on the job that only have an effect on its pod template."""
    annotations, own = job.at("metadata", "annotations"), template.at("annotations")
    for key in TEMPLATE:
        if annotations.at(key).present and not own.at(key).present:
            yield f"{annotations.path}: {key} has no effect here; did you mean {own.path}, of the pods?"


def _unknown_levels(request: Field, levels: Collection[str]) -> Iterator[str]:
    """Unknown levels in a topology request of a Workload."""
    if not levels:
        return
    named = [request.at(key) for key in ("required", "preferred", "podSetSliceRequiredTopology")]
    named += [one.at("topology") for one in request.at("podsetSliceRequiredTopologyConstraints").items()]
    for field in named:
        if isinstance(field.value, str) and field.value and field.value not in levels:
            yield level_hint(field.value, levels)
