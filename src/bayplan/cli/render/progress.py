"""Shows on standard error what a command is doing, if that takes long."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TextIO, TypeVar

SHOWN_AFTER = 0.5
"""Seconds after the start of the command, on a terminal, where the line is erased again."""
LOGGED_AFTER = 2.0
"""Seconds if standard error is not a terminal, where the line stays."""
STAGE_SECONDS = 0.5
"""The shortest stage that is shown, in seconds."""
COUNT_STEP = 500
CLEAR = "\r\x1b[K"

Item = TypeVar("Item")


class Progress:
    """The current stage of a command. A timer shows it, so that a single long step is visible as well."""

    def __init__(self, stream: TextIO | None = None, after: float | None = None) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.terminal = self.stream.isatty()
        if after is None:
            after = SHOWN_AFTER if self.terminal else LOGGED_AFTER
        self.due, self.stage_seconds = time.monotonic() + after, min(after, STAGE_SECONDS)
        self.text = ""  # of the current stage
        self.shown = False
        self.lock = threading.Lock()

    @contextmanager
    def stage(self, text: str) -> Iterator[None]:
        """A stage that is shown once it takes long."""
        self.text, self.shown = text, False
        timer = threading.Timer(max(self.stage_seconds, self.due - time.monotonic()), self._show)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            with self.lock:
                if self.shown and self.terminal:
                    self._write(CLEAR)
                self.text = ""

    def counted(self, what: str, items: Iterable[Item]) -> Iterator[Item]:
        """The items, read in a stage that shows how many were read so far."""
        with self.stage(f"reading {what}"):
            for number, item in enumerate(items, 1):
                if number % COUNT_STEP == 0:
                    self._change(f"reading {number:,} {what}")
                yield item

    def _change(self, text: str) -> None:
        with self.lock:
            self.text = text
            if self.shown and self.terminal:
                self._write(f"{CLEAR}{text} …")

    def _show(self) -> None:
        with self.lock:
            if self.text:
                self.shown = True
                self._write(f"{CLEAR}{self.text} …" if self.terminal else f"{self.text} …\n")

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()
