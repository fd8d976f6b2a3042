"""Graceful shutdown: a signal starts it, then all resources are closed in order, within a time limit."""

from __future__ import annotations

import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from bayplan.runtime.core.clock import Clock

SIGNALS = (signal.SIGTERM, signal.SIGINT)
GRACE_SECONDS = 25.0
"""A kubelet sends SIGKILL 30 s after SIGTERM."""

Close = Callable[[float], None]
"""Closes one resource; gets the seconds left."""


@contextmanager
def stop_on_signal(stop: threading.Event) -> Iterator[None]:
    """Set `stop` on the first SIGTERM or SIGINT; end the process at once on the second.

    A signal handler runs between two steps of the main thread, which may hold the lock of `stop`; so the
    handler only puts a message, which never blocks, and a thread sets the event.
    """
    asked = queue.SimpleQueue[bool]()
    numbers = list[int]()

    def heard(number: int, frame: FrameType | None) -> None:
        if numbers:
            os._exit(128 + number)
        numbers.append(number)
        asked.put(True)

    def pass_on() -> None:
        if asked.get():
            stop.set()

    thread = threading.Thread(target=pass_on, name="signals", daemon=True)
    thread.start()
    before = {number: signal.signal(number, heard) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        asked.put(False)
        thread.join()


class ShutdownStack:
    """Resources to close, in reverse order of opening. A failure does not stop the others."""

    def __init__(
        self, clock: Clock, note: Callable[[str], None], grace_seconds: float = GRACE_SECONDS
    ) -> None:
        self._clock, self._note, self._grace = clock, note, grace_seconds
        self._open: list[tuple[str, Close]] = []

    def opened(self, name: str, close: Close) -> None:
        """Close this resource before all that were opened earlier."""
        self._open.append((name, close))

    def close(self) -> bool:
        """Close all resources; returns whether all of them succeeded."""
        end = self._clock.monotonic() + self._grace
        well = True
        while self._open:
            name, close = self._open.pop()
            try:
                close(max(0.0, end - self._clock.monotonic()))
            except Exception as error:
                well = False
                self._note(f"{name} was not closed cleanly: {error!r}")
        if self._clock.monotonic() > end:
            well = False
            self._note(f"closing took longer than {self._grace:g} s")
        return well
