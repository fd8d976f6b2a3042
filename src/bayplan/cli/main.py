"""The `bayplan` command: a group whose commands are imported when they are called."""

from __future__ import annotations

import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Any

import click

from bayplan import __version__
from bayplan.dialects.kube.terminal_text import clean

# Name → module and the click command in it. Help texts live there; start-up stays fast.
COMMANDS = {
    "up": "bayplan.cli.up:up",
    "place": "bayplan.cli.place:place",
    "plan": "bayplan.cli.dry_run:plan",
    "list": "bayplan.cli.listing:listing",
    "explain": "bayplan.cli.story:explain_gang",
    "run": "bayplan.cli.run:run",
    "replay": "bayplan.cli.replay:replay",
    "install": "bayplan.cli.install:install",
}


class LazyGroup(click.Group):
    """Finds commands in a table and imports only the one that is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, freshly imported."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a full disk or a lost terminal is said, not thrown."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            raise  # click ends quietly when the reader has gone
        except click.ClickException as refused:
            vars(refused)["message"] = clean(refused.message)  # it may quote what others wrote
            raise
        except OSError as trouble:
            sys.stdout = None  # do not try again at exit
            raise click.ClickException(f"cannot write: {trouble.strerror or trouble}") from None
        return result


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="bayplan", message="%(prog)s %(version)s")
def main() -> None:
    """Which gang of pods runs, and where in the data centre: all or nothing, and why."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot draw a triangle still gets the rest


def plugin() -> None:
    """The same, as kubectl calls it: a program named kubectl-bayplan on the PATH."""
    main(prog_name="kubectl bayplan")
