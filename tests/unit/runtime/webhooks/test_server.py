"""Webhooks over TLS, within limits, with clear errors."""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from bayplan.runtime.core.clock import SystemClock
from bayplan.runtime.telemetry.metrics import Metrics
from bayplan.runtime.webhooks.certificates import Served, reload, renewed, server_context
from bayplan.runtime.webhooks.http_server import Server
from bayplan.runtime.webhooks.server import ADMISSION_BYTES, serve_webhooks
from tests.support.listening import free_address
from tests.support.webhook_reviews import JOB, conversion, patched, registry, review, thing


class Site:
    """A server and what its client needs."""

    def __init__(self) -> None:
        self.certificates = renewed(None, ["127.0.0.1"], SystemClock().wall()).served
        self.context = server_context(self.certificates)
        self.metrics, self.notes = Metrics(), list[str]()
        self.server: Server = serve_webhooks(
            registry(), self.context, SystemClock(), self.metrics, free_address(), self._note
        )

    def _note(self, sentence: str, bug: BaseException | None) -> None:
        self.notes.append(f"{sentence} ({bug!r})" if bug else sentence)

    def post(
        self,
        path: str,
        body: bytes,
        content_type: str = "application/json",
        trusted: Served | None = None,
    ) -> tuple[int, Any]:
        bundle = (trusted or self.certificates).bundle.decode()
        context = ssl.create_default_context(cadata=bundle)
        host, port = self.server.address.host, self.server.address.port
        with closing(http.client.HTTPSConnection(host, port, context=context, timeout=10)) as connection:
            connection.request("POST", path, body, {"Content-Type": content_type})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def count(self, said: str, path: str = "mutate", resource: str = "jobs") -> float | None:
        labels = {"review": path, "resource": resource, "answer": said}
        return self.metrics.registry.get_sample_value("bayplan_webhook_reviews_total", labels)


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.server.stop()


def test_reviews_are_answered_over_verified_tls(site: Site) -> None:
    status, answer = site.post("/mutate", review())
    assert status == 200 and patched(JOB, answer)["spec"]["suspend"] is True
    assert site.post("/validate", review())[1]["response"]["allowed"] is True
    assert site.post("/convert", conversion(thing()))[1]["response"]["result"] == {"status": "Success"}
    assert site.count("patched") == 1
    assert site.count("converted", "convert", "Thing") == 1


def test_what_is_refused_is_a_status_that_says_why(site: Site) -> None:
    status, answer = site.post("/mutate", b"{}")
    assert (status, answer["kind"], answer["reason"], answer["code"]) == (400, "Status", "BadRequest", 400)
    assert "missing required field `apiVersion`" in answer["message"]
    assert site.post("/mutate", review(), "text/plain")[0] == 415
    assert site.post("/validate", b" " * (ADMISSION_BYTES + 1))[0] == 413
    assert site.count("malformed", resource="") == 2
    assert len(site.notes) == 3 and "was refused" in site.notes[0]


def test_a_body_without_a_length_is_refused(site: Site) -> None:
    context = ssl.create_default_context(cadata=site.certificates.bundle.decode())
    address = (site.server.address.host, site.server.address.port)
    with (
        socket.create_connection(address, timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=address[0]) as client,
    ):
        head = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        client.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 411")


def test_a_bug_is_noted_with_what_was_raised(site: Site) -> None:
    pods: dict[str, Any] = {"resource": {"group": "", "version": "v1", "resource": "pods"}}
    assert site.post("/mutate", review(**pods))[1]["response"]["allowed"] is False
    assert site.post("/validate", review(**pods))[1]["response"]["allowed"] is True
    assert site.post("/mutate/optional", review(**pods))[1]["response"]["allowed"] is True
    (note,) = site.notes  # it is the same error
    assert re.fullmatch(
        r"contained an error in webhook of pods ns/j \(id [0-9a-f]{8}\) \(RuntimeError\('oh dear'\)\)", note
    )
    labels = {"where": "webhook", "kind": "pods"}
    assert site.metrics.registry.get_sample_value("bayplan_contained_errors_total", labels) == 2


def test_a_new_certificate_is_served_without_a_restart(site: Site) -> None:
    other = renewed(None, ["127.0.0.1"], SystemClock().wall()).served
    with pytest.raises(ssl.SSLCertVerificationError):
        site.post("/validate", review(), trusted=other)
    reload(site.context, other)
    assert site.post("/validate", review(), trusted=other)[0] == 200
    with pytest.raises(ssl.SSLCertVerificationError):
        site.post("/validate", review())


def test_plain_http_is_not_spoken(site: Site) -> None:
    host, port = site.server.address.host, site.server.address.port
    with closing(http.client.HTTPConnection(host, port, timeout=10)) as connection:
        connection.request("POST", "/validate", review())
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            connection.getresponse()
