"""The address, trust and credentials of an API server, as values; files are not read yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from bayplan.dialects.errors import Misconfigured


@dataclass(frozen=True, slots=True)
class InlineOrFile:
    """Inline data, or the file that holds it."""

    label: str  # names file, context and field in messages
    data: bytes = field(default=b"", repr=False)
    path: Path | None = None

    def read(self) -> bytes:
        """The bytes, fresh from the file where there is one."""
        if self.path is None:
            return self.data
        try:
            return self.path.read_bytes()
        except (OSError, ValueError) as wrong:  # a path with a null byte is no path
            reason = getattr(wrong, "strerror", None) or "unreadable"
            raise Misconfigured(
                f"{self.label} names the file {self.path}, which cannot be read ({reason}); correct the path"
                " or the permissions"
            ) from None


@dataclass(frozen=True, slots=True)
class Certificate:
    """A client certificate and its private key."""

    certificate: InlineOrFile
    key: InlineOrFile


class Interactive(StrEnum):
    """Whether a plugin may prompt the user at the terminal."""

    NEVER = "Never"
    IF_AVAILABLE = "IfAvailable"
    ALWAYS = "Always"


@dataclass(frozen=True, slots=True)
class Plugin:
    """A program that prints credentials."""

    label: str
    api_version: str
    command: str
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    interactive: Interactive = Interactive.IF_AVAILABLE
    install_hint: str = ""
    cluster: Mapping[str, Any] | None = None  # told to the plugin if it asked for it


@dataclass(frozen=True, slots=True)
class Access:
    """Everything needed to talk to one API server as one user."""

    origin: str  # names the kubeconfig and the context in messages
    server: str  # without a slash at the end
    namespace: str = "default"
    authority: InlineOrFile | None = None  # None: what the system trusts
    verify: bool = True
    server_name: str = ""  # the name in the server's certificate, if not the one in its address
    proxy: str = ""
    certificate: Certificate | None = None
    token: InlineOrFile | None = None
    plugin: Plugin | None = None
    impersonation: tuple[tuple[str, str], ...] = ()  # headers


def no_such_program(plugin: Plugin) -> Misconfigured:
    """The plugin is not installed; its own hint says how to change that."""
    todo = " ".join(plugin.install_hint.split()) or "install it or correct exec.command"
    return Misconfigured(f"{plugin.label}: the plugin {plugin.command} is not an executable program; {todo}")
