"""The name that somebody may have meant: the closest of those that there are."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches

LIKENESS = 0.75
NAMES_MAX = 10_000
LENGTH_MAX = 317  # the longest key of a label: a prefix, a slash and a name


def closest(name: str, known: Iterable[str]) -> str:
    """The one that is most alike; empty if none is, or if the name itself is known."""
    names = list(dict.fromkeys(known))[:NAMES_MAX]
    if not name or name in names or len(name) > LENGTH_MAX:
        return ""
    return next(iter(several_close(name, names, 1)), "")


def several_close(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Those that are alike, the most alike first."""
    names = sorted({one for one in known if one != name and len(one) <= LENGTH_MAX})[:NAMES_MAX]
    if len(name) > LENGTH_MAX:
        return []
    return get_close_matches(name, names, most, LIKENESS)


def closest_key(key: str, known: Iterable[str]) -> str:
    """The same for `prefix/name`: the prefix may be missing or another; then the names decide."""
    names = list(known)
    found = closest(key, names)
    if found or key in names:
        return found
    own = key.rpartition("/")[2]
    for one in names:
        if one.rpartition("/")[2] == own:
            return one
    scored = [(SequenceMatcher(None, own, one.rpartition("/")[2]).ratio(), one) for one in names[:NAMES_MAX]]
    best = max(scored, default=(0.0, ""))
    return best[1] if best[0] >= LIKENESS else ""
