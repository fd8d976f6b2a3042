"""Suggestions for misspelt names: the closest of the known ones."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

LIKENESS = 0.75
NAMES_MAX = 10_000
LENGTH_MAX = 317  # the longest key of a label: a prefix, a slash and a name


def closest(name: str, known: Iterable[str]) -> str:
    """The closest known name; empty if none is similar, or if the name itself is known."""
    names = list(dict.fromkeys(known))[:NAMES_MAX]
    if not name or name in names or len(name) > LENGTH_MAX:
        return ""
    return next(iter(closest_names(name, names, 1)), "")


def closest_names(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """Similar names, the closest first."""
    names = sorted({one for one in known if one != name and len(one) <= LENGTH_MAX})[:NAMES_MAX]
    if len(name) > LENGTH_MAX:
        return []
    return get_close_matches(name, names, limit, LIKENESS)


def closest_key(key: str, known: Iterable[str]) -> str:
    """The same for `prefix/name`: with a known prefix, only the names are compared.

    A key with an unknown prefix is matched by its name alone, or as a whole.
    """
    names = list(dict.fromkeys(known))
    prefix, _, name = key.rpartition("/")
    same_prefix = {one.rpartition("/")[2]: one for one in names if one.rpartition("/")[0] == prefix}
    if key in names or same_prefix:
        return same_prefix.get(closest(name, same_prefix), "")
    same_name = [one for one in names if one == name or one.endswith((f"/{name}", f"-{name}"))]
    return same_name[0] if len(same_name) == 1 else closest(key, names)
