"""The pages of the dashboard in a real browser: Debian's Chromium, driven by playwright."""

from __future__ import annotations

import importlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from bayplan.cli.commands.main import main
from bayplan.dialects.kube.decode.wire import NODES
from tests.support.dashboard_site import RUNNING, WAITING, Site, dashboard_site
from tests.support.missing_parts import lacking

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PICTURES = Path(os.environ.get("BAYPLAN_SCREENSHOTS", "reports/dashboard"))
PAGES = ("map", "waiting", "gang", "room", "time", "queues", "try")
FLAGS = "() => { const map = bayplanCluster.maps[0]; return map.layers.flags[map.hosts.indexOf('%s')]; }"
RED = """() => {
    const shown = bayplanPicture, n = shown.map.hosts.indexOf('%s');
    return shown.image.data[4 * (shown.layout.y[n] * shown.image.width + shown.layout.x[n])];
}"""
HOSTS_OF = """() => {
    const shown = bayplanPicture, named = [...shown.gangs.values()].filter((one) => one.gang.name === '%s');
    const ids = named.map((one) => one.id);
    return shown.map.hosts.filter((_, n) => ids.includes(shown.map.layers.gang[n]));
}"""
MANIFEST = """
apiVersion: batch/v1
kind: Job
metadata: {name: tried, namespace: default}
spec:
  parallelism: 2
  completions: 2
  completionMode: Indexed
  template:
    spec:
      schedulerName: bayplan
      restartPolicy: Never
      containers:
        - {name: main, image: example.com/x, resources: {limits: {nvidia.com/gpu: "8"}}}
"""


def until(holds: Callable[[], Any], seconds: float = 30.0) -> Any:
    """Wait for something that takes its time on a busy machine."""
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, "it did not come to be in time"
        time.sleep(0.05)
    return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with dashboard_site(tmp_path_factory.mktemp("site")) as site:
        until(lambda: states(site) == dict.fromkeys(RUNNING, False) | dict.fromkeys(WAITING, True))
        yield site


def states(site: Site) -> dict[str, bool]:
    found = site.hub.current()
    return {} if found is None else {one.key.name: one.pending for one in found[1].gangs.values()}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        lacking("No Chromium: install Debian's package chromium for the tests of the dashboard's pages")
    try:
        playwright = importlib.import_module("playwright.sync_api")
    except ImportError:
        lacking("No playwright: run `make venv` for the tests of the dashboard's pages")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Page]:
    yield from open_page(browser, site)


def open_page(browser: Browser, site: Site, **options: Any) -> Iterator[Page]:
    """A page that may talk to the dashboard only, and whose script never fails."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "console", lambda line: wrong.append(line.text) if "Content Security Policy" in line.text else None
    )
    page.on(
        "request",
        lambda asked: None if asked.url.startswith((site.url, "data:")) else wrong.append(asked.url),
    )
    page.goto(site.url)
    page.get_by_role("heading", name="Map").wait_for()
    yield page
    context.close()
    assert not wrong


def see(page: Page, site: Site, address: str) -> None:
    page.goto(f"{site.url}#/{address}")


def lit_hosts(page: Page) -> list[str]:
    """The hosts that the map shows in full colour."""
    return sorted(
        page.evaluate(
            "() => [...(bayplanPicture.lit || new Map()).keys()].map((n) => bayplanPicture.map.hosts[n])"
        )
    )


def test_the_gang_that_the_command_names_is_on_the_map_at_those_hosts(page: Page, site: Site) -> None:
    printed = CliRunner().invoke(
        main, ["explain", "default/finetune", "--kubeconfig", str(site.kubeconfig), "--full"]
    )
    named = sorted(
        line.split(":")[0].strip() for line in printed.output.splitlines() if line.startswith("  b0")
    )
    assert len(named) == 4
    see(page, site, "map?gang=default/Job/finetune&layer=gang")
    until(lambda: lit_hosts(page) == named)
    ranks = page.evaluate("() => [...bayplanPicture.lit.values()].sort()")
    until(lambda: page.evaluate("() => [...bayplanPicture.lit.values()].sort().join()") == "0,1,2,3")
    assert len(ranks) == 4


def test_a_waiting_gang_shows_its_reason_and_the_domains_it_nearly_fits(page: Page, site: Site) -> None:
    see(page, site, "waiting")
    page.get_by_role("link", name="Job default/giant").wait_for()
    row = page.get_by_role("row").filter(has_text="default/giant").inner_text()
    assert "out of 40 pod(s)" in row
    waits = page.get_by_role("row").filter(has_text="default/patient")
    until(lambda: "no estimate: `default/finetune`" in waits.inner_text())
    giant = page.get_by_role("row").filter(has_text="default/giant")
    until(lambda: "never as things are" in giant.inner_text())
    page.get_by_role("link", name="Where giant nearly fits").click()
    page.get_by_role("heading", name="Where it nearly fits").wait_for()
    until(
        lambda: (
            page.evaluate("() => bayplanPicture.glow.map((one) => one.label).join()") == "lacks 22,lacks 40"
        )
    )


def test_a_page_has_what_explain_prints(page: Page, site: Site) -> None:
    see(page, site, "gang?gang=default/Job/giant")
    printed = (
        CliRunner().invoke(main, ["explain", "default/giant", "--kubeconfig", str(site.kubeconfig)]).output
    )
    page.get_by_role("heading", name="Pods by rank").wait_for()
    assert page.locator("pre").first.inner_text().strip() == printed.strip()


def test_manifests_are_simulated_and_shown_on_the_map(page: Page, site: Site) -> None:
    see(page, site, "try")
    page.get_by_label("Manifests").fill(MANIFEST)
    page.get_by_role("button", name="Simulate").click()
    page.get_by_role("heading", name="Job default/tried: would start now").wait_for()
    until(lambda: len(lit_hosts(page)) == 2)
    assert "tried" not in states(site)


def test_manifests_that_are_wrong_are_answered_with_what_is_wrong(page: Page, site: Site) -> None:
    see(page, site, "try")
    page.get_by_label("Manifests").fill("kind: [")
    page.get_by_role("button", name="Simulate").click()
    assert "line" in page.get_by_role("alert").inner_text()


def test_scrubbing_to_a_decision_shows_the_hosts_that_replay_prints_for_it(page: Page, site: Site) -> None:
    printed = CliRunner().invoke(main, ["replay", str(site.journal), "--gang", "finetune"]).output
    line = next(one for one in printed.splitlines() if " finetune: 4 pods on " in one)
    sequence, hosts = line.partition(" ")[0], line.partition(" pods on ")[2].split(", ")
    see(page, site, f"time?at={sequence}&layer=gang")
    page.locator(f"[data-sequence='{sequence}']").wait_for()
    until(lambda: page.evaluate(HOSTS_OF % "finetune") == hosts)
    assert f"4 pods on {', '.join(hosts)}" in page.get_by_role("complementary").inner_text()
    before = int(sequence) - 1
    see(page, site, f"time?at={before}&layer=gang")
    page.locator(f"[data-sequence='{before}']").wait_for()
    until(lambda: page.evaluate(HOSTS_OF % "finetune") == [])
    page.keyboard.press("]")
    page.locator(f"[data-sequence='{sequence}']").wait_for()


def test_the_page_of_a_gang_has_its_history_from_the_journal(page: Page, site: Site) -> None:
    see(page, site, "gang?gang=default/Job/finetune")
    page.get_by_role("cell", name="4 pods on b0").wait_for()
    see(page, site, "gang?gang=default/Job/giant")
    page.get_by_role("cell", name="unschedulable").first.wait_for()


def test_a_node_that_dies_turns_on_the_map(page: Page, site: Site) -> None:
    see(page, site, "map?layer=health")
    flags = FLAGS % "b01-r04-h08"
    until(lambda: page.evaluate(flags) == 3)
    condition = {"type": "Ready", "status": "False", "reason": "KubeletNotReady"}
    set_condition(site, condition)
    until(lambda: page.evaluate(flags) == 2)
    colour = RED % "b01-r04-h08"
    until(lambda: page.evaluate(colour) == 120)
    set_condition(site, {**condition, "status": "True", "reason": "KubeletReady"})
    until(lambda: page.evaluate(flags) == 3)


def set_condition(site: Site, condition: dict[str, str]) -> None:
    with site.cluster.lock:
        site.cluster.store.patch(
            NODES, "", "b01-r04-h08", {"status": {"conditions": [condition]}}, subresource="status"
        )


def test_the_page_goes_on_after_the_server_was_restarted(page: Page, site: Site) -> None:
    resets = page.evaluate("() => bayplanCluster.stats.resets")
    site.close()
    until(lambda: "does not answer" in page.get_by_role("status").inner_text())
    with site.cluster.lock:
        site.cluster.store.patch(NODES, "", "b01-r04-h07", {"spec": {"unschedulable": True}})
    site.open()
    flags = FLAGS % "b01-r04-h07"
    until(lambda: page.evaluate(flags) == 1)
    until(lambda: page.evaluate("() => bayplanCluster.gangs.size") == len(RUNNING + WAITING))
    assert page.evaluate("() => bayplanCluster.stats.resets") == resets + 1


def test_a_journey_with_the_keyboard_alone(page: Page, site: Site) -> None:
    page.keyboard.press("/")
    page.keyboard.type("flagship")
    page.get_by_role("link", name="Job default/flagship").wait_for()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Job default/flagship").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("heading", name="Map").wait_for()
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("() => document.activeElement.getAttribute('role')") == "row":
            break
    for key in ("ArrowRight", "ArrowDown", "ArrowRight", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    until(lambda: "host=b01-r01-h01" in page.url)
    page.get_by_role("heading", name="Host b01-r01-h01").wait_for()
    page.keyboard.press("w")
    page.get_by_role("heading", name="Waiting: 2 gangs").wait_for()
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 380])
def test_every_page_is_free_of_violations_that_axe_finds(
    browser: Browser, site: Site, scheme: Any, width: int
) -> None:
    axe = Path(importlib.import_module("axe_playwright_python").__file__ or "").parent / "axe.min.js"
    for page in open_page(browser, site, color_scheme=scheme):
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate(axe.read_text(encoding="utf-8"))
        PICTURES.mkdir(parents=True, exist_ok=True)
        for name in (*PAGES, "gang?gang=default/Job/giant", "map?gang=default/Job/giant&layer=gang"):
            see(page, site, name)
            page.get_by_role("heading").first.wait_for()
            page.wait_for_timeout(300)
            found = page.evaluate("async () => (await axe.run()).violations")
            told = [f"{one['id']}: {[node['html'][:120] for node in one['nodes']][:3]}" for one in found]
            assert not told, f"{name}: {told}"
            page.screenshot(path=PICTURES / f"{name.partition('?')[0]}-{scheme}-{width}.png")


def test_a_page_at_twice_the_size_does_not_scroll_sideways(page: Page, site: Site) -> None:
    page.set_viewport_size({"width": 640, "height": 450})  # 1280 by 900 at 200 %
    for name in PAGES:
        see(page, site, name)
        page.get_by_role("heading").first.wait_for()
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 640, name
