"""A replica that starts while the API server restarts asks again; a wrong address ends it after a minute."""

from __future__ import annotations

import pytest

from bayplan.dialects.errors import Misconfigured, Unreachable
from bayplan.runtime.core.clock import VirtualClock
from bayplan.runtime.process.first_answers import ANSWER_SECONDS, first_answer

BROKEN, REFUSED = "the server broke off in the middle of GET /version", "no connection to the server"


class Server:
    """Answers after these failures."""

    def __init__(self, *failures: Exception) -> None:
        self.failures, self.asked = [*failures], 0

    def version(self) -> str:
        self.asked += 1
        if self.failures:
            raise self.failures.pop(0)
        return "v1.35.4"


def test_a_server_that_comes_back_is_asked_again_and_each_reason_is_noted_once() -> None:
    server = Server(Unreachable(BROKEN), Unreachable(REFUSED), Unreachable(REFUSED))
    notes: list[str] = []
    assert first_answer(server.version, VirtualClock(0.0), notes.append) == "v1.35.4"
    assert server.asked == 4
    assert [note.split(";")[0] for note in notes] == [BROKEN, REFUSED]


def test_after_a_minute_the_last_failure_is_raised() -> None:
    server, clock = Server(*(Unreachable(REFUSED) for _ in range(1000))), VirtualClock(0.0)
    with pytest.raises(Unreachable, match=REFUSED):
        first_answer(server.version, clock, lambda note: None)
    assert ANSWER_SECONDS - 5 < clock.monotonic() <= ANSWER_SECONDS


def test_what_asking_again_cannot_mend_is_raised_at_once() -> None:
    server = Server(Misconfigured("no Kubernetes API server"))
    with pytest.raises(Misconfigured):
        first_answer(server.version, VirtualClock(0.0), lambda note: None)
    assert server.asked == 1
