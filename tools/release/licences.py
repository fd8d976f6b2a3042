"""Licences: what each installed package says of its own, compared with the licences that are allowed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path

ALLOWED = frozenset(
    {
        "0BSD",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "BSL-1.0",
        "CC0-1.0",
        "ISC",
        "MIT",
        "MIT-0",
        "MIT-CMU",
    }
    | {"MPL-2.0", "PSF-2.0", "Python-2.0", "Unicode-3.0", "Unlicense", "Zlib"}
)
"""SPDX identifiers of permissive licences, and of the Mozilla one, which covers changes of its own files."""

CLASSIFIERS: Mapping[str, str] = {
    "Apache Software License": "Apache-2.0",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""What classifiers mean that name one licence; "BSD License" names several."""

READ: Mapping[str, str] = {
    "aiosignal": "Apache-2.0",
    "axe-playwright-python": "MIT AND MPL-2.0",
    "colorama": "BSD-3-Clause",
    "contourpy": "BSD-3-Clause",
    "cycler": "BSD-3-Clause",
    "docutils": "CC0-1.0 AND BSD-2-Clause",
    "jinja2": "BSD-3-Clause",
    "jsonpointer": "BSD-3-Clause",
    "kiwisolver": "BSD-3-Clause",
    "protobuf": "BSD-3-Clause",
}
"""Packages whose metadata is not clear, and the licence that their files have. docutils: a public domain
dedication; the one file under the GPL is an Emacs mode, which the wheel does not contain.
axe-playwright-python contains axe-core, which is under the MPL; only tests use it."""

_WORD = re.compile(r"[()]|[^\s()]+")


@dataclass(frozen=True, slots=True)
class Package:
    """An installed package and its licence as an SPDX expression; empty if it is not known."""

    name: str
    version: str
    licence: str


def installed(folder: Path | None = None) -> list[Package]:
    """The packages of a folder, or of this environment, by name."""
    found = distributions(path=[str(folder)]) if folder else distributions()
    packages = {one.name.lower(): Package(one.name, one.version, licence(one)) for one in found}
    return [packages[name] for name in sorted(packages)]


def licence(package: Distribution) -> str:
    """The licence of a package: as read by us, else by its metadata, newest field first."""
    if package.name.lower() in READ:
        return READ[package.name.lower()]
    metadata = package.metadata
    for expression in metadata.get_all("License-Expression") or []:
        return str(expression)
    classified = {one.rpartition(" :: ")[2] for one in metadata.get_all("Classifier") or []}
    named = sorted({CLASSIFIERS[one] for one in classified & CLASSIFIERS.keys()})
    text = "".join(metadata.get_all("License") or []).strip()
    if text in ALLOWED:
        return text
    return named[0] if len(named) == 1 else ""


def refused(packages: Iterable[Package]) -> Iterator[str]:
    """A sentence for each package whose licence is unknown or not allowed."""
    for one in packages:
        if not one.licence:
            yield (
                f"{one.name} {one.version} has no licence in its metadata that is an SPDX identifier; "
                "read its licence file and add it to READ in tools/release/licences.py"
            )
        elif not is_allowed(one.licence):
            yield (
                f"{one.name} {one.version} has the licence {one.licence}, which is not allowed; use another "
                "package, or add the licence to ALLOWED in tools/release/licences.py if it is permissive"
            )


def is_allowed(expression: str) -> bool:
    """Whether an SPDX expression can be fulfilled with allowed licences."""
    words = _WORD.findall(expression)
    answer = _either(words)
    assert not words, f"{expression} is not an SPDX expression"
    return answer


def _either(words: list[str]) -> bool:
    answer = _both(words)
    while words and words[0].upper() == "OR":
        words.pop(0)
        answer = _both(words) or answer
    return answer


def _both(words: list[str]) -> bool:
    answer = _one(words)
    while words and words[0].upper() == "AND":
        words.pop(0)
        answer = _one(words) and answer
    return answer


def _one(words: list[str]) -> bool:
    word = words.pop(0)
    if word == "(":
        answer = _either(words)
        assert words.pop(0) == ")", "a bracket is not closed"
        return answer
    return word in ALLOWED
