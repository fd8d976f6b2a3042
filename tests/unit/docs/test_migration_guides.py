"""The migration guides are true: examples run, options exist, and the command names each guide."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from bayplan.assembly.local_cluster import ClusterShape, LocalCluster
from bayplan.backends.fake_controllers.manifests import RACK
from bayplan.cli.commands.check_migration import GUIDES
from bayplan.cli.commands.main import COMMANDS, LazyGroup, main
from bayplan.cli.config.options import configure
from bayplan.configuration.settings import DEFAULTS, VERSION
from bayplan.runtime.core.clock import VirtualClock

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "migrate"
NAMES = ("kueue", "kai", "volcano", "kube-scheduler", "slurm")
SECTIONS = ("What carries over unchanged", "What differs", "Side by side", "Going back", "An example")
PODS = {"kueue": 4, "kai": 4, "volcano": 3, "kube-scheduler": 4, "slurm": 4}
Object = dict[str, Any]


def text(name: str) -> str:
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")


def manifests(name: str) -> list[Object]:
    """The objects of a guide, without those of the system that it comes from."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", text(name), re.MULTILINE | re.DOTALL)
    return [obj for block in blocks for obj in yaml.safe_load_all(block)]


def run(name: str, folder: Path) -> list[Object]:
    """Apply the example of a guide to a cluster in memory; its pods after a few seconds."""
    objects, settings = manifests(name), DEFAULTS
    for obj in [one for one in objects if one["apiVersion"] == VERSION]:
        path = folder / "configuration.yaml"
        path.write_text(yaml.safe_dump(obj))
        settings = configure(str(path)).settings
        objects.remove(obj)
    clock = VirtualClock(wall=1_800_000_000.0)
    cluster = LocalCluster(ClusterShape(2, 2, 4, 4), clock, settings=settings, grouper=name == "kai")
    for obj in objects:
        group, _, version = obj["apiVersion"].rpartition("/")
        resource = next(
            one
            for one in cluster.store.resources.stored.values()
            if (one.group, one.kind) == (group, obj["kind"])
        )
        served = cluster.store.resources.find(group, version, resource.plural)
        cluster.store.create(served or resource, obj, obj["metadata"].get("namespace", ""))
    for _ in range(60):
        for _ in range(5):
            cluster.step()
        clock.advance(0.5)
    pods = next(one for one in cluster.store.resources.stored.values() if one.qualified == "pods")
    return cluster.store.list(pods, "default").items


@pytest.mark.parametrize("name", NAMES)
def test_the_example_of_a_guide_runs_as_close_together_as_it_asks(name: str, tmp_path: Path) -> None:
    pods = run(name, tmp_path)
    nodes = [pod["spec"].get("nodeName", "") for pod in pods]
    assert len(nodes) == PODS[name] and all(nodes), [pod.get("status") for pod in pods]
    assert len({node.rpartition("-")[0] for node in nodes}) == 1, f"all in one {RACK}"


@pytest.mark.parametrize("name", NAMES)
def test_a_guide_says_what_carries_over_what_differs_and_how_to_go_back(name: str) -> None:
    found = re.findall(r"^## (.*)$", text(name), re.MULTILINE)
    assert [section for section in SECTIONS if section not in found] == []


@pytest.mark.parametrize("name", NAMES)
def test_the_commands_of_a_guide_have_the_options_that_it_names(name: str) -> None:
    lines = re.findall(r"(?:^|`)bayplan ([a-z][^`\n#]*)", text(name), re.MULTILINE)
    assert lines
    for line in lines:
        command, given = _command(line.split())
        known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
        assert {word for word in given if word.startswith("--")} <= known, line


def _command(words: list[str]) -> tuple[click.Command, list[str]]:
    assert isinstance(main, LazyGroup) and words[0] in COMMANDS, words
    found = main.get_command(click.Context(main), words[0])
    assert found is not None
    if isinstance(found, click.Group) and len(words) > 1:
        return found.commands[words[1]], words[2:]
    return found, words[1:]


def test_the_command_names_guides_that_exist() -> None:
    assert all((ROOT / path).is_file() for path in GUIDES.values())
    assert {path.stem for path in FOLDER.glob("*.md")} == set(NAMES)
