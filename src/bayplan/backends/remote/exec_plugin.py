"""Runs a credential plugin of a kubeconfig and reads what it prints (ExecCredential, v1 and v1beta1)."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from bayplan.backends.remote.access import Certificate, InlineOrFile, Interactive, Plugin, no_such_program
from bayplan.dialects.errors import Misconfigured, Unauthorised

SECONDS_MAX = 60.0  # a plugin without a person in front of it that takes longer hangs
TERMINAL_SECONDS_MAX = 600.0  # the user may be typing a password


@dataclass(frozen=True, slots=True)
class Credential:
    """What a plugin printed."""

    token: str = field(default="", repr=False)
    certificate: Certificate | None = None
    expires: float | None = None  # seconds since 1970; None: good until refused


def run(plugin: Plugin) -> Credential:
    """Run the plugin and wait for it."""
    terminal = sys.stdin is not None and sys.stdin.isatty()
    if plugin.interactive is Interactive.ALWAYS and not terminal:
        raise Misconfigured(
            f"{plugin.label}: the plugin {plugin.command} needs a terminal (exec.interactiveMode is Always)"
            " and there is none; use credentials that need no terminal"
        )
    interactive = terminal and plugin.interactive is not Interactive.NEVER
    limit = TERMINAL_SECONDS_MAX if interactive else SECONDS_MAX
    try:
        ended = subprocess.run(
            [plugin.command, *plugin.arguments],
            stdin=None if interactive else subprocess.DEVNULL,
            capture_output=True,
            env={
                **os.environ,
                **dict(plugin.environment),
                "KUBERNETES_EXEC_INFO": _exec_info(plugin, interactive),
            },
            timeout=limit,
            check=False,
        )
    except (FileNotFoundError, PermissionError):
        raise no_such_program(plugin) from None
    except subprocess.TimeoutExpired:
        raise Unauthorised(
            f"{plugin.label}: the plugin {plugin.command} did not end within {limit:.0f} s;"
            " run it by hand to see what it waits for"
        ) from None
    if ended.returncode:
        said = ended.stderr.decode(errors="replace").strip().splitlines()
        raise Unauthorised(
            f"{plugin.label}: the plugin {plugin.command} ended with status {ended.returncode}"
            f" ({said[-1][:300] if said else 'without output'}); log in again or run it by hand"
        )
    return parse(plugin, ended.stdout)


class _Status(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    kind: str = ""
    api_version: str = ""
    status: _Status | None = None


def parse(plugin: Plugin, printed: bytes) -> Credential:
    """Read an ExecCredential; what it printed is secret and never quoted."""

    def wrong(found: str) -> Misconfigured:
        return Misconfigured(
            f"{plugin.label}: the plugin {plugin.command} printed {found}; it must print an ExecCredential"
            f" of {plugin.api_version}"
        )

    try:
        found = msgspec.json.decode(printed, type=_ExecCredential)
    except msgspec.ValidationError as problem:
        raise wrong(f"a field that is not as it must be ({problem})") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise wrong("something that is not JSON") from None
    if found.kind != "ExecCredential" or found.api_version != plugin.api_version:
        raise wrong(f"kind {found.kind!r} of {found.api_version!r}")
    status = found.status
    if status is None or not (status.token or status.client_certificate_data):
        raise wrong("neither status.token nor status.clientCertificateData")
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise wrong("only one of status.clientCertificateData and status.clientKeyData")
    expires = status.expiration_timestamp
    if expires is not None and expires.tzinfo is None:
        raise wrong("an expirationTimestamp without a time zone")
    return Credential(
        token=status.token or "",
        certificate=_certificate(plugin, status),
        expires=expires.timestamp() if expires else None,
    )


def _certificate(plugin: Plugin, status: _Status) -> Certificate | None:
    if not status.client_certificate_data or not status.client_key_data:
        return None
    label = f"{plugin.label}: the plugin {plugin.command}: "
    return Certificate(
        InlineOrFile(label + "clientCertificateData", data=status.client_certificate_data.encode()),
        InlineOrFile(label + "clientKeyData", data=status.client_key_data.encode()),
    )


def _exec_info(plugin: Plugin, interactive: bool) -> str:
    """The request, which a plugin finds in KUBERNETES_EXEC_INFO."""
    spec: dict[str, object] = {"interactive": interactive}
    if plugin.cluster is not None:
        spec["cluster"] = plugin.cluster
    request = {"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec}
    return msgspec.json.encode(request).decode()
