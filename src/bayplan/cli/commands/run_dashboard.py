"""The role dashboard of `bayplan run`: its options, and the process that serves the pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from bayplan.cli.config.options import configuration_file
from bayplan.cli.running.dashboard_process import DashboardProcess
from bayplan.dialects.errors import ApiError
from bayplan.runtime.webhooks.http_server import Address

DASHBOARD = "dashboard"
PORT = 7080


@dataclass(frozen=True, slots=True)
class DashboardOptions:
    """Where the pages are served, by which names, and of which cluster."""

    address: Address
    names: tuple[str, ...]
    passed_on: tuple[str, ...]  # options of `bayplan dashboard`


def takes_dashboard(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; the command gets `dashboard_listen` and `dashboard_names`."""
    for option in reversed(
        (
            click.option(
                "--dashboard-listen",
                metavar="HOST:PORT",
                default=f"127.0.0.1:{PORT}",
                show_default=True,
                help="Address of the role dashboard. Elsewhere than on loopback, users need a token.",
            ),
            click.option(
                "--dashboard-name",
                "dashboard_names",
                multiple=True,
                metavar="HOST",
                help="A name that users reach the dashboard by; others are refused. May be repeated.",
            ),
        )
    ):
        command = option(command)
    return command


def dashboard_options(
    listen: str, names: tuple[str, ...], kubeconfig: Path | None, context: str | None, journal: Path | None
) -> DashboardOptions:
    """Validate the options. Must be called within the command, whose --config is passed on."""
    try:
        address = Address.parse(listen)
    except ValueError as error:
        raise click.UsageError(f"--dashboard-listen: {error}") from None
    given = {"--kubeconfig": kubeconfig, "--context": context, "--config": configuration_file()}
    given |= {"--journal": journal}
    passed = [text for option, value in given.items() if value for text in (option, str(value))]
    passed += [text for name in names for text in ("--name", name)]
    return DashboardOptions(address, names, tuple(passed))


def open_dashboard(options: DashboardOptions) -> DashboardProcess:
    """Start the process. Raises ApiError if it cannot listen."""
    try:
        return DashboardProcess(options.address, options.passed_on, is_quiet=False, is_lazy=False)
    except OSError as error:
        raise ApiError(f"the dashboard cannot listen at {options.address}: {error.strerror}") from None
