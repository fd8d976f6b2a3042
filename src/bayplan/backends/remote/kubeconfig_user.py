"""The user of a kubeconfig: certificate, token, plugin and impersonation, each checked as it is read."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from bayplan.backends.remote.access import Access, Certificate, InlineOrFile, Interactive, Plugin
from bayplan.dialects.errors import Misconfigured

PLUGIN_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
HEADER_SAFE = "!#$&'*+-.^_`|~"  # what a header's name may hold beside letters and digits, less the percent


class Variable(msgspec.Struct, frozen=True):
    """A variable for a plugin."""

    name: str
    value: str = ""


class Exec(msgspec.Struct, frozen=True, rename="camel"):
    """A plugin as a kubeconfig describes it."""

    command: str = ""
    api_version: str = ""
    args: list[str] | None = None
    env: list[Variable] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class User(msgspec.Struct, frozen=True, rename="kebab"):
    """One user of a kubeconfig."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    impersonate: str = msgspec.field(default="", name="as")
    as_uid: str = ""
    as_groups: list[str] | None = None
    as_user_extra: dict[str, list[str]] | None = None
    username: str = ""
    password: str = ""
    auth_provider: dict[str, Any] | None = None
    exec: Exec | None = None


def user_part(access: Access, user: User, folder: Path, whose: str, cluster: Mapping[str, Any]) -> Access:
    """The access with the credentials of a user."""
    if user.username or user.password:
        raise Misconfigured(
            f"{whose}: username and password are set, which no supported Kubernetes accepts;"
            " use a token, a client certificate or an exec plugin"
        )
    if user.auth_provider is not None:
        name = user.auth_provider.get("name", "")
        raise Misconfigured(
            f"{whose}: auth-provider {name!r} was removed from Kubernetes; use an exec plugin instead"
        )
    certificate = material(
        f"{whose}: client-certificate", user.client_certificate, user.client_certificate_data, folder
    )
    key = material(f"{whose}: client-key", user.client_key, user.client_key_data, folder)
    if (certificate is None) != (key is None):
        have, lack = ("client-key", "client-certificate") if key else ("client-certificate", "client-key")
        raise Misconfigured(f"{whose}: {have} is set and {lack} is not; set both or neither")
    token = _token(user, folder, whose)
    if user.exec is not None and (token or certificate):
        given = "a token" if token else "a client certificate"
        raise Misconfigured(f"{whose}: both exec and {given} are set; keep the one that is meant")
    return replace(
        access,
        certificate=Certificate(certificate, key) if certificate and key else None,
        token=token,
        plugin=_plugin(user.exec, folder, whose, cluster) if user.exec else None,
        impersonation=_impersonation(user, whose),
    )


def material(label: str, path: str, data: str, folder: Path) -> InlineOrFile | None:
    """What `field` and `field-data` hold; data wins over the file, as in kubectl."""
    if data:
        try:
            return InlineOrFile(f"{label}-data", data=base64.b64decode("".join(data.split()), validate=True))
        except ValueError:  # binascii.Error is one; so is text that is not ASCII
            raise Misconfigured(
                f"{label}-data is not base64; encode it anew (base64 -w0) or name the file"
            ) from None
    if not path:
        return None
    found = InlineOrFile(label, path=folder / path)
    found.read()
    return found


def _token(user: User, folder: Path, whose: str) -> InlineOrFile | None:
    if user.token_file:
        found = InlineOrFile(f"{whose}: tokenFile", path=folder / user.token_file)
        found.read()
        return found
    return InlineOrFile(f"{whose}: token", data=user.token.encode()) if user.token else None


def _plugin(found: Exec, folder: Path, whose: str, cluster: Mapping[str, Any]) -> Plugin:
    if not found.command:
        raise Misconfigured(f"{whose}: exec.command is not set; name the program that prints credentials")
    if found.api_version not in PLUGIN_VERSIONS:
        raise Misconfigured(
            f"{whose}: exec.apiVersion is {found.api_version!r};"
            f" set it to one of: {', '.join(PLUGIN_VERSIONS)}"
        )
    modes = [mode.value for mode in Interactive]
    mode = found.interactive_mode
    if not mode and found.api_version == PLUGIN_VERSIONS[0]:
        raise Misconfigured(f"{whose}: exec.interactiveMode is not set; set it to one of: {', '.join(modes)}")
    if mode and mode not in modes:
        raise Misconfigured(
            f"{whose}: exec.interactiveMode is {mode!r}; set it to one of: {', '.join(modes)}"
        )
    command = found.command
    if "/" in command and not Path(command).is_absolute():
        command = str(folder / command)
    plugin = Plugin(
        label=whose,
        api_version=found.api_version,
        command=command,
        arguments=tuple(found.args or ()),
        environment=tuple((variable.name, variable.value) for variable in found.env or ()),
        interactive=Interactive(mode or Interactive.IF_AVAILABLE),
        install_hint=found.install_hint.strip(),
        cluster=cluster if found.provide_cluster_info else None,
    )
    if shutil.which(command) is None:
        raise no_such_program(plugin)
    return plugin


def no_such_program(plugin: Plugin) -> Misconfigured:
    """The plugin is not installed; its own hint says how to change that."""
    todo = " ".join(plugin.install_hint.split()) or "install it or correct exec.command"
    return Misconfigured(f"{plugin.label}: the plugin {plugin.command} is not an executable program; {todo}")


def _impersonation(user: User, whose: str) -> tuple[tuple[str, str], ...]:
    extra = user.as_user_extra or {}
    if not user.impersonate:
        if user.as_uid or user.as_groups or extra:
            raise Misconfigured(
                f"{whose}: as-uid, as-groups or as-user-extra is set without as; say whom to impersonate"
            )
        return ()
    headers = [("Impersonate-User", user.impersonate)]
    headers += [("Impersonate-Group", group) for group in user.as_groups or ()]
    headers += [("Impersonate-Uid", user.as_uid)] if user.as_uid else []
    for key, values in sorted(extra.items()):
        headers += [(f"Impersonate-Extra-{quote(key, safe=HEADER_SAFE)}", value) for value in values]
    return tuple(headers)
