"""Spans of a step, a decision and its writes, as OpenTelemetry exports them; none without a tracer."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec
from typing import Any

import pytest

from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.dialects.api import Ended, Verb, Write, WriteOutcome
from bayplan.dialects.kube.gang_api.gates import V1ALPHA1
from bayplan.runtime.core.clock import VirtualClock
from bayplan.runtime.core.loop import Loop
from bayplan.runtime.core.spans import NO_SPANS, Spans
from bayplan.runtime.process.service import Meter, Metered, Service
from bayplan.runtime.telemetry import tracing
from bayplan.runtime.telemetry.metrics import Metrics
from bayplan.runtime.telemetry.tracing import OpenTelemetrySpans, TracingUnavailable, provider
from tests.support.missing_parts import lacking
from tests.support.pod_site import PODS
from tests.unit.runtime.controllers.scheduler.test_controller import Site


@pytest.fixture
def needs_opentelemetry() -> None:
    if find_spec("opentelemetry") is None:
        lacking("OpenTelemetry; install the extra `tracing`")


def bound(spans: Spans) -> Site:
    """A site whose pod was bound by a traced service."""
    site, clock, metrics = Site(V1ALPHA1), VirtualClock(), Metrics("test")
    backend = Metered(EmbeddedBackend(site.store), metrics, spans)
    loop = Loop(backend, (site.role,), site.journal, observer=Meter(clock, metrics, spans=spans))
    service = Service(loop, clock, metrics, threading.Event())
    site.pod("p")
    for _ in range(4):
        with loop.observer.spans.span("step"):
            loop.step(site.now)
        site.now += 0.5
    assert site.on("p") != [""] and service.backend.spans is spans
    return site


def exported() -> tuple[OpenTelemetrySpans, Any]:
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept = InMemorySpanExporter()
    return OpenTelemetrySpans(provider("1.2.3", kept)), kept


@pytest.mark.usefixtures("needs_opentelemetry")
def test_a_write_is_part_of_the_decision_that_asked_for_it_and_that_of_a_step() -> None:
    spans, kept = exported()
    bound(spans)
    spans.close(5.0)
    found = kept.get_finished_spans()
    names = {one.context.span_id: one.name for one in found}
    binding = next(one for one in found if one.name == "write" and one.attributes["bayplan.kind"] == "Pod")
    decision = next(one for one in found if one.context.span_id == binding.parent.span_id)
    assert (decision.name, names[decision.parent.span_id]) == ("decide", "step")
    assert dict(decision.attributes) == {
        "bayplan.role": "scheduler", "bayplan.gangs": 1, "bayplan.actions": 1, "bayplan.undecided": 0,
    }  # fmt: skip
    assert binding.attributes["bayplan.object"] == "default/p"
    assert binding.attributes["bayplan.outcome"] == "done"
    assert found[0].resource.attributes["service.name"] == "bayplan"
    assert not spans.writes, "every write ended"


@pytest.mark.usefixtures("needs_opentelemetry")
def test_a_write_that_was_refused_is_an_error_and_forgotten_ones_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tracing, "WRITES_MAX", 2)
    spans, kept = exported()
    writes = [Write(Verb.DELETE, PODS, "default", f"gone-{number}") for number in range(4)]
    for write in writes:
        spans.submitted(write)
    spans.ended(WriteOutcome(writes[3], Ended.GONE, 404, "not found"))
    spans.close(5.0)
    found = kept.get_finished_spans()
    assert len(found) == 3 and len(spans.writes) == 1
    assert found[-1].status.status_code.name == "ERROR"


@contextmanager
def collector() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """An HTTP server that keeps what it is sent."""
    heard: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", heard
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.usefixtures("needs_opentelemetry")
def test_spans_reach_the_collector_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as (address, heard):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        spans = OpenTelemetrySpans(provider("1.2.3"))
        bound(spans)
        spans.close(5.0)
    assert {path for path, _ in heard} == {"/v1/traces"}
    assert all(name in b"".join(body for _, body in heard) for name in (b"step", b"decide", b"write"))


def test_without_a_tracer_nothing_is_imported_or_kept() -> None:
    before = {name for name in sys.modules if name.startswith("opentelemetry.sdk")}
    bound(NO_SPANS)
    assert {name for name in sys.modules if name.startswith("opentelemetry.sdk")} == before
    assert NO_SPANS.span("a") is NO_SPANS.span("b", role="x"), "one object serves all"


def test_a_missing_extra_is_named_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(TracingUnavailable, match=r"pip install 'bayplan\[tracing\]'"):
        provider("1.2.3")
