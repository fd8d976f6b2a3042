"""A cache of what is computed from texts. Long texts are not kept: users can write many of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


def cached_by_text(maxsize: int, longest: int = 512) -> Callable[[F], F]:
    """Cache a function by its arguments if the first one, a text, is at most so long."""

    def decorate(compute: F) -> F:
        cached = lru_cache(maxsize=maxsize)(compute)

        @wraps(compute)
        def answer(text: str, *arguments: Any) -> Any:
            return (cached if len(text) <= longest else compute)(text, *arguments)

        return cast("F", answer)

    return decorate
