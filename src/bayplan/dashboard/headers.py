"""The headers of every answer, and the checks of every request that need no credentials."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from aiohttp import web

CSP = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
LOOPBACK = ("localhost", "127.0.0.1", "::1")
TYPES = {"js": "text/javascript", "css": "text/css", "html": "text/html", "svg": "image/svg+xml"}
SAFE_SITES = ("same-origin", "none")
"""Values of Sec-Fetch-Site for requests of our own pages, and of users who typed the address."""


def host_of(header: str) -> str:
    """The name in a Host header, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()


def check_request(request: web.Request, hosts: Iterable[str]) -> None:
    """Refuse other names for this server (DNS rebinding) and requests that another site's page makes."""
    if host_of(request.headers.get("Host", "")) not in set(hosts):
        raise web.HTTPMisdirectedRequest(text="this server is not known by that name\n")
    if request.path == "/":
        return  # a link from another site may lead here; the page itself holds no data
    if request.headers.get("Sec-Fetch-Site", "none") not in SAFE_SITES:
        raise web.HTTPForbidden(text="requests of other sites are not answered\n")
    origin = request.headers.get("Origin")
    if origin is not None and host_of(origin.partition("://")[2]) not in set(hosts):
        raise web.HTTPForbidden(text="requests of other sites are not answered\n")


class Assets:
    """The files of the pages, read once. Their address contains a hash of them all, so they never expire."""

    def __init__(self) -> None:
        self.files = dict(_read(files("bayplan.dashboard") / "static", ""))
        digest = hashlib.sha256()
        for name in sorted(self.files):
            digest.update(name.encode() + b"\0" + self.files[name])
        self.digest = digest.hexdigest()[:16]
        self.page = self.files.pop("index.html").replace(b"{{assets}}", f"/assets/{self.digest}".encode())

    def answer(self, request: web.Request) -> web.Response:
        """One file."""
        name = request.match_info["name"]
        body = self.files.get(name)
        kind = TYPES.get(name.rpartition(".")[2])
        if body is None or kind is None or request.match_info["digest"] != self.digest:
            raise web.HTTPNotFound(text="there is no such file\n")
        kept = {"Cache-Control": "public, max-age=31536000, immutable"}
        response = web.Response(body=body, content_type=kind, charset="utf-8", headers=kept)
        response.enable_compression()
        return response


@cache
def assets() -> Assets:
    """The files of the pages."""
    return Assets()


def _read(folder: Traversable, prefix: str) -> Iterable[tuple[str, bytes]]:
    for entry in folder.iterdir():
        name = f"{prefix}{entry.name}"
        if entry.is_dir():
            yield from _read(entry, f"{name}/")
        elif entry.name.rpartition(".")[2] in TYPES:
            yield name, entry.read_bytes()
