"""Printing: every text of a command is cleaned of control characters here.

Drawings are printed by `render.console`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import IO, Any

import click

from bayplan.dialects.kube.fields.terminal_text import clean, clean_json


def echo(text: object = "", *, err: bool = False, nl: bool = True, file: IO[Any] | None = None) -> None:
    """Print a text of one or more lines."""
    click.echo(clean(str(text)), err=err, nl=nl, file=file)


def echo_coloured(lines: Sequence[str], colour: Callable[[list[str]], list[str]]) -> None:
    """Print lines that are coloured after they were cleaned; off a terminal the colours are left out."""
    click.echo("\n".join(colour([clean(line) for line in lines])))


def echo_json(data: Any) -> None:
    """Print JSON, with control characters escaped."""
    click.echo(clean_json(json.dumps(data, indent=2, ensure_ascii=False)))


def echo_yaml(data: Any) -> None:
    """Print YAML, with control characters escaped."""
    import yaml  # noqa: PLC0415 — few commands print it

    value = json.loads(json.dumps(data))
    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    if clean(text) != text:  # YAML leaves some control characters unescaped
        text = yaml.safe_dump(value, sort_keys=False, allow_unicode=False)
    click.echo(text, nl=False)
