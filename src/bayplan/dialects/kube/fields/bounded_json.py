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
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


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
    brackets = _STRING.sub(b"", raw).translate(None, _NO_BRACKETS)
    remaining = brackets.translate(_ALIKE)
    for _ in range(depth):  # removes the innermost brackets; a few rounds suffice for most texts
        if not remaining:
            return False
        remaining = remaining.replace(b"[]", b"")
    return any(current > depth for current in accumulate(map(_STEP.__getitem__, brackets)))
