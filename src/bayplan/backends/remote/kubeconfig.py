"""Finds the cluster and the user: kubeconfig files merged as kubectl does, or the pod's service account."""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from bayplan.backends.bounded_file import read_bounded
from bayplan.backends.remote.access import (
    Access,
    Certificate,
    InlineOrFile,
    Interactive,
    Plugin,
    no_such_program,
)
from bayplan.dialects.errors import Misconfigured
from bayplan.dialects.kube.fields.bounded_yaml import UnreadableYAML, bounded_yaml
from bayplan.dialects.kube.fields.reader import printable

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PROXY_SCHEMES = ("http", "https")
BYTES_MAX = 16 * 1024 * 1024
PLUGIN_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
HEADER_SAFE = "!#$&'*+-.^_`|~"  # what a header's name may hold beside letters and digits, less the percent

T = TypeVar("T")


def load(
    path: Path | None = None,
    context: str | None = None,
    *,
    environment: Mapping[str, str] = os.environ,
    account: Path = SERVICE_ACCOUNT,
) -> Access:
    """The file given, or those of KUBECONFIG, or ~/.kube/config, or the service account of this pod."""
    if path is not None:
        return _from_files([path], context)
    if named := environment.get("KUBECONFIG"):
        paths = dict.fromkeys(Path(part).expanduser() for part in named.split(os.pathsep) if part)
        there = [part for part in paths if part.exists()]
        if not there:
            raise Misconfigured(
                f"KUBECONFIG is {named}, and no such file exists; correct it or give --kubeconfig"
            )
        return _from_files(there, context)
    home = Path(environment.get("HOME") or "~").expanduser() / ".kube" / "config"
    if home.exists():
        return _from_files([home], context)
    if environment.get("KUBERNETES_SERVICE_HOST") and context is None:
        return in_cluster(environment, account)
    raise Misconfigured(
        f"no cluster to talk to: KUBECONFIG is not set, {home} does not exist, and this is not a pod;"
        " give --kubeconfig"
    )


def in_cluster(
    environment: Mapping[str, str] = os.environ,
    account: Path = SERVICE_ACCOUNT,
) -> Access:
    """The API server of the cluster this pod runs in, as its service account."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise Misconfigured(
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not both set, as they are in a pod;"
            " give --kubeconfig outside of one"
        )
    token, authority = account / "token", account / "ca.crt"
    for needed in (token, authority):
        if not needed.exists():
            raise Misconfigured(
                f"the pod's service account has no {needed}; set automountServiceAccountToken of the pod"
            )
    named = account / "namespace"
    return Access(
        origin="the pod's service account",
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=named.read_text().strip() if named.exists() else "default",
        authority=InlineOrFile("the pod's service account: ca.crt", path=authority),
        token=InlineOrFile("the pod's service account: token", path=token),
    )


# ── what a file may say ────────────────────────────────────────────────────────────────────────────


class KubeconfigCluster(msgspec.Struct, frozen=True, rename="kebab"):
    """One cluster of a kubeconfig."""

    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    extensions: list[dict[str, Any]] | None = None


class Context(msgspec.Struct, frozen=True):
    """One context of a kubeconfig: which cluster, which user."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct, frozen=True):
    name: str
    cluster: KubeconfigCluster | None = None


class _NamedContext(msgspec.Struct, frozen=True):
    name: str
    context: Context | None = None


class _NamedUser(msgspec.Struct, frozen=True):
    name: str
    user: User | None = None


class _File(msgspec.Struct, frozen=True, rename="kebab"):
    current_context: str | None = None
    clusters: list[_NamedCluster] | None = None
    contexts: list[_NamedContext] | None = None
    users: list[_NamedUser] | None = None


@dataclass(frozen=True, slots=True)
class _Merged:
    """All files as one; each entry with the file it came from. The first file to name something wins."""

    paths: Sequence[Path]
    current: str
    clusters: Mapping[str, tuple[Path, KubeconfigCluster]]
    contexts: Mapping[str, tuple[Path, Context]]
    users: Mapping[str, tuple[Path, User]]


def _from_files(paths: Sequence[Path], context: str | None) -> Access:
    """The access of the files. Control characters in them do not reach the terminal in messages."""
    try:
        return _access(paths, context)
    except Misconfigured as wrong:
        raise Misconfigured(printable(str(wrong))) from None


def _access(paths: Sequence[Path], context: str | None) -> Access:
    merged = _merge([(path, _read(path)) for path in paths])
    files = ", ".join(str(path) for path in paths)
    name = context or merged.current
    if not name:
        raise Misconfigured(
            f"{files}: no context was asked for and current-context is not set;"
            f" give --context with one of: {_names(merged.contexts)}"
        )
    if name not in merged.contexts:
        asked = "was asked for" if context else "is the current-context"
        raise Misconfigured(
            f"{files}: context {name!r} {asked} but is not there; choose one of: {_names(merged.contexts)}"
        )
    path, chosen = merged.contexts[name]
    origin = f"{path} (context {name})"
    cluster_path, cluster = _pick(origin, "cluster", chosen.cluster, merged.clusters)
    where = f"{cluster_path} (context {name}): cluster {chosen.cluster!r}"
    access = _cluster_part(cluster, cluster_path.parent, where, origin, chosen.namespace)
    if not chosen.user:
        return access
    user_path, user = _pick(origin, "user", chosen.user, merged.users)
    whose = f"{user_path} (context {name}): user {chosen.user!r}"
    return _user_part(access, user, user_path.parent, whose, _cluster_info(cluster, access))


def _read(path: Path) -> _File:
    try:
        content = bounded_yaml(read_bounded(path, BYTES_MAX))
    except OSError as wrong:
        raise Misconfigured(
            f"the kubeconfig {path} cannot be read ({wrong.strerror}); correct the path or the permissions"
        ) from None
    except UnreadableYAML as wrong:
        line = f" (line {wrong.line})" if wrong.line else ""
        why = wrong.why.partition(":")[0]  # what follows may quote a credential
        raise Misconfigured(f"the kubeconfig {path} {why}{line}; correct or replace it") from None
    try:
        return msgspec.convert({} if content is None else content, _File)
    except msgspec.ValidationError as wrong:
        found, _, field = str(wrong).partition(" - at `$")
        raise Misconfigured(
            f"the kubeconfig {path}: {field.strip('.`') or 'the whole of it'} is not as it must be"
            f" ({found.replace('`', '')}); correct it"
        ) from None


def _merge(files: Sequence[tuple[Path, _File]]) -> _Merged:
    def first(entries: Callable[[_File], Iterable[tuple[str, T | None]]]) -> dict[str, tuple[Path, T]]:
        found: dict[str, tuple[Path, T]] = {}
        for path, file in files:
            for name, value in entries(file):
                if value is not None:
                    found.setdefault(name, (path, value))
        return found

    return _Merged(
        paths=[path for path, _ in files],
        current=next((file.current_context for _, file in files if file.current_context), ""),
        clusters=first(lambda file: ((entry.name, entry.cluster) for entry in file.clusters or ())),
        contexts=first(lambda file: ((entry.name, entry.context) for entry in file.contexts or ())),
        users=first(lambda file: ((entry.name, entry.user) for entry in file.users or ())),
    )


def _pick(origin: str, what: str, name: str, there: Mapping[str, tuple[Path, T]]) -> tuple[Path, T]:
    if not name:
        raise Misconfigured(f"{origin}: the context names no {what}; set it to one of: {_names(there)}")
    if name not in there:
        raise Misconfigured(
            f"{origin}: the context names {what} {name!r}, which is not there;"
            f" set it to one of: {_names(there)}"
        )
    return there[name]


def _cluster_part(
    cluster: KubeconfigCluster, folder: Path, where: str, origin: str, namespace: str
) -> Access:
    authority = _material(
        f"{where}: certificate-authority",
        cluster.certificate_authority,
        cluster.certificate_authority_data,
        folder,
    )
    if cluster.insecure_skip_tls_verify and authority:
        raise Misconfigured(
            f"{where}: certificate-authority and insecure-skip-tls-verify are both set; keep the authority"
        )
    if cluster.proxy_url and not _is_address(cluster.proxy_url, PROXY_SCHEMES):
        raise Misconfigured(
            f"{where}: proxy-url is {cluster.proxy_url}; give a proxy that starts with http:// or https://"
        )
    return Access(
        origin=origin,
        server=_server(cluster.server, where),
        namespace=namespace or "default",
        authority=authority,
        verify=not cluster.insecure_skip_tls_verify,
        server_name=cluster.tls_server_name,
        proxy=cluster.proxy_url,
    )


def _server(text: str, where: str) -> str:
    address = text.strip()
    if not address:
        raise Misconfigured(f"{where}: server is not set; set it to the address of the API server")
    if not _is_address(address, ("http", "https")):
        raise Misconfigured(f"{where}: server is {address!r}; give an address like https://host:6443")
    return address.rstrip("/")


def _is_address(text: str, schemes: Collection[str]) -> bool:
    """Whether a host, and perhaps a port, can be read from an address of one of these schemes."""
    try:
        parts = urlsplit(text)
        return parts.scheme in schemes and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


def _cluster_info(cluster: KubeconfigCluster, access: Access) -> dict[str, Any]:
    """The cluster information for a plugin, in the form of ExecCredential."""
    told: dict[str, Any] = {"server": access.server}
    if cluster.tls_server_name:
        told["tls-server-name"] = cluster.tls_server_name
    if cluster.insecure_skip_tls_verify:
        told["insecure-skip-tls-verify"] = True
    if access.authority is not None:
        told["certificate-authority-data"] = base64.b64encode(access.authority.read()).decode()
    if cluster.proxy_url:
        told["proxy-url"] = cluster.proxy_url
    for extension in cluster.extensions or ():
        if extension.get("name") == "client.authentication.k8s.io/exec":
            told["config"] = extension.get("extension")
    return told


def _names(there: Mapping[str, object]) -> str:
    return ", ".join(sorted(there)) or "(none)"


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


def _user_part(access: Access, user: User, folder: Path, whose: str, cluster: Mapping[str, Any]) -> Access:
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
    certificate = _material(
        f"{whose}: client-certificate", user.client_certificate, user.client_certificate_data, folder
    )
    key = _material(f"{whose}: client-key", user.client_key, user.client_key_data, folder)
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


def _material(label: str, path: str, data: str, folder: Path) -> InlineOrFile | None:
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
