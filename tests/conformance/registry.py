"""Which check runs which case file: gathered from every module here that defines FILES."""

from __future__ import annotations

import importlib
import pkgutil
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

Check = Callable[[dict[str, Any]], list[str]]


class NothingToRun(Exception):
    """A case that lacks what it is about; it is counted apart."""


@dataclass(frozen=True, slots=True)
class ForFile:
    """A check that needs to know the file, since its cases lean on other files beside it."""

    of: Callable[[Path], Check]


@dataclass(frozen=True, slots=True)
class Registry:
    """Checks by pattern of `family/file` without extension, and the modules that could not be read."""

    checks: Mapping[str, Check | ForFile]
    broken: Mapping[str, str] = field(default_factory=dict)  # module name -> traceback

    def check_of(self, name: str) -> Check | ForFile | None:
        """The check of a file; of several patterns that match, the longest is meant."""
        patterns = [pattern for pattern in self.checks if fnmatchcase(name, pattern)]
        return self.checks[max(patterns, key=lambda p: (len(p), p))] if patterns else None


def discover() -> Registry:
    """Every check of the modules beside this one."""
    checks: dict[str, Check | ForFile] = {}
    broken: dict[str, str] = {}
    for module in sorted(pkgutil.iter_modules([str(Path(__file__).parent)]), key=lambda m: m.name):
        if module.name == "__main__":
            continue
        try:
            found = importlib.import_module(f"tests.conformance.{module.name}")
        except Exception:
            broken[module.name] = traceback.format_exc()
            continue
        for pattern, check in getattr(found, "FILES", {}).items():
            assert pattern not in checks, f"{pattern} is claimed twice"
            checks[pattern] = check
    return Registry(checks, broken)
