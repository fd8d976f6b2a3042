"""Events are kept once and served in two groups, under different names of the same fields."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

# core/v1 → events.k8s.io/v1
_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_BACK = {new: old for old, new in _NAMES.items()}
_ALWAYS_IN_CORE = {"reportingComponent": "", "reportingInstance": ""}


def from_core(event: Object) -> Object:
    """An event of core/v1 as one of events.k8s.io/v1."""
    found = {_NAMES.get(key, key): value for key, value in event.items()}
    for key in ("reportingController", "reportingInstance"):
        if not found.get(key):
            found.pop(key, None)
    return {**found, "apiVersion": "events.k8s.io/v1"}


def to_core(event: Object) -> Object:
    """An event of events.k8s.io/v1 as one of core/v1."""
    found = {_BACK.get(key, key): value for key, value in event.items()}
    return {**_ALWAYS_IN_CORE, **found, "apiVersion": "v1"}
