"""Case files where they lie: finding them, naming them, reading them case by case."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

EXTENSIONS = (".json", ".jsonl", ".jsonl.gz", ".json.gz")
LISTS = ("cases", "examples")
"""Where a file that is not a plain list keeps its cases."""


@dataclass(frozen=True, slots=True)
class CaseFile:
    """A file of cases, known as `family/file`."""

    path: Path
    label: str  # with extension
    name: str  # without

    def matches(self, pattern: str) -> bool:
        """Whether the pattern means this file, written with or without its extension."""
        return fnmatchcase(self.label, pattern) or fnmatchcase(self.name, pattern)


@dataclass(frozen=True, slots=True)
class Malformed:
    """A place in a file where a case should stand and does not."""

    where: str
    why: str


def find_case_files(directory: Path, only: str = "*") -> list[CaseFile]:
    """Every case file below the directory that the pattern means, by name.

    Files right in the directory belong to the family that the directory is named after.
    """
    found = []
    for path in sorted(p for p in directory.rglob("*") if p.is_file()):
        extension = next((e for e in EXTENSIONS if path.name.endswith(e)), None)
        if extension is None:
            continue
        inside = path.relative_to(directory)
        label = inside.as_posix() if len(inside.parts) > 1 else f"{directory.resolve().name}/{inside.name}"
        file = CaseFile(path, label, label.removesuffix(extension))
        if file.matches(only):
            found.append(file)
    return found


def read_cases(file: CaseFile) -> Iterator[tuple[str, dict[str, Any]] | Malformed]:
    """The cases of a file with their ids, in order; what cannot be read is told with its line."""
    try:
        data = file.path.read_bytes()
        text = (gzip.decompress(data) if file.path.suffix == ".gz" else data).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        yield Malformed(file.label, f"cannot be read: {error}")
        return
    entries = _lines(text) if ".jsonl" in file.label else _whole(text)
    for number, entry in enumerate(entries, start=1):
        if isinstance(entry, Malformed):
            yield Malformed(f"{file.label}{entry.where}", entry.why)
        elif isinstance(entry, dict):
            yield str(entry.get("id") or entry.get("name") or f"#{number}"), entry
        else:
            yield Malformed(f"{file.label} case {number}", "is not an object")


def _lines(text: str) -> Iterator[Any]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield from _parsed(line, number)


def _whole(text: str) -> Iterator[Any]:
    for document in _parsed(text, 1):
        if isinstance(document, Malformed):
            yield document
            continue
        cases = document
        if isinstance(document, dict):
            cases = next((document[key] for key in LISTS if key in document), None)
            if "tables" in document:
                cases = [case for table in document["tables"] for case in _tabled(table)]
        if isinstance(cases, list):
            yield from cases
        else:
            yield Malformed(" line 1", "holds no list of cases")


def _tabled(table: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The cases of one table of several, a list or a mapping by name; the table is part of their ids."""
    cases = table["cases"]
    named = cases.items() if isinstance(cases, dict) else ((case.get("name", ""), case) for case in cases)
    for name, case in named:
        yield {"id": f"{table['func']}/{name}", **case}


def _parsed(text: str, first_line: int) -> Iterator[Any]:
    try:
        yield json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        line = first_line + (error.lineno - 1 if isinstance(error, json.JSONDecodeError) else 0)
        yield Malformed(f" line {line}", f"is not JSON: {error}")
