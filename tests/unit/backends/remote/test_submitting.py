"""Writes that are handed over to the thread of the backend."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from bayplan.dialects.api import Kind, Verb, Write
from tests.support.remote_server import LONG, Server, watching

PODS = Kind("", "v1", "Pod", "pods")


def patch(number: int) -> Write:
    return Write(Verb.MERGE_PATCH, PODS, "ns", "a", {"number": number}, tag=number)


def test_a_busy_thread_is_woken_once_for_all_that_is_submitted_meanwhile(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with watching(server) as seen:
        backend, busy, wakes = seen.backend, threading.Event(), list[object]()
        loop = backend._loop
        loop.call_soon_threadsafe(busy.wait, LONG)
        call = loop.call_soon_threadsafe

        def counted(callback: Any, *arguments: Any) -> object:
            wakes.append(callback)
            return call(callback, *arguments)

        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
        for number in range(10):
            backend.submit([patch(number)])
        assert len(wakes) == 1
        busy.set()
        seen.until(lambda: len(seen.outcomes) == 10)
        backend.submit([patch(10)])
        seen.until(lambda: len(seen.outcomes) == 11)
        assert [outcome.write.tag for outcome in seen.outcomes] == list(range(11))


def test_what_was_submitted_before_the_backend_is_closed_is_made(server: Server) -> None:
    with watching(server) as seen:
        for number in range(10):
            seen.backend.submit([patch(number)])
        seen.backend.close()
        assert [outcome.write.tag for outcome in seen.backend.outcomes()] == list(range(10))
