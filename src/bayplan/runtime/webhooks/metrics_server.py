"""/metrics over HTTPS, for clients with permission from the cluster."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

from aiohttp import web
from cryptography import x509
from prometheus_client import CONTENT_TYPE_LATEST

from bayplan.runtime.core.clock import Clock
from bayplan.runtime.telemetry.metrics import Metrics
from bayplan.runtime.webhooks.access_reviews import AccessReviews, PathPermission
from bayplan.runtime.webhooks.certificates import Served, reload, renewed, server_context
from bayplan.runtime.webhooks.http_server import Address, Busy, Limits, RequestBudget, Server

PATH = "/metrics"
REVIEWS_MAX = 4  # tokens reviewed at the same time
WAIT_SECONDS = 2.0
RENEW_SECONDS = 86400.0 * 7  # before the expiry of a self-signed certificate
_LIMITS = Limits(body_bytes=1024, seconds=15.0, connections=64)
_WORDS = {
    PathPermission.UNKNOWN: "give a bearer token that the cluster knows\n",
    PathPermission.FORBIDDEN: f"the owner of this token may not get {PATH}; bind a ClusterRole for it\n",
    PathPermission.UNDECIDED: "the cluster did not answer whether you may read this; try again\n",
}


class OwnCertificate:
    """A self-signed certificate, made at the start and renewed in time."""

    def __init__(self, names: tuple[str, ...], clock: Clock) -> None:
        self._names, self._clock = names, clock
        self._current: Served = renewed(None, names, clock.wall()).served
        self.context = server_context(self._current)

    def refresh(self) -> None:
        """Renew the certificate if it expires soon."""
        if self._clock.wall() > self._current.expires - RENEW_SECONDS:
            self._current = renewed(None, self._names, self._clock.wall()).served
            reload(self.context, self._current)


class CertificateFiles:
    """A certificate and a key from files, reloaded when they change."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._seen = self._state()
        self.context.load_cert_chain(*self._files)

    def refresh(self) -> None:
        """Load the files; as long as they do not match, keep the previous ones."""
        try:
            state = self._state()
            if state != self._seen:
                tried = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # one of the two may not be replaced yet
                tried.load_cert_chain(*self._files)
                self.context.load_cert_chain(*self._files)
                self._seen = state
        except (OSError, ssl.SSLError):
            return

    @property
    def expires(self) -> float:
        """When the certificate expires, in seconds since 1970."""
        return x509.load_pem_x509_certificate(self._files[0].read_bytes()).not_valid_after_utc.timestamp()

    def _state(self) -> tuple[tuple[int, int], ...]:
        return tuple((found.st_mtime_ns, found.st_ino) for found in (path.stat() for path in self._files))


def serve_metrics(
    metrics: Metrics,
    reviews: AccessReviews,
    certificate: OwnCertificate | CertificateFiles,
    address: Address = Address(),  # noqa: B008 - it is frozen
) -> Server:
    """Start the server."""
    budget = RequestBudget(REVIEWS_MAX, REVIEWS_MAX, WAIT_SECONDS)

    async def page(request: web.Request) -> web.Response:
        certificate.refresh()
        token = _token(request)
        try:
            access = await _access(reviews, token, budget) if token else PathPermission.UNKNOWN
        except Busy:
            return web.Response(status=429, text="too many requests\n", headers={"Retry-After": "1"})
        if access is PathPermission.ALLOWED:
            return web.Response(body=metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})
        headers = {"WWW-Authenticate": "Bearer"} if access is PathPermission.UNKNOWN else {}
        return web.Response(status=access.value, text=_WORDS[access], headers=headers)

    return Server("metrics", [web.get(PATH, page)], address, _LIMITS, certificate.context)


async def _access(reviews: AccessReviews, token: str, budget: RequestBudget) -> PathPermission:
    known = reviews.cached(token, PATH)
    if known is not None:
        return known
    async with budget.hold(1):
        return await asyncio.to_thread(reviews.ask, token, PATH)


def _token(request: web.Request) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
