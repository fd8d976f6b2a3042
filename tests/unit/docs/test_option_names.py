"""Options of the configuration that pages name exist."""

from __future__ import annotations

import re

from bayplan.configuration.settings import OPTIONS, sections
from tests.support.documented_commands import ROOT, pages

NAMED = re.compile(rf"`((?:{'|'.join(sections())})\.[A-Za-z.]+[A-Za-z])")
KNOWN = {".".join(option.keys[:depth]) for option in OPTIONS for depth in range(1, len(option.keys) + 1)}
OTHERS = {"resources.requests", "resources.limits"}  # of containers
NOT_OPTIONS = (".ai", ".csv", ".io", ".sh", ".yaml")  # API groups and files
GENERATED = "docs/reference/configuration.md"  # it also has options of Kueue


def test_every_option_that_a_page_names_exists() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in pages()
        if path != ROOT / GENERATED and path.name != "CHANGELOG.md"
        for name in NAMED.findall(path.read_text(encoding="utf-8"))
        if name not in KNOWN | OTHERS and not name.endswith(NOT_OPTIONS)
    }
    assert found == set()
