"""What checkers derive from API documents, derived once.

The store never changes a document: a write replaces it. Checkers look at all documents after every step, and
nearly all of them are those of the step before; often all of a kind are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

Object = dict[str, Any]
P = ParamSpec("P")
T = TypeVar("T")
KEPT_MAX = 20_000  # documents; then all are forgotten, most of which have been replaced
LISTINGS_MAX = 16  # answers about lists of documents, of one function


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


def once_per_listing(derive: Callable[P, T]) -> Callable[P, T]:
    """The function of lists of documents, called once for the same lists; it must depend on nothing else.

    Only for tuples, which stay as they are, and are told apart like documents: for any other sequence the
    function is called again. The result is shared: callers do not change it.
    """
    known: dict[tuple[int, ...], tuple[object, T]] = {}

    @wraps(derive)
    def derived(*listings: P.args, **named: P.kwargs) -> T:
        assert not named
        key = tuple(map(id, listings))
        found = known.get(key)
        if found is not None:
            return found[1]
        result = derive(*listings, **named)
        if all(type(one) is tuple for one in listings):
            if len(known) >= LISTINGS_MAX:
                known.clear()
            known[key] = (listings, result)
        return result

    return derived


@dataclass(slots=True)
class LastLook:
    """Tells a checker that it is given the same lists of documents as at its last look."""

    listings: tuple[Sequence[object], ...] = ()

    def repeats(self, *listings: Sequence[object]) -> bool:
        """Whether these are the lists of the last look. Only tuples are: others may have changed."""
        before, self.listings = self.listings, listings
        return len(before) == len(listings) and all(
            one is other and type(one) is tuple for one, other in zip(before, listings, strict=True)
        )
