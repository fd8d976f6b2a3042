"""Reads JSON that others wrote: bounded in depth, so that nothing behind it meets the limit of recursion."""

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
_CHUNK = 1 << 16  # brackets that are counted in one go, between which other threads may work


class UnreadableJSON(ValueError):
    """A text that is not read; the message says why."""


def bounded_json(raw: bytes | bytearray, shape: Any = Any, *, depth: int = DEPTH_MAX) -> Any:
    """The value, in the given shape. Raises UnreadableJSON, whatever is wrong with the bytes."""
    if deeper_than(raw, depth):
        raise UnreadableJSON(f"is nested more than {depth} levels deep")
    try:
        return msgspec.json.decode(raw, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # ValidationError is a DecodeError
        raise UnreadableJSON(f"is not as it must be: {error}") from None
    except (ValueError, RecursionError, OverflowError) as error:
        raise UnreadableJSON(f"holds a value that cannot be read: {error}") from None


def deeper_than(raw: bytes | bytearray, depth: int) -> bool:
    """Whether lists and objects are nested deeper than that; brackets in strings do not count."""
    if raw.count(b"[") + raw.count(b"{") <= depth:
        return False
    left = _STRING.sub(b"", raw).translate(_ALIKE, _NO_BRACKETS)
    while left:
        shorter = left.replace(b"[]", b"")  # without the innermost, all that is left is one level less deep
        if 2 * len(shorter) > len(left):
            break  # a text of many levels: going on like this would take as many times its length
        left, depth = shorter, depth - 1
    else:
        return depth < 0
    here = 0
    for start in range(0, len(left), _CHUNK):
        levels = list(accumulate(map(_STEP.__getitem__, left[start : start + _CHUNK]), initial=here))
        if max(levels) > depth:
            return True
        here = levels[-1]
    return False
