"""Logs which kinds a server does not serve: in one line at the start, then each change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from bayplan.backends.remote.answers import not_served
from bayplan.dialects.api import Kind

LONGEST_SECONDS = 5.0  # what is known by then is told, even if the server has not answered for every kind


class Absent:
    """Collects the kinds that reflectors find absent. Used in the thread of its backend."""

    def __init__(self, server: str, log: Callable[[str], None]) -> None:
        self._server, self._log = server, log
        self._awaited: set[Kind] = set()  # that nothing is known of yet
        self._found: list[Kind] = []  # not served, and not told yet
        self._logged: set[Kind] = set()  # not served

    def begin(self, kinds: Iterable[Kind]) -> None:
        """Expect responses for these kinds; those that are not served are logged together."""
        self._awaited |= set(kinds)
        asyncio.get_running_loop().call_later(LONGEST_SECONDS, self._on_timeout)

    def missing(self, kind: Kind) -> None:
        """A kind is not served."""
        self._found.append(kind)
        self.known(kind)

    def served(self, kind: Kind) -> None:
        """A kind is served."""
        if kind in self._found:
            self._found.remove(kind)
        if kind in self._logged:
            self._logged.discard(kind)
            self._log(f"{self._server} now serves {kind.plural} of {kind.api_version}")
        self.known(kind)

    def known(self, kind: Kind) -> None:
        """The response for this kind has arrived."""
        self._awaited.discard(kind)
        if not self._awaited and self._found:
            self._logged |= set(self._found)
            found, self._found = self._found, []
            waits = "it is waited for" if len(found) == 1 else "they are waited for"
            self._log(f"{not_served(found, self._server)}; {waits}")

    def _on_timeout(self) -> None:
        for kind in tuple(self._awaited):
            self.known(kind)
