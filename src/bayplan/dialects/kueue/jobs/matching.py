"""Whether a Workload still matches its job: pod sets, counts and containers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bayplan.dialects.kueue.fields.defaulting import default
from bayplan.dialects.kueue.jobs.writes import controller
from bayplan.dialects.kueue.status.conditions import ADMITTED, QUOTA_RESERVED, is_true

Object = dict[str, Any]


def matches(workload: Object, wanted: Object, *, suspended: bool) -> bool:
    """Whether a Workload matches the one that its job would get today (`wanted`).

    A partially admitted job is compared by the counts that were admitted.
    """
    owner = controller(workload)
    uid = controller(wanted)
    if owner is None or uid is None or owner.get("uid") != uid.get("uid"):
        return False
    key = "maximumExecutionTimeSeconds"
    if workload["spec"].get(key) != wanted["spec"].get(key):
        return False
    wanted_sets, pod_sets = _sets(wanted), _sets(workload)
    strict = not is_true(workload, ADMITTED)
    if is_true(workload, QUOTA_RESERVED) and _same(
        wanted_sets, _with_admitted_counts(workload, pod_sets), strict=strict
    ):
        return True
    reserved = is_true(workload, QUOTA_RESERVED)
    return (suspended or not reserved) and _same(wanted_sets, pod_sets, strict=strict)


def _sets(workload: Object) -> list[Object]:
    """The pod sets with the defaults of the API, so that they can be compared."""
    pod_sets: list[Object] = default(workload)["spec"].get("podSets") or []
    return pod_sets


def _with_admitted_counts(workload: Object, sets: Sequence[Object]) -> list[Object]:
    """The pod sets with the admitted counts, where partial admission is allowed."""
    admission = (workload.get("status") or {}).get("admission") or {}
    admitted = {one["name"]: one.get("count") for one in admission.get("podSetAssignments") or ()}
    return [
        one | {"count": admitted[one["name"]]}
        if "minCount" in one and admitted.get(one["name"]) is not None
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
