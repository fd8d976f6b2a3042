"""Fenced blocks of the documentation, and how each is run: a comment above a block of commands says so.

`<!-- run: alone -->` needs no cluster, `<!-- run: in memory -->` one in memory, `<!-- run by: FILES -->`
names the tests that run the same commands, and `<!-- not run: WHY -->` says why none does.
`<!-- file: NAME -->` above a block is the file that commands of the page read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMANDS = ("sh", "console")
"""The languages of blocks that a reader is to type."""
_FENCE = re.compile(r"^(\s*)```(\S*)\s*$")
_MARK = re.compile(r"^\s*<!-- (run|run by|not run|file): (.+) -->$")


@dataclass(frozen=True, slots=True)
class FencedBlock:
    """A block, and the comment above it."""

    page: str  # its path in the repository
    line: int
    language: str
    text: str
    mark: str = ""  # run, run by, not run or file
    said: str = ""

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    def commands(self) -> list[str]:
        """The commands: all lines of `sh` without their comments, those after a $ of `console`."""
        lines = self.text.splitlines()
        if self.language == "console":
            return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        joined = self.text.replace("\\\n", " ").splitlines()
        return [bare for line in joined if (bare := re.sub(r"(^|\s)#.*$", "", line).strip())]

    def output(self) -> str:
        """What a `console` block shows below its commands."""
        return "".join(f"{line}\n" for line in self.text.splitlines() if not line.startswith("$ "))


def pages() -> list[Path]:
    """Every page that people read, on the site or in the repository."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    return sorted(found)


def blocks(path: Path) -> Iterator[FencedBlock]:
    """The fenced blocks of a page."""
    page, lines = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8").splitlines()
    opened: tuple[int, str, str] | None = None
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        if fence is None:
            assert opened is not None or not line.lstrip().startswith("```"), f"{page}:{number + 1}: {line}"
            continue
        if opened is None:
            opened = (number, fence[1], fence[2])
            continue
        start, indent, language = opened
        text = "".join(f"{one.removeprefix(indent)}\n" for one in lines[start + 1 : number])
        mark = _MARK.match(lines[start - 1]) if start else None
        yield FencedBlock(page, start + 1, language, text, *(mark.groups() if mark else ("", "")))
        opened = None
    assert opened is None, f"{page}: a block is not closed"
