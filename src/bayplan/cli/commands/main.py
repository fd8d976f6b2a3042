"""The `bayplan` command: a group whose commands are imported when they are called."""

from __future__ import annotations

import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Any

import click

from bayplan import __version__
from bayplan.cli.config.paused_collector import collector_paused
from bayplan.dialects.kube.fields.terminal_text import clean

# Name → module and the click command in it. Help texts live there; start-up stays fast.
COMMANDS = {
    "up": "bayplan.cli.commands.up:up",
    "place": "bayplan.cli.commands.place:place",
    "plan": "bayplan.cli.commands.plan:plan",
    "list": "bayplan.cli.commands.list:listing",
    "explain": "bayplan.cli.commands.explain:explain_gang",
    "run": "bayplan.cli.commands.run:run",
    "replay": "bayplan.cli.commands.replay:replay",
    "install": "bayplan.cli.commands.install:install",
}
# The first sentence of each help text, so that the list of commands is shown without importing them.
SUMMARIES = {
    "up": "Start a cluster in memory, schedule in it, and watch racks fill up.",
    "place": "Place the gangs in the files on the nodes in the files, one after the other.",
    "plan": "Try out gangs on a cluster as it is now, each after the other, as if submitted in that order.",
    "list": "Show gangs, queues or topologies of a cluster.",
    "explain": "Tell why a gang waits, or where it runs.",
    "run": "Schedule the pods of a cluster that name bayplan as their scheduler, and serve its webhooks.",
    "replay": "Fold the journal in a folder (or one file of it) again, and decide again at every plan.",
    "install": (
        "Install Bayplan in a cluster: definitions, RBAC, the replicas, and the webhooks if asked for."
    ),
}
COLUMNS_BESIDE = 6
"""What click leaves free beside a command's name and summary."""


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
        with collector_paused():
            command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Names and summaries, as click would write them of the imported commands."""
        width = formatter.width - COLUMNS_BESIDE - max(map(len, COMMANDS))
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary(name, width)) for name in COMMANDS])

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


def summary(name: str, width: int) -> str:
    """What a command does, in as many columns."""
    return click.Command(name, help=SUMMARIES[name]).get_short_help_str(width)


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
