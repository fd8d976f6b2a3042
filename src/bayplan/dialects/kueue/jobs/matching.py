"""Whether a Workload still stands for its job: pod sets, counts and containers as the job has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bayplan.dialects.kueue.fields.defaulting import default
from bayplan.dialects.kueue.jobs.writes import controller
from bayplan.dialects.kueue.status.conditions import ADMITTED, QUOTA_RESERVED, is_true

Object = dict[str, Any]


def matches(workload: Object, wanted: Object, *, suspended: bool) -> bool:
    """Given the Workload that the job would get today.

    A job that runs with fewer pods than it asked for is compared with what it was given.
    """
    owner = controller(workload)
    uid = controller(wanted)
    if owner is None or uid is None or owner.get("uid") != uid.get("uid"):
        return False
    key = "maximumExecutionTimeSeconds"
    if workload["spec"].get(key) != wanted["spec"].get(key):
        return False
    today, known = _sets(wanted), _sets(workload)
    strict = not is_true(workload, ADMITTED)
    if is_true(workload, QUOTA_RESERVED) and _same(today, _running(workload, known), strict=strict):
        return True
    held = is_true(workload, QUOTA_RESERVED)
    return (suspended or not held) and _same(today, known, strict=strict)


def _sets(workload: Object) -> list[Object]:
    """With what the API fills in, so that the two can be compared."""
    found: list[Object] = default(workload)["spec"].get("podSets") or []
    return found


def _running(workload: Object, sets: Sequence[Object]) -> list[Object]:
    """The pod sets with the counts that were admitted, where fewer were enough."""
    admission = (workload.get("status") or {}).get("admission") or {}
    given = {one["name"]: one.get("count") for one in admission.get("podSetAssignments") or ()}
    return [
        one | {"count": given[one["name"]]}
        if "minCount" in one and given.get(one["name"]) is not None
        else one
        for one in sets
    ]


def _same(first: Sequence[Object], second: Sequence[Object], *, strict: bool) -> bool:
    return [_shape(one, strict) for one in first] == [_shape(one, strict) for one in second]


def _shape(pod_set: Object, strict: bool) -> tuple[object, ...]:
    spec = (pod_set.get("template") or {}).get("spec") or {}
    tolerations = spec.get("tolerations") or [] if strict else []
    containers = (spec.get("initContainers") or [], spec.get("containers") or [])
    return pod_set.get("count"), pod_set.get("minCount"), tolerations, *containers
