"""The backend of a remote API server: watches and writes run in their own thread, behind queues."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from bayplan.backends.remote.absent import Absent
from bayplan.backends.remote.access import Access
from bayplan.backends.remote.answers import refused_credentials, status_of
from bayplan.backends.remote.client import Client, no_answer
from bayplan.backends.remote.kubeconfig import load
from bayplan.backends.remote.reflector import Listeners, Reflector, Restarted, WatchTimeouts
from bayplan.backends.remote.request import JSON
from bayplan.backends.remote.writer import Writer
from bayplan.dialects.api import Event, Kind, Write, WriteOutcome
from bayplan.dialects.errors import Misconfigured, Unauthorised, Unreachable

EVENTS_HELD_MAX = 200_000  # more than this unread, and reading from the server pauses
FULL_PAUSE = 0.02
OVERTIME = 0.5  # seconds for a call's own deadline to be noticed
CLOSING_SECONDS = 0.02  # for connections of cancelled requests to be given up

T = TypeVar("T")
Log = Callable[[str], None]


def _quiet(sentence: str) -> None:
    """Discard log lines."""


def connect(
    kubeconfig: Path | None = None, context: str | None = None, *, log: Log = _quiet, in_flight_max: int = 64
) -> RemoteBackend:
    """Connect to the cluster of a kubeconfig; raises ApiError if its server does not respond."""
    backend = RemoteBackend(load(kubeconfig, context), log=log, in_flight_max=in_flight_max)
    try:
        log(f"{backend.access.server} is Kubernetes {backend.server_version()}")
    except BaseException:
        backend.close(0)
        raise
    return backend


class RemoteBackend:
    """Implements `Backend`. Errors that a retry cannot fix are raised by `events`."""

    def __init__(
        self,
        access: Access,
        *,
        log: Log = _quiet,
        in_flight_max: int = 64,
        seconds: float = 30.0,
        patience: WatchTimeouts | None = None,
        jitter: Callable[[], float] = random.random,
        restarted: Restarted = lambda kind, why: None,
    ) -> None:
        self.access = access
        self._log, self._jitter, self._patience = log, jitter, patience or WatchTimeouts()
        self._seconds, self._in_flight_max = seconds, in_flight_max
        self._listeners = Listeners(log, Absent(access.server, log), restarted)
        self._events: deque[Event] = deque()
        self._outcomes: deque[WriteOutcome] = deque()
        self._submitted: deque[Sequence[Write]] = deque()
        self._submitting = False  # the thread of this backend was woken for them
        self._stirred = threading.Event()
        self._stirring = False
        self._trouble: BaseException | None = None
        self._reflectors: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="bayplan-remote", daemon=True)
        self._thread.start()
        self._closed = False
        self._client, self._writer = self._in_loop(self._open()).result()

    # ── called by the loop that schedules ──────────────────────────────────────────────────────────

    def watch(self, kinds: Sequence[Kind]) -> None:
        """Begin to report on these kinds."""
        self._in_loop(self._begin(tuple(kinds))).result()

    def events(self) -> Iterable[Event]:
        """Everything that happened since the last call; raises what stopped a watch for good."""
        if self._trouble is not None:
            raise self._trouble
        return [self._events.popleft() for _ in range(len(self._events))]

    def submit(self, writes: Sequence[Write]) -> None:
        """Begin these writes."""
        assert not self._closed, "a closed backend was asked to write"
        if writes:
            self._submitted.append(tuple(writes))
            if not self._submitting:  # it takes all that are there; to wake it costs a system call
                self._submitting = True
                self._loop.call_soon_threadsafe(self._take_submitted)

    def write_only_while(self, may_write: Callable[[], bool], seconds: float) -> None:
        """Send a submitted write only if `may_write` returns true then, and end it within the seconds.

        `may_write` is called in the thread of this backend, for each write right before it is sent.
        """
        self._loop.call_soon_threadsafe(self._writer.write_only_while, may_write, seconds)

    def outcomes(self) -> Iterable[WriteOutcome]:
        """Every write that ended since the last call."""
        return [self._outcomes.popleft() for _ in range(len(self._outcomes))]

    def wait(self, seconds: float) -> None:
        """Sleep until something happened or the time is up."""
        if not (self._events or self._outcomes or self._trouble):
            self._stirred.wait(seconds)
        self._stirred.clear()

    def close(self, grace_seconds: float = 10.0) -> None:
        """Finish writes in flight, then close all connections. Outcomes can still be read afterwards."""
        if self._closed:
            return
        self._closed = True
        self._in_loop(self._shut(grace_seconds)).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def request(self, method: str, path: str, body: bytes, seconds: float) -> tuple[int, bytes]:
        """Send one request and wait for status and body; raises ApiError without a response in time."""
        asked = self._in_loop(self._client.request(method, path, body, JSON if body else "", seconds))
        try:
            answer = asked.result(seconds + OVERTIME)
        except CancelledError:
            raise Unreachable(
                f"{self.access.server}: {method} {path} ended, as the backend was closed"
            ) from None
        except FutureTimeout:
            asked.cancel()
            raise no_answer(self.access, method, path, seconds) from None
        return answer.status, answer.body

    def server_version(self) -> str:
        """The version of Kubernetes that the server says it is; waits for the answer."""
        server, origin = self.access.server, self.access.origin
        status, body = self.request("GET", "/version", b"", self._seconds)
        if status == 401:
            raise Unauthorised(refused_credentials(self.access))
        if status >= 500 or status == 429:
            raise Unreachable(f"{server} cannot answer now ({status}): {status_of(body).message}")
        if status == 403:
            return "(unknown)"  # a server may keep its version to itself
        try:
            return str(msgspec.json.decode(body)["gitVersion"])
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
            raise Misconfigured(
                f"{origin}: what answers at {server} is no Kubernetes API server ({status});"
                " correct the address"
            ) from None

    # ── inside the thread ──────────────────────────────────────────────────────────────────────────

    def _in_loop(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _open(self) -> tuple[Client, Writer]:
        client = Client(self.access, self._log, self._seconds)
        return client, Writer(client, self._report, self._jitter, self._in_flight_max)

    def _take_submitted(self) -> None:
        self._submitting = False  # first: what is submitted from here on wakes this thread again
        while self._submitted:
            self._writer.submit(self._submitted.popleft())

    async def _begin(self, kinds: Sequence[Kind]) -> None:
        self._listeners.absent.begin(kinds)
        for kind in kinds:
            reflector = Reflector(
                self._client, kind, self._emit, self._jitter, self._patience, self._listeners
            )
            task = asyncio.create_task(reflector.run())
            self._reflectors.add(task)
            task.add_done_callback(self._stopped)

    async def _emit(self, events: list[Event]) -> None:
        self._events.extend(events)
        self._wake_soon()
        while len(self._events) > EVENTS_HELD_MAX:
            await asyncio.sleep(FULL_PAUSE)

    def _report(self, outcome: WriteOutcome) -> None:
        self._outcomes.append(outcome)
        self._wake_soon()

    def _wake_soon(self) -> None:
        """Wake the waiting thread once per iteration of the event loop."""
        if not self._stirring:
            self._stirring = True
            self._loop.call_soon(self._wake)

    def _wake(self) -> None:
        self._stirring = False
        self._stirred.set()

    def _stopped(self, task: asyncio.Task[None]) -> None:
        """Record the error of a reflector that ended without being cancelled."""
        self._reflectors.discard(task)
        if not task.cancelled() and (trouble := task.exception()) and self._trouble is None:
            self._trouble = trouble
            self._wake_soon()

    async def _shut(self, grace_seconds: float) -> None:
        for task in self._reflectors:
            task.cancel()
        await asyncio.gather(*self._reflectors, return_exceptions=True)
        await self._writer.close(grace_seconds)
        await _cancel_all()
        await self._client.close()


async def _cancel_all() -> None:
    """Cancel requests that still wait for an answer, and let the connections that they were making close."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    if others:
        await asyncio.sleep(CLOSING_SECONDS)
