"""`--config FILE`: a configuration for the commands that decide, taken as a whole or refused as a whole."""

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


@dataclass(frozen=True, slots=True)
class Configured:
    """What a file says, and which of its words mean nothing here."""

    settings: Settings
    unused: tuple[str, ...] = ()


class InvalidConfiguration(click.ClickException):
    """A configuration with something wrong in it; says everything that is."""

    exit_code = BAD_INPUT

    def __init__(self, problems: Sequence[InputProblem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)

    def show(self, file: IO[Any] | None = None) -> None:
        echo(self.message, file=file, err=file is None)
        found = counted(len(self.problems), "problem")
        echo(f"{found} in the configuration: nothing of it is used", file=file, err=file is None)


def configure(name: str) -> Configured:
    """Read a file; Refused if anything is wrong with it."""
    from bayplan.cli.config.objects import title  # noqa: PLC0415 — only who gives a file needs it

    if name == STDIN:
        raise InvalidConfiguration(
            [InputProblem(name, "", "is no file; a configuration is not read from standard input")]
        )
    documents, problems = read_files([name])
    if problems:
        raise InvalidConfiguration(problems)
    if len(documents) > 1:
        why = f"holds {len(documents)} objects; a configuration is one"
        raise InvalidConfiguration([InputProblem(documents[0].file, "", why)])
    (document,) = documents
    found = Configured(Settings()) if document.body.errors else _read(document)
    if document.body.errors:
        raise InvalidConfiguration(
            [InputProblem(document.file, title(document), str(one)) for one in document.body.errors]
        )
    return found


def _read(document: InputDocument) -> Configured:
    from bayplan.configuration.kueue_import import VERSIONS, read_kueue  # noqa: PLC0415 — only who gives a file needs it

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


def _settings(_: click.Context, __: click.Parameter, name: str | None) -> Settings:
    return Settings() if name is None else _told(name)


def _told(name: str) -> Settings:
    """The settings in a file; words of it that mean nothing here are told once."""
    found = configure(name)
    if found.unused:
        echo(f"{name}: not used by Bayplan: {', '.join(found.unused)}", err=True)
    return found.settings


def configuration_text(name: str) -> str:
    """A file as it is, once it is known to be a good one."""
    _told(name)
    return Path(name).read_text(encoding="utf-8-sig")


def takes_configuration(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option --config; the command gets `settings`."""
    return click.option(
        "--config", "settings", metavar="FILE", callback=_settings,
        help="A configuration of ours, or that of a Kueue manager; see docs/reference/configuration.md.",
    )(command)  # fmt: skip
