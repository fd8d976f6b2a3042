"""The options of `bayplan run` for a shadow: whose pods it decides about without binding them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import click

from bayplan.configuration.settings import SchedulerNames, Settings


def takes_shadow(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options --shadow and --shadow-scheduler."""
    for option in (
        click.option(
            "--shadow-scheduler",
            "shadow_schedulers",
            multiple=True,
            metavar="NAME",
            help="With --shadow: decide about pods of this scheduler too, e.g. default-scheduler.",
        ),
        click.option(
            "--shadow",
            is_flag=True,
            help="Decide and record in the journal, but write nothing to the cluster.",
        ),
    ):
        command = option(command)
    return command


def shadowing(settings: Settings, names: Iterable[str], *, shadow: bool) -> Settings:
    """The settings with a profile for each scheduler that is shadowed."""
    added: dict[str, dict[str, Any]] = {name: {} for name in names if name not in settings.names.schedulers}
    if added and not shadow:
        raise click.ClickException(
            f"--shadow-scheduler {', '.join(added)} was given without --shadow; pods of another scheduler "
            "are only decided about, never bound: add --shadow"
        )
    return replace(settings, names=SchedulerNames({**settings.names.schedulers, **added}))
