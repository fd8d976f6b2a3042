"""Kinds are watched in the same order in every process, whatever their hashes are."""

from __future__ import annotations

from typing import cast

from bayplan.dialects.api import Backend, Kind
from bayplan.runtime.core.controller import Controller
from bayplan.runtime.core.journal import MemoryJournal
from bayplan.runtime.core.loop import Loop


class Listening:
    """A backend that only records what is watched."""

    def watch(self, kinds: list[Kind]) -> None:
        self.kinds = kinds


class Wanting:
    """A controller that only names kinds."""

    def __init__(self, *, optional: bool) -> None:
        self.name = f"optional {optional}"
        plurals = (f"things{number}" for number in range(12))
        self.kinds = [Kind("", "v1", "Thing", plural, optional=optional) for plural in plurals]


def test_kinds_that_one_role_can_do_without_and_another_cannot_have_an_order() -> None:
    backend = Listening()
    roles = [cast(Controller, Wanting(optional=one)) for one in (True, False)]
    Loop(cast(Backend, backend), roles, MemoryJournal())
    assert [kind.optional for kind in backend.kinds] == [False, True] * 12
