"""The HTTP API server in front of the store, for an unmodified kubectl: TLS and a token, loopback only."""

from __future__ import annotations

import asyncio
import errno
import hmac
import ipaddress
import logging
import secrets
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import yaml
from aiohttp import web

from bayplan.backends.embedded.api.status import StatusError
from bayplan.backends.embedded.http import certificates, documents, watch_stream
from bayplan.backends.embedded.http.handlers import HttpResponse, Stream, serve
from bayplan.backends.embedded.http.kubeconfig import write_kubeconfig
from bayplan.backends.embedded.http.kubeconfig_merge import Merged, merge_into
from bayplan.backends.embedded.http.request import JSON, Call, acceptable, place_of
from bayplan.backends.embedded.storage.store import Store
from bayplan.dialects.errors import Misconfigured

BODY_MAX = 3 * 1024 * 1024  # as upstream
PORTS = range(20000, 32000)
USER = "kubernetes-admin"  # the holder of the token
_LOG = logging.getLogger(__name__)
_OPEN = {"/healthz", "/livez", "/readyz"}
_START_SECONDS = 10.0


class ApiServer:
    """A server in its own thread. It holds the lock during each use of the store."""

    def __init__(
        self,
        store: Store,
        lock: threading.RLock,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str = "",
        beyond_loopback: bool = False,
    ) -> None:
        if not beyond_loopback and not _is_loopback(host):
            raise Misconfigured(
                f"The cluster in memory was asked to listen on {host}, beyond this machine. "
                "Say so explicitly (beyond_loopback), or use 127.0.0.1."
            )
        self.store, self.lock, self.host = store, lock, host
        self.port = port or free_port(host)
        self.token = token or secrets.token_urlsafe(32)
        self.credentials = certificates.issue((host, "127.0.0.1", "localhost"))
        self.hub = watch_stream.Hub()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._started = threading.Event()
        self._trouble: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="embedded-http", daemon=True)

    @property
    def url(self) -> str:
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"https://{shown}:{self.port}"

    def start(self) -> ApiServer:
        """Serve from now on; Misconfigured when the port is taken."""
        self._thread.start()
        if not self._started.wait(_START_SECONDS):
            raise Misconfigured(f"The HTTP face did not start at {self.url} within {_START_SECONDS:.0f} s.")
        if self._trouble is not None:
            in_use = isinstance(self._trouble, OSError) and self._trouble.errno == errno.EADDRINUSE
            message = f"port {self.port} is in use; choose another one" if in_use else str(self._trouble)
            raise Misconfigured(f"{self.url} cannot be served: {message}") from None
        return self

    def stop(self) -> None:
        """End all watches and serve no more."""
        if self._loop is not None and self._stopping is not None:
            with suppress(RuntimeError):  # it ended by itself
                self._loop.call_soon_threadsafe(self._stopping.set)
        if self._thread.ident is not None:
            self._thread.join(_START_SECONDS)

    def write_kubeconfig(self, path: Path) -> None:
        """Write a separate kubeconfig for this server."""
        write_kubeconfig(path, self.url, self.credentials.authority, self.token)

    def merge_kubeconfig(self, path: Path) -> Merged:
        """Add the context of this server to an existing kubeconfig."""
        return merge_into(path, self.url, self.credentials.authority, self.token)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as trouble:
            self._trouble = trouble
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        application = web.Application(client_max_size=BODY_MAX)
        application.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0, handle_signals=False)
        await runner.setup()
        unlisten = self.hub.attach(self.store, self._loop)
        try:
            context = self.credentials.server_context()
            await web.TCPSite(runner, self.host, self.port, ssl_context=context).start()
            self._started.set()
            await self._stopping.wait()
        finally:
            unlisten()
            self.hub.close()
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            if request.path not in _OPEN and not self._known(request):
                raise StatusError(401, "Unauthorized")
            call = await _call(request)
            return await self._answer(request, call)
        except StatusError as refusal:
            return _response(refusal.code, refusal.body)
        except web.HTTPRequestEntityTooLarge:
            message = f"a body may have {BODY_MAX} bytes; this one has more"
            return _response(413, StatusError(413, message).body)
        except (ConnectionError, asyncio.CancelledError, web.HTTPException):
            raise
        except Exception as trouble:
            _LOG.exception("%s %s", request.method, request.path)
            message = f"Internal error occurred: {type(trouble).__name__}: {trouble}"
            return _response(500, StatusError(500, message).body)

    async def _answer(self, request: web.Request, call: Call) -> web.StreamResponse:
        place = place_of(call.path)
        if place is None:
            with self.lock:
                return _document(documents.find(self.store, call, f"{self.host}:{self.port}"))
        form = acceptable(call.accept)
        with self.lock:
            self.store.user = USER
            try:
                answer = documents.serve_place(self.store, call, place, serve)
            finally:
                self.store.user = ""
        if isinstance(answer, Stream):
            return await watch_stream.send(request, answer, self.store, self.lock, self.hub)
        if isinstance(answer, HttpResponse):
            return _response(answer.code, answer.body, form, answer.warnings)
        return _document(answer)

    def _known(self, request: web.Request) -> bool:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        return scheme == "Bearer" and hmac.compare_digest(given.strip().encode(), self.token.encode())


def free_port(host: str = "127.0.0.1") -> int:
    """A free port outside of the range of ephemeral ports."""
    for _ in range(100):
        port = PORTS[secrets.randbelow(len(PORTS))]
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as trial, suppress(OSError):
            trial.bind((host, port))
            return port
    raise Misconfigured(f"No free port from {PORTS.start} to {PORTS.stop} was found on {host}; name one.")


async def _call(request: web.Request) -> Call:
    body = await request.read()
    return Call(
        request.method,
        request.path,
        request.query,
        request.headers.get("Accept", "*/*"),
        request.headers.get("Content-Type", JSON),
        body,
    )


def _document(found: documents.ResponseBody) -> web.Response:
    if isinstance(found.body, str):
        return web.Response(status=found.code, text=found.body)
    content = found.body if isinstance(found.body, bytes) else msgspec.json.encode(found.body)
    return web.Response(status=found.code, body=content, headers={"Content-Type": found.content_type})


def _response(code: int, body: Any, form: str = JSON, warnings: list[str] | None = None) -> web.Response:
    if form == JSON:
        content = msgspec.json.encode(body) + b"\n"
    else:
        content = yaml.dump(body, Dumper=yaml.CSafeDumper).encode()
    response = web.Response(status=code, body=content, headers={"Content-Type": form})
    for warning in dict.fromkeys(warnings or ()):
        quoted = warning.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
        response.headers.add("Warning", f'299 - "{quoted}"')
    return response


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
