"""What checkers derive from one API document, derived once.

The store never changes a document: a write replaces it. Checkers look at all documents after every step, and
nearly all of them are those of the step before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

Object = dict[str, Any]
T = TypeVar("T")
KEPT_MAX = 20_000  # documents; then all are forgotten, most of which have been replaced


def once_per_document(derive: Callable[[Object], T]) -> Callable[[Object], T]:
    """The function, which is called once for each document and must depend on nothing else.

    Documents are told apart by identity, and kept, so that no other document gets the identity of one that is
    known. The result is shared: callers do not change it.
    """
    known: dict[int, tuple[Object, T]] = {}

    @wraps(derive)
    def derived(document: Object) -> T:
        found = known.get(id(document))
        if found is None:
            if len(known) >= KEPT_MAX:
                known.clear()
            found = known[id(document)] = (document, derive(document))
        return found[1]

    return derived
