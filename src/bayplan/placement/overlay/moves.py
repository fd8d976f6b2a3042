"""What was placed or removed on trial, and how often: a removal cancels a placement of the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")
Key = tuple[int, int]


class TentativeMoves(Generic[T]):
    """Moves by key, each with its balance: above 0 it is placed so many times, below 0 removed."""

    def __init__(self) -> None:
        self._moves: dict[Key, tuple[int, T]] = {}

    def __iter__(self) -> Iterator[tuple[int, T]]:
        return iter(list(self._moves.values()))

    def add(self, key: Key, moved: T, sign: int) -> None:
        """Something is placed (sign -1: removed) from now on."""
        times = sign + (self._moves[key][0] if key in self._moves else 0)
        if times:
            self._moves[key] = times, moved
        else:
            del self._moves[key]

    @contextmanager
    def tentative(self) -> Iterator[None]:
        """Undo at the end what is added inside."""
        before = dict(self._moves)
        try:
            yield
        finally:
            self._moves = before
