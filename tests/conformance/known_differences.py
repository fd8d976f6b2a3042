"""Differences we know and stand by, each with its reason; the list may only shrink."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

KNOWN_DIFFERENCES = Path(__file__).with_name("known_differences.toml")


@dataclass(frozen=True, slots=True)
class Known:
    """One entry: a pattern of `family/file`, a case id (or, ending in `*`, the start of it), and why."""

    file: str
    case: str
    reason: str
    says: str = ""  # only where the difference, as reported, holds these words

    def explains(self, details: tuple[str, ...]) -> bool:
        """Whether a difference of a covered case is the one meant."""
        return self.says in "\n".join(details)

    def covers(self, file: str, case: str) -> bool:
        """Whether this case of this file (named without extension) is meant."""
        if not fnmatchcase(file, self.file):
            return False
        return case.startswith(self.case[:-1]) if self.case.endswith("*") else case == self.case


def read_known(path: Path) -> tuple[Known, ...]:
    """The entries of the list; an entry without file, case or reason is an error."""
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("difference", [])
    known = tuple(Known(**entry) for entry in entries)
    for entry in known:
        if not (entry.file and entry.case and entry.reason.strip()):
            raise ValueError(f"{path}: file, case and reason must all be given: {entry}")
    return known
