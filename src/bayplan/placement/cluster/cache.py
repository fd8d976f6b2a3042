"""Answers that were worked out before, kept with what they are about; the oldest go first."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


def recall(memory: dict[Hashable, Any], most: int, question: Hashable, work_out: Callable[[], T]) -> T:
    """The answer to a question asked before, or a fresh one, which is kept; never more than so many are."""
    if question not in memory:
        if len(memory) >= most:
            del memory[next(iter(memory))]
        memory[question] = work_out()
    answer: T = memory[question]
    return answer
