"""Structured logs: one line per event, as JSON for machines or coloured text for people."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Mapping, MutableMapping
from enum import StrEnum
from typing import Any, TextIO

import structlog
from structlog.typing import FilteringBoundLogger, Processor

from bayplan.dialects.kube.fields.terminal_text import clean, clean_json
from bayplan.runtime.core.clock import Clock, SystemClock, micro_timestamp

_LEFT = frozenset(("exc_info", "stack_info", "_record", "_from_structlog"))  # for the renderer
LEVELS = ("debug", "info", "warning", "error")


class Format(StrEnum):
    """How a line looks."""

    JSON = "json"
    CONSOLE = "console"


def set_up(
    style: Format = Format.CONSOLE,
    level: str = "info",
    stream: TextIO | None = None,
    clock: Clock | None = None,
) -> None:
    """Send all log records, those of libraries too, to one stream in one format."""
    assert level in LEVELS, level
    number = logging.getLevelNamesMapping()[level.upper()]
    stream = stream or sys.stderr
    shared = _shared(clock or SystemClock())
    structlog.configure(
        processors=[*shared, *_rendering(style, stream)],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_log_level, _library, *shared[1:]],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_rendering(style, stream),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(number, logging.WARNING))  # library records below warnings are not interesting


def logger(part: str, **bound: object) -> FilteringBoundLogger:
    """The logger of one part of the program. Bind once what all its lines share."""
    found: FilteringBoundLogger = structlog.get_logger().bind(part=part, **bound)
    return found


def _shared(clock: Clock) -> list[Processor]:
    def stamp(_: Any, __: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
        return {"time": micro_timestamp(clock.wall()), **event}

    return [structlog.processors.add_log_level, stamp]


def _rendering(style: Format, stream: TextIO) -> list[Processor]:
    if style is Format.JSON:
        return [
            structlog.processors.format_exc_info,  # without local variables: those may hold a key or a token
            structlog.processors.EventRenamer("message"),
            structlog.processors.JSONRenderer(ensure_ascii=False, default=str),
            _clean_json,
        ]
    return [
        _cleaned,
        structlog.dev.ConsoleRenderer(
            colors=stream.isatty(), exception_formatter=_traceback, timestamp_key="time"
        ),
    ]


def _cleaned(_: Any, __: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Names and messages from outside must not control the terminal of the reader."""
    return {
        name: clean(value if isinstance(value, str) else repr(value)) if name not in _LEFT else value
        for name, value in event.items()
    }


def _traceback(stream: TextIO, error: Any) -> None:
    text = io.StringIO()
    structlog.dev.plain_traceback(text, error)
    stream.write(clean(text.getvalue()))


def _clean_json(_: Any, __: str, line: Any) -> str:
    return clean_json(line)


def _library(_: Any, __: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    return {"part": event["_record"].name, **event}
