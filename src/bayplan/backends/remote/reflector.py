"""List and watch one kind, and list it again whenever the watch cannot be trusted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import msgspec

from bayplan.backends.remote.absent import Absent
from bayplan.backends.remote.answers import api_error_of, status_of
from bayplan.backends.remote.client import ApiResponse, Client
from bayplan.backends.remote.decoding import (
    INITIAL_EVENTS_END,
    LineReader,
    ListMeta,
    Wire,
    bookmark,
    key_of,
    line,
    version_of,
)
from bayplan.backends.remote.request import collection
from bayplan.backends.remote.watch_cache import WatchCache, newer
from bayplan.dialects.api import Event, Kind
from bayplan.dialects.errors import (
    ApiError,
    Forbidden,
    Misconfigured,
    NotServed,
    Stale,
    Unauthorised,
    Unreachable,
)

Emit = Callable[[list[Event]], Awaitable[None]]


class Restart(StrEnum):
    """Why a watch had to begin again."""

    ENDED = "ended"  # it was closed, as servers do every few minutes, or fell silent
    STALE = "stale"  # its history is gone; everything is listed again
    ABSENT = "absent"  # the kind is not served (any more)
    REFUSED = "refused"  # rights or credentials
    BROKEN = "broken"  # no connection, no answer, or none that can be read


Restarted = Callable[[str, Restart], None]
"""Called at every restart of a watch, with the kind and the reason."""


@dataclass(frozen=True, slots=True)
class WatchTimeouts:
    """Page size, timeouts and backoff of lists and watches."""

    page: int = 1000  # objects in one answer to a list
    stream_lists: bool = True  # ask for lists as the beginning of a watch, where the server can
    list_seconds: float = 120.0
    watch_seconds: float = 300.0  # a watch is asked to end after this to twice this
    silence_seconds: float = 150.0  # a bookmark comes about every minute
    list_silence_seconds: float = 10.0  # between two lines of a list that is streamed
    empty_watches_max: int = 3  # so many in a row that brought nothing make a watch suspect
    first_pause: float = 0.25
    longest_pause: float = 30.0
    unready_seconds: float = 30.0  # that a server may refuse everything after its start
    absent_pause: float = 15.0  # until a kind that is not served is asked for again
    steady_seconds: float = 1.0  # a watch that ends sooner is not begun again at once


@dataclass(frozen=True, slots=True)
class Listeners:
    """The log and callbacks that all reflectors of a backend share."""

    log: Callable[[str], None]
    absent: Absent
    restarted: Restarted


class Reflector:
    """Lists and watches one kind. `run` ends when it is cancelled or when a retry cannot help."""

    def __init__(
        self,
        client: Client,
        kind: Kind,
        emit: Emit,
        jitter: Callable[[], float],
        patience: WatchTimeouts,
        listeners: Listeners,
    ) -> None:
        self._client, self._kind, self._emit, self._log = client, kind, emit, listeners.log
        self._restarted: Callable[[Restart], None] = partial(listeners.restarted, kind.kind)
        self._jitter, self._patience, self._register = jitter, patience, listeners.absent
        self._wire = Wire(kind)
        self._known = WatchCache(kind, self._wire.identify)
        self._at = ""  # the version up to which everything was reported; "" until there is a list
        self._highest = ""  # of all times, to notice a history that began anew
        self._synced = False  # has ever been
        self._absent = False
        self._held: list[Event] | None = None  # of the first list after the kind could not be read
        self._streams = patience.stream_lists
        self._pages_next = False  # after a streamed list that did not come to its end
        self._refused_at: float | None = None  # when first, since the server answered otherwise
        self._server_ready = False  # when it was asked after a refusal
        self._failures = 0
        self._empty = 0  # watches in a row that brought nothing

    async def run(self) -> None:
        """List and watch, again and again."""
        while True:
            try:
                if not self._at and (self._pages_next or not self._streams):
                    await self._list()
                await self._watch(whole=not self._at)
                self._refused_at = None
            except Stale as trouble:
                self._restarted(Restart.STALE)
                if self._at:  # the server answers again: what failed before this says nothing any more
                    self._failures = 0
                self._start_over()
                await self._pause(f"{trouble}; it will be listed again")
            except NotServed as trouble:
                await self._not_served(trouble)
            except Misconfigured:
                raise
            except (Forbidden, Unauthorised) as trouble:
                await self._not_allowed(trouble)
            except ApiError as trouble:
                self._server_ready, self._refused_at = False, None
                self._restarted(Restart.BROKEN)
                await self._pause(str(trouble))

    # ── list ───────────────────────────────────────────────────────────────────────────────────────

    async def _list(self) -> None:
        """All objects, page by page; from the start and in one piece if the pages grow too old meanwhile."""
        limit, token = self._patience.page, ""
        self._known.begin_list()
        while True:
            path = collection(self._kind, limit=limit or "", **{"continue": token})
            answer = await self._client.request("GET", path, seconds=self._patience.list_seconds)
            if answer.status == 410 and token:
                limit, token = 0, ""
                self._known.begin_list()
                continue
            if answer.status != 200:
                raise self._trouble(answer.status, answer.body)
            metadata = await self._page(answer.body)
            token = metadata.next_page
            if not token:
                break
        events: list[Event] = []
        self._finish_list(metadata.resource_version, events)
        await self._report(events)

    async def _page(self, body: bytes) -> ListMeta:
        try:
            page = self._wire.page(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
            raise Unreachable(f"{self._what()}: the list is not readable ({wrong})") from None
        events: list[Event] = []
        for found in page.items:
            self._known.seen(found, events)
        for key, reason in page.unreadable:
            self._unreadable(key, reason)
        await self._report(events)
        return page.metadata

    async def _report(self, events: list[Event]) -> None:
        """Emit events. Of a kind that appears while the process runs, all objects are reported at once.

        A part of them would be taken for all: a device whose claim is still to come would count as free.
        """
        if self._held is not None:
            self._held += events
            if self._known.listing:
                return
            events, self._held = self._held, None
        if events:
            await self._emit(events)

    def _finish_list(self, version: str, events: list[Event]) -> None:
        if self._highest.isdecimal() and version.isdecimal() and newer(self._highest, version):
            self._highest = ""
            self._known.forget_versions()
            raise Stale(f"{self._what()}: the server's history was reset (version {version})")
        self._known.finish_list(version, events)
        self._reached(version)
        self._synced, self._absent, self._pages_next, self._failures = True, False, False, 0
        self._register.served(self._kind)

    # ── watch ──────────────────────────────────────────────────────────────────────────────────────

    async def _watch(self, *, whole: bool) -> None:
        """Follow what happens until the watch ends; `whole`: beginning with everything there is."""
        begun, brought = asyncio.get_running_loop().time(), False
        if whole:
            self._known.begin_list()
        silence = self._patience.silence_seconds
        async with self._client.stream(self._watch_path(whole), silence) as (answer, chunks):
            if answer.status != 200:
                return self._watch_refused(answer, whole)
            lines = LineReader()
            async for chunk in self._hurried(chunks):
                if complete := lines.feed(chunk):
                    brought = True
                    await self._take(complete)
        if whole and not self._at:
            self._pages_next = True
            self._restarted(Restart.BROKEN)
            return self._log(f"{self._what()}: a streamed list broke off; pages are asked for instead")
        if brought:
            self._failures = self._empty = 0
        else:
            self._suspect("brought nothing")
        self._restarted(Restart.ENDED)
        if asyncio.get_running_loop().time() - begun < self._patience.steady_seconds:
            await self._pause()
        return None

    def _watch_refused(self, answer: ApiResponse, whole: bool) -> None:
        if whole and answer.status in (400, 422):
            self._streams = False  # a server that cannot begin a watch with a list
            return
        if answer.status >= 500:
            self._suspect(f"failed, the last with {answer.status}")
        raise self._trouble(answer.status, answer.body)

    def _suspect(self, why: str) -> None:
        """Some servers close a watch that is too old without saying so."""
        self._empty += 1
        if self._empty >= self._patience.empty_watches_max:
            raise Stale(f"{self._what()}: {self._empty} watches in a row {why}")

    async def _hurried(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The chunks; those of a list may not stay away for long: a server may not know how to end one."""
        try:
            while self._known.listing:
                async with asyncio.timeout(self._patience.list_silence_seconds):
                    chunk = await anext(chunks)
                yield chunk
        except (TimeoutError, StopAsyncIteration):
            return
        async for chunk in chunks:
            yield chunk

    def _watch_path(self, whole: bool) -> str:
        seconds = int(self._patience.watch_seconds * (1 + self._jitter())) or 1
        common = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": seconds}
        if whole:
            begin = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
            return collection(self._kind, **common, **begin)
        return collection(self._kind, **common, resourceVersion=self._at)

    async def _take(self, lines: list[bytes]) -> None:
        """Process lines of a watch, and emit their events even if the last line is an error."""
        events: list[Event] = []
        try:
            for text in lines:
                if text:
                    self._fold(text, events)
        finally:
            await self._report(events)

    def _fold(self, text: bytes, events: list[Event]) -> None:
        try:
            happened = line(text)
        except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
            raise Unreachable(f"{self._what()}: the watch sent an unreadable line ({wrong})") from None
        try:
            match happened.type:
                case "ADDED" | "MODIFIED":
                    self._reached(self._known.seen(self._wire.object(happened.object), events))
                case "DELETED":
                    self._reached(self._known.gone(self._wire.object(happened.object), events))
                case "BOOKMARK":
                    self._marked(bookmark(happened.object), events)
                case "ERROR":
                    told = bytes(happened.object)
                    raise self._trouble(status_of(told).code or 500, told)
        except msgspec.ValidationError as wrong:
            key, version = key_of(happened.object), version_of(happened.object)
            if happened.type == "DELETED":
                self._known.gone_unread(key, version, events)
            else:
                self._unreadable(key, str(wrong))
            self._reached(version)

    def _marked(self, metadata: ListMeta, events: list[Event]) -> None:
        if self._known.listing and (metadata.annotations or {}).get(INITIAL_EVENTS_END) == "true":
            self._finish_list(metadata.resource_version, events)
        self._reached(metadata.resource_version)

    def _unreadable(self, key: tuple[str, str], why: str) -> None:
        """Log an object that cannot be decoded; its last reported state remains."""
        self._known.unreadable(key)
        self._log(
            f"{self._what()}: {'/'.join(filter(None, key))} is not readable ({why}); its last state is kept"
        )

    def _reached(self, version: str) -> None:
        if version and not self._known.listing and (not self._at or newer(version, self._at)):
            self._at = version

    def _start_over(self) -> None:
        """The next thing to do is to list."""
        self._highest = self._at or self._highest
        self._at, self._empty = "", 0

    # ── when it does not go on ─────────────────────────────────────────────────────────────────────

    async def _not_served(self, trouble: NotServed) -> None:
        """Wait for an optional kind; all its known objects are gone."""
        if not self._kind.optional and not self._synced:
            raise trouble
        self._restarted(Restart.ABSENT)
        self._start_over()
        if not self._absent:
            self._absent = True
            self._register.missing(self._kind)
            if self._kind.optional:
                await self._nothing_there()
        await asyncio.sleep(self._patience.absent_pause * (0.5 + self._jitter()))

    async def _not_allowed(self, trouble: ApiError) -> None:
        """Retry after a rejection of RBAC or credentials, but fail if there never was a list."""
        believed = isinstance(trouble, Unauthorised) or await self._was_ready()
        if not self._synced and believed:
            if not self._kind.optional:
                raise trouble
            if isinstance(trouble, Forbidden):
                await self._nothing_there()
        self._restarted(Restart.REFUSED)
        starting = f"{self._client.access.server} refuses {self._what()}, but may not have read its roles yet"
        await self._pause(str(trouble) if believed else starting)

    async def _was_ready(self) -> bool:
        """Whether the server knew its roles before it refused: one that just started refuses everything."""
        now, before = asyncio.get_running_loop().time(), self._server_ready
        self._refused_at = self._refused_at or now
        is_over = now >= self._refused_at + self._patience.unready_seconds
        self._server_ready = is_over or await self._client.is_ready()
        return before

    async def _nothing_there(self) -> None:
        events: list[Event] = []
        self._known.all_gone(events)
        self._synced = True
        self._register.known(self._kind)
        self._held = []
        await self._emit(events)

    def _trouble(self, code: int, body: bytes) -> ApiError:
        return api_error_of(code, body, self._kind, self._client.access)

    async def _pause(self, why: str = "") -> None:
        """Twice as long after each failure in a row; between half of that and all of it."""
        longest = self._patience.first_pause * 2.0 ** min(self._failures, 20)
        self._failures += 1
        seconds = min(longest, self._patience.longest_pause) * (0.5 + 0.5 * self._jitter())
        if why:
            self._log(f"{why}; next try in {seconds:.2g} s")
        await asyncio.sleep(seconds)

    def _what(self) -> str:
        return f"{self._kind.plural} of {self._kind.api_version}"
