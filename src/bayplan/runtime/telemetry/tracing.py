"""Spans by OpenTelemetry, sent to a collector by OTLP. Needs the extra `tracing`.

Where to send them, how many to sample and the name of the service are read from the variables that the
OpenTelemetry SDK defines: OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_SAMPLER, OTEL_SERVICE_NAME and others.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bayplan.dialects.api import Ended, Write, WriteOutcome
from bayplan.runtime.core.spans import Span

SERVICE = "bayplan"
WRITES_MAX = 10_000
"""Writes whose outcome is awaited; spans of older ones end without it."""
CLOSE_SECONDS = 5.0


class TracingUnavailable(Exception):
    """The extra `tracing` is not installed."""


def provider(version: str, exporter: Any = None) -> Any:
    """A tracer provider that exports in batches from a thread of its own; by OTLP unless told otherwise."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 — an extra, and slow to import
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as error:
        raise TracingUnavailable(
            f"tracing needs OpenTelemetry, which is not installed ({error.name}); "
            "install it with: pip install 'bayplan[tracing]'"
        ) from None
    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": SERVICE}
    resource = Resource.create({**named, "service.version": version})
    made = TracerProvider(resource=resource, shutdown_on_exit=False)
    made.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter()))
    return made


class OpenTelemetrySpans:
    """Makes spans with a tracer provider. Called from the thread of the loop."""

    enabled = True

    def __init__(self, made: Any) -> None:
        from opentelemetry import trace  # noqa: PLC0415 — an extra

        self.provider, self.trace = made, trace
        self.tracer = made.get_tracer("bayplan")
        self.writes: OrderedDict[int, tuple[Write, Any]] = OrderedDict()  # by identity

    @contextmanager
    def span(self, name: str, **attributes: str | int | float) -> Iterator[Span]:
        with self.tracer.start_as_current_span(name, attributes=_named(attributes)) as made:
            yield _OpenSpan(made)

    def submitted(self, write: Write) -> None:
        name = f"{write.namespace}/{write.name}" if write.namespace else write.name
        about = {"verb": str(write.verb), "kind": write.kind.kind, "object": name}
        self.writes[id(write)] = write, self.tracer.start_span("write", attributes=_named(about))
        if len(self.writes) > WRITES_MAX:
            self.writes.popitem(last=False)[1][1].end()

    def ended(self, outcome: WriteOutcome) -> None:
        _, span = self.writes.pop(id(outcome.write), (None, None))
        if span is None:
            return
        span.set_attributes(_named({"outcome": str(outcome.ended)}))
        if outcome.ended is not Ended.DONE:
            span.set_status(self.trace.Status(self.trace.StatusCode.ERROR, outcome.message))
        span.end()

    def close(self, seconds: float) -> None:
        """Export what is left, for so long: a collector that does not answer must not delay the end."""
        flushing = threading.Thread(target=self.provider.force_flush, name="last spans", daemon=True)
        flushing.start()
        flushing.join(min(seconds, CLOSE_SECONDS))


class _OpenSpan:
    def __init__(self, span: Any) -> None:
        self.span = span

    def note(self, **attributes: str | int | float) -> None:
        self.span.set_attributes(_named(attributes))


def _named(attributes: dict[str, Any]) -> dict[str, Any]:
    return {f"bayplan.{name}": value for name, value in attributes.items()}
