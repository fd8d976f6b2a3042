"""What a pod is told about its segment when it is made: an annotation, and a variable of its environment."""

from __future__ import annotations

import copy
from typing import Any

from bayplan.dialects.kai.api.names import SEGMENT_INDEX, SEGMENT_INDEX_VARIABLE
from bayplan.dialects.kai.api.pod_group import PodGroup
from bayplan.dialects.kai.grouper.dispatch import Grouped
from bayplan.model.whole_numbers import whole_number

Object = dict[str, Any]


def segment_index(group: PodGroup, sub_group: str) -> int | None:
    """The number of the segment that a sub-group is, or is a part of; None if it is in none."""
    by_name = {one.name: one for one in group.sub_groups}
    found = by_name.get(sub_group)
    while found is not None:
        stem, dash, number = found.name.rpartition("-")
        index = whole_number(number)
        if dash and index is not None and stem in (found.parent, "segment"):
            return index
        found = by_name.get(found.parent)
    return None


def with_segment_index(pod: Object, found: Grouped) -> Object:
    """The pod as it is made, told its segment; unchanged if it is in none."""
    index = None if found.group is None or found.error else segment_index(found.group, found.sub_group)
    return with_index(pod, index)


def with_index(pod: Object, index: int | None) -> Object:
    """The pod told this number. What a user set stays."""
    if index is None:
        return pod
    told: Object = copy.deepcopy(pod)
    meta = told.get("metadata")
    told["metadata"] = meta = dict(meta) if isinstance(meta, dict) else {}
    meta["annotations"] = {SEGMENT_INDEX: str(index), **(meta.get("annotations") or {})}
    spec = told.get("spec")
    for key in ("initContainers", "containers"):
        for container in (spec.get(key) or ()) if isinstance(spec, dict) else ():
            _set_variable(container, str(index))
    return told


def _set_variable(container: object, value: str) -> None:
    """First in the list, so that later variables may refer to it."""
    if not isinstance(container, dict):
        return
    known = container.get("env")
    env = list(known) if isinstance(known, list) else []
    if not any(isinstance(one, dict) and one.get("name") == SEGMENT_INDEX_VARIABLE for one in env):
        container["env"] = [{"name": SEGMENT_INDEX_VARIABLE, "value": value}, *env]
