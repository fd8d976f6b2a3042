"""The webhook server: HTTPS around the answers of `reviews`, with a certificate that can be replaced."""

from __future__ import annotations

import ssl
from collections.abc import Callable

import msgspec
from aiohttp import web

from bayplan.runtime.clock import Clock, timer
from bayplan.runtime.metrics import Metrics
from bayplan.runtime.reviews import Answer, Malformed, Registry, admit, convert
from bayplan.runtime.serving import Address, Limits, Server

ADMISSION_BYTES = 8 * 1024 * 1024
"""An API server takes objects of up to 3 MiB, and a review holds the new and the old one."""
CONVERSION_BYTES = 64 * 1024 * 1024
"""A review holds a whole page of a list."""
LIMITS = Limits(body_bytes=CONVERSION_BYTES, seconds=10.0, idle_seconds=90.0)

Note = Callable[[str, BaseException | None], None]


def serve_webhooks(
    registry: Registry,
    tls: ssl.SSLContext,
    clock: Clock,
    metrics: Metrics,
    address: Address = Address(),  # noqa: B008 - it is frozen
    note: Note = lambda sentence, bug: None,
) -> Server:
    """Start to answer at /mutate, /validate and /convert. To renew the certificate, reload the context."""

    def route(path: str, limit: int, answer: Callable[[bytes], Answer]) -> web.RouteDef:
        async def handle(request: web.Request) -> web.Response:
            return await _handle(request, limit, answer, _Watch(path[1:], clock, metrics, note))

        return web.post(path, handle)

    routes = [
        route("/mutate", ADMISSION_BYTES, lambda body: admit(body, registry, mutating=True)),
        route("/validate", ADMISSION_BYTES, lambda body: admit(body, registry, mutating=False)),
        route("/convert", CONVERSION_BYTES, lambda body: convert(body, registry)),
    ]
    return Server("webhooks", routes, address, LIMITS, tls)


class _Watch:
    """Tells metrics and log how one review went."""

    def __init__(self, review: str, clock: Clock, metrics: Metrics, note: Note) -> None:
        self._review, self._metrics, self._note = review, metrics, note
        self._elapsed = timer(clock)

    def answered(self, answer: Answer) -> None:
        self._metrics.reviewed(self._review, answer.resource, answer.said, self._elapsed())
        if answer.failure is not None:
            self._note(f"a webhook handler for {answer.resource} failed", answer.failure)

    def refused(self, why: str) -> None:
        self._metrics.reviewed(self._review, "", "malformed", self._elapsed())
        self._note(f"a review for /{self._review} was refused: {why}", None)


async def _handle(
    request: web.Request, limit: int, answer: Callable[[bytes], Answer], watch: _Watch
) -> web.Response:
    if request.content_type != "application/json":
        return _status(415, f"a review is application/json, not {request.content_type}", watch)
    if request.content_length is None:
        return _status(411, "a review must say its length", watch)
    if request.content_length > limit:
        return _status(413, f"a review holds at most {limit} bytes, not {request.content_length}", watch)
    try:
        found = answer(await request.read())
    except Malformed as trouble:
        return _status(400, str(trouble), watch)
    watch.answered(found)
    return web.Response(body=msgspec.json.encode(found.body), content_type="application/json")


def _status(code: int, message: str, watch: _Watch) -> web.Response:
    reasons = {
        400: "BadRequest",
        411: "BadRequest",
        413: "RequestEntityTooLarge",
        415: "UnsupportedMediaType",
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
    return web.Response(status=code, body=msgspec.json.encode(body), content_type="application/json")
