"""What each built-in kind does of its own: defaults, what the server sets, and what is checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bayplan.backends.embedded.api.resource import Resource
from bayplan.backends.embedded.api.status import Problem
from bayplan.backends.embedded.storage.interface import Storage

Object = dict[str, Any]


def _nothing(_: Object) -> None:
    """No defaults."""


def _on_create(_: Storage, __: Object) -> None:
    """The server sets nothing."""


def _on_update(_: Storage, __: Object, ___: Object, ____: str) -> None:
    """The server sets nothing."""


def _fine(_: Object, __: Object | None) -> list[Problem]:
    return []


def _quiet(_: Object) -> list[str]:
    return []


@dataclass(frozen=True, slots=True)
class Behaviour:
    """The functions of one kind. They may change the object they are given first, and only that."""

    default: Callable[[Object], None] = _nothing
    create: Callable[[Storage, Object], None] = _on_create
    update: Callable[[Storage, Object, Object, str], None] = _on_update  # new, old, subresource
    check: Callable[[Object, Object | None], list[Problem]] = _fine  # new, old
    check_status: Callable[[Object, Object | None], list[Problem]] = _fine
    warn: Callable[[Object], list[str]] = _quiet
    admit: Callable[[Storage, Object], None] = _on_create  # the last word on a new object: it may refuse


class Behaviours:
    """The behaviour of every kind, by its type."""

    def __init__(self, by_type: dict[str, Behaviour]) -> None:
        self.by_type = by_type
        self._plain = Behaviour()

    def of(self, resource: Resource) -> Behaviour:
        if resource.definition is not None:
            behaviour: Behaviour = resource.definition.behaviour
            return behaviour
        return self.by_type.get(resource.type, self._plain)
