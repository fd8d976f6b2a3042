"""Warnings about labels and annotations that look like ours but are ignored: misspelt, or misplaced."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from bayplan.dialects.kube.fields.closest_name import closest, closest_key
from bayplan.dialects.kube.fields.reader import Field

HINTS_MAX = 10  # for one object


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one dialect; all begin with its prefix and a slash."""

    prefix: str
    labels: Collection[str] = ()  # used as labels
    notes: Collection[str] = ()  # used as annotations
    others: Collection[str] = ()  # known, but not written by users

    def meant(self, key: str) -> str:
        """The suggestion for an unknown key; empty if it is known, or similar to none."""
        known = {*self.labels, *self.notes, *self.others}
        prefix, slash, name = key.rpartition("/")
        if key in known or not slash:
            return ""
        if prefix == self.prefix:
            return closest_key(key, (*self.labels, *self.notes))
        if f"{self.prefix}/{name}" in known and closest(prefix, (self.prefix,)):
            return f"{self.prefix}/{name}"
        return ""


def key_hints(metadata: Field, keys: Keys) -> Iterator[str]:
    """Suggestions for the keys of the labels and annotations of one object."""
    written = {place: metadata.at(place).value for place in ("labels", "annotations")}
    for place, other, right, wrong in (
        ("labels", "annotations", keys.labels, keys.notes),
        ("annotations", "labels", keys.notes, keys.labels),
    ):
        keys_here, keys_there = written[place], written[other]
        for key in keys_here if isinstance(keys_here, dict) else ():
            if meant := keys.meant(str(key)):
                yield f"{metadata.path}.{place}: {key} is not known and has no effect; did you mean {meant}?"
            elif (
                key in wrong and key not in right and not (isinstance(keys_there, dict) and key in keys_there)
            ):
                meant = "an annotation" if other == "annotations" else "a label"
                yield f"{metadata.path}.{place}: {key} has no effect here; did you mean {meant} of that name?"


def level_hint(level: str, levels: Collection[str]) -> str:
    """The message for a topology level that no topology has."""
    if not levels:
        return f"{level} is no level of a topology: there is none"
    if meant := closest_key(level, levels):
        return f"{level} is no level of a topology; did you mean {meant}?"
    return f"{level} is no level of a topology; there are {', '.join(sorted(levels)[:8])}"
