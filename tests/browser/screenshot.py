"""Takes the picture of the dashboard in README.md: `make screenshot`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import sync_playwright

from tests.browser.test_dashboard import states, until
from tests.support.dashboard_site import GANGS, WAITING, dashboard_site

ADDRESS = "#/map?gang=default/Job/giant&layer=gang"


def take(path: Path) -> None:
    """The map with the domains that a waiting gang nearly fits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder, dashboard_site(Path(folder)) as site, sync_playwright() as started:
        until(lambda: len(states(site)) == len(GANGS) and sum(states(site).values()) == len(WAITING))
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 760})
        page.goto(f"{site.url}{ADDRESS}")
        page.get_by_role("heading", name="Where it nearly fits").wait_for()
        page.wait_for_timeout(500)  # until the last frame is drawn
        page.screenshot(path=path)
        browser.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]))
