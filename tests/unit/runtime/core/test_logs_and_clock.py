"""Logs in one format, without secrets in tracebacks; the system clock and the virtual clock."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from bayplan.runtime.core.clock import SystemClock, VirtualClock, micro_timestamp, timer, timestamp
from bayplan.runtime.telemetry import logs


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(style: logs.Format, level: str = "info") -> str:
    stream = io.StringIO()
    logs.set_up(style, level, stream, VirtualClock(wall=0.5))
    log = logs.logger("loop", replica="a")
    log.debug("too small to mention")
    log.info("bound", gang="ns/train", pods=4)
    token = "a-secret-token"
    try:
        raise ValueError("no room")
    except ValueError:
        log.exception("failed")
        logging.getLogger("aiohttp.server").error("broken", exc_info=True)
    logging.getLogger("asyncio").info("not interesting")
    assert token not in stream.getvalue(), "local variables are not for the log"
    return stream.getvalue()


def test_json_is_one_object_per_line() -> None:
    bound, failed, library = [json.loads(line) for line in lines(logs.Format.JSON).splitlines()]
    assert bound == {
        "time": "1970-01-01T00:00:00.500000Z",
        "level": "info",
        "part": "loop",
        "replica": "a",
        "gang": "ns/train",
        "pods": 4,
        "message": "bound",
    }
    assert failed["level"] == "error" and failed["exception"].endswith("ValueError: no room")
    assert library["part"] == "aiohttp.server" and library["message"] == "broken"
    assert library["exception"].endswith("ValueError: no room")


def test_the_console_is_for_people() -> None:
    text = lines(logs.Format.CONSOLE)
    assert "1970-01-01T00:00:00.500000Z [info     ] bound" in text and "gang=ns/train" in text
    assert "\x1b[" not in text, "colours only on a terminal"


def test_the_level_is_a_threshold() -> None:
    assert "bound" not in lines(logs.Format.JSON, "warning")
    assert "too small" in lines(logs.Format.JSON, "debug")


def test_a_virtual_clock_moves_when_told() -> None:
    clock = VirtualClock(monotonic=5.0, wall=100.0)
    elapsed = timer(clock)
    clock.sleep(2.0)
    clock.sleep(-1.0)
    assert clock.advance(1.0) == 8.0
    assert (clock.monotonic(), clock.wall(), elapsed()) == (8.0, 103.0, 3.0)
    assert clock.advance_to(10.0) == 10.0 == clock.advance_to(9.0)
    with pytest.raises(AssertionError):
        clock.advance(-0.1)


def test_the_system_clock_runs() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    clock.sleep(0.001)
    assert clock.monotonic() > before
    assert clock.wall() > 1_700_000_000


def test_times_are_written_as_kubernetes_writes_them() -> None:
    assert timestamp(0.999) == "1970-01-01T00:00:00Z"
    assert micro_timestamp(1.25) == "1970-01-01T00:00:01.250000Z"
