"""The CA bundle of the webhooks: what could not be written is told and tried again, others are left alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from bayplan.assembly.crds import conversion, is_left_over
from bayplan.assembly.webhooks import WebhookEndpoint, Webhooks, foreign_conversion
from bayplan.dialects.errors import ApiError, Unreachable
from bayplan.runtime.core.clock import SystemClock
from bayplan.runtime.telemetry.metrics import Metrics
from bayplan.runtime.webhooks.certificate_rotation import DEFINITION, MUTATING
from tests.support.listening import free_address

WORKLOADS = "workloads.kueue.x-k8s.io"
Object = dict[str, Any]


class Server:
    """An API server that stores what it is sent; it may be too busy for one path."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.busy = ""

    def __call__(self, method: str, path: str, body: bytes, seconds: float, /) -> tuple[int, bytes]:
        if self.busy and self.busy in path:
            raise Unreachable(f"{path}: no answer within {seconds:g} s")
        if method == "POST":
            path = f"{path}/{msgspec.json.decode(body)['metadata']['name']}"
        if method != "GET":
            obj = msgspec.json.decode(body)
            obj["metadata"] |= {"uid": path, "resourceVersion": "1"}
            self.objects[path] = obj
        if path not in self.objects:
            return 404, b'{"details": {"name": "x"}}'
        return 200, msgspec.json.encode(self.objects[path])

    def define(self, name: str, converted: Object) -> None:
        meta = {"name": name, "uid": "u", "resourceVersion": "1"}
        self.objects[DEFINITION.path(name=name)] = {"metadata": meta, "spec": {"conversion": converted}}

    def bundle(self, name: str) -> str:
        found = self.objects[DEFINITION.path(name=name)]["spec"]["conversion"]["webhook"]["clientConfig"]
        return str(found.get("caBundle", ""))


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def told() -> list[tuple[str, BaseException | None]]:
    return []


@pytest.fixture
def webhooks(server: Server, told: list[tuple[str, BaseException | None]]) -> Iterator[Webhooks]:
    endpoint = WebhookEndpoint("here", free_address(), (WORKLOADS,))
    made = Webhooks(server, endpoint, SystemClock(), Metrics("test"), lambda *sentence: told.append(sentence))
    made._stop.set()  # the test takes the turns of its thread
    made._thread.join()
    told.clear()
    yield made
    made.server.stop()


def test_a_bundle_that_could_not_be_checked_is_a_warning_and_tried_again(
    server: Server, webhooks: Webhooks, told: list[tuple[str, BaseException | None]]
) -> None:
    server.define(WORKLOADS, conversion("here"))
    server.busy = WORKLOADS
    assert not webhooks.write_ca_bundles()
    assert not webhooks.write_ca_bundles()
    [(sentence, error)] = told  # once
    assert isinstance(error, ApiError), "so it is a warning"
    assert WORKLOADS in sentence and "The next try is in 5 s" in sentence and "rights" in sentence
    server.busy = ""
    assert webhooks.write_ca_bundles()
    assert server.bundle(WORKLOADS)
    assert told[-1] == (f"wrote the CA bundle into CustomResourceDefinition {WORKLOADS}", None)


def test_a_definition_that_another_product_converts_keeps_its_bundle(
    server: Server, webhooks: Webhooks, told: list[tuple[str, BaseException | None]]
) -> None:
    theirs = conversion("kueue-system")
    theirs["webhook"]["clientConfig"]["service"]["name"] = "kueue-webhook-service"
    server.define(WORKLOADS, theirs)
    assert webhooks.write_ca_bundles() and webhooks.write_ca_bundles()
    assert server.bundle(WORKLOADS) == ""
    [(sentence, error)] = told
    assert error is not None and "kueue-system/kueue-webhook-service" in sentence
    assert "bayplan install --take-over-crds" in sentence


def test_only_definitions_are_converted() -> None:
    mine = {"spec": {"conversion": conversion("here")}}
    assert foreign_conversion(DEFINITION, mine, "here") == ""
    assert foreign_conversion(DEFINITION, mine, "elsewhere") != ""
    assert foreign_conversion(DEFINITION, {"spec": {}}, "here") == ""
    assert foreign_conversion(MUTATING, {"webhooks": []}, "here") == ""


@pytest.mark.parametrize(
    ("name", "group", "strategy", "expected"),
    [
        ("multikueueclusters.kueue.x-k8s.io", "kueue.x-k8s.io", "Webhook", True),
        ("multikueueclusters.kueue.x-k8s.io", "kueue.x-k8s.io", "None", False),
        (WORKLOADS, "kueue.x-k8s.io", "Webhook", False),
        ("widgets.example.com", "example.com", "Webhook", False),
    ],
)
def test_what_the_other_product_leaves_behind(name: str, group: str, strategy: str, expected: bool) -> None:
    definition = {"metadata": {"name": name}, "spec": {"group": group, "conversion": {"strategy": strategy}}}
    assert is_left_over(definition) is expected


class Unhurried(SystemClock):
    """The API server is back after this clock let time pass twice."""

    def __init__(self, server: Server) -> None:
        self.server, self.pauses = server, 0

    def sleep(self, seconds: float) -> None:
        self.pauses += 1
        if self.pauses == 2:
            self.server.busy = ""


def test_a_replica_that_starts_while_the_api_server_is_away_waits_for_its_certificate(
    server: Server, told: list[tuple[str, BaseException | None]]
) -> None:
    server.busy, clock = "secrets", Unhurried(server)
    endpoint = WebhookEndpoint("here", free_address(), (WORKLOADS,))
    made = Webhooks(server, endpoint, clock, Metrics("test"), lambda *sentence: told.append(sentence))
    made.stop()
    assert made.certificates is not None and clock.pauses == 2
    assert any("there is no certificate for the webhooks" in sentence for sentence, _ in told)
