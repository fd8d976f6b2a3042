"""The options of `bayplan run` for the webhooks: their address, and a certificate of another authority."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from bayplan.runtime.webhooks.metrics_server import CertificateFiles


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


def webhook_certificate(certificate: Path | None, key: Path | None) -> CertificateFiles | None:
    """The files, if they are given."""
    if (certificate is None) != (key is None):
        raise click.UsageError("--webhook-cert-file and --webhook-key-file go together; give both or neither")
    if certificate is None or key is None:
        return None
    try:
        return CertificateFiles(certificate, key)
    except (OSError, ssl.SSLError) as error:
        why = error.strerror or str(error)
        raise click.UsageError(f"{certificate} and {key} are not a certificate and its key: {why}") from None
