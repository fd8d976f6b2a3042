"""The pages of the site: all of them are in the navigation, links hold in the repository and on the site."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

import pytest
import yaml

from tests.support.documented_commands import ROOT, pages
from tools.site.checks import css_addresses, faults
from tools.site.pages import assemble, decisions, sources, with_site_links

LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")
FENCED = re.compile(r"^[ ]*```.*?^[ ]*```[ ]*$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def without_code(path: Path) -> str:
    text = FENCED.sub("", path.read_text(encoding="utf-8"))
    return re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)


def anchors(path: Path) -> set[str]:
    """The anchors of the headings of a page, as GitHub and mkdocs make them."""
    found = set()
    for title in HEADING.findall(without_code(path)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").replace("*", "")
        found.add(re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", plain.lower()).strip()))
    return found


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_between_pages_hold(path: Path) -> None:
    text = re.sub(r"`[^`\n]*`", "", without_code(path))
    broken = []
    for target in LINK.findall(text):
        address, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", address):
            continue
        there = path if not address else (path.parent / address)
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
            broken.append(target)
    assert broken == []


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    settings = yaml.safe_load(text)
    named = set(re.findall(r": (\S+\.md)$", text, re.MULTILINE))
    left_out = [re.compile(one.strip("/").replace("*", "[^/]*")) for one in settings["not_in_nav"].split()]
    wanted = {page for page in (*sources(), "decisions/index.md") if page.endswith(".md")}
    wanted = {page for page in wanted if not any(one.fullmatch(page) for one in left_out)}
    assert named == wanted


def test_on_the_site_examples_are_pages_and_sources_are_named() -> None:
    def on_site(text: str) -> str:
        return with_site_links(text, "guide/queues.md", "docs/guide/queues.md")

    assert on_site("[x](../../examples/README.md#a)") == "[x](../examples/README.md#a)"
    assert on_site("[x](../../CHANGELOG.md)") == "[x](../project/changelog.md)"
    assert on_site("[x](../../tests/test_tidy.py)") == "x (`tests/test_tidy.py`)"
    assert (
        on_site("[x](up.md) [y](#z) [w](https://semver.org/)")
        == "[x](up.md) [y](#z) [w](https://semver.org/)"
    )
    assert on_site("[x](../decisions/)") == "[x](../decisions/index.md)"
    assert on_site("```sh\n[x](../../CHANGELOG.md)\n```") == "```sh\n[x](../../CHANGELOG.md)\n```"


def test_a_link_to_nothing_is_an_error() -> None:
    with pytest.raises(AssertionError, match="does not exist"):
        with_site_links("[x](../../nothing.py)", "guide/queues.md", "docs/guide/queues.md")


def test_all_pages_are_assembled(tmp_path: Path) -> None:
    assemble(tmp_path / "pages")
    found = {
        path.relative_to(tmp_path / "pages").as_posix()
        for path in (tmp_path / "pages").rglob("*")
        if path.is_file()
    }
    assert found == {*sources(), "decisions/index.md"}
    listed = set(re.findall(r"\((\d{4}-[^)]*\.md)\)", decisions()))
    assert listed == {posixpath.basename(name) for name in sources() if re.match(r"decisions/\d", name)}


def test_the_theme_is_told_to_load_nothing_from_elsewhere() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert settings["theme"]["font"] is False
    assert all(
        name.startswith("assets/") for name in (*settings["extra_css"], *settings["extra"]["polyfills"])
    )


def site_with(folder: Path, body: str) -> list[str]:
    (folder / "other.html").write_text('<h1 id="top">Other</h1>')
    (folder / "index.html").write_text(f"<body>{body}</body>")
    return list(faults(folder))


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('<a href="other.html#top">x</a> <a href="https://example.com/">y</a> <a href="#">z</a>', ""),
        ('<a href="gone.html">x</a>', "gone.html does not exist"),
        ('<a href="other.html#bottom">x</a>', "other.html#bottom has no such anchor"),
        (
            '<script src="https://example.com/x.js"></script>',
            "loads https://example.com/x.js from another site",
        ),
        ('<link rel="stylesheet" href="//example.com/x.css">', "loads //example.com/x.css from another site"),
        ('<link rel="canonical" href="https://example.com/">', ""),
        ("<style>p {background: url(https://example.com/x.png)}</style>", "loads https://example.com/x.png"),
        ('<img src="../x.png">', "is outside of the site"),
    ],
)
def test_the_check_of_the_site_finds(tmp_path: Path, body: str, fault: str) -> None:
    found = site_with(tmp_path, body)
    assert (fault in " ".join(found)) if fault else found == []


def test_what_a_style_sheet_loads() -> None:
    assert css_addresses('a{b:url("x.svg")} @import "y.css"; c{d:url(data:image/svg+xml,z)}') == [
        "x.svg",
        "y.css",
    ]
