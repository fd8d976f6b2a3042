"""The built documentation in a real browser: search works without a server, nothing comes from elsewhere."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.documented_commands import ROOT
from tests.support.listening import free_address
from tests.support.missing_parts import lacking

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

pytestmark = [pytest.mark.real, pytest.mark.minutes(2)]
SITE = ROOT / "build" / "site"
PAGES = (
    "index.html",
    "concepts.html",
    "reference/reasons.html",
    "reference/api-fields.html",
    "examples/index.html",
)


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing: the output is that of the tests."""


@pytest.fixture(scope="module")
def site() -> Path:
    """What `make docs` builds; it has checked all links and what pages load."""
    made = subprocess.run(["make", "docs"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    assert "every link leads somewhere" in made.stdout
    return SITE


@pytest.fixture(scope="module", params=["served", "from the file system"])
def base(request: pytest.FixtureRequest, site: Path) -> Iterator[str]:
    """The address of the site."""
    if request.param == "from the file system":
        yield site.as_uri()
        return
    address = free_address()
    server = ThreadingHTTPServer((address.host, address.port), partial(QuietHandler, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://{address}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    if program is None:
        lacking("there is no chromium")
    with sync_playwright() as started:
        found = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(params=["light", "dark"])
def context(request: pytest.FixtureRequest, browser: Browser) -> Iterator[BrowserContext]:
    found = browser.new_context(color_scheme=request.param, viewport={"width": 390, "height": 800})
    yield found
    found.close()


def test_pages_load_nothing_from_elsewhere_and_fit_a_narrow_screen(
    base: str, context: BrowserContext
) -> None:
    page, asked, errors = context.new_page(), set[str](), list[str]()
    page.on("request", lambda request: asked.add(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    for name in PAGES:
        page.goto(f"{base}/{name}")
        page.wait_for_load_state("networkidle")
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{name} is wider than the screen by {wide} pixels"
    elsewhere = [url for url in asked if not url.startswith((base, "data:", "blob:", "about:"))]
    assert elsewhere == [] and errors == []


def test_search_finds_a_reason_and_leads_to_it(base: str, browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"{base}/index.html")
    page.locator("input.md-search__input").click()
    page.keyboard.type("NodesTaken")
    first = page.locator(".md-search-result__item a").first
    first.wait_for(timeout=20_000)
    assert "NodesTaken" in page.locator(".md-search-result").inner_text()
    first.click()
    page.wait_for_url(lambda url: not url.endswith("index.html"))
    page.close()
