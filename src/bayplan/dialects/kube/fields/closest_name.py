"""The name that somebody may have meant: the closest of those that there are."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

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
    """The same for `prefix/name`: keys of one prefix are alike only if their names are.

    A key of a prefix that none has may be meant by its name alone, or be alike as a whole.
    """
    names = list(dict.fromkeys(known))
    prefix, _, own = key.rpartition("/")
    mine = {one.rpartition("/")[2]: one for one in names if one.rpartition("/")[0] == prefix}
    if key in names or mine:
        return mine.get(closest(own, mine), "")
    alike = [one for one in names if one == own or one.endswith((f"/{own}", f"-{own}"))]
    return alike[0] if len(alike) == 1 else closest(key, names)
