"""Lists are read in the background, each kind once; and what commands do is told without importing them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from threading import Barrier
from typing import Any

import click
import pytest

from bayplan.cli.commands.main import COMMANDS, main, summary
from bayplan.cli.live.read_ahead import ReadingAhead
from bayplan.dialects.api import Kind
from bayplan.dialects.errors import Forbidden

CATS, DOGS, EELS = (Kind("", "v1", name, f"{name.lower()}s") for name in ("Cat", "Dog", "Eel"))
SECONDS_MAX = 20
HEAVY = ("numpy", "aiohttp", "rich", "yaml", "bayplan.model", "bayplan.dialects.kueue")


def test_kinds_are_read_at_the_same_time() -> None:
    both_read = Barrier(2, timeout=SECONDS_MAX)

    def read(kind: Kind) -> Iterator[list[Any]]:
        both_read.wait()  # breaks if one kind has to wait for the other
        yield [f"{kind.plural} 1"]
        yield [f"{kind.plural} 2", f"{kind.plural} 3"]

    ahead = ReadingAhead(read)
    ahead.begin((CATS, DOGS))
    assert [*ahead.items(DOGS)] == ["dogs 1", "dogs 2", "dogs 3"]
    assert [*ahead.items(CATS)] == ["cats 1", "cats 2", "cats 3"]


def test_trouble_with_one_kind_is_raised_where_that_kind_is_asked_for() -> None:
    def read(kind: Kind) -> Iterator[list[Any]]:
        yield [kind.plural]
        if kind is CATS:
            raise Forbidden("no cats for you")

    ahead = ReadingAhead(read)
    ahead.begin((CATS, DOGS))
    assert [*ahead.items(DOGS)] == ["dogs"]
    with pytest.raises(Forbidden, match="no cats for you"):
        list(ahead.items(CATS))


def test_a_kind_is_asked_for_once_however_often_it_is_begun() -> None:
    asked: list[Kind] = []

    def read(kind: Kind) -> Iterator[list[Any]]:
        asked.append(kind)
        yield []

    ahead = ReadingAhead(read)
    ahead.begin((CATS, CATS))
    ahead.begin((CATS, DOGS))
    assert [[*ahead.items(kind)] for kind in (CATS, DOGS, EELS)] == [[], [], []]
    assert sorted(kind.kind for kind in asked) == ["Cat", "Dog", "Eel"]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_of_a_command_is_the_first_sentence_of_its_help(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    for width in (40, 65, 500):
        assert summary(name, width) == command.get_short_help_str(width)


def test_the_list_of_commands_is_shown_without_importing_any_of_them() -> None:
    script = (
        "import sys\nfrom bayplan.cli.commands.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    print(*sys.modules, file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert all(f"\n  {name} " in ran.stdout for name in COMMANDS)
    assert set(HEAVY).isdisjoint(ran.stderr.split())


@pytest.mark.parametrize("name", ["explain", "list"])
def test_a_command_that_only_lists_does_not_import_the_client_of_watches(name: str) -> None:
    module = COMMANDS[name].partition(":")[0]
    script = f"import sys, {module}\nprint(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "bayplan.backends.remote.pool" in ran.stdout.split()
    assert "aiohttp" not in ran.stdout.split()
