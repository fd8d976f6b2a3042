"""The `bayplan` command: a group that imports a subcommand when it is called."""

from __future__ import annotations

import atexit
import gc
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Any

import click

from bayplan import __version__
from bayplan.cli.config.paused_collector import collector_paused
from bayplan.dialects.kube.fields.terminal_text import clean

# Name → module and the click command in it. Imported on demand, so that start-up is fast.
COMMANDS = {
    "up": "bayplan.cli.commands.up:up",
    "place": "bayplan.cli.commands.place:place",
    "plan": "bayplan.cli.commands.plan:plan",
    "list": "bayplan.cli.commands.list:listing",
    "explain": "bayplan.cli.commands.explain:explain_gang",
    "dashboard": "bayplan.cli.commands.dashboard:dashboard",
    "run": "bayplan.cli.commands.run:run",
    "replay": "bayplan.cli.commands.replay:replay",
    "shadow": "bayplan.cli.commands.shadow:shadow",
    "simulate": "bayplan.cli.commands.simulate:simulate",
    "defragment": "bayplan.cli.commands.defragment:defragment",
    "check-migration": "bayplan.cli.commands.check_migration:check_migration",
    "install": "bayplan.cli.commands.install:install",
    "uninstall": "bayplan.cli.commands.uninstall:uninstall",
    "completion": "bayplan.cli.commands.completion:completion",
    "version": "bayplan.cli.commands.version:version",
}
# The first sentence of each help text, so that the list of commands is shown without importing them.
SUMMARIES = {
    "up": "Start a local in-memory cluster with Bayplan and show how its racks fill up.",
    "place": "Place the gangs in the files on the nodes in the files, in order.",
    "plan": "Simulate the submission of gangs to a cluster as it is now, in the order of the files.",
    "list": "List gangs, queues or topologies of a cluster.",
    "explain": "Explain why a gang is pending, or where it runs.",
    "dashboard": "Serve pages that show the cluster: hosts and gangs on a map, who waits and why.",
    "run": "Run Bayplan for a cluster: admission, scheduling and webhooks.",
    "replay": "Replay the journal in a folder (or one file of it), and compare every decision.",
    "shadow": "Compare the decisions of a shadow with those of the running scheduler.",
    "simulate": "Replay a trace on a cluster in virtual time, and compare policies.",
    "defragment": "Find the cheapest moves of running gangs after which a gang fits, and show them.",
    "check-migration": "Check what of a cluster works with Bayplan: the same, differently, or not at all.",
    "install": "Install Bayplan in a cluster: CRDs, RBAC, Deployments and webhooks.",
    "uninstall": "Remove Bayplan from a cluster, with its scheduling gates and finalizers.",
    "completion": "Print a script that completes commands and options in a shell.",
    "version": "Show the version of Bayplan, of Python, and the installed extras.",
}
MARGIN = 6
"""The columns that click leaves empty around a command's name and summary."""


atexit.register(gc.freeze)  # the process ends: do not search everything it has imported for cycles


class LazyGroup(click.Group):
    """Looks up commands in a table and imports only the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        with collector_paused():
            command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Names and summaries, as click formats them for imported commands."""
        width = formatter.width - MARGIN - max(map(len, COMMANDS))
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary(name, width)) for name in COMMANDS])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a full disk or a lost terminal is reported without a traceback."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            raise  # click ends quietly when the reader has gone
        except click.ClickException as error:
            vars(error)["message"] = clean(error.message)  # it may quote objects of other users
            raise
        except OSError as error:
            sys.stdout = None  # do not try again at exit
            raise click.ClickException(f"cannot write: {error.strerror or error}") from None
        return result


def summary(name: str, width: int) -> str:
    """The summary of a command, shortened to a width."""
    return click.Command(name, help=SUMMARIES[name]).get_short_help_str(width)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="bayplan", message="%(prog)s %(version)s")
def main() -> None:
    """Topology-aware gang scheduling for Kubernetes: which gangs of pods run, where, and why."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # for terminals without Unicode


def plugin() -> None:
    """The entry point of the kubectl plugin, `kubectl-bayplan` on the PATH."""
    main(prog_name="kubectl bayplan")
