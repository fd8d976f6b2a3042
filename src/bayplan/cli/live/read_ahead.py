"""Lists of an API server, read in the background and several kinds at once, while other work goes on."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue
from typing import Any

from bayplan.dialects.api import Kind

READERS_MAX = 4
"""Lists that are read at the same time: more would take other users' share of the API server."""

Pages = Iterator[list[Any]]
_Queue = SimpleQueue[list[Any] | Exception | None]


class ReadingAhead:
    """Each kind is read once. Trouble with a kind is raised where its objects are asked for."""

    def __init__(self, read: Callable[[Kind], Pages]) -> None:
        self._read = read
        self._pages: dict[Kind, _Queue] = {}  # None: no more to come
        self._to_do: deque[Kind] = deque()
        self._closed = False

    def begin(self, kinds: Iterable[Kind]) -> None:
        """Read these kinds, in this order, unless that was begun before."""
        fresh = [kind for kind in dict.fromkeys(kinds) if kind not in self._pages]
        self._pages |= {kind: SimpleQueue() for kind in fresh}
        self._to_do.extend(fresh)
        for number in range(min(len(fresh), READERS_MAX)):
            threading.Thread(target=self._work, name=f"bayplan-list-{number}", daemon=True).start()

    def items(self, kind: Kind) -> Iterator[Any]:
        """All objects of a kind, as they come in. Of each kind only once."""
        self.begin((kind,))
        while (page := self._pages[kind].get()) is not None:
            if isinstance(page, Exception):
                raise page
            yield from page

    def close(self) -> None:
        """Begin nothing more; what is under way ends with the connection."""
        self._closed = True
        self._to_do.clear()

    def _work(self) -> None:
        while self._to_do:
            try:
                kind = self._to_do.popleft()
            except IndexError:  # another reader was faster
                return
            found = self._pages[kind]
            try:
                for page in self._read(kind):
                    found.put(page)
                    if self._closed:
                        return
            except Exception as trouble:
                found.put(trouble)
            finally:
                found.put(None)
