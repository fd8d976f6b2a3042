"""`--config FILE`: the configuration of a command, accepted or rejected as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import click

from bayplan.cli.config.output import echo
from bayplan.cli.config.read_files import STDIN, InputDocument, InputProblem, read_files
from bayplan.configuration.settings import KIND, VERSION, Settings, read_settings
from bayplan.explanation.text import counted

BAD_INPUT = 2
_FILE = "bayplan.configuration"


@dataclass(frozen=True, slots=True)
class Configured:
    """The settings in a file, and the paths in it that are not used."""

    settings: Settings
    unused: tuple[str, ...] = ()


class InvalidConfiguration(click.ClickException):
    """An invalid configuration; shows all its problems."""

    exit_code = BAD_INPUT

    def __init__(self, problems: Sequence[InputProblem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)

    def show(self, file: IO[Any] | None = None) -> None:
        echo(self.message, file=file, err=file is None)
        count = counted(len(self.problems), "problem")
        echo(f"{count} in the configuration: none of it is used", file=file, err=file is None)


def configure(name: str) -> Configured:
    """Read a file. Raises InvalidConfiguration if it has any problem."""
    from bayplan.cli.config.objects import title  # noqa: PLC0415 — needed for a file only

    if name == STDIN:
        raise InvalidConfiguration(
            [InputProblem(name, "", "is not a file; a configuration is not read from standard input")]
        )
    documents, problems = read_files([name])
    if problems:
        raise InvalidConfiguration(problems)
    if len(documents) > 1:
        why = f"contains {len(documents)} objects; a configuration is a single object"
        raise InvalidConfiguration([InputProblem(documents[0].file, "", why)])
    (document,) = documents
    configured = Configured(Settings()) if document.body.errors else _read(document)
    if document.body.errors:
        raise InvalidConfiguration(
            [InputProblem(document.file, title(document), str(one)) for one in document.body.errors]
        )
    return configured


def _read(document: InputDocument) -> Configured:
    from bayplan.configuration.kueue_import import VERSIONS, read_kueue  # noqa: PLC0415 — needed for a file only

    version, kind = document.body.at("apiVersion"), document.body.at("kind")
    if document.kind != KIND:
        kind.error(f"must be {KIND}")
    if version.text() in VERSIONS:
        settings, unused = read_kueue(document.body)
        return Configured(settings, tuple(unused))
    if version.text() != VERSION:
        version.error(f"must be {VERSION}, or {' or '.join(VERSIONS)} of a Kueue manager")
        return Configured(Settings())
    return Configured(read_settings(document.body))


def _settings(context: click.Context, __: click.Parameter, name: str | None) -> Settings:
    context.meta[_FILE] = name
    return Settings() if name is None else _read_reporting(name)


def _read_reporting(name: str) -> Settings:
    """The settings in a file; paths that are not used are listed on standard error."""
    configured = configure(name)
    if configured.unused:
        echo(f"{name}: not used by Bayplan: {', '.join(configured.unused)}", err=True)
    return configured.settings


def configuration_text(name: str) -> str:
    """The text of a valid configuration file."""
    _read_reporting(name)
    return Path(name).read_text(encoding="utf-8-sig")


def takes_configuration(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option --config; the command gets `settings`."""
    return click.option(
        "--config", "settings", metavar="FILE", callback=_settings,
        help="A Bayplan configuration, or that of a Kueue manager; see docs/reference/configuration.md.",
    )(command)  # fmt: skip


def configuration_file() -> str | None:
    """The file that the running command was given with --config."""
    found: str | None = click.get_current_context().meta.get(_FILE)
    return found
