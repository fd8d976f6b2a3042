"""Releases: lock files cover what is asked for, licences are allowed, the changelog is cut right."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from bayplan import __version__
from tools.release.licences import Package, installed, is_allowed, licence, refused
from tools.release.locks import LOCKS, ROOT, pinned, unhashed
from tools.release.versions import current, cut, section

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CHANGES = "# Changelog\n\n## [Unreleased]\n\n### Added\n- one\n\n## [0.1.0] - 2026-01-01\n\n- old\n"


def asked_for(name: str) -> list[Requirement]:
    """What pyproject.toml asks for where a lock file is installed."""
    if name in PROJECT["dependency-groups"]:
        return [Requirement(text) for text in PROJECT["dependency-groups"][name]]
    extras = [part.removeprefix("--extra=") for part in LOCKS[name] if part.startswith("--extra=")]
    project = PROJECT["project"]
    texts = [text for extra in extras for text in project["optional-dependencies"][extra]]
    return [Requirement(text) for text in (*project["dependencies"], *texts)]


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_file_has_what_the_project_asks_for(name: str) -> None:
    locked = pinned(name)
    missing = [
        str(one)
        for one in asked_for(name)
        if not any(one.specifier.contains(version) for version in locked.get(one.name.lower(), ()))
    ]
    assert missing == [], "run make lock"


@pytest.mark.parametrize("name", LOCKS)
def test_every_package_of_a_lock_file_has_hashes(name: str) -> None:
    assert unhashed(name) == []


def test_the_image_has_the_versions_that_are_tested() -> None:
    tested = pinned("dev")
    assert {name: tested.get(name) for name in pinned("image")} == pinned("image")


def test_the_licences_of_this_environment_are_allowed() -> None:
    assert list(refused(installed())) == []


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("MIT OR GPL-3.0-only", True),
        ("MIT AND GPL-3.0-only", False),
        ("(MIT OR GPL-3.0-only) AND Apache-2.0", True),
        ("GPL-3.0-only AND MIT OR BSD-3-Clause", True),
        ("Apache-2.0 AND (GPL-2.0-only OR AGPL-3.0-only)", False),
    ],
)
def test_an_expression_is_allowed_if_allowed_licences_fulfil_it(expression: str, allowed: bool) -> None:
    assert is_allowed(expression) == allowed


def test_a_licence_that_is_unknown_or_not_allowed_is_refused_with_what_to_do() -> None:
    found = list(
        refused([Package("a", "1", ""), Package("b", "2", "AGPL-3.0-only"), Package("c", "3", "MIT")])
    )
    assert [sentence.split(" ")[0] for sentence in found] == ["a", "b"]
    assert "add it to READ" in found[0] and "AGPL-3.0-only, which is not allowed" in found[1]


@pytest.mark.parametrize(
    ("fields", "meant"),
    [
        ("License-Expression: MIT", "MIT"),
        ("License: Apache-2.0", "Apache-2.0"),
        ("Classifier: License :: OSI Approved :: MIT License", "MIT"),
        ("Classifier: License :: OSI Approved :: BSD License", ""),
        ("License: see the file", ""),
    ],
)
def test_a_licence_is_read_from_the_metadata_of_a_package(tmp_path: Path, fields: str, meant: str) -> None:
    folder = tmp_path / "thing-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.4\nName: thing\nVersion: 1\n{fields}\n")
    assert licence(PathDistribution(folder)) == meant


def test_a_release_dates_the_unreleased_changes() -> None:
    after = cut(CHANGES, "0.2.0", "2026-11-17")
    assert section(after, "0.2.0") == "### Added\n- one"
    assert section(after, "Unreleased") == ""
    assert "## [0.2.0] - 2026-11-17" in after


@pytest.mark.parametrize(
    ("version", "text", "why"),
    [
        ("two", CHANGES, "not a version"),
        ("0.1.0", CHANGES, "already"),
        ("0.2.0", CHANGES.replace("### Added\n- one\n\n", ""), "nothing to release"),
    ],
)
def test_a_release_is_refused_with_a_reason(version: str, text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        cut(text, version, "2026-11-17")


def test_the_version_is_that_of_the_package() -> None:
    assert current() == __version__


def test_the_guide_to_releasing_names_targets_that_exist() -> None:
    guide = (ROOT / "docs" / "releasing.md").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {word for line in re.findall(r"`make ([a-z -]+)", guide) for word in line.split()}
    assert named <= targets
