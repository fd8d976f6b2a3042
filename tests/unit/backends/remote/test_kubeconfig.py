"""Kubeconfigs as users have them, and one sentence for every mistake."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from bayplan.backends.remote.access import Access
from bayplan.backends.remote.kubeconfig import in_cluster, load
from bayplan.dialects.errors import Misconfigured

CLUSTER = {"server": "https://api.test:6443"}


def config(**changes: Any) -> dict[str, Any]:
    """One context `main` with one cluster and one user."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": changes.get("current", "main"),
        "contexts": [
            {"name": "main", "context": {"cluster": "c", "user": "u", **changes.get("context", {})}}
        ],
        "clusters": [{"name": "c", "cluster": {**CLUSTER, **changes.get("cluster", {})}}],
        "users": [{"name": "u", "user": changes.get("user", {"token": "secret"})}],
    }


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def loaded(path: Path, content: Any, context: str | None = None) -> Access:
    return load(write(path / "config", content), context)


def mistake(path: Path, content: Any, context: str | None = None) -> str:
    """The one sentence that a mistake gets; it names the file."""
    with pytest.raises(Misconfigured) as caught:
        loaded(path, content, context)
    said = str(caught.value)
    assert str(path) in said
    assert "\n" not in said
    return said


# ── what is read ───────────────────────────────────────────────────────────────────────────────────


def test_the_current_context_names_server_token_and_namespace(tmp_path: Path) -> None:
    found = loaded(tmp_path, config(context={"namespace": "ml"}))
    assert (found.server, found.namespace, found.verify) == ("https://api.test:6443", "ml", True)
    assert found.token is not None
    assert found.token.read() == b"secret"
    assert "secret" not in repr(found)


def test_another_context_can_be_asked_for(tmp_path: Path) -> None:
    content = config(current="")
    content["contexts"].append({"name": "other", "context": {"cluster": "c"}})
    assert loaded(tmp_path, content, "other").token is None


def test_json_and_empty_lists_are_fine(tmp_path: Path) -> None:
    text = '{"current-context": "m", "users": null, "clusters": [{"name": "c", "cluster": {"server": "http://h"}}],'
    found = loaded(tmp_path, text + '"contexts": [{"name": "m", "context": {"cluster": "c"}}]}')
    assert found.server == "http://h"


def test_relative_paths_start_at_the_file(tmp_path: Path) -> None:
    for name in ("ca.crt", "me.crt", "me.key"):
        write(tmp_path / "pki" / name, name)
    user = {"client-certificate": "pki/me.crt", "client-key": str(tmp_path / "pki" / "me.key")}
    found = loaded(tmp_path, config(cluster={"certificate-authority": "pki/ca.crt"}, user=user))
    assert found.authority is not None and found.certificate is not None
    assert found.authority.read() == b"ca.crt"
    assert found.certificate.certificate.read() == b"me.crt"
    assert found.certificate.key.read() == b"me.key"


def test_data_in_place_wins_over_a_file(tmp_path: Path) -> None:
    text = base64.b64encode(b"in place").decode()
    cluster = {"certificate-authority-data": text, "certificate-authority": "nowhere"}
    found = loaded(tmp_path, config(cluster=cluster))
    assert found.authority is not None
    assert found.authority.read() == b"in place"


def test_a_token_file_wins_over_a_token(tmp_path: Path) -> None:
    write(tmp_path / "token", "from the file")
    found = loaded(tmp_path, config(user={"token": "from the text", "tokenFile": "token"}))
    assert found.token is not None
    assert found.token.read() == b"from the file"


def test_the_ways_to_the_server_are_read(tmp_path: Path) -> None:
    cluster = {
        "tls-server-name": "kubernetes",
        "proxy-url": "http://proxy:3128",
        "insecure-skip-tls-verify": True,
    }
    found = loaded(tmp_path, config(cluster=cluster))
    assert (found.server_name, found.proxy, found.verify) == ("kubernetes", "http://proxy:3128", False)


def test_impersonation_becomes_headers(tmp_path: Path) -> None:
    user = {
        "as": "jane",
        "as-uid": "7",
        "as-groups": ["dev", "ops"],
        "as-user-extra": {"example.com/team": ["a", "b"]},
    }
    assert loaded(tmp_path, config(user=user)).impersonation == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Extra-example.com%2Fteam", "a"),
        ("Impersonate-Extra-example.com%2Fteam", "b"),
    )


def test_a_plugin_is_found_beside_the_file_and_told_of_the_cluster(tmp_path: Path) -> None:
    write(tmp_path / "bin" / "login", "#!/bin/sh\n").chmod(0o755)
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "bin/login",
        "args": ["--now"],
        "env": [{"name": "REGION", "value": "north"}],
        "interactiveMode": "Never",
        "provideClusterInfo": True,
    }
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
    cluster = {
        "certificate-authority-data": base64.b64encode(b"ca").decode(),
        "tls-server-name": "name",
        "proxy-url": "http://proxy",
        "extensions": [extension],
    }
    found = loaded(tmp_path, config(cluster=cluster, user={"exec": plugin})).plugin
    assert found is not None
    assert (found.command, found.arguments) == (str(tmp_path / "bin" / "login"), ("--now",))
    assert found.environment == (("REGION", "north"),)
    assert found.cluster == {
        "server": "https://api.test:6443",
        "certificate-authority-data": base64.b64encode(b"ca").decode(),
        "tls-server-name": "name",
        "proxy-url": "http://proxy",
        "config": {"audience": "a"},
    }


# ── which files ────────────────────────────────────────────────────────────────────────────────────


def environment(tmp_path: Path, *files: Path, **more: str) -> Mapping[str, str]:
    named = {"KUBECONFIG": os.pathsep.join(map(str, files))} if files else {}
    return {"HOME": str(tmp_path), **named, **more}


def test_of_several_files_the_first_to_name_something_wins(tmp_path: Path) -> None:
    write(tmp_path / "a" / "ca.crt", "ca of a")
    write(tmp_path / "b" / "ca.crt", "ca of b")
    first = config(current="", cluster={"server": "https://first", "certificate-authority": "ca.crt"})
    del first["users"]
    second = config(cluster={"server": "https://second"}, user={"token": "t2"})
    second["clusters"].append({"name": "d", "cluster": {**CLUSTER, "certificate-authority": "ca.crt"}})
    second["contexts"].append({"name": "d", "context": {"cluster": "d"}})
    files = write(tmp_path / "a" / "config", first), write(tmp_path / "b" / "config", second)
    given = environment(tmp_path, files[0], tmp_path / "missing", files[1], files[0])
    merged = load(environment=given)
    assert merged.server == "https://first"
    assert merged.authority is not None and merged.token is not None
    assert (merged.authority.read(), merged.token.read()) == (b"ca of a", b"t2")
    other = load(context="d", environment=given)
    assert other.authority is not None
    assert other.authority.read() == b"ca of b"


def test_kubeconfig_comes_before_home_and_home_before_the_service_account(tmp_path: Path) -> None:
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    account = service_account(tmp_path)
    assert load(environment=environment(tmp_path, **pod), account=account).server == "https://10.0.0.1:443"
    write(tmp_path / ".kube" / "config", config(cluster={"server": "https://home"}))
    assert load(environment=environment(tmp_path, **pod), account=account).server == "https://home"
    named = write(tmp_path / "named", config(cluster={"server": "https://named"}))
    assert load(environment=environment(tmp_path, named, **pod), account=account).server == "https://named"


def test_without_any_file_it_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(
        Misconfigured, match=r"KUBECONFIG is not set, .*\.kube/config does not exist.*give --kube"
    ):
        load(environment=environment(tmp_path))
    with pytest.raises(Misconfigured, match=r"KUBECONFIG is .*missing, and no such file exists"):
        load(environment=environment(tmp_path, tmp_path / "missing"))


# ── in a pod ───────────────────────────────────────────────────────────────────────────────────────


def service_account(tmp_path: Path) -> Path:
    folder = tmp_path / "account"
    for name, text in {"token": "pod-token", "ca.crt": "CA", "namespace": "bay\n"}.items():
        write(folder / name, text)
    return folder


def test_a_pod_uses_its_service_account(tmp_path: Path) -> None:
    pod = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    found = in_cluster(pod, service_account(tmp_path))
    assert (found.server, found.namespace) == ("https://[fd00::1]:443", "bay")
    assert found.token is not None and found.authority is not None
    assert (found.token.read(), found.authority.read()) == (b"pod-token", b"CA")


def test_outside_a_pod_or_without_its_token_the_service_account_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="are not both set"):
        in_cluster({}, service_account(tmp_path))
    pod = {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "1"}
    with pytest.raises(Misconfigured, match=r"has no .*token; set automountServiceAccountToken"):
        in_cluster(pod, tmp_path)


# ── mistakes ───────────────────────────────────────────────────────────────────────────────────────


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"nowhere cannot be read \(No such file or directory\)"):
        load(tmp_path / "nowhere")
    with pytest.raises(Misconfigured, match=r"/dev/zero cannot be read \(it is a device, not a file\)"):
        load(Path("/dev/zero"))
    with pytest.raises(Misconfigured, match=r"cannot be read \(Is a directory\)"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: ]", "is not YAML (line 1)"),
        ("a: " + "[" * 100_000, "is nested too deeply (line 1); correct or replace it"),
        ("users: &a [*a]", "holds an alias that contains itself (line 1)"),
        ("just text", "is not as it must be (Expected object, got str)"),
        ("\x00", "is not YAML"),
        ("[" * 40_000, "is nested too deeply (line 1)"),
        ("a: &a [*a]", "holds an alias that contains itself (line 1)"),
        ("a: b\n---\nc: d\n", "holds more than one document"),
        (
            "users: [{name: u, user: {token: 7}}]",
            "users[0].user.token is not as it must be (Expected str, got int)",
        ),
        ("contexts: {a: b}", "contexts is not as it must be"),
        ("clusters: [{cluster: {}}]", "clusters[0]"),
        ("", "current-context is not set; give --context with one of: (none)"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_told_by_line_and_field(
    tmp_path: Path, text: str, words: str
) -> None:
    assert words in mistake(tmp_path, text)


def test_a_wrong_context_lists_those_there_are(tmp_path: Path) -> None:
    content = config(current="gone")
    content["contexts"].append({"name": "also", "context": {}})
    said = mistake(tmp_path, content, "prod")
    assert "context 'prod' was asked for but is not there; choose one of: also, main" in said
    assert "context 'gone' is the current-context but is not there" in mistake(tmp_path, content)
    content["current-context"] = ""
    assert "give --context with one of: also, main" in mistake(tmp_path, content)
    assert "(context also): the context names no cluster; set it to one of: c" in mistake(
        tmp_path, content, "also"
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"context": {"cluster": "x"}},
            "the context names cluster 'x', which is not there; set it to one of: c",
        ),
        ({"context": {"user": "x"}}, "the context names user 'x', which is not there; set it to one of: u"),
        ({"cluster": {"server": ""}}, "cluster 'c': server is not set"),
        ({"cluster": {"server": "api:6443"}}, "server is 'api:6443'; give an address like https://host:6443"),
        ({"cluster": {"server": "https://h:x"}}, "server is 'https://h:x'"),
        (
            {"cluster": {"proxy-url": "socks5://p"}},
            "proxy-url is socks5://p; give a proxy that starts with http",
        ),
        ({"cluster": {"certificate-authority": "ca"}}, "certificate-authority names the file "),
        ({"cluster": {"certificate-authority-data": "?"}}, "certificate-authority-data is not base64"),
        (
            {"cluster": {"certificate-authority-data": "YQ==", "insecure-skip-tls-verify": True}},
            "certificate-authority and insecure-skip-tls-verify are both set",
        ),
        (
            {"user": {"username": "u", "password": "p"}},
            "user 'u': username and password are set, which no supported",
        ),
        ({"user": {"auth-provider": {"name": "gcp"}}}, "auth-provider 'gcp' was removed from Kubernetes"),
        ({"user": {"tokenFile": "t"}}, "tokenFile names the file "),
        ({"user": {"client-key-data": "YQ=="}}, "client-key is set and client-certificate is not"),
        ({"user": {"client-certificate-data": "YQ=="}}, "client-certificate is set and client-key is not"),
        (
            {"user": {"client-certificate-data": "a", "client-key": "k"}},
            "client-certificate-data is not base64",
        ),
        ({"user": {"as-groups": ["g"]}}, "as-groups or as-user-extra is set without as; say whom"),
    ],
)
def test_a_mistake_is_reported_with_file_context_and_field(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    said = mistake(tmp_path, config(**changes))
    assert "(context main)" in said
    assert words in said


@pytest.mark.parametrize(
    ("plugin", "words"),
    [
        ({"command": ""}, "exec.command is not set"),
        ({"apiVersion": "client.authentication.k8s.io/v1alpha1"}, "v1alpha1'; set it to one of: client.auth"),
        (
            {"interactiveMode": ""},
            "exec.interactiveMode is not set; set it to one of: Never, IfAvailable, Always",
        ),
        ({"interactiveMode": "Maybe"}, "exec.interactiveMode is 'Maybe'"),
        (
            {"command": "no-such-program"},
            "no-such-program is not an executable program; install it or correct",
        ),
        (
            {"command": "no-such", "installHint": "Get it\n  from x."},
            "not an executable program; Get it from x.",
        ),
    ],
)
def test_a_plugin_that_cannot_work_is_told_at_once(
    tmp_path: Path, plugin: dict[str, Any], words: str
) -> None:
    good = {"apiVersion": "client.authentication.k8s.io/v1", "command": "true", "interactiveMode": "Never"}
    assert loaded(tmp_path, config(user={"exec": good})).plugin is not None
    assert words in mistake(tmp_path, config(user={"exec": good | plugin}))
    assert "both exec and a token are set" in mistake(tmp_path, config(user={"exec": good, "token": "t"}))
