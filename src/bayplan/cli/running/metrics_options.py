"""The options of `bayplan run` for metrics over HTTPS with authentication, and the server they ask for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from bayplan.cli.running.certificate_options import certificate_files
from bayplan.runtime.core.api_object import ApiCall
from bayplan.runtime.core.clock import Clock
from bayplan.runtime.telemetry.metrics import Metrics
from bayplan.runtime.webhooks.access_reviews import AccessReviews
from bayplan.runtime.webhooks.http_server import Address, Server
from bayplan.runtime.webhooks.metrics_server import CertificateFiles, OwnCertificate, serve_metrics


@dataclass(frozen=True, slots=True)
class GuardedMetrics:
    """The address of metrics that need authorization, and the certificate; None: self-signed."""

    address: Address
    certificate: CertificateFiles | None = None


def takes_guarded_metrics(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; the command gets `metrics_listen`, `metrics_cert_file` and `metrics_key_file`."""
    for option in reversed(
        (
            click.option(
                "--metrics-listen",
                metavar="HOST:PORT",
                help="Serve /metrics here over HTTPS, to tokens that may get it, and not at --listen.",
            ),
            click.option(
                "--metrics-cert-file",
                type=click.Path(path_type=Path),
                help="Certificate for --metrics-listen (default: a self-signed one).",
            ),
            click.option(
                "--metrics-key-file", type=click.Path(path_type=Path), help="Private key of that certificate."
            ),
        )
    ):
        command = option(command)
    return command


def guarded_metrics(listen: str | None, certificate: Path | None, key: Path | None) -> GuardedMetrics | None:
    """Validate the options."""
    if listen is None:
        if certificate is not None and key is not None:
            raise click.UsageError("--metrics-cert-file is for --metrics-listen; give that too")
        certificate_files("metrics", certificate, key)
        return None
    try:
        address = Address.parse(listen)
    except ValueError as error:
        raise click.UsageError(f"--metrics-listen: {error}") from None
    return GuardedMetrics(address, certificate_files("metrics", certificate, key))


def open_metrics(options: GuardedMetrics, request: ApiCall, metrics: Metrics, clock: Clock) -> Server:
    """Start the server."""
    names = ("localhost", *(() if options.address.host in ("0.0.0.0", "::") else (options.address.host,)))
    certificate = options.certificate or OwnCertificate(names, clock)
    return serve_metrics(metrics, AccessReviews(request, clock), certificate, options.address)
