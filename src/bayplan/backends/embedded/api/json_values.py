"""Normalize decoded bodies to JSON values; anything that JSON cannot express is rejected."""

from __future__ import annotations

import math
from typing import Any

from bayplan.dialects.kube.fields.bounded_yaml import DEPTH_MAX

CONTAINERS_MAX = 1_000_000  # maps and lists; more than the largest body holds, unless aliases repeat them
_INT64 = range(-(2**63), 2**63)


class NotPlain(ValueError):
    """A value that JSON cannot express, or not within bounds; the message says why."""


def plain(root: Any, depth_max: int = DEPTH_MAX) -> Any:
    """The value, changed in place: keys are text, numbers are finite, nothing is nested too deeply.

    Whole numbers of more than 64 bits become floating-point numbers, as an API server reads them.
    """
    holder = [root]
    stack: list[tuple[Any, int]] = [(holder, 0)]
    seen = 0
    while stack:
        place, depth = stack.pop()
        seen += 1
        if depth > depth_max:
            raise NotPlain(f"is nested more than {depth_max} levels deep")
        if seen > CONTAINERS_MAX:
            raise NotPlain(f"has more than {CONTAINERS_MAX:,} maps and lists")
        if isinstance(place, dict) and not all(type(key) is str for key in place):
            fresh = {_key(key): value for key, value in place.items()}
            place.clear()
            place.update(fresh)
        for key in range(len(place)) if isinstance(place, list) else list(place):
            value = place[key]
            if isinstance(value, dict | list):
                stack.append((value, depth + 1))
            elif not (isinstance(value, str | bool) or value is None):
                place[key] = _number(value)
    return holder[0]


def _key(key: object) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, str | int | float):
        return str(key)
    raise NotPlain(f"holds a key that is no text: {str(key)[:40]!r}")


def _number(value: object) -> int | float:
    if isinstance(value, int):
        try:
            return value if value in _INT64 else float(value)
        except OverflowError:
            raise NotPlain("holds a number that is too large") from None
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise NotPlain(f"holds a value that JSON cannot express: {str(value)[:40]!r}")
