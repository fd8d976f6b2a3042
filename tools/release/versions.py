"""The version: where it is written, and how the changelog is cut for a release."""

from __future__ import annotations

import re
from pathlib import Path

from tools.release.locks import ROOT

SOURCE = ROOT / "src" / "bayplan" / "__init__.py"
CHANGELOG = ROOT / "CHANGELOG.md"
UNRELEASED = "## [Unreleased]"
_VERSION = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")
_ASSIGNED = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)


def current(source: Path = SOURCE) -> str:
    """The version of the sources."""
    found = _ASSIGNED.search(source.read_text(encoding="utf-8"))
    assert found, f"{source.name} has no line __version__ = ..."
    return found[1]


def cut(changelog: str, version: str, day: str) -> str:
    """The changelog with the unreleased changes under a version, and an empty section for what comes next."""
    if not _VERSION.fullmatch(version):
        raise ValueError(f"{version} is not a version; give one such as 0.2.0 or 0.2.0rc1")
    if f"## [{version}]" in changelog:
        raise ValueError(f"CHANGELOG.md has a section for {version} already; give the next version")
    if not section(changelog, "Unreleased"):
        raise ValueError("CHANGELOG.md has no unreleased changes; there is nothing to release")
    return changelog.replace(UNRELEASED, f"{UNRELEASED}\n\n## [{version}] - {day}", 1)


def section(changelog: str, version: str) -> str:
    """What the changelog says of a version."""
    found = re.search(
        rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## \[|\Z)", changelog, re.MULTILINE | re.DOTALL
    )
    return found[1].strip() if found else ""


def set_version(version: str, day: str) -> list[Path]:
    """Write a version to the sources and the changelog."""
    changed = cut(CHANGELOG.read_text(encoding="utf-8"), version, day)
    source = _ASSIGNED.sub(f'__version__ = "{version}"', SOURCE.read_text(encoding="utf-8"))
    CHANGELOG.write_text(changed, encoding="utf-8")
    SOURCE.write_text(source, encoding="utf-8")
    return [SOURCE, CHANGELOG]
