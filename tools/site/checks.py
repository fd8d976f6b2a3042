"""A check of the built site: links and anchors lead somewhere, and no page loads anything from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {
    "script": "src", "img": "src", "iframe": "src", "source": "src", "audio": "src", "video": "src",
    "embed": "src", "object": "data", "link": "href", "form": "action", "use": "href", "input": "src",
}  # fmt: skip
"""Elements that make a browser load something, and the attribute with the address. Links that a reader
follows (`a`) may lead to other sites."""
_CSS_ADDRESS = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")
NOT_LOADED = {"canonical", "next", "prev", "alternate"}


@dataclass(slots=True)
class Page:
    """What a page refers to."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)


class PageReader(HTMLParser):
    """Collects anchors, links and what is loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.page = Page()
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.page.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        self._in_style = tag == "style"
        if tag == "a" and given.get("href"):
            self.page.links.append(given["href"])
        elif tag in LOADED and given.get(LOADED[tag]) and given.get("rel") not in NOT_LOADED:
            self.page.loads.append(given[LOADED[tag]])
        if "srcset" in given:
            self.page.loads += [one.split()[0] for one in given["srcset"].split(",")]
        self.page.loads += css_addresses(given.get("style", ""))

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.page.loads += css_addresses(data)


def css_addresses(text: str) -> list[str]:
    """What a style sheet loads, apart from data in the address itself."""
    found = [one or other for one, other in _CSS_ADDRESS.findall(text)]
    return [address for address in found if not address.startswith(("data:", "#"))]


def read_site(site: Path) -> dict[Path, Page]:
    """All pages."""
    found = {}
    for path in sorted(site.rglob("*.html")):
        reader = PageReader()
        reader.feed(path.read_text(encoding="utf-8"))
        found[path] = reader.page
    return found


def faults(site: Path) -> Iterator[str]:
    """A sentence for each link that leads nowhere and each address of another site that is loaded."""
    pages = read_site(site)
    if not pages:
        yield f"{site} has no pages; run make docs"
    for path, page in pages.items():
        where = path.relative_to(site)
        for address in page.loads:
            yield from _loaded(site, path, address, str(where))
        for address in {*page.links, *page.loads}:
            if problem := _broken(site, path, address, pages):
                yield f"{where}: {address} {problem}"
    for path in sorted(site.rglob("*.css")):
        for address in css_addresses(path.read_text(encoding="utf-8")):
            yield from _loaded(site, path, address, str(path.relative_to(site)))


def _loaded(site: Path, path: Path, address: str, where: str) -> Iterator[str]:
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        yield f"{where}: loads {address} from another site; keep a copy in the repository"
    elif not _file(site, path, parts.path).is_relative_to(site.resolve()):
        yield f"{where}: {address} is outside of the site"


def _file(site: Path, path: Path, address: str) -> Path:
    """The file at an address of a page; the page for errors has addresses from the root of the site."""
    if address.startswith("/"):
        return (site / unquote(address[1:])).resolve()
    return (path.parent / unquote(address)).resolve() if address else path.resolve()


def _broken(site: Path, path: Path, address: str, pages: dict[Path, Page]) -> str:
    """Why an address of the site leads nowhere; empty if it leads somewhere, or to another site."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return ""
    target = _file(site, path, parts.path)
    if target.is_dir():
        target = target / "index.html"
    if not target.exists():
        return "does not exist"
    known = {page.resolve(): found for page, found in pages.items()}
    if parts.fragment and target in known and unquote(parts.fragment) not in known[target].anchors:
        return "has no such anchor"
    return ""
