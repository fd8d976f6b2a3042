"""The webhook server: HTTPS around the handlers, with a certificate that can be replaced.

An API server calls /mutate, /validate and /convert; an internal error then refuses the write. Webhooks that
must never block a write (`failurePolicy: Ignore`) use /mutate/optional and /validate/optional, where an
internal error is answered with `allowed`. Concurrent request bodies have a byte budget.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import msgspec
from aiohttp import web

from bayplan.runtime.core.clock import Clock, timer
from bayplan.runtime.core.containment import Containment
from bayplan.runtime.telemetry.metrics import Metrics
from bayplan.runtime.webhooks.admission_review import (
    OBJECT_BYTES,
    Late,
    Malformed,
    Registry,
    ReviewResponse,
    admit,
    convert,
)
from bayplan.runtime.webhooks.http_server import Address, Busy, Limits, RequestBudget, Server

OPTIONAL = "/optional"
"""The path suffix of a webhook that must never block."""
ADMISSION_BYTES = OBJECT_BYTES
"""An API server accepts objects of up to 3 MiB, and a review holds the new and the old one."""
CONVERSION_BYTES = 64 * 1024 * 1024
"""A conversion review holds a whole page of a list."""
ADMISSION_BYTES_TOTAL = 32 * 1024 * 1024
CONVERSION_BYTES_TOTAL = 96 * 1024 * 1024
"""Bytes of all concurrent bodies; conversions have their own budget, so that they do not delay writes."""
SMALL_CONVERSION_BYTES = 16 * 1024
"""Such a conversion takes less time than two changes of threads. Reviews of writes may ask the API server."""
REQUESTS_MAX = 128
WAIT_SECONDS = 0.5  # to wait for the budget
RETRY_SECONDS = 1
ANSWER_SECONDS = 8.0  # after this the response would come too late
LIMITS = Limits(body_bytes=CONVERSION_BYTES, seconds=10.0, idle_seconds=90.0)

Note = Callable[[str, BaseException | None], None]


@dataclass(frozen=True, slots=True)
class _Route:
    """A path, the size limit of its bodies, and its budget."""

    path: str
    body_bytes: int
    budget: RequestBudget
    thread: ThreadPoolExecutor  # not the thread that talks to clients, so that a long review delays few
    # the second argument: whether it is too late
    answer: Callable[[bytearray, Callable[[], bool]], ReviewResponse]
    small_bytes: int = 0  # bodies up to this size are answered in the thread that talks to clients

    @property
    def review(self) -> str:
        """The word for it in metrics and log."""
        return self.path.removesuffix(OPTIONAL)[1:]


def serve_webhooks(
    registry: Registry,
    tls: ssl.SSLContext,
    clock: Clock,
    metrics: Metrics,
    address: Address = Address(),  # noqa: B008 - it is frozen
    note: Note = lambda sentence, bug: None,
) -> Server:
    """Start the server. To renew the certificate, reload the context."""

    def report(sentence: str, error: BaseException, **facts: str) -> None:
        note(f"{sentence} (id {facts['id']})", error)

    containment = Containment(report, metrics.contained)
    writes = (
        RequestBudget(ADMISSION_BYTES_TOTAL, REQUESTS_MAX, WAIT_SECONDS),
        ThreadPoolExecutor(1, "reviews"),
    )
    reads = (
        RequestBudget(CONVERSION_BYTES_TOTAL, REQUESTS_MAX, WAIT_SECONDS),
        ThreadPoolExecutor(1, "conversions"),
    )

    def served(route: _Route) -> web.RouteDef:
        async def handle(request: web.Request) -> web.Response:
            return await _handle(request, route, _Watch(route.review, clock, metrics, note))

        return web.post(route.path, handle)

    def asked(body: bytearray, late: Callable[[], bool], *, mutating: bool, optional: bool) -> ReviewResponse:
        return admit(body, registry, mutating=mutating, optional=optional, containment=containment)

    routes = [
        _Route(
            f"{path}{suffix}",
            ADMISSION_BYTES,
            *writes,
            partial(asked, mutating=mutating, optional=bool(suffix)),
        )
        for path, mutating in (("/mutate", True), ("/validate", False))
        for suffix in ("", OPTIONAL)
    ]

    def converted(body: bytearray, late: Callable[[], bool]) -> ReviewResponse:
        return convert(body, registry, containment, late)

    routes.append(_Route("/convert", CONVERSION_BYTES, *reads, converted, SMALL_CONVERSION_BYTES))
    return Server("webhooks", [served(route) for route in routes], address, LIMITS, tls)


class _Watch:
    """Reports one review to metrics and log."""

    def __init__(self, review: str, clock: Clock, metrics: Metrics, note: Note) -> None:
        self._review, self._metrics, self._note = review, metrics, note
        self._elapsed = timer(clock)

    def late(self) -> bool:
        """Whether a response would come too late."""
        return self._elapsed() > ANSWER_SECONDS

    def answered(self, answer: ReviewResponse) -> None:
        self._metrics.reviewed(self._review, answer.resource, answer.verdict, self._elapsed())

    def refused(self, why: str) -> None:
        self._metrics.reviewed(self._review, "", "malformed", self._elapsed())
        self._note(f"a review for /{self._review} was refused: {why}", None)


async def _handle(request: web.Request, route: _Route, watch: _Watch) -> web.Response:
    size = request.content_length
    if request.content_type != "application/json":
        return _status(415, f"a review is application/json, not {request.content_type}", watch)
    if size is None:
        return _status(411, "a review must have a Content-Length", watch)
    if size > route.body_bytes:
        return _status(413, f"a review holds at most {route.body_bytes} bytes, not {size}", watch)
    try:
        async with route.budget.hold(size):
            response = await _answered(request, route, watch)
            await response.prepare(request)  # a slow client reads it within its budget
            await response.write_eof()
            return response
    except Busy:
        return _status(429, "too many reviews are in progress; try again", watch)


async def _answered(request: web.Request, route: _Route, watch: _Watch) -> web.Response:
    body = bytearray()
    async for chunk in request.content.iter_any():
        body += chunk
    try:
        if len(body) <= route.small_bytes:
            said = _said(route, body, watch)
        else:
            said = await asyncio.get_running_loop().run_in_executor(route.thread, _said, route, body, watch)
        return web.Response(body=said, content_type="application/json")
    except Malformed as error:
        return _status(400, str(error), watch)
    except Late:
        raise Busy from None


def _said(route: _Route, body: bytearray, watch: _Watch) -> bytes:
    """The response in bytes."""
    if watch.late():  # it waited for other reviews
        raise Late
    found = route.answer(body, watch.late)
    watch.answered(found)
    return msgspec.json.encode(found.body)


def _status(code: int, message: str, watch: _Watch) -> web.Response:
    reasons = {
        400: "BadRequest",
        411: "BadRequest",
        413: "RequestEntityTooLarge",
        415: "UnsupportedMediaType",
        429: "TooManyRequests",
    }
    watch.refused(message)
    body = {
        "apiVersion": "v1",
        "kind": "Status",
        "metadata": {},
        "status": "Failure",
        "reason": reasons[code],
        "code": code,
        "message": message,
    }
    retry = {"Retry-After": str(RETRY_SECONDS)} if code == 429 else {}
    found = web.Response(
        status=code, body=msgspec.json.encode(body), content_type="application/json", headers=retry
    )
    if code != 400:
        found.force_close()  # the body was not read, and will not be
    return found
