"""The options of `bayplan run` for the webhooks: their address, and a certificate of another authority."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click


def takes_webhooks(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; the command gets `webhook_listen`, `webhook_cert_file` and `webhook_key_file`."""
    for option in reversed(
        (
            click.option(
                "--webhook-listen",
                default="127.0.0.1:0",
                show_default=True,
                help="Address of the webhooks, if this replica serves them.",
            ),
            click.option(
                "--webhook-cert-file",
                type=click.Path(path_type=Path),
                help="Certificate of the webhooks (default: one of our own authority).",
            ),
            click.option(
                "--webhook-key-file", type=click.Path(path_type=Path), help="Private key of that certificate."
            ),
        )
    ):
        command = option(command)
    return command
