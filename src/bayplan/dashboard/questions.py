"""Questions that are answered on demand, from the state of the cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from bayplan.dashboard.host_map import GangKey


class BadQuestion(Exception):
    """A request that cannot be answered; the message says why, and what to do."""


class Questions(Protocol):
    """Answers that are made on demand. Called from several threads; each call blocks."""

    def explain(self, key: GangKey) -> dict[str, Any] | None:
        """The object of `bayplan explain -o json`, with `members`; None if there is no such gang."""

    def plan(self, manifests: str, may_see: Callable[[str], bool]) -> dict[str, Any]:
        """The object of `bayplan plan -o json`, with places. Raises BadQuestion for bad input."""
