"""Sends writes: those to one object or of one sequence in order, all others concurrently.

Writes of low priority (events) have a few places of their own: they never fill those that others wait for.
And they let others go first for some seconds, or the API server would spend on events what pods wait for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from bayplan.backends.remote.answers import outcome_of
from bayplan.backends.remote.client import ApiResponse, Client, Unsent
from bayplan.backends.remote.request import HttpRequest, request_of
from bayplan.dialects.api import Ended, Write, WriteOutcome
from bayplan.dialects.errors import ApiError, Misconfigured, Unauthorised

UNSENT_PAUSE = 0.25  # seconds until a server without a connection is tried again, twice as long each time
UNSENT_PAUSE_MAX = 4.0
LOW_PRIORITY_IN_FLIGHT = 4
LOW_PRIORITY_SECONDS = 5.0  # that one lets others go first
LOW_PRIORITY_WAITING = 10_000  # further ones are dropped: memory has bounds

TOO_MANY = f"it was not sent: {LOW_PRIORITY_WAITING} others of low priority wait"
NOT_ALLOWED = "it was not sent: this replica leads no longer"

Key = tuple[str, str, str, str]
"""Group, plural, namespace and name, or a sequence name: writes with equal keys are sent in order."""


class _Queue:
    """Writes that may be sent, and the tasks that send them."""

    def __init__(self, workers_max: int) -> None:
        self.workers_max = workers_max
        self.writes: deque[tuple[float, Write]] = deque()  # each with the time of the loop when it was ready
        self.workers: set[asyncio.Task[None]] = set()


class Writer:
    """Used inside the event loop of its client."""

    def __init__(
        self,
        client: Client,
        report: Callable[[WriteOutcome], None],
        jitter: Callable[[], float],
        in_flight_max: int,
    ) -> None:
        self._client, self._report, self._jitter = client, report, jitter
        self._may_write: Callable[[], bool] = lambda: True
        self._seconds = client.seconds
        self._ready = _Queue(in_flight_max)
        self._low = _Queue(min(LOW_PRIORITY_IN_FLIGHT, in_flight_max))
        self._idle = asyncio.Event()  # set while no write is in flight, those of low priority aside
        self._idle.set()
        self._behind: dict[Key, deque[Write]] = {}  # of each object being written, what comes next
        self._decoders: dict[type[Any] | None, Callable[[bytes], Any]] = {}

    def write_only_while(self, may_write: Callable[[], bool], seconds: float) -> None:
        """From now on send a write only if `may_write` returns true, and end it within the seconds."""
        self._may_write, self._seconds = may_write, min(seconds, self._client.seconds)

    def submit(self, writes: Sequence[Write]) -> None:
        """Begin these writes."""
        for write in writes:
            behind = self._behind.get(_key(write)) if write.name else None
            if behind is not None:
                behind.append(write)
            elif write.kind.low_priority and len(self._low.writes) >= LOW_PRIORITY_WAITING:
                self._report(WriteOutcome(write, Ended.REFUSED, message=TOO_MANY))
            else:
                self._begin(write)
        for queue in (self._ready, self._low):
            for _ in range(min(len(queue.writes), queue.workers_max - len(queue.workers))):
                worker = asyncio.create_task(self._work(queue))
                queue.workers.add(worker)
                worker.add_done_callback(partial(self._ended, queue))
        if self._ready.workers:
            self._idle.clear()

    async def close(self, grace_seconds: float) -> None:
        """Finish the submitted writes within the time given, and report the others as timed out."""
        workers = [*self._ready.workers, *self._low.workers]
        if workers and grace_seconds > 0:
            await asyncio.wait(workers, timeout=grace_seconds)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        behind = (write for queue in self._behind.values() for write in queue)
        ready = (write for _, write in (*self._ready.writes, *self._low.writes))
        never = [*ready, *behind]
        for write in never:
            self._report(
                WriteOutcome(write, Ended.TIMED_OUT, message="it was never sent: the backend was closed")
            )
        self._ready.writes.clear()
        self._low.writes.clear()
        self._behind.clear()

    def _begin(self, write: Write) -> None:
        if write.name:  # a name still to be generated cannot conflict with another write
            self._behind[_key(write)] = deque()
        queue = self._low if write.kind.low_priority else self._ready
        queue.writes.append((asyncio.get_running_loop().time(), write))

    def _ended(self, queue: _Queue, worker: asyncio.Task[None]) -> None:
        queue.workers.discard(worker)
        if not self._ready.workers:
            self._idle.set()

    async def _work(self, queue: _Queue) -> None:
        """Make writes until none is ready."""
        while queue.writes:
            since, write = queue.writes.popleft()
            try:
                if queue is self._low:
                    await self._let_others_go_first(since)
                outcome = await self._make(write)
            except asyncio.CancelledError:
                self._report(
                    WriteOutcome(write, Ended.TIMED_OUT, message="the backend was closed before the answer")
                )
                raise
            self._report(outcome)
            if write.name:
                key = _key(write)
                behind = self._behind[key]
                if behind:
                    queue.writes.append((asyncio.get_running_loop().time(), behind.popleft()))
                else:
                    del self._behind[key]

    async def _let_others_go_first(self, since: float) -> None:
        if not self._idle.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout_at(since + LOW_PRIORITY_SECONDS):
                    await self._idle.wait()

    async def _make(self, write: Write) -> WriteOutcome:
        try:
            request = request_of(write)
        except (TypeError, ValueError) as wrong:
            return WriteOutcome(write, Ended.REFUSED, message=f"the body cannot be written as JSON: {wrong}")
        end = asyncio.get_running_loop().time() + self._seconds  # counted from before the question
        if not self._may_write():
            return WriteOutcome(write, Ended.REFUSED, message=NOT_ALLOWED)
        try:
            answer = await self._send(request, end)
        except (Misconfigured, Unauthorised) as trouble:
            return WriteOutcome(write, Ended.REFUSED, message=str(trouble))
        except ApiError as trouble:
            return WriteOutcome(write, Ended.TIMED_OUT, message=str(trouble))
        except Exception as bug:  # without an outcome, later writes to the object would wait forever
            return WriteOutcome(write, Ended.TIMED_OUT, message=f"the answer is not known: {bug!r}")
        return outcome_of(write, answer, self._decoder(write.kind.wire), self._client.access)

    async def _send(self, request: HttpRequest, end: float) -> ApiResponse:
        """Send once; again only if nothing can have arrived, and never after the end."""
        clock, pause = asyncio.get_running_loop().time, UNSENT_PAUSE
        while True:
            try:
                return await self._client.request(
                    request.method, request.path, request.body, request.content_type, end - clock()
                )
            except Unsent:
                if clock() + pause >= end:
                    raise
                await asyncio.sleep(pause * (0.5 + 0.5 * self._jitter()))
                if clock() >= end:  # the process itself may have slept
                    raise
                pause = min(2 * pause, UNSENT_PAUSE_MAX)

    def _decoder(self, wire: type[Any] | None) -> Callable[[bytes], Any]:
        if wire not in self._decoders:
            self._decoders[wire] = msgspec.json.Decoder(wire or dict[str, Any]).decode
        return self._decoders[wire]


def _key(write: Write) -> Key:
    if write.order_key:
        return "", "", "", write.order_key
    return write.kind.group, write.kind.plural, write.namespace, write.name
