"""The reference of the command line, from the commands' own parameters and help texts."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from bayplan.cli.commands.main import main
from tools.reference.markdown import code, generated, plain, table

HEAD = f"""# Commands

{generated("the commands below src/bayplan/cli/commands")}

Every command has `-h`/`--help`. `kubectl bayplan …` is the same as `bayplan …` where the package is installed.
`bayplan completion bash` (`zsh`, `fish`) prints a script that completes commands and options.

A command ends with status 0 if it did what was asked, 1 if it could not (the last line says why and what to do), and 2 if its
options or input are wrong. `plan` and `place` have further ones, which their help texts name.

"""
VERBATIM = "\b"
"""In a help text: the paragraph is to be kept as it is."""


def page() -> str:
    """The page."""
    context = click.Context(main, info_name="bayplan")
    names = list(main.list_commands(context))
    overview = table(
        ("command", "what it does"),
        ((f"[`bayplan {name}`](#bayplan-{name})", plain(_found(context, name)[0])) for name in names),
    )
    return HEAD + overview + "".join(section for name in names for section in _sections(context, name))


def _found(context: click.Context, name: str) -> tuple[str, click.Command]:
    """The first sentence of a command's help, and the command."""
    assert isinstance(context.command, click.Group)
    command = context.command.get_command(context, name)
    assert command is not None, name
    return (command.help or "").strip().partition("\n\n")[0], command


def _sections(above: click.Context, name: str, depth: int = 2) -> Iterator[str]:
    """A command, and below it the commands of a group."""
    _, command = _found(above, name)
    context = click.Context(command, info_name=name, parent=above)
    yield f"\n{'#' * depth} {code(context.command_path)}\n\n"
    yield f"```text\n{context.command_path} {' '.join(command.collect_usage_pieces(context))}\n```\n\n"
    yield from _paragraphs(command.help or "")
    rows = [row for parameter in command.get_params(context) if (row := _row(parameter, context))]
    if rows:
        yield table(("option", "meaning"), rows)
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            yield from _sections(context, below, depth + 1)


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        if paragraph.lstrip().startswith(VERBATIM):
            lines = paragraph.replace(VERBATIM, "").strip("\n").splitlines()
            yield "```text\n" + "".join(f"{line.rstrip()}\n" for line in lines) + "```\n\n"
        elif paragraph.strip():
            yield f"{plain(paragraph)}\n\n"


def _row(parameter: click.Parameter, context: click.Context) -> tuple[str, str] | None:
    """An option that is shown in help, with its meaning and default."""
    record = parameter.get_help_record(context)
    if record is None or "--help" in parameter.opts:
        return None
    names, meaning = record
    return ", ".join(code(name.strip()) for name in names.split(", ")), plain(meaning.replace("  [", " ["))
