"""Holding a conversation with a server: what was asked, and what came back."""

from __future__ import annotations

import http.client
import json
import queue
import socket
import ssl
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tests.conversations.script import Step, Talk, filled

PATIENCE = 15.0  # seconds for what controllers do by and by
WATCH_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Server:
    """An API server and how to be let in."""

    host: str
    port: int
    trust: ssl.SSLContext
    token: str
    has_controllers: bool  # a real one: accounts come after their namespace, kinds after their definition


@dataclass(frozen=True, slots=True)
class Exchange:
    """The answer to one step."""

    told: str
    code: int
    body: Any
    warnings: tuple[str, ...] = ()


def hold(server: Server, talk: Talk) -> list[Exchange]:
    """Hold a conversation in a namespace of its own."""
    namespace = f"t-{talk.slug}"
    known = {"ns": namespace}
    watches: dict[str, _Watch] = {}
    _ask(server, "POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    if server.has_controllers:
        _await(server, f"/api/v1/namespaces/{namespace}/serviceaccounts/default", 200)
    definitions = [filled(kind, known) for kind in talk.kinds]
    try:
        for definition in definitions:
            _define(server, definition, namespace)
        return [_step(server, step, known, watches) for step in talk.steps]
    finally:
        for watch in watches.values():
            watch.close()
        for definition in definitions:
            _ask(server, "DELETE", f"{_DEFINITIONS}/{definition['metadata']['name']}")
        _ask(server, "DELETE", f"/api/v1/namespaces/{namespace}")


_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def _define(server: Server, definition: dict[str, Any], namespace: str) -> None:
    _ask(server, "POST", _DEFINITIONS, definition)
    spec = definition["spec"]
    for version in spec["versions"]:
        if version["served"]:
            scope = f"/namespaces/{namespace}" if spec["scope"] == "Namespaced" else ""
            root = f"/apis/{spec['group']}/{version['name']}"
            _await(server, f"{root}{scope}/{spec['names']['plural']}", 200)
    if server.has_controllers:
        time.sleep(1.0)  # the handler of a new kind is replaced once more after it is first served


def _step(server: Server, step: Step, known: dict[str, str], watches: dict[str, _Watch]) -> Exchange:
    if step.read:
        return Exchange(step.told, 0, watches[step.read].take(step.count))
    path = filled(step.path, known)
    body = filled(step.body, known)
    if step.watch:
        watches[step.watch] = _Watch(server, path, step.accept)
        return Exchange(step.told, watches[step.watch].code, None)
    code, answer, warnings = _ask(server, step.method, path, body, step)
    deadline = time.monotonic() + PATIENCE
    while step.until and not _holds(step.until, code, answer) and time.monotonic() < deadline:
        time.sleep(0.1)
        code, answer, warnings = _ask(server, step.method, path, body, step)
    for name, where in step.keep.items():
        known[name] = str(_at(answer, where))
    return Exchange(step.told, code, answer, warnings)


def _holds(until: dict[str, Any], code: int, answer: Any) -> bool:
    wanted = {key: value for key, value in until.items() if key != "code"}
    return until.get("code", code) == code and all(_at(answer, key) == value for key, value in wanted.items())


def _at(answer: Any, where: str) -> Any:
    for key in where.split("."):
        if isinstance(answer, list):
            answer = answer[int(key)] if int(key) < len(answer) else None
        else:
            answer = answer.get(key) if isinstance(answer, dict) else None
    return answer


def _await(server: Server, path: str, code: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while _ask(server, "GET", path)[0] != code:
        assert time.monotonic() < deadline, f"{path} does not answer {code}"
        time.sleep(0.05)


def _connection(server: Server, seconds: float) -> http.client.HTTPSConnection:
    return http.client.HTTPSConnection(server.host, server.port, context=server.trust, timeout=seconds)


def _ask(
    server: Server, method: str, path: str, body: Any = None, step: Step | None = None
) -> tuple[int, Any, tuple[str, ...]]:
    step = step or Step()
    headers = {"Authorization": f"Bearer {server.token}", "Accept": step.accept}
    content = step.text if step.text is not None else json.dumps(body) if body is not None else None
    if content is not None:
        headers["Content-Type"] = step.form
    connection = _connection(server, PATIENCE)
    try:
        connection.request(method, quote(path, safe="/?=&,:%!()"), content, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        warnings = tuple(value for name, value in answer.getheaders() if name.lower() == "warning")
        try:
            return answer.status, json.loads(text), warnings
        except json.JSONDecodeError:
            return answer.status, text, warnings
    finally:
        connection.close()


class _Watch:
    """A watch that is read in a thread."""

    def __init__(self, server: Server, path: str, accept: str) -> None:
        self._connection = _connection(server, WATCH_SECONDS)
        headers = {"Authorization": f"Bearer {server.token}", "Accept": accept}
        joined = f"{path}{'&' if '?' in path else '?'}watch=1&timeoutSeconds={WATCH_SECONDS}"
        self._connection.request("GET", quote(joined, safe="/?=&,:%!()"), headers=headers)
        self._socket = self._connection.sock
        self._answer = self._connection.getresponse()
        self.code = self._answer.status
        self._events: queue.Queue[Any] = queue.Queue()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def take(self, count: int) -> list[Any]:
        """The next events; fewer when no more come in time."""
        found = []
        deadline = time.monotonic() + PATIENCE
        for _ in range(count):
            try:
                event = self._events.get(timeout=max(deadline - time.monotonic(), 0.01))
            except queue.Empty:
                break
            if event is None:
                break
            found.append(event)
        return found

    def close(self) -> None:
        """End it, from this side."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE)
        self._answer.close()
        self._connection.close()

    def _read(self) -> None:
        try:
            for line in self._answer:
                self._events.put(json.loads(line))
        except (OSError, ValueError, http.client.HTTPException, AttributeError):
            pass
        self._events.put(None)
