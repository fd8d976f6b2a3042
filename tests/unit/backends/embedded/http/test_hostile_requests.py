"""The HTTP face under attack: bodies, numbers, tokens and types that no honest client sends get 4xx."""

from __future__ import annotations

import threading
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from typing import Any

import pytest

from bayplan.backends.embedded.http.server import ApiServer
from tests.unit.backends.embedded.http.test_server import ask
from tests.unit.backends.embedded.storage.test_store import store_at


@pytest.fixture(scope="module")
def face() -> Iterator[ApiServer]:
    started = ApiServer(store_at(), threading.RLock(), token="let me in").start()
    yield started
    started.stop()


DEEP = 40_000
DEEP_JSON = b'{"a":' * DEEP + b"1" + b"}" * DEEP
EVER_DEEPER = b'{"metadata":{"name":"deep"},"spec":' + b'{"a":' * 400 + b"1" + b"}" * 401
LAUGHS = b"a0: &a0 [x, x]\n" + b"".join(
    b"a%d: &a%d [*a%d, *a%d]\n" % (one, one, one - 1, one - 1) for one in range(1, 40)
)


@pytest.mark.parametrize(
    ("body", "form"),
    [
        (b"[" * DEEP, "application/yaml"),
        (b"{a: " * DEEP, "application/yaml"),
        (b"- " * 3000 + b"x", "application/yaml"),
        (DEEP_JSON, "application/json"),
        (DEEP_JSON, "application/yaml"),
        (EVER_DEEPER, "application/json"),
        (b"[" * DEEP, "application/json"),
        (LAUGHS, "application/yaml"),
        (b"a: &a [*a]", "application/yaml"),
        (b"metadata: {name: x}\n---\nmetadata: {name: y}\n", "application/yaml"),
        (b"\xff\xfe{}", "application/yaml"),
        (b'{"metadata": {"name": "\xff"}}', "application/json"),
        (b'{"metadata": {"name": "x", "generation": %s}}' % (b"9" * 5000), "application/json"),
        (b"metadata: {name: x, generation: %s}" % (b"9" * 5000), "application/yaml"),
        (b"metadata: {name: x}\ndata: {a: .inf}", "application/yaml"),
        (b"metadata: {name: x}\ndata: !!set {a, b}", "application/yaml"),
        (b"metadata: {name: x}\ndata: {a: !!binary aGVsbG8=}", "application/yaml"),
        (b"metadata: {name: x}\ndata: {? [a, b] : c}", "application/yaml"),
        (b"metadata: {name: x}\ndata: !!python/object/apply:os.getpid []", "application/yaml"),
    ],
)
@pytest.mark.parametrize(
    "path", ["/api/v1/namespaces/default/configmaps", "/apis/batch/v1/namespaces/default/jobs"]
)
def test_bodies_meant_to_break_the_reader_get_400(face: ApiServer, body: bytes, form: str, path: str) -> None:
    code, answer = ask(face, "POST", path, body, Content_Type=form)
    assert (code, answer["kind"], answer["reason"]) == (400, "Status", "BadRequest")
    assert ask(face, "GET", "/healthz") == (200, "ok")


@pytest.mark.parametrize(
    "query",
    [
        f"resourceVersion={'9' * 5000}",
        f"watch=1&resourceVersion={'9' * 5000}",
        f"limit={'9' * 5000}",
        "limit=99999999999999999999",
        "limit=%D9%A3",
        f"watch=1&timeoutSeconds={'9' * 400}",
        f"limit=1&continue={'x' * 5000}",
        "continue=" + urlsafe_b64encode(b'{"rv": %s, "start": "a"}' % (b"9" * 5000)).decode(),
        "continue=" + urlsafe_b64encode(b'{"rv": 1e400, "start": "a"}').decode(),
        "continue=" + urlsafe_b64encode(b'{"rv": -5, "start": "a"}').decode(),
        "continue=" + urlsafe_b64encode(b"[" * 2500).decode(),
        f"labelSelector=a>{'9' * 5000}",
        "labelSelector=a>%D9%A3",
    ],
)
def test_numbers_and_tokens_that_no_server_gives_get_400(face: ApiServer, query: str) -> None:
    code, answer = ask(face, "GET", f"/api/v1/namespaces/default/configmaps?{query}")
    assert (code, answer["kind"]) == (400, "Status")


def test_patches_cannot_stack_an_object_ever_deeper(face: ApiServer) -> None:
    path, form = "/api/v1/namespaces/default/pods/tall", "application/json-patch+json"
    pod = {"metadata": {"name": "tall"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    assert ask(face, "POST", path.rpartition("/")[0], pod)[0] == 201
    deep: Any = "x"
    for _ in range(150):
        deep = {"a": deep}
    place = "/metadata/annotations"
    code = 200
    for _ in range(4):
        code, _ = ask(face, "PATCH", path, [{"op": "add", "path": place, "value": deep}], Content_Type=form)
        place += "/a" * 150
    assert code in (400, 422)
    assert ask(face, "GET", path)[0] == 200


def test_a_date_in_a_yaml_body_stays_the_text_it_is(face: ApiServer) -> None:
    path, form = "/api/v1/namespaces/default/configmaps", "application/yaml"
    body = "metadata: {name: dated}\ndata: {day: 2026-01-02, 7: seven}\n"
    code, answer = ask(face, "POST", path, body, Content_Type=form)
    assert (code, answer["data"]) == (201, {"day": "2026-01-02", "7": "seven"})


POD = {"metadata": {"name": "typed"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
LABELS = {"matchLabels": {"app": "a"}}
DEPLOYMENT = {
    "metadata": {"name": "typed"},
    "spec": {"selector": LABELS, "template": {"metadata": {"labels": {"app": "a"}}, "spec": POD["spec"]}},
}


def definition(schema: Any) -> Any:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": "Odd", "plural": "odds"}
    return {
        "metadata": {"name": "odds.example.dev"},
        "spec": {"group": "example.dev", "scope": "Namespaced", "names": names, "versions": [version]},
    }


@pytest.mark.parametrize("ports", [[7], [None], [{"containerPort": {}}], {"a": "b"}])
def test_a_strategic_patch_with_values_of_another_type_is_refused(face: ApiServer, ports: Any) -> None:
    path = "/api/v1/namespaces/default/pods"
    assert ask(face, "POST", path, POD)[0] in (201, 409)
    change = {"spec": {"containers": [{"name": "c", "ports": ports}]}}
    form = "application/strategic-merge-patch+json"
    assert ask(face, "PATCH", f"{path}/typed", change, Content_Type=form)[0] in (400, 422)


@pytest.mark.parametrize("schema", ["text", 7, {"type": 7}, {"properties": []}, {"type": "strange"}])
def test_a_definition_whose_schema_is_none_is_refused(face: ApiServer, schema: Any) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    code, answer = ask(face, "POST", path, definition(schema))
    assert code in (400, 422) and "openAPIV3Schema" in answer["message"]


def test_scales_and_budgets_of_another_type_are_refused(face: ApiServer) -> None:
    deployments = "/apis/apps/v1/namespaces/default/deployments"
    assert ask(face, "POST", deployments, DEPLOYMENT)[0] == 201
    assert ask(face, "PUT", f"{deployments}/typed/scale", {"spec": 7})[0] == 400
    budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": "many", "selector": LABELS}}
    code, answer = ask(face, "POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget)
    assert code == 422 and "spec.minAvailable" in answer["message"]
