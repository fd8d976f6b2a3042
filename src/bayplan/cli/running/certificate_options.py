"""The pair of options for a certificate and its private key, which several servers of `bayplan run` have."""

from __future__ import annotations

import ssl
from pathlib import Path

import click

from bayplan.runtime.webhooks.metrics_server import CertificateFiles


def certificate_files(server: str, certificate: Path | None, key: Path | None) -> CertificateFiles | None:
    """The files of `--SERVER-cert-file` and `--SERVER-key-file`; None if neither is given."""
    if (certificate is None) != (key is None):
        raise click.UsageError(
            f"--{server}-cert-file and --{server}-key-file go together; give both or neither"
        )
    if certificate is None or key is None:
        return None
    try:
        return CertificateFiles(certificate, key)
    except (OSError, ssl.SSLError) as error:
        why = error.strerror or str(error)
        raise click.UsageError(f"{certificate} and {key} are not a certificate and its key: {why}") from None
