"""Containment: an exception stays within the object, gang, write or thread that caused it."""

from __future__ import annotations

import hashlib
import threading
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from bayplan.runtime.core.clock import Clock

REMEMBERED_MAX = 1000  # failures that are remembered as logged
SLOW_SECONDS = 1.0  # a unit of work that takes longer is logged
RESTART_SECONDS_FIRST = 1.0
RESTART_SECONDS_MAX = 60.0


T = TypeVar("T")


class ErrorReport(Protocol):
    """Called with each contained error that was not logged before."""

    def __call__(self, sentence: str, error: BaseException, **facts: str) -> None: ...


def _unreported(sentence: str, error: BaseException, **facts: str) -> None:
    """The default report: none."""


class SlowWorkReport(Protocol):
    """Called with each unit of work that was slow."""

    def __call__(self, seconds: float, where: str, kind: str, name: str) -> None: ...


def _unnoticed(seconds: float, where: str, kind: str, name: str) -> None:
    """The default report: none."""


class Containment:
    """Runs units of work. A unit that raises is counted each time and logged once, with an id to search for.

    The id depends on the unit and the place in the code, not on the time: the same failure has the same id
    in the log, in the journal and in the condition that users see. May be called from any thread.
    """

    def __init__(
        self,
        report: ErrorReport = _unreported,
        count: Callable[[str, str], None] = lambda where, kind: None,
        clock: Clock | None = None,
        slow: SlowWorkReport = _unnoticed,
    ) -> None:
        self._report, self._count, self._slow = report, count, slow
        self._time = clock.monotonic if clock is not None else lambda: 0.0
        self.last = ""  # id of the last failure
        self._logged: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()

    def failed(self, error: Exception, where: str, kind: str = "", name: str = "") -> str:
        """Count a failure, log it unless it was logged before, and return its id."""
        identity = self.last = error_id(error, where, kind, name)
        self._count(where, kind)
        with self._lock:
            known = identity in self._logged
            self._logged[identity] = None
            self._logged.move_to_end(identity)
            while len(self._logged) > REMEMBERED_MAX:
                self._logged.popitem(last=False)
        if not known:
            subject = " ".join(part for part in (kind, name) if part) or "a unit of work"
            facts = {"id": identity, "where": where, "kind": kind, "object": name}
            self._report(f"contained an error in {where} of {subject}", error, **facts)
        return identity

    @contextmanager
    def unit(self, where: str, kind: str = "", name: str = "") -> Iterator[None]:
        """Run the block as one unit of work: what it raises ends here."""
        try:
            yield
        except Exception as error:
            self.failed(error, where, kind, name)

    def attempt(self, work: Iterable[T], where: str, kind: str = "", name: str = "") -> tuple[list[T], bool]:
        """The items that the work yields, and whether it completed. Items before a failure are kept."""
        began, items = self._time(), list[T]()
        try:
            items += work
        except Exception as error:
            self.failed(error, where, kind, name)
            return items, False
        finally:
            if (seconds := self._time() - began) > SLOW_SECONDS:
                self._slow(seconds, where, kind, name)
        return items, True


class Uncontained(Containment):
    """Raises every error again, for callers that want to see it where it happens."""

    def failed(self, error: Exception, where: str, kind: str = "", name: str = "") -> str:
        raise error


UNCONTAINED = Uncontained()


def error_id(error: BaseException, where: str, kind: str, name: str) -> str:
    """Eight hexadecimal digits that are the same for the same failure of the same unit."""
    frames = traceback.extract_tb(error.__traceback__)
    last = f"{frames[-1].name}:{frames[-1].lineno}" if frames else ""
    text = "\0".join((where, kind, name, type(error).__name__, last))
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:8]


class SupervisedThread:
    """A thread that is restarted when its work raises, after a growing pause."""

    def __init__(
        self,
        name: str,
        work: Callable[[], None],
        containment: Containment,
        stop: threading.Event,
        clock: Clock,
    ) -> None:
        self._name, self._work, self._containment, self._stop, self._clock = (
            name,
            work,
            containment,
            stop,
            clock,
        )
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, seconds: float | None = None) -> None:
        self._thread.join(seconds)

    def _run(self) -> None:
        pause = RESTART_SECONDS_FIRST
        while not self._stop.is_set():
            began = self._clock.monotonic()
            try:
                self._work()
                return
            except Exception as error:
                self._containment.failed(error, "thread", name=self._name)
            if self._clock.monotonic() - began > RESTART_SECONDS_MAX:  # it worked for a while
                pause = RESTART_SECONDS_FIRST
            self._stop.wait(pause)
            pause = min(2 * pause, RESTART_SECONDS_MAX)
