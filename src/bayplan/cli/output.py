"""The only way out to a terminal: everything that commands print goes through here, and is cleaned."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import IO, Any

import click
import yaml
from rich.console import Console, ConsoleOptions, RenderableType
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
    return _CleanConsole(**{"markup": False, "emoji": False, "highlight": False, **options})


class _CleanConsole(Console):
    """Cleans what is shown, but not what it says to the terminal itself: colours, and where to write."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for one in super().render(renderable, options):
            yield one if one.control else Segment(clean(one.text), one.style)
