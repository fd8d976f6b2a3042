"""One API object: the requests, and what the responses mean."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bayplan.dialects.errors import Forbidden, NotServed, Unauthorised, Unreachable
from bayplan.runtime.core.api_object import LEASE, ApiObject, WriteConflict


def answering(status: int, body: object, asked: list[tuple[str, str, Any]] | None = None) -> ApiObject:
    def request(method: str, path: str, data: bytes, seconds: float) -> tuple[int, bytes]:
        if asked is not None:
            asked.append((method, path, msgspec.json.decode(data) if data else None))
        return status, msgspec.json.encode(body)

    return ApiObject(request, LEASE, "ns", "bayplan")


GONE = {
    "kind": "Status",
    "message": 'leases "bayplan" not found',
    "details": {"name": "bayplan", "kind": "leases"},
}
UNKNOWN = {"kind": "Status", "message": "the server could not find the requested resource", "details": {}}


def test_an_object_behind_the_api_is_asked_for_by_path() -> None:
    asked: list[tuple[str, str, Any]] = []
    api = answering(200, {"metadata": {"resourceVersion": "7"}}, asked)
    found = api.get(1.0)
    assert found == {"metadata": {"resourceVersion": "7"}}
    api.create({"spec": {"a": 1}}, 1.0)
    api.update({**found, "spec": {"a": 2}}, 1.0)
    named = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    path = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
    assert asked == [
        ("GET", f"{path}/bayplan", None),
        ("POST", path, {**named, "metadata": {"name": "bayplan", "namespace": "ns"}, "spec": {"a": 1}}),
        ("PUT", f"{path}/bayplan", {**named, "metadata": {"resourceVersion": "7"}, "spec": {"a": 2}}),
    ]


def test_an_update_without_a_precondition_is_a_bug() -> None:
    with pytest.raises((AssertionError, KeyError)):
        answering(200, {}).update({"metadata": {}}, 1.0)


@pytest.mark.parametrize(
    ("status", "body", "trouble"),
    [
        (401, {"message": "Unauthorized"}, Unauthorised),
        (403, {"message": "leases is forbidden"}, Forbidden),
        (404, UNKNOWN, NotServed),
        (500, "what", Unreachable),
        (429, {"message": "too many"}, Unreachable),
        (200, "a page of a proxy", Unreachable),
    ],
)
def test_refusals_are_trouble(status: int, body: object, trouble: type[Exception]) -> None:
    api = answering(status, body)
    for call in (api.get, lambda seconds: api.create({}, seconds)):
        with pytest.raises(trouble, match=str(status)):
            call(1.0)
    with pytest.raises(trouble):
        api.update({"metadata": {"resourceVersion": "1"}}, 1.0)


def test_a_conflict_is_raised_if_another_client_was_first() -> None:
    assert answering(404, GONE).get(1.0) is None
    with pytest.raises(WriteConflict):
        answering(404, GONE).update({"metadata": {"resourceVersion": "1"}}, 1.0)
    for call in ("create", "update"):
        with pytest.raises(WriteConflict, match="exists"):
            getattr(answering(409, {"message": "exists"}), call)({"metadata": {"resourceVersion": "1"}}, 1.0)
    missing = {"message": 'namespaces "ns" not found', "details": {"name": "ns", "kind": "namespaces"}}
    with pytest.raises(NotServed, match="namespaces"):
        answering(404, missing).create({}, 1.0)
