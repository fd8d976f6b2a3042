"""The page on performance: every figure has a command, and every measurement is on the page."""

from __future__ import annotations

import re

from tests.support.documented_commands import ROOT

PAGE = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))


def test_every_measurement_can_be_reproduced_from_the_page() -> None:
    listed = set(re.findall(r"^make (bench-[a-z]+)", PAGE, re.MULTILINE))
    assert listed == {target for target in TARGETS if target.startswith("bench-")}


def test_every_figure_names_the_command_that_printed_it() -> None:
    table = PAGE.partition("## Figures\n")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and "---" not in line][1:]
    commands = [re.findall(r"`make ([a-z-]+)", row.rstrip(" |").rpartition("|")[2]) for row in rows]
    assert rows and all(len(found) == 1 and found[0] in TARGETS for found in commands), commands
