"""Nothing is written after the lease is lost: what waits is dropped, what is under way ends in time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from bayplan.backends.remote.access import Access
from bayplan.backends.remote.client import Client, Unsent
from bayplan.backends.remote.credentials import Credentials, RequestCredentials
from bayplan.cli.commands import run as command
from bayplan.dialects.api import Ended
from bayplan.dialects.errors import Unreachable
from bayplan.runtime.core.clock import SystemClock
from bayplan.runtime.process.election import Timing
from tests.support.remote_server import LONG, Server, refused, watching
from tests.unit.backends.remote.test_writes import Gate, patch


def test_a_write_that_waits_for_its_turn_is_not_sent_once_the_lease_is_lost(server: Server) -> None:
    gate, leads = Gate(), [True]
    server.writes = gate
    with watching(server, in_flight_max=1) as seen:
        seen.backend.write_only_while(lambda: leads[0], LONG)
        seen.backend.submit([patch("a", 1), patch("a", 2), patch("b", 3)])
        seen.until(lambda: gate.inside == 1)
        leads[0] = False
        gate.open()
        seen.until(lambda: len(seen.outcomes) == 3)
    assert [(one.write.tag, one.ended) for one in seen.outcomes] == [
        (1, Ended.DONE),
        (3, Ended.REFUSED),
        (2, Ended.REFUSED),
    ]
    assert "leads no longer" in seen.outcomes[1].message
    assert gate.order == [("a", 1)]


def test_a_replica_that_leads_again_writes_again(server: Server) -> None:
    leads = [False]
    with watching(server) as seen:
        seen.backend.write_only_while(lambda: leads[0], LONG)
        assert seen.write(patch("a"))[0].ended is Ended.REFUSED
        leads[0] = True
        assert seen.write(patch("a"))[0].ended is Ended.DONE
    assert len(server.asked) == 1


def test_a_write_under_way_ends_before_another_may_lead(server: Server) -> None:
    gate = server.writes = Gate()
    with watching(server, seconds=LONG) as seen:
        seen.backend.write_only_while(lambda: True, 0.2)
        begun = time.monotonic()
        outcome = seen.write(patch("a"))[0]
        assert time.monotonic() - begun < LONG / 2
        seen.until(lambda: gate.inside == 0)  # the connection is closed: the server knows, too
    assert outcome.ended is Ended.TIMED_OUT


def test_a_process_that_slept_past_the_deadline_sends_nothing_on_waking(server: Server) -> None:
    server.writes = refused(429, headers={"Retry-After": "0"})

    async def stopped(_: float) -> None:
        time.sleep(0.3)  # all of it, as SIGSTOP does

    async def story() -> None:
        client = Client(Access("test", server.url), lambda _: None, LONG, sleep=stopped)
        try:
            await client.request("POST", "/x", b"{}", seconds=0.2)
        finally:
            await client.close()

    with pytest.raises(Unsent, match="could not be asked POST /x within"):
        asyncio.run(story())
    assert len(server.asked) == 1


def test_the_time_that_credentials_take_counts(server: Server) -> None:
    class Slow(Credentials):
        async def current(self) -> RequestCredentials:
            await asyncio.sleep(0.1)
            return await super().current()

    async def story() -> None:
        access = Access("test", server.url)
        client = Client(access, lambda _: None, LONG, credentials=Slow(access, lambda _: None))
        try:
            await client.request("POST", "/x", b"{}", seconds=0.05)
        finally:
            await client.close()

    with pytest.raises(Unsent):
        asyncio.run(story())
    assert server.asked == []


def test_bayplan_run_writes_only_while_it_leads_and_within_the_gap_between_two_leaders() -> None:
    class Far:
        """A backend whose server is out of reach, so that nobody can lead."""

        def __init__(self) -> None:
            self.asked: list[tuple[bool, float]] = []

        def write_only_while(self, may_write: Callable[[], bool], seconds: float) -> None:
            self.asked.append((may_write(), seconds))

        def request(self, method: str, path: str, body: bytes, seconds: float) -> tuple[int, bytes]:
            raise Unreachable("nobody is there")

    backend, clock = Far(), SystemClock()
    wishes = command.RunOptions(frozenset(("scheduler",)), False, True, "ns", None, "", "")
    election = command._election(backend, wishes, clock)  # type: ignore[arg-type]
    assert backend.asked == [(False, election.timing.write_seconds)]
    assert election.timing == Timing()
    assert election.timing.write_seconds <= election.timing.lease_seconds - election.timing.renew_seconds
