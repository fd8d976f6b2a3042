"""A copy of the state of admission that changes on its own, for simulations.

Frozen values are shared: they never change. Everything else is copied: containers, arrays and objects.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from types import MethodType
from typing import Any

import numpy as np

from bayplan.state.admission.state import AdmissionState


def fork(state: AdmissionState) -> AdmissionState:
    """The copy of a state. An object that occurs several times in it is one object in the copy."""
    for cluster in state.usage.topologies.values():
        cluster.settle()  # once for both
    copied: AdmissionState = _Copies().of(state)
    for cluster in copied.usage.topologies.values():
        cluster.own_rows()
    copied.binding.forget_nodes()  # node ids of the original
    copied.numa.layouts.clear()  # they read reports in the original
    return copied


class _Copies:
    """The copies made so far, by the identity of the original."""

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}
        self._shares: dict[type, bool] = {}

    def of(self, value: Any) -> Any:
        kind = type(value)
        shared = self._shares.get(kind)
        if shared is None:
            shared = self._shares[kind] = _is_shared(kind)
        if shared:
            return value
        if id(value) not in self._made:
            self._copy(value)
        return self._made[id(value)]

    def _copy(self, value: Any) -> None:
        """Register the copy before its parts: they may refer to it."""
        made: Any
        match value:
            case tuple():
                parts = tuple(map(self.of, value))
                same = all(part is before for part, before in zip(parts, value, strict=True))
                self._made[id(value)] = value if same else parts
            case MethodType():
                self._made[id(value)] = MethodType(value.__func__, self.of(value.__self__))
            case np.ndarray() | set():
                self._made[id(value)] = value.copy()
            case dict():
                made = self._made[id(value)] = value.copy()
                for key, part in value.items():
                    made[key] = self.of(part)
            case list() | deque():
                made = self._made[id(value)] = type(value)()
                made.extend(map(self.of, value))
            case _:
                made = self._made[id(value)] = object.__new__(type(value))
                for name in _attributes(value):
                    object.__setattr__(made, name, self.of(getattr(value, name)))


def _is_shared(kind: type) -> bool:
    """Frozen values, and whatever is neither a container nor an object of ours: numbers, text, functions."""
    if issubclass(kind, tuple | dict | list | deque | set | np.ndarray | MethodType):
        return hasattr(kind, "_fields")
    parameters = getattr(kind, "__dataclass_params__", None)
    ours = kind.__module__.startswith("bayplan.")
    return parameters.frozen if parameters is not None else not ours or issubclass(kind, Enum)


def _attributes(value: Any) -> list[str]:
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    return [name for name in (*slots, *getattr(value, "__dict__", ())) if hasattr(value, name)]
