"""The only way out to a terminal: everything that commands print goes through here, and is cleaned."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import IO, Any

import click
import yaml
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.segment import Segment

from bayplan.dialects.kube.terminal_text import clean, clean_json


def echo(text: object = "", *, err: bool = False, nl: bool = True, file: IO[Any] | None = None) -> None:
    """Print a text of one or more lines."""
    click.echo(clean(str(text)), err=err, nl=nl, file=file)


def echo_json(data: Any) -> None:
    """Print for machines; a terminal is safe from it too."""
    click.echo(clean_json(json.dumps(data, indent=2, ensure_ascii=False)))


def echo_yaml(data: Any) -> None:
    """The same as YAML."""
    value = json.loads(json.dumps(data))
    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    if clean(text) != text:  # YAML takes more for printable than a terminal should get
        text = yaml.safe_dump(value, sort_keys=False, allow_unicode=False)
    click.echo(text, nl=False)


def console(**options: Any) -> Console:
    """A console for tables, drawings and live views; brackets in a text are no markup."""
    made = Console(**{"markup": False, "emoji": False, "highlight": False, **options})
    made.push_render_hook(_Cleaning())
    return made


class _Cleaning(RenderHook):
    """Cleans what is to be shown, but not what the console itself says to the terminal."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Cleaned(one) for one in renderables]


class _Cleaned:
    def __init__(self, shown: ConsoleRenderable) -> None:
        self._shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        return _cleaned(console.render(self._shown, options))


def _cleaned(segments: Iterable[Segment]) -> Iterable[Segment]:
    for one in segments:
        yield one if one.control else Segment(clean(one.text), one.style)
