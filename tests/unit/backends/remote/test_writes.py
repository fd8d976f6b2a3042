"""Writes in flight: order, concurrency, deadlines and outcomes."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from bayplan.backends.remote import writer as writer_module
from bayplan.backends.remote.access import Access
from bayplan.backends.remote.backend import RemoteBackend
from bayplan.backends.remote.pool import Pool
from bayplan.dialects.api import Backend, Ended, Kind, Verb, Write
from bayplan.dialects.kube.encode.binding import EVENTS
from tests.support.listening import free_address
from tests.support.remote_server import (
    LONG,
    THINGS,
    Answerer,
    Server,
    Thing,
    answered,
    echo,
    refused,
    serving,
    thing,
    watching,
)

PODS = Kind("", "v1", "Pod", "pods")


def patch(name: str, number: int = 0) -> Write:
    return Write(Verb.MERGE_PATCH, PODS, "ns", name, {"number": number}, tag=number)


class Gate:
    """Holds requests back until it is opened; knows how many are in there, and how many there ever were."""

    def __init__(self, then: Answerer = echo) -> None:
        self.inside = self.most = 0
        self.order: list[tuple[str, Any]] = []
        self._open, self._then = threading.Event(), then

    def open(self) -> None:
        self._open.set()

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.order.append((request.path.rpartition("/")[2], (await request.json()).get("number")))
        try:
            while not self._open.is_set():
                await asyncio.sleep(0.005)
            return await self._then(request)
        finally:
            self.inside -= 1


def test_it_is_a_backend(server: Server) -> None:
    backend: Backend = RemoteBackend(Access("test", server.url))
    backend.close()
    backend.close()


def test_writes_to_one_object_are_made_in_order(server: Server) -> None:
    begun: list[tuple[str, int]] = []
    finished: list[tuple[str, int]] = []

    async def ever_quicker(request: web.Request) -> web.StreamResponse:
        one = request.path.rpartition("/")[2], (await request.json())["number"]
        begun.append(one)
        await asyncio.sleep(0.02 / (1 + one[1]))
        finished.append(one)
        return await echo(request)

    server.writes = ever_quicker
    with watching(server) as seen:
        outcomes = seen.write(*(patch(name, number) for number in range(10) for name in ("a", "b", "c")))
    for name in ("a", "b", "c"):
        assert [number for path, number in begun if path == name] == list(range(10))
        assert [number for path, number in finished if path == name] == list(range(10))
        assert [outcome.write.tag for outcome in outcomes if outcome.write.name == name] == list(range(10))


def test_writes_of_one_line_are_made_in_order_whatever_they_are_about(server: Server) -> None:
    gate = server.writes = Gate()
    lined = [replace(patch(f"p{number}", number), order_key="row") for number in range(5)]
    with watching(server) as seen:
        seen.backend.submit([*lined, patch("other", 5)])
        seen.until(lambda: gate.inside == 2)
        gate.open()
        seen.until(lambda: len(seen.outcomes) == 6)
    assert [number for _, number in gate.order if number < 5] == list(range(5))
    assert gate.most == 2


def test_writes_to_different_objects_are_made_at_the_same_time_up_to_a_limit(server: Server) -> None:
    gate = server.writes = Gate()
    with watching(server, in_flight_max=8) as seen:
        seen.backend.submit([patch(f"p{number}") for number in range(30)])
        seen.until(lambda: gate.inside == 8)
        gate.open()
        seen.until(lambda: len(seen.outcomes) == 30)
    assert gate.most == 8


def event(number: int) -> Write:
    return Write(Verb.CREATE, EVENTS, "ns", "", {"number": number}, tag=number)


def test_events_have_few_places_of_their_own_and_delay_no_other_write(server: Server) -> None:
    gate = Gate()

    async def slow_events(request: web.Request) -> web.StreamResponse:
        return await (gate if request.path.endswith("/events") else echo)(request)

    server.writes = slow_events
    with watching(server, in_flight_max=8) as seen:
        seen.backend.submit([*(event(number) for number in range(30)), patch("a", 100)])
        seen.until(lambda: [outcome.write.tag for outcome in seen.outcomes] == [100])
        seen.until(lambda: gate.inside == writer_module.LOW_PRIORITY_IN_FLIGHT)
        gate.open()
        seen.until(lambda: len(seen.outcomes) == 31)
    assert gate.most == writer_module.LOW_PRIORITY_IN_FLIGHT
    assert {outcome.ended for outcome in seen.outcomes} == {Ended.DONE}


def test_events_wait_until_no_other_write_is_in_flight(server: Server) -> None:
    gate = server.writes = Gate()
    with watching(server) as seen:
        seen.backend.submit([event(0), *(patch(f"p{number}") for number in range(3)), event(1)])
        seen.until(lambda: gate.inside == 3)
        gate.open()
        seen.until(lambda: len(seen.outcomes) == 5)
    assert [path for path, _ in gate.order] == ["p0", "p1", "p2", "events", "events"]


def test_events_wait_for_other_writes_no_longer_than_a_bound(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "LOW_PRIORITY_SECONDS", 0.05)
    gate = Gate()

    async def slow_others(request: web.Request) -> web.StreamResponse:
        return await (echo if request.path.endswith("/events") else gate)(request)

    server.writes = slow_others
    with watching(server) as seen:
        seen.backend.submit([patch("a"), *(event(number) for number in range(10))])
        seen.until(lambda: len(seen.outcomes) == 10)
        assert gate.inside == 1
        gate.open()
        seen.until(lambda: len(seen.outcomes) == 11)


def test_events_beyond_a_bound_are_dropped_and_nothing_else(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "LOW_PRIORITY_WAITING", 5)
    gate = server.writes = Gate()
    with watching(server, in_flight_max=1) as seen:
        seen.backend.submit([patch("a"), patch("b"), *(event(number) for number in range(20))])
        seen.until(lambda: len(seen.outcomes) == 15)
        assert {outcome.ended for outcome in seen.outcomes} == {Ended.REFUSED}
        gate.open()
        seen.until(lambda: len(seen.outcomes) == 22)
    assert sum(outcome.ended is Ended.DONE for outcome in seen.outcomes) == 7


def test_writes_to_a_slow_object_delay_no_others(server: Server) -> None:
    gate = Gate()

    async def slow_a(request: web.Request) -> web.StreamResponse:
        return await (gate if request.path.endswith("/a") else echo)(request)

    server.writes = slow_a
    with watching(server) as seen:
        seen.backend.submit([patch("a", 1), patch("a", 2), patch("b", 3)])
        seen.until(lambda: [outcome.write.tag for outcome in seen.outcomes] == [3])
        gate.open()
        seen.until(lambda: [outcome.write.tag for outcome in seen.outcomes] == [3, 1, 2])


def test_creates_with_a_name_to_be_generated_do_not_queue(server: Server) -> None:
    gate = server.writes = Gate()
    with watching(server) as seen:
        body = {"metadata": {"generateName": "p-"}}
        seen.backend.submit([Write(Verb.CREATE, PODS, "ns", "", body) for _ in range(5)])
        seen.until(lambda: gate.inside == 5)
        gate.open()
        seen.until(lambda: len(seen.outcomes) == 5)


def test_the_outcome_hands_back_the_write_and_the_object_in_its_type(server: Server) -> None:
    server.writes = answered(thing("a", 7))
    write = Write(Verb.APPLY, THINGS, "ns", "a", {"size": 1}, tag="mine")
    with watching(server) as seen:
        outcome = seen.write(write)[0]
    assert outcome.write is write
    assert (outcome.ended, outcome.status) == (Ended.DONE, 200)
    assert isinstance(outcome.object, Thing)
    assert outcome.object.metadata.resource_version == "7"


def test_a_conflict_is_told_and_not_tried_again(server: Server) -> None:
    server.writes = refused(409, "the object has been modified", "Conflict")
    with watching(server) as seen:
        outcome = seen.write(patch("a"))[0]
    assert (outcome.ended, outcome.message) == (Ended.CONFLICT, "the object has been modified")
    assert len(server.asked) == 1


@pytest.mark.parametrize("code", [429, 500, 503])
def test_a_busy_server_is_asked_again_when_it_says_so(server: Server, code: int) -> None:
    answers = [refused(code, headers={"Retry-After": "0"}), refused(code, headers={"Retry-After": "0"}), echo]

    async def busy_at_first(request: web.Request) -> web.StreamResponse:
        return await answers.pop(0)(request)

    server.writes = busy_at_first
    with watching(server) as seen:
        assert seen.write(patch("a"))[0].ended is Ended.DONE
    assert len(server.asked) == 3


@pytest.mark.parametrize("headers", [{}, {"Retry-After": "3600"}])
def test_a_busy_server_that_names_no_time_or_too_late_a_one_is_let_be(
    server: Server, headers: dict[str, str]
) -> None:
    server.writes = refused(429, "too many requests", headers=headers)
    with watching(server) as seen:
        outcome = seen.write(patch("a"))[0]
    assert (outcome.ended, outcome.status) == (Ended.TIMED_OUT, 429)
    assert len(server.asked) == 1


def test_a_busy_server_is_not_asked_for_ever(server: Server) -> None:
    server.writes = refused(503, headers={"Retry-After": "0"})
    with watching(server) as seen:
        assert seen.write(patch("a"))[0].ended is Ended.TIMED_OUT
    assert len(server.asked) == 10


def test_no_response_in_time_means_an_unknown_outcome(server: Server) -> None:
    gate = server.writes = Gate()
    with watching(server, seconds=0.2) as seen:
        outcome = seen.write(Write(Verb.CREATE, PODS, "ns", "a", {"number": 1}))[0]
        gate.open()
    assert (outcome.ended, outcome.status) == (Ended.TIMED_OUT, 0)
    assert "did not answer POST /api/v1/namespaces/ns/pods within" in outcome.message
    assert len(server.asked) == 1


@pytest.mark.parametrize("subresource", ["", "binding"])
def test_a_create_whose_connection_broke_is_never_sent_again(server: Server, subresource: str) -> None:
    async def hang_up(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    server.writes = hang_up
    with watching(server) as seen:
        outcome = seen.write(Write(Verb.CREATE, PODS, "ns", "a", {}, subresource))[0]
    assert outcome.ended is Ended.TIMED_OUT
    assert "broke off in the middle of POST" in outcome.message
    assert len(server.asked) == 1


def test_what_never_reached_a_server_is_sent_when_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "UNSENT_PAUSE", 0.01)
    monkeypatch.setattr(writer_module, "UNSENT_PAUSE_MAX", 0.02)
    address = free_address()
    backend = RemoteBackend(Access("test", f"http://{address.host}:{address.port}"), seconds=LONG)
    try:
        backend.submit([Write(Verb.CREATE, PODS, "ns", "a", {})])
        backend.wait(0.05)
        with serving(Server(), address=address) as server:
            deadline = time.monotonic() + LONG
            found: list[Any] = []
            while not found and time.monotonic() < deadline:
                backend.wait(0.05)
                found += backend.outcomes()
            assert found[0].ended is Ended.DONE
            assert len(server.asked) == 1
    finally:
        backend.close(0)


def test_a_server_that_stays_away_is_told_when_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "UNSENT_PAUSE", 0.01)
    address = free_address()
    backend = RemoteBackend(Access("test", f"http://{address.host}:{address.port}"), seconds=0.1)
    try:
        backend.submit([patch("a")])
        found: list[Any] = []
        while not found:
            backend.wait(1)
            found += backend.outcomes()
    finally:
        backend.close(0)
    assert found[0].ended is Ended.TIMED_OUT
    assert "no connection to http://" in found[0].message


def test_a_body_that_is_no_json_is_rejected_and_affects_no_other_write(server: Server) -> None:
    with watching(server) as seen:
        bad = Write(Verb.MERGE_PATCH, PODS, "ns", "a", {"x": object()})
        outcomes = seen.write(bad, patch("a", 1))
    assert [outcome.ended for outcome in outcomes] == [Ended.REFUSED, Ended.DONE]


def test_an_unexpected_failure_is_reported_and_affects_no_other_write(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = Pool.ask

    async def fail(pool: Pool, method: str, path: str, head: bytes, body: bytes, *given: Any) -> Any:
        if b'"number":0' in body:
            raise RuntimeError("a bug")
        return await ask(pool, method, path, head, body, *given)

    monkeypatch.setattr(Pool, "ask", fail)
    with watching(server) as seen:
        outcomes = seen.write(patch("a", 0), patch("a", 1))
    assert [outcome.ended for outcome in outcomes] == [Ended.TIMED_OUT, Ended.DONE]
    assert "a bug" in outcomes[0].message


# ── closing ────────────────────────────────────────────────────────────────────────────────────────


def test_close_lets_writes_in_flight_and_those_behind_them_finish(server: Server) -> None:
    gate = server.writes = Gate()
    backend = RemoteBackend(Access("test", server.url), in_flight_max=2)
    backend.submit([patch("a", 1), patch("a", 2), patch("b", 3), patch("c", 4)])
    while gate.inside < 2:
        time.sleep(0.005)
    threading.Timer(0.1, gate.open).start()
    backend.close(LONG)
    found = list(backend.outcomes())
    assert {outcome.write.tag for outcome in found} == {1, 2, 3, 4}
    assert {outcome.ended for outcome in found} == {Ended.DONE}


def test_close_does_not_wait_longer_than_its_grace_and_tells_what_it_left(server: Server) -> None:
    gate = server.writes = Gate()
    backend = RemoteBackend(Access("test", server.url), in_flight_max=1)
    backend.submit([patch("a", 1), patch("a", 2), patch("b", 3)])
    while gate.inside < 1:
        time.sleep(0.005)
    begun = time.monotonic()
    backend.close(0.1)
    assert time.monotonic() - begun < LONG / 2
    found = {outcome.write.tag: outcome for outcome in backend.outcomes()}
    assert {outcome.ended for outcome in found.values()} == {Ended.TIMED_OUT}
    assert "before the answer" in found[1].message
    assert "never sent" in found[2].message
    assert "never sent" in found[3].message
    gate.open()


def test_a_closed_backend_does_not_write(server: Server) -> None:
    backend = RemoteBackend(Access("test", server.url))
    backend.close()
    with pytest.raises(AssertionError, match="closed backend"):
        backend.submit([patch("a")])


def test_wait_returns_when_something_happens_and_not_before_its_time(server: Server) -> None:
    backend = RemoteBackend(Access("test", server.url))
    try:
        begun = time.monotonic()
        backend.wait(0.1)
        assert time.monotonic() - begun >= 0.09
        backend.submit([patch("a")])
        backend.wait(LONG)
        assert time.monotonic() - begun < LONG / 2
        assert len(list(backend.outcomes())) == 1
    finally:
        backend.close()
