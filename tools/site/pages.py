"""The pages of the site, assembled in a folder: those below docs/, examples, and documents of the root.

They are written to be read in the repository: a page links to examples, tests and sources by relative paths.
On the site, examples and the documents of the root are pages, and a source file is named instead of linked.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = "docs"
PROJECT = {
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security-policy.md",
    "STYLE.md": "project/style.md",
    "README.md": "index.md",
}
"""Documents of the root, and the page that each becomes; the home page stands in for the README."""
LISTED = {
    "docs/decisions": "decisions/index.md",
    "docs/guide": "guide/operations.md",
    "docs/migrate": "migrate/kueue.md",
}
"""Folders that pages link to as a whole, and the page that is shown for them."""
EXAMPLES = "examples"
EXAMPLE_SUFFIXES = {".md", ".yaml", ".txt"}
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_FENCED = re.compile(r"^(```.*?^```[ ]*$)", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r"^# (.*)$", re.MULTILINE)


def assemble(folder: Path) -> None:
    """Write all pages and their images into an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    for page, name in sources().items():
        path = folder / page
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            text = (ROOT / name).read_text(encoding="utf-8")
            path.write_text(with_site_links(text, page, name), encoding="utf-8")
        else:
            shutil.copyfile(ROOT / name, path)
    (folder / "decisions" / "index.md").write_text(decisions(), encoding="utf-8")


def sources() -> dict[str, str]:
    """The files of the site, each with its path in the repository."""
    found = {page: name for name, page in PROJECT.items() if page != "index.md"}
    for path in sorted((ROOT / EXAMPLES).rglob("*")):
        if path.suffix in EXAMPLE_SUFFIXES and path.is_file():
            name = path.relative_to(ROOT).as_posix()
            found[name] = name
    for path in sorted((ROOT / DOCS).rglob("*")):
        if path.is_file():
            found[path.relative_to(ROOT / DOCS).as_posix()] = path.relative_to(ROOT).as_posix()
    return found


def site_path(name: str) -> str | None:
    """Where a file of the repository is on the site; None if it is not part of it."""
    name = name.rstrip("/")
    if name in PROJECT:
        return PROJECT[name]
    if name in LISTED:
        return LISTED[name]
    if name == EXAMPLES or name.startswith(f"{EXAMPLES}/"):
        path = ROOT / name
        if path.is_dir():
            return f"{name}/README.md" if (path / "README.md").is_file() else None
        return name if path.suffix in EXAMPLE_SUFFIXES else None
    if name.startswith(f"{DOCS}/"):
        return name.removeprefix(f"{DOCS}/")
    return None


def with_site_links(markdown: str, page: str, source: str) -> str:
    """The text of a page with links as they are on the site. Code is left alone."""
    parts = _FENCED.split(markdown)
    return "".join(part if part.startswith("```") else _linked(part, page, source) for part in parts)


def _linked(text: str, page: str, source: str) -> str:
    def replaced(found: re.Match[str]) -> str:
        image, words, target = found.groups()
        address, hash_sign, anchor = target.partition("#")
        if not address or re.match(r"[a-z]+:", address):
            return found[0]
        name = posixpath.normpath(posixpath.join(posixpath.dirname(source), address))
        there = site_path(name)
        if there is None:
            assert (ROOT / name).exists(), f"{source} links to {address}, which does not exist"
            return words if name in words else f"{words} (`{name}`)"
        relative = posixpath.relpath(there, posixpath.dirname(page) or ".")
        return f"{image}[{words}]({relative}{hash_sign}{anchor})"

    return _LINK.sub(replaced, text)


def decisions() -> str:
    """The page that lists all decisions."""
    lines = [
        "# Decisions\n",
        "Why Bayplan is built as it is: one page for each choice that others may question.\n",
    ]
    for path in sorted((ROOT / DOCS / "decisions").glob("[0-9]*.md")):
        title = _TITLE.search(path.read_text(encoding="utf-8"))
        assert title is not None, path
        number, _, words = title[1].partition(". ")
        lines.append(f"- {number}: [{words}]({path.name})")
    return "\n".join(lines) + "\n"
