"""A JSON reader for untrusted input, bounded in depth so that later code never hits the recursion limit."""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Any

import msgspec

from bayplan.dialects.kube.fields.bounded_yaml import DEPTH_MAX

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[{]}"))
_ALIKE = bytes.maketrans(b"{}", b"[]")
_STEP = {ord("["): 1, ord("]"): -1}
_CHUNK = 1 << 16  # brackets counted at a time, so that other threads can run in between


class UnreadableJSON(ValueError):
    """A text that cannot be read; the message says why."""


def bounded_json(raw: bytes | bytearray, shape: Any = Any, *, depth: int = DEPTH_MAX) -> Any:
    """The decoded value, of the type `shape`. Raises UnreadableJSON for any invalid input."""
    if deeper_than(raw, depth):
        raise UnreadableJSON(f"is nested more than {depth} levels deep")
    try:
        return msgspec.json.decode(raw, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # ValidationError is a DecodeError
        raise UnreadableJSON(f"is not as it must be: {error}") from None
    except (ValueError, RecursionError, OverflowError) as error:
        raise UnreadableJSON(f"holds a value that cannot be read: {error}") from None


def deeper_than(raw: bytes | bytearray, depth: int) -> bool:
    """Whether lists and objects are nested deeper than `depth`; brackets in strings are ignored."""
    if raw.count(b"[") + raw.count(b"{") <= depth:
        return False
    remaining = _STRING.sub(b"", raw).translate(_ALIKE, _NO_BRACKETS)
    while remaining:
        shorter = remaining.replace(b"[]", b"")  # removes one level: the innermost brackets
        if 2 * len(shorter) > len(remaining):
            break  # many levels: one pass for each of them would be quadratic
        remaining, depth = shorter, depth - 1
    else:
        return depth < 0
    current = 0
    for start in range(0, len(remaining), _CHUNK):
        levels = list(accumulate(map(_STEP.__getitem__, remaining[start : start + _CHUNK]), initial=current))
        if max(levels) > depth:
            return True
        current = levels[-1]
    return False
