"""The credentials of requests, renewed before they expire and read again when files change."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bayplan.backends.remote import exec_plugin
from bayplan.backends.remote.access import Access, Certificate
from bayplan.backends.remote.exec_plugin import Credential
from bayplan.backends.remote.tls import tls_context
from bayplan.dialects.errors import ApiError, Misconfigured

FILES_EVERY = 60.0  # seconds between looks at token and certificate files
EARLY = 30.0  # seconds before its expiry that a credential is renewed, of a long-lived one
EARLY_SHARE = 0.2  # of what is left, of a short-lived one
SHORTEST = 1.0  # seconds that any credential is used, so that an expired one starts no storm of plugins
FAILED_AGAIN = 5.0  # seconds until a failed renewal is tried again while the old credential still holds


@dataclass(frozen=True, slots=True, eq=False)
class RequestCredentials:
    """The headers and the TLS set-up of a request."""

    headers: tuple[tuple[str, str], ...] = field(repr=False)
    tls: ssl.SSLContext | None


class Credentials:
    """Cached credentials; `current` is called before every request."""

    def __init__(
        self,
        access: Access,
        log: Callable[[str], None],
        clock: Callable[[], float] = time.time,
        run_plugin: Callable[..., Credential] = exec_plugin.run,
    ) -> None:
        self._access, self._log, self._clock, self._run_plugin = access, log, clock, run_plugin
        self._one_at_a_time = asyncio.Lock()
        self._presented: RequestCredentials | None = None
        self._good_until = 0.0
        self._printed: Credential | None = None
        self._print_again_at = float("inf")
        self._shown: tuple[object, ...] = ()

    async def current(self) -> RequestCredentials:
        """The credentials to use now."""
        if self._presented is not None and self._clock() < self._good_until:
            return self._presented
        async with self._one_at_a_time:
            if self._presented is None or self._clock() >= self._good_until:
                await self._reload(refused=False)
            assert self._presented is not None
            return self._presented

    async def renewed(self, refused: RequestCredentials) -> RequestCredentials | None:
        """New credentials after the server rejected these; None if there are no others."""
        async with self._one_at_a_time:
            if self._presented is refused:
                await self._reload(refused=True)
            return None if self._presented is refused else self._presented

    async def _reload(self, *, refused: bool) -> None:
        now = self._clock()
        due = refused or self._printed is None or now >= self._print_again_at
        if self._access.plugin is not None and due:
            await self._run_plugin_again(now, refused=refused)
        try:
            self._present()
        except Misconfigured as trouble:
            if self._presented is None:
                raise
            self._log(f"{trouble}; the previous credentials are used until then")
            self._good_until = now + FAILED_AGAIN  # perhaps a file was being replaced at this very moment
        else:
            self._good_until = min(now + FILES_EVERY, self._print_again_at)

    def _present(self) -> None:
        access, printed = self._access, self._printed or Credential()
        certificate = printed.certificate or access.certificate
        token = printed.token or self._token()
        shown = (token, printed.certificate, *_stamps(access, certificate))
        if self._presented is None or shown != self._shown:
            headers = access.impersonation
            if token:
                headers = (("Authorization", f"Bearer {token}"), *headers)
            self._presented = RequestCredentials(headers, tls_context(access, certificate))
            self._shown = shown

    async def _run_plugin_again(self, now: float, *, refused: bool) -> None:
        try:
            self._printed = await asyncio.to_thread(self._run_plugin, self._access.plugin)
        except ApiError as trouble:
            old = self._printed
            if refused or old is None or old.expires is None or old.expires <= now:
                raise
            self._log(f"{trouble}; the previous credentials are valid for {old.expires - now:.0f} s more")
            self._print_again_at = now + FAILED_AGAIN
            return
        expires = self._printed.expires
        if expires is None:
            self._print_again_at = float("inf")
        else:
            early = min(EARLY, EARLY_SHARE * max(expires - now, 0.0))
            self._print_again_at = max(expires - early, now + SHORTEST)

    def _token(self) -> str:
        if self._access.token is None:
            return ""
        text = self._access.token.read().decode("ascii", errors="replace").strip()
        if not text or not text.isprintable() or " " in text or not text.isascii():
            raise Misconfigured(
                f"{self._access.token.label} is {'empty' if not text else 'not one word of ASCII'};"
                " give the bearer token and nothing else"
            )
        return text


def _stamps(access: Access, certificate: Certificate | None) -> tuple[object, ...]:
    """What changes when a file is replaced."""
    used = [access.authority] if access.authority else []
    used += [certificate.certificate, certificate.key] if certificate else []
    return tuple(_stamp(material.path) for material in used if material.path is not None)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()  # through links: a mounted secret is replaced by another link
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size
