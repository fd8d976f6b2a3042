"""A bounded cache of computed values; the oldest entry is evicted first."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


def cached(cache: dict[Hashable, Any], limit: int, key: Hashable, compute: Callable[[], T]) -> T:
    """The cached value of a key, computed and stored if it is missing; at most `limit` entries are kept."""
    if key not in cache:
        if len(cache) >= limit:
            del cache[next(iter(cache))]
        cache[key] = compute()
    value: T = cache[key]
    return value
