"""The way out to a terminal: every text that commands print goes through here, and is cleaned.

Drawings go through `console`.
"""

from __future__ import annotations

import json
from typing import IO, Any

import click

from bayplan.dialects.kube.fields.terminal_text import clean, clean_json


def echo(text: object = "", *, err: bool = False, nl: bool = True, file: IO[Any] | None = None) -> None:
    """Print a text of one or more lines."""
    click.echo(clean(str(text)), err=err, nl=nl, file=file)


def echo_json(data: Any) -> None:
    """Print for machines; a terminal is safe from it too."""
    click.echo(clean_json(json.dumps(data, indent=2, ensure_ascii=False)))


def echo_yaml(data: Any) -> None:
    """The same as YAML."""
    import yaml  # noqa: PLC0415 — few commands print it

    value = json.loads(json.dumps(data))
    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    if clean(text) != text:  # YAML takes more for printable than a terminal should get
        text = yaml.safe_dump(value, sort_keys=False, allow_unicode=False)
    click.echo(text, nl=False)
