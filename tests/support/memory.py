"""How many bytes objects keep alive, counted object by object: the same in every run, unlike the process."""

from __future__ import annotations

import gc
import sys
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType

NOT_DATA = (type, ModuleType, FunctionType, BuiltinFunctionType, CodeType, FrameType)


def bytes_of(*roots: object) -> int:
    """The bytes of these objects and of all data that they refer to."""
    seen: set[int] = set()
    unvisited: list[object] = list(roots)
    total = 0
    while unvisited:
        one = unvisited.pop()
        if id(one) in seen or isinstance(one, NOT_DATA):
            continue
        seen.add(id(one))
        total += sys.getsizeof(one)
        unvisited.extend(gc.get_referents(one))
    return total
