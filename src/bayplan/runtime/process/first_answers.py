"""The first questions of a replica to the API server, which may be restarting at the same moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from bayplan.dialects.errors import Unreachable
from bayplan.runtime.core.clock import Clock

ANSWER_SECONDS = 60.0
"""A replica that ended at once would be started again after ever longer pauses, of up to five minutes."""
PAUSE_FIRST, PAUSE_MAX = 0.5, 4.0

T = TypeVar("T")


def first_answer(ask: Callable[[], T], clock: Clock, note: Callable[[str], None]) -> T:
    """The answer. An API server that is not there is asked again for a minute; each new reason is noted."""
    give_up, pause, noted = clock.monotonic() + ANSWER_SECONDS, PAUSE_FIRST, ""
    while True:
        try:
            return ask()
        except Unreachable as problem:
            if clock.monotonic() + pause > give_up:
                raise
            if str(problem) != noted:
                noted = str(problem)
                note(f"{noted}; it is asked again for up to {ANSWER_SECONDS:.0f} s")
        clock.sleep(pause)
        pause = min(2 * pause, PAUSE_MAX)
