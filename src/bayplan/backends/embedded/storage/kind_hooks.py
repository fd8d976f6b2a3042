"""Hooks of a kind: defaults, fields that the server sets, validation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bayplan.backends.embedded.api.resource import Resource
from bayplan.backends.embedded.api.status import FieldProblem
from bayplan.backends.embedded.storage.interface import ObjectStorage

Object = dict[str, Any]


def _nothing(_: Object) -> None:
    """No defaults."""


def _on_create(_: ObjectStorage, __: Object) -> None:
    """The server sets nothing."""


def _on_update(_: ObjectStorage, __: Object, ___: Object, ____: str) -> None:
    """The server sets nothing."""


def _fine(_: Object, __: Object | None) -> list[FieldProblem]:
    return []


def _quiet(_: Object) -> list[str]:
    return []


@dataclass(frozen=True, slots=True)
class KindHooks:
    """The functions of one kind. They may change the object they are given first, and only that."""

    default: Callable[[Object], None] = _nothing
    create: Callable[[ObjectStorage, Object], None] = _on_create
    update: Callable[[ObjectStorage, Object, Object, str], None] = _on_update  # new, old, subresource
    check: Callable[[Object, Object | None], list[FieldProblem]] = _fine  # new, old
    check_status: Callable[[Object, Object | None], list[FieldProblem]] = _fine
    warn: Callable[[Object], list[str]] = _quiet
    admit: Callable[[ObjectStorage, Object], None] = (
        _on_create  # the last word on a new object: it may refuse
    )


class KindHookRegistry:
    """The hooks of every kind, by type."""

    def __init__(self, by_type: dict[str, KindHooks]) -> None:
        self.by_type = by_type
        self._plain = KindHooks()

    def of(self, resource: Resource) -> KindHooks:
        if resource.definition is not None:
            behaviour: KindHooks = resource.definition.behaviour
            return behaviour
        return self.by_type.get(resource.type, self._plain)
