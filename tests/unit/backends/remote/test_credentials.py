"""Tokens that rotate, plugins that expire, and what is shown to the server at each moment."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bayplan.backends.remote import exec_plugin
from bayplan.backends.remote.access import Access, InlineOrFile, Interactive, Plugin
from bayplan.backends.remote.credentials import Credentials, RequestCredentials
from bayplan.backends.remote.exec_plugin import Credential
from bayplan.dialects.errors import ApiError, Misconfigured, Unauthorised
from tests.support.remote_server import (
    THINGS,
    Server,
    added,
    page,
    quiet,
    refused,
    stream,
    thing,
    watching,
)

V1, V1BETA1 = "client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"
BASE = Access("test", "http://api.test")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def bearer(presented: RequestCredentials) -> str:
    return dict(presented.headers)["Authorization"].removeprefix("Bearer ")


def token_file(path: Path, text: str = "first\n") -> InlineOrFile:
    path.write_text(text)
    return InlineOrFile("tokenFile", path=path)


# ── token files ────────────────────────────────────────────────────────────────────────────────────


def test_a_token_file_is_read_again_every_minute(tmp_path: Path) -> None:
    clock = Clock()
    token = token_file(tmp_path / "token")
    credentials = Credentials(replace(BASE, token=token), lambda _: None, clock)

    async def story() -> list[str]:
        told = [bearer(await credentials.current())]
        (tmp_path / "token").write_text("second")
        for seconds in (59.0, 2.0):
            clock.now += seconds
            told.append(bearer(await credentials.current()))
        return told

    assert asyncio.run(story()) == ["first", "first", "second"]


def test_a_token_file_caught_while_it_is_replaced_does_no_harm(tmp_path: Path) -> None:
    clock, log = Clock(), list[str]()
    path = tmp_path / "token"
    credentials = Credentials(replace(BASE, token=token_file(path)), log.append, clock)

    async def story() -> list[str]:
        told = [bearer(await credentials.current())]
        for change in (lambda: path.write_text(""), path.unlink, lambda: path.write_text("second")):
            change()
            clock.now += 61
            told.append(bearer(await credentials.current()))
        return told

    assert asyncio.run(story()) == ["first", "first", "first", "second"]
    assert ["is empty" in log[0], "cannot be read" in log[1], len(log)] == [True, True, 2]


@pytest.mark.parametrize("text", ["", " \n", "two words", "line\nline", "ümlaut"])
def test_a_token_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    credentials = Credentials(replace(BASE, token=token_file(tmp_path / "token", text)), lambda _: None)
    with pytest.raises(Misconfigured, match="give the bearer token and nothing else"):
        asyncio.run(credentials.current())


def only_for(token: str, then: Callable[[web.Request], Any]) -> Any:
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {token}":
            return await refused(401)(request)
        return await then(request)  # type: ignore[no-any-return]

    return answer


def test_a_token_rotated_behind_our_back_is_read_again_when_the_server_refuses_it(
    server: Server, tmp_path: Path
) -> None:
    access = replace(BASE, server=server.url, token=token_file(tmp_path / "token"))
    server.lists = [only_for("first", page([]))]
    server.watches = [
        stream(added(thing("a", 2)), stay=False),
        only_for("second", stream(added(thing("b", 3)))),
    ]
    server.watches[0] = _rotating(tmp_path / "token", server.watches[0])
    with watching(server, THINGS, access=access) as seen:
        seen.until(lambda: "seen b@3" in seen.told())
        assert seen.log == []


def _rotating(path: Path, then: Any) -> Any:
    async def answer(request: web.Request) -> web.StreamResponse:
        path.write_text("second")
        return await then(request)  # type: ignore[no-any-return]

    return answer


def test_a_refused_credential_that_cannot_change_is_tried_once(server: Server) -> None:
    server.lists = [refused(401)]
    with watching(server, THINGS) as seen, pytest.raises(Unauthorised, match="log in again or renew them"):
        seen.until(lambda: False)
    assert server.count(watch=False) == 1


def test_impersonation_is_sent_with_every_request(server: Server) -> None:
    headers = (("Impersonate-User", "jane"), ("Impersonate-Group", "dev"), ("Impersonate-Group", "ops"))
    server.watches = [quiet]
    with watching(server, THINGS, access=replace(BASE, server=server.url, impersonation=headers)) as seen:
        seen.until(lambda: server.count(watch=True) > 0)
    for asked in server.asked:
        assert [pair for pair in asked.all_headers if pair[0].startswith("Impersonate")] == list(headers)


# ── plugins ────────────────────────────────────────────────────────────────────────────────────────

SCRIPT = """
import json, os, sys
request = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
open(sys.argv[1], "a").write(json.dumps(request) + "\\n")
count = len(open(sys.argv[1]).readlines())
status = json.loads(sys.argv[2])
status["token"] = status["token"] + str(count)
print(json.dumps({"kind": "ExecCredential", "apiVersion": request["apiVersion"], "status": status}))
"""


def plugin(tmp_path: Path, version: str = V1, **status: Any) -> Plugin:
    """A plugin that prints token1, token2, … and notes what it was told."""
    script = tmp_path / "plugin.py"
    script.write_text(SCRIPT)
    arguments = (str(script), str(tmp_path / "runs"), json.dumps({"token": "token", **status}))
    return Plugin("user u", version, sys.executable, arguments, interactive=Interactive.NEVER)


def runs(tmp_path: Path) -> list[dict[str, Any]]:
    path = tmp_path / "runs"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("version", [V1, V1BETA1])
def test_a_plugin_is_run_and_told_what_is_wanted(tmp_path: Path, version: str) -> None:
    asked = replace(plugin(tmp_path, version), cluster={"server": "https://api.test"})
    assert exec_plugin.run(asked) == Credential(token="token1")
    spec = {"interactive": False, "cluster": {"server": "https://api.test"}}
    assert runs(tmp_path) == [{"kind": "ExecCredential", "apiVersion": version, "spec": spec}]


def test_a_plugin_gets_our_environment_and_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAYPLAN_TEST_OURS", "ours")
    code = "import os,json;s={'token':os.environ['BAYPLAN_TEST_OURS']+os.environ['ITS']};" + (
        f"print(json.dumps(dict(kind='ExecCredential',apiVersion='{V1}',status=s)))"
    )
    asked = Plugin("u", V1, sys.executable, ("-c", code), (("ITS", "-its"),))
    assert exec_plugin.run(asked).token == "ours-its"


def test_what_a_plugin_printed_is_used_until_shortly_before_it_expires(tmp_path: Path) -> None:
    clock = Clock()
    expiry = datetime.fromtimestamp(clock.now + 100, UTC).isoformat()
    access = replace(BASE, plugin=plugin(tmp_path, expirationTimestamp=expiry))
    credentials = Credentials(access, lambda _: None, clock)

    async def story() -> list[str]:
        told = []
        for seconds in (0, 61, 18, 2):  # renewed a fifth of its life early
            clock.now += seconds
            told += [bearer(one) for one in await asyncio.gather(*(credentials.current() for _ in range(5)))]
        return told

    assert asyncio.run(story()) == ["token1"] * 15 + ["token2"] * 5
    assert len(runs(tmp_path)) == 2


def test_a_plugin_without_expiry_is_run_again_only_when_refused(tmp_path: Path) -> None:
    clock = Clock()
    credentials = Credentials(replace(BASE, plugin=plugin(tmp_path)), lambda _: None, clock)

    async def story() -> tuple[RequestCredentials, list[RequestCredentials | None]]:
        first = await credentials.current()
        clock.now += 1e6
        assert await credentials.current() is first
        return first, await asyncio.gather(*(credentials.renewed(first) for _ in range(5)))

    first, others = asyncio.run(story())
    assert bearer(first) == "token1"
    assert [bearer(other) for other in others if other] == ["token2"] * 5  # five refusals, one new run
    assert len(runs(tmp_path)) == 2


def test_a_plugin_that_fails_early_leaves_credentials_that_are_still_valid(tmp_path: Path) -> None:
    clock, log, answers = Clock(), list[str](), list[Credential | ApiError]()
    answers += [
        Credential("one", expires=1100.0),
        Unauthorised("no network"),
        Credential("two", expires=1200.0),
    ]

    def run(_: object) -> Credential:
        answer = answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer

    credentials = Credentials(replace(BASE, plugin=plugin(tmp_path)), log.append, clock, run)

    async def story() -> list[str]:
        told = []
        for seconds in (0, 85, 6):
            clock.now += seconds
            told.append(bearer(await credentials.current()))
        return told

    assert asyncio.run(story()) == ["one", "one", "two"]
    assert log == ["no network; the previous credentials are valid for 15 s more"]


def test_a_plugin_that_fails_after_expiry_is_an_error(tmp_path: Path) -> None:
    clock, answers = Clock(), [Credential("one", expires=1010.0)]

    def run(_: object) -> Credential:
        if not answers:
            raise Unauthorised("no network")
        return answers.pop()

    credentials = Credentials(replace(BASE, plugin=plugin(tmp_path)), lambda _: None, clock, run)

    async def story() -> None:
        await credentials.current()
        clock.now += 20
        await credentials.current()

    with pytest.raises(Unauthorised, match="no network"):
        asyncio.run(story())


def test_a_plugin_that_prints_expired_credentials_starts_no_storm(tmp_path: Path) -> None:
    clock = Clock()
    access = replace(BASE, plugin=plugin(tmp_path, expirationTimestamp="1970-01-01T00:00:00Z"))
    credentials = Credentials(access, lambda _: None, clock)

    async def story() -> None:
        for _ in range(5):
            await credentials.current()

    asyncio.run(story())
    assert len(runs(tmp_path)) == 1


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        ("", "something that is not JSON"),
        ("{}", "kind '' of ''"),
        (
            '{"kind":"ExecCredential","apiVersion":"x/v2","status":{"token":"s3cret"}}',
            "'ExecCredential' of 'x/v2'",
        ),
        (f'{{"kind":"ExecCredential","apiVersion":"{V1}"}}', "neither status.token nor status.clientCert"),
        (f'{{"kind":"ExecCredential","apiVersion":"{V1}","status":{{"token":7}}}}', "not as it must be"),
        (
            f'{{"kind":"ExecCredential","apiVersion":"{V1}","status":{{"clientCertificateData":"s3cret"}}}}',
            "only one of status.clientCertificateData and status.clientKeyData",
        ),
        (
            f'{{"kind":"ExecCredential","apiVersion":"{V1}",'
            '"status":{"token":"s3cret","expirationTimestamp":"2026-01-01T00:00:00"}}',
            "an expirationTimestamp without a time zone",
        ),
    ],
)
def test_what_is_no_credential_is_told_without_quoting_it(printed: str, words: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        exec_plugin.parse(Plugin("user u", V1, "login"), printed.encode())
    assert words in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_plugin_may_print_a_certificate() -> None:
    status = {"clientCertificateData": "CERT", "clientKeyData": "KEY"}
    printed = json.dumps({"kind": "ExecCredential", "apiVersion": V1, "status": status})
    found = exec_plugin.parse(Plugin("u", V1, "login"), printed.encode()).certificate
    assert found is not None
    assert (found.certificate.read(), found.key.read()) == (b"CERT", b"KEY")


def test_a_plugin_that_fails_is_quoted_from_its_error_output() -> None:
    code = "import sys; print('s3cret'); print('log in first', file=sys.stderr); sys.exit(3)"
    with pytest.raises(Unauthorised, match=r"ended with status 3 \(log in first\); log in again") as caught:
        exec_plugin.run(Plugin("user u", V1, sys.executable, ("-c", code)))
    assert "s3cret" not in str(caught.value)


def test_a_plugin_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exec_plugin, "SECONDS_MAX", 0.2)
    with pytest.raises(Unauthorised, match="did not end within"):
        exec_plugin.run(Plugin("u", V1, sys.executable, ("-c", "import time; time.sleep(60)")))


def test_a_plugin_that_vanished_gives_its_hint() -> None:
    with pytest.raises(Misconfigured, match="not an executable program; brew install x"):
        exec_plugin.run(Plugin("u", V1, "/no/such/program", install_hint="brew install x"))


def test_a_plugin_that_needs_a_terminal_is_refused_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        with pytest.raises(Misconfigured, match="needs a terminal"):
            exec_plugin.run(Plugin("u", V1, sys.executable, interactive=Interactive.ALWAYS))


def test_the_server_sees_the_plugins_token_and_a_new_one_after_refusing_it(
    server: Server, tmp_path: Path
) -> None:
    access = replace(BASE, server=server.url, plugin=plugin(tmp_path))
    server.lists = [only_for("token2", page([thing("a", 1)]))]
    with watching(server, THINGS, access=access) as seen:
        seen.synced()
        assert seen.told() == ["seen a@1", "synced"]
    sent = [asked.headers["Authorization"] for asked in server.of(watch=False)]
    assert sent == ["Bearer token1", "Bearer token2"]
