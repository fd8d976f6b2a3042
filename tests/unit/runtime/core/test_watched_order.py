"""Kinds are watched once, and in the same order in every process, whatever their hashes are."""

from __future__ import annotations

from typing import cast

import pytest

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


@pytest.mark.parametrize("first", [True, False])
def test_a_kind_that_one_role_can_do_without_and_another_cannot_is_watched_once(first: bool) -> None:
    backend = Listening()
    roles = [cast(Controller, Wanting(optional=one)) for one in (first, not first)]
    Loop(cast(Backend, backend), roles, MemoryJournal())
    assert [kind.optional for kind in backend.kinds] == [False] * 12
    assert [kind.plural for kind in backend.kinds] == sorted(f"things{number}" for number in range(12))
