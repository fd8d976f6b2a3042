"""Lists several kinds of an API server concurrently in the background."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue
from typing import Any

from bayplan.dialects.api import Kind

READERS_MAX = 4
"""How many lists are read concurrently: more would load the API server at the expense of other users."""

Pages = Iterator[list[Any]]
_Queue = SimpleQueue[list[Any] | Exception | None]


class ReadingAhead:
    """Lists each kind once. The error of a kind is raised where its objects are requested."""

    def __init__(self, read: Callable[[Kind], Pages]) -> None:
        self._read = read
        self._pages: dict[Kind, _Queue] = {}  # None ends a list
        self._pending: deque[Kind] = deque()
        self._closed = False

    def begin(self, kinds: Iterable[Kind]) -> None:
        """Start to list these kinds, in this order, except those already started."""
        fresh = [kind for kind in dict.fromkeys(kinds) if kind not in self._pages]
        self._pages |= {kind: SimpleQueue() for kind in fresh}
        self._pending.extend(fresh)
        for number in range(min(len(fresh), READERS_MAX)):
            threading.Thread(target=self._work, name=f"bayplan-list-{number}", daemon=True).start()

    def items(self, kind: Kind) -> Iterator[Any]:
        """All objects of a kind as they arrive. May be called once for each kind."""
        self.begin((kind,))
        while (page := self._pages[kind].get()) is not None:
            if isinstance(page, Exception):
                raise page
            yield from page

    def close(self) -> None:
        """Start no more lists; those in flight end with the connection."""
        self._closed = True
        self._pending.clear()

    def _work(self) -> None:
        while self._pending:
            try:
                kind = self._pending.popleft()
            except IndexError:  # another reader was faster
                return
            pages = self._pages[kind]
            try:
                for page in self._read(kind):
                    pages.put(page)
                    if self._closed:
                        return
            except Exception as error:
                pages.put(error)
            finally:
                pages.put(None)
