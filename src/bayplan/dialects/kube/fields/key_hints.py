"""Labels and annotations that look like ours and are not read: misspelt, or written in another place."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from bayplan.dialects.kube.fields.closest_name import closest, closest_key
from bayplan.dialects.kube.fields.reader import Field

HINTS_MAX = 10  # for one object


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one family; all begin with its prefix and a slash."""

    prefix: str
    labels: Collection[str] = ()  # that people write as labels
    notes: Collection[str] = ()  # that people write as annotations
    others: Collection[str] = ()  # that are known, and that nobody need write

    def meant(self, key: str) -> str:
        """The key that was meant by one that is not known; empty if it is known, or like none."""
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
    """What somebody may have meant by the keys of one object's labels and annotations."""
    written = {place: metadata.at(place).value for place in ("labels", "annotations")}
    for place, other, right, wrong in (
        ("labels", "annotations", keys.labels, keys.notes),
        ("annotations", "labels", keys.notes, keys.labels),
    ):
        found, elsewhere = written[place], written[other]
        for key in found if isinstance(found, dict) else ():
            if meant := keys.meant(str(key)):
                yield f"{metadata.path}.{place}: {key} is not known and has no effect; did you mean {meant}?"
            elif key in wrong and key not in right and not (isinstance(elsewhere, dict) and key in elsewhere):
                meant = "an annotation" if other == "annotations" else "a label"
                yield f"{metadata.path}.{place}: {key} has no effect here; did you mean {meant} of that name?"


def level_hint(level: str, levels: Collection[str]) -> str:
    """What to say of a topology level that no topology has."""
    if not levels:
        return f"{level} is no level of a topology: there is none"
    if meant := closest_key(level, levels):
        return f"{level} is no level of a topology; did you mean {meant}?"
    return f"{level} is no level of a topology; there are {', '.join(sorted(levels)[:8])}"
