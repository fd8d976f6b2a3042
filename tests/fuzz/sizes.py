"""How much an object keeps: entries of every list, set and mapping inside it, by where they are."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Mapping
from typing import Any

import numpy as np

_ELEMENTS_LOOKED_AT = 50  # of one container; the others look alike
_DEPTH_MAX = 8


BOUNDED = (
    *(".pods.pod_specs.", ".queues.pod_specs.", "scheduler.state.store.index.columns.columns", "._table."),
    *("scheduler.state.store.index.slots.names", "scheduler.state.store.index.slots.spare"),
    *(".binding.index.columns.", ".binding.index.slots."),  # made with the first pod that binding filters
    *(".hosts.changed", ".paths.changed", ".queue_changes.gone"),
)
"""Caches that begin anew when they hold too much, changes that are settled once they are many, and rows and
numbers that are used again: for as many pods and node names as there ever were at a time.
"""


def kept_by(roles: Mapping[str, object]) -> dict[str, int]:
    """What roles keep, without their caches that have bounds."""
    found = sizes_of(roles).items()
    return {where: size for where, size in found if not any(part in where for part in BOUNDED)}


def sizes_of(roots: Mapping[str, object]) -> dict[str, int]:
    """Entries by path; entries of a container share the path below it."""
    found: Counter[str] = Counter()
    seen: set[int] = set()
    for name, root in roots.items():
        _walk(root, name, found, seen, _DEPTH_MAX)
    return dict(found)


def _walk(value: Any, path: str, found: Counter[str], seen: set[int], left: int) -> None:
    if id(value) in seen or not left:
        return
    match value:
        case dict() | OrderedDict():
            seen.add(id(value))
            found[path] += len(value)
            for item in list(value.values())[:_ELEMENTS_LOOKED_AT]:
                _walk(item, path + "[]", found, seen, left - 1)
        case deque() if value.maxlen is not None:
            return  # it has its bounds
        case list() | set() | deque():
            seen.add(id(value))
            found[path] += len(value)
            for item in list(value)[:_ELEMENTS_LOOKED_AT]:
                _walk(item, path + "[]", found, seen, left - 1)
        case np.ndarray():
            found[path] += len(value) if value.ndim else 0
        case _ if type(value).__module__.startswith("bayplan."):
            seen.add(id(value))
            for name in _attributes(value):
                _walk(getattr(value, name, None), f"{path}.{name}", found, seen, left - 1)


def _attributes(value: object) -> list[str]:
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    return [*getattr(value, "__dict__", ()), *(name for name in slots if not name.startswith("__"))]
