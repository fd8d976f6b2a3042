"""Every example, from its files, on a cluster in memory: kubectl talks to it, and time is made to pass."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bayplan.cli.home_cluster import HomeCluster, Shape
from bayplan.runtime.clock import VirtualClock
from tests.end_to_end.walk import EXAMPLES, Example, Walk, examples

LINES_MAX = 60


@dataclass(frozen=True, slots=True)
class InMemory:
    """What `bayplan up` starts, without hosts of its own and in virtual time."""

    home: HomeCluster
    clock: VirtualClock
    kubectl: Path
    kubeconfig: Path

    def play(self, seconds: float = 0.5) -> None:
        for _ in range(10):
            self.home.step()
        self.clock.advance(seconds)
        self.home.step()

    def patient(self) -> range:
        return range(60)


@pytest.fixture(scope="module")
def walk(program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    clock = VirtualClock(wall=time.time())
    home = HomeCluster(Shape(blocks=0), clock, grouper=True)
    kubeconfig = tmp_path_factory.mktemp("examples") / "kubeconfig"
    home.face.start()
    home.face.write_kubeconfig(kubeconfig)
    found = Walk(InMemory(home, clock, Path(program), kubeconfig))
    found.run("kubectl delete topology data-centre")  # that of the hosts it would have by itself
    found.run("kubectl apply -f cluster/nodes.yaml -f cluster/queues.yaml")
    yield found
    home.face.stop()


@pytest.mark.parametrize("example", examples(), ids=lambda one: one.name)
def test_an_example_shows_what_it_says_and_leaves_nothing(walk: Walk, example: Example) -> None:
    replace(walk, folder=example.folder).through(example)


@pytest.mark.parametrize("example", examples(), ids=lambda one: one.name)
def test_an_example_tells_all_its_commands_on_one_page(example: Example) -> None:
    page = (example.folder / "README.md").read_text(encoding="utf-8")
    assert len(page.splitlines()) <= LINES_MAX
    for step in example.steps:
        assert step.get("run", "") in page and step.get("shows", "") in page
    shown = [example.folder / step["shows"] for step in example.steps if "shows" in step]
    assert any(one.read_text(encoding="utf-8") in page for one in shown), "what one sees"
    assert f"({example.name}/README.md)" in (EXAMPLES / "README.md").read_text(encoding="utf-8")
