"""The undo log of every overlay: steps are applied as they come and undone in reverse order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar
from weakref import WeakMethod

Step = TypeVar("Step")


class UndoLog(Generic[Step]):
    """The steps of one overlay since it was created, with checkpoints to return to.

    `apply(step, undone)` changes the overlay: by the step, or by its inverse if `undone`. It is a method of
    the overlay, and referenced weakly: an overlay that is dropped frees its arrays at once, not when the
    garbage collector finds the cycle.
    """

    __slots__ = ("_method", "failed", "steps")

    def __init__(self, apply: Callable[[Step, bool], None]) -> None:
        self._method = WeakMethod(apply)
        self.steps: list[Step] = []
        self.failed = False  # a step failed halfway: its owner has to restore everything

    def push(self, step: Step) -> None:
        """Apply a step. The log has failed from before the step is in it until the step is complete."""
        self.failed = True
        self.steps.append(step)
        self._apply(step, False)
        self.failed = False

    def _apply(self, step: Step, undone: bool) -> None:
        apply = self._method()
        assert apply is not None, "the log is part of its overlay"
        apply(step, undone)

    def checkpoint(self) -> int:
        """A checkpoint for `rollback`."""
        return len(self.steps)

    def rollback(self, mark: int) -> None:
        """Undo all steps since the checkpoint, the last one first. Nothing happens after a failed step."""
        while len(self.steps) > mark and not self.failed:
            self.failed = True
            self._apply(self.steps[-1], True)
            self.steps.pop()
            self.failed = False

    @contextmanager
    def tentative(self) -> Iterator[None]:
        """Undo at the end what happens inside, also if it raises."""
        mark = self.checkpoint()
        try:
            yield
        finally:
            self.rollback(mark)
