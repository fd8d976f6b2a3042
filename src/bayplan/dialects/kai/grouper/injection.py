"""Injection of the segment index into new pods: an annotation and an environment variable."""

from __future__ import annotations

import copy
from typing import Any

from bayplan.dialects.kai.api.names import SEGMENT_INDEX, SEGMENT_INDEX_VARIABLE
from bayplan.dialects.kai.api.pod_group import PodGroup
from bayplan.dialects.kai.grouper.dispatch import Grouped
from bayplan.model.whole_numbers import whole_number

Object = dict[str, Any]


def segment_index(group: PodGroup, sub_group: str) -> int | None:
    """The index of the segment that a sub-group is, or is part of; None if it is in none."""
    by_name = {one.name: one for one in group.sub_groups}
    current = by_name.get(sub_group)
    while current is not None:
        stem, dash, number = current.name.rpartition("-")
        index = whole_number(number)
        if dash and index is not None and stem in (current.parent, "segment"):
            return index
        current = by_name.get(current.parent)
    return None


def with_segment_index(pod: Object, result: Grouped) -> Object:
    """A new pod with its segment index; unchanged if it is in no segment."""
    index = None if result.group is None or result.error else segment_index(result.group, result.sub_group)
    return with_index(pod, index)


def with_index(pod: Object, index: int | None) -> Object:
    """The pod with this segment index. Existing values of the user stay."""
    if index is None:
        return pod
    changed: Object = copy.deepcopy(pod)
    meta = changed.get("metadata")
    changed["metadata"] = meta = dict(meta) if isinstance(meta, dict) else {}
    meta["annotations"] = {SEGMENT_INDEX: str(index), **(meta.get("annotations") or {})}
    spec = changed.get("spec")
    for key in ("initContainers", "containers"):
        for container in (spec.get(key) or ()) if isinstance(spec, dict) else ():
            _set_variable(container, str(index))
    return changed


def _set_variable(container: object, value: str) -> None:
    """The variable is put first, so that later variables may refer to it."""
    if not isinstance(container, dict):
        return
    present = container.get("env")
    env = list(present) if isinstance(present, list) else []
    if not any(isinstance(one, dict) and one.get("name") == SEGMENT_INDEX_VARIABLE for one in env):
        container["env"] = [{"name": SEGMENT_INDEX_VARIABLE, "value": value}, *env]
