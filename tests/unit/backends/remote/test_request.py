"""Writes as requests, and answers as outcomes: the words of the API, without a server."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from bayplan.backends.remote.access import Access
from bayplan.backends.remote.answers import api_error_of, outcome_of, status_of
from bayplan.backends.remote.client import ApiResponse
from bayplan.backends.remote.request import collection, request_of
from bayplan.dialects.api import Ended, Kind, Verb, Write
from bayplan.dialects.errors import NotServed, Stale, Unreachable

PODS = Kind("", "v1", "Pod", "pods")
ROLES = Kind("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", namespaced=False)
ACCESS = Access("here (context c)", "https://api.test")
POD = "/api/v1/namespaces/ns/pods/p"


def sent(write: Write) -> tuple[str, str, str, Any]:
    request = request_of(write)
    return request.method, request.path, request.content_type, json.loads(request.body)


def pod_write(verb: Verb, body: dict[str, Any] | None = None, subresource: str = "", **more: Any) -> Write:
    return Write(verb, PODS, "ns", "p", body or {}, subresource, **more)


def test_a_create_says_what_it_creates() -> None:
    body = {"apiVersion": "v1", "kind": "Pod", "spec": {"a": 1}, "metadata": {"name": "p", "namespace": "ns"}}
    path = "/api/v1/namespaces/ns/pods?fieldManager=bayplan"
    assert sent(pod_write(Verb.CREATE, {"spec": {"a": 1}})) == ("POST", path, "application/json", body)


def test_a_create_may_leave_the_name_to_the_server() -> None:
    write = Write(Verb.CREATE, PODS, "ns", "", {"metadata": {"generateName": "p-"}})
    assert sent(write)[3]["metadata"] == {"generateName": "p-", "namespace": "ns"}


def test_a_create_has_no_precondition() -> None:
    assert sent(pod_write(Verb.CREATE, uid="u", version="7"))[3]["metadata"] == {
        "name": "p",
        "namespace": "ns",
    }


def test_an_update_carries_its_precondition() -> None:
    method, path, _, body = sent(pod_write(Verb.UPDATE, {"spec": {}}, uid="u", version="7"))
    assert (method, path) == ("PUT", f"{POD}?fieldManager=bayplan")
    assert body["metadata"] == {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "7"}


def test_a_merge_patch_is_the_patch_and_its_precondition() -> None:
    given = {"metadata": {"labels": {"a": None}}}
    method, path, kind, body = sent(pod_write(Verb.MERGE_PATCH, given, "status", uid="u", version="7"))
    assert (method, path, kind) == (
        "PATCH",
        f"{POD}/status?fieldManager=bayplan",
        "application/merge-patch+json",
    )
    assert body == {"metadata": {"labels": {"a": None}, "uid": "u", "resourceVersion": "7"}}
    assert given == {"metadata": {"labels": {"a": None}}}, "what was handed in stays as it was"
    assert sent(pod_write(Verb.MERGE_PATCH, {"spec": {}}))[3] == {"spec": {}}
    strategic = sent(pod_write(Verb.STRATEGIC_PATCH, given, "status", uid="u", version="7"))
    assert strategic == (method, path, "application/strategic-merge-patch+json", body)


def test_an_apply_is_forced_by_our_manager() -> None:
    method, path, kind, body = sent(pod_write(Verb.APPLY, {"spec": {}}, uid="u"))
    assert (method, kind) == ("PATCH", "application/apply-patch+yaml")
    assert path == f"{POD}?fieldManager=bayplan&force=true"
    assert body["kind"] == "Pod"
    assert body["metadata"]["uid"] == "u"


def test_a_bind_is_a_binding_with_the_uid_of_its_pod() -> None:
    method, path, _, body = sent(pod_write(Verb.CREATE, {"target": {"name": "n"}}, "binding", uid="u"))
    assert (method, path) == ("POST", f"{POD}/binding")
    assert body["kind"] == "Binding"
    assert body["metadata"] == {"name": "p", "namespace": "ns", "uid": "u"}


def test_an_eviction_holds_its_precondition_as_delete_options() -> None:
    body = sent(pod_write(Verb.CREATE, {}, "eviction", uid="u", grace_seconds=3))[3]
    assert (body["apiVersion"], body["kind"]) == ("policy/v1", "Eviction")
    assert body["deleteOptions"] == {"gracePeriodSeconds": 3, "preconditions": {"uid": "u"}}
    assert "deleteOptions" not in sent(pod_write(Verb.CREATE, {}, "eviction"))[3]


def test_a_delete_has_preconditions_grace_and_propagation() -> None:
    write = pod_write(Verb.DELETE, {"propagationPolicy": "Background"}, uid="u", version="7", grace_seconds=0)
    method, path, _, body = sent(write)
    assert (method, path) == ("DELETE", POD)
    assert body == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Background",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u", "resourceVersion": "7"},
    }


def test_names_cannot_leave_their_place_in_the_path() -> None:
    write = Write(Verb.DELETE, ROLES, "", "system:a/../b?c#d e")
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:a%2F..%2Fb%3Fc%23d%20e"
    assert request_of(write).path == path
    assert request_of(Write(Verb.CREATE, PODS, "n/s", "x")).path.startswith("/api/v1/namespaces/n%2Fs/pods?")


def test_a_collection_is_asked_for_with_its_selectors() -> None:
    kind = replace(PODS, label_selector="a=b,c")
    assert collection(kind, limit=5) == "/api/v1/pods?limit=5&labelSelector=a%3Db%2Cc"
    assert collection(PODS) == "/api/v1/pods"


# ── answers ────────────────────────────────────────────────────────────────────────────────────────


def said(code: int, message: str = "m", reason: str = "R") -> ApiResponse:
    text = {"kind": "Status", "message": message, "reason": reason, "code": code}
    return ApiResponse(code, json.dumps(text).encode())


def ended(write: Write, answer: ApiResponse) -> Ended:
    return outcome_of(write, answer, json.loads, ACCESS).ended


@pytest.mark.parametrize(
    ("code", "how"),
    [
        (200, Ended.DONE),
        (201, Ended.DONE),
        (202, Ended.DONE),
        (400, Ended.REFUSED),
        (401, Ended.REFUSED),
        (403, Ended.REFUSED),
        (404, Ended.GONE),
        (408, Ended.TIMED_OUT),
        (409, Ended.CONFLICT),
        (410, Ended.GONE),
        (413, Ended.REFUSED),
        (422, Ended.REFUSED),
        (429, Ended.TIMED_OUT),
        (500, Ended.TIMED_OUT),
        (504, Ended.TIMED_OUT),
    ],
)
def test_each_code_has_its_outcome(code: int, how: Ended) -> None:
    outcome = outcome_of(pod_write(Verb.UPDATE), said(code), json.loads, ACCESS)
    assert (outcome.ended, outcome.status) == (how, code)
    assert bool(outcome.message) == (how is not Ended.DONE)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (409, "Precondition failed: UID in precondition: a, UID in object meta: b"),
        (409, "the UID in the precondition (a) does not match the UID in record (b)"),
        (409, "uid mismatch: the provided object specified uid a, and no existing object was found"),
        (422, 'Pod "p" is invalid: metadata.uid: Invalid value: "a": field is immutable'),
    ],
)
def test_another_object_of_that_name_means_that_the_one_meant_is_gone(code: int, message: str) -> None:
    assert ended(pod_write(Verb.UPDATE, uid="a"), said(code, message)) is Ended.GONE
    assert ended(pod_write(Verb.UPDATE), said(code, message)) is not Ended.GONE


@pytest.mark.parametrize(
    ("why", "how"),
    [
        ('pod p is already assigned to node "n"', Ended.CONFLICT),
        ("pod p is being deleted, cannot be assigned to a host", Ended.CONFLICT),
        ("pod p has non-empty .spec.schedulingGates", Ended.CONFLICT),
        (
            "Precondition failed: ResourceVersion in precondition: 1, in object meta: 2",
            Ended.CONFLICT,
        ),
        ("the object has been modified; please apply your changes to the latest version", Ended.CONFLICT),
        ("rpc error: code = Unavailable desc = error reading from server: EOF", Ended.TIMED_OUT),
        ("etcdserver: request timed out", Ended.TIMED_OUT),
        ("context deadline exceeded", Ended.TIMED_OUT),
    ],
)
def test_a_binding_whose_store_failed_may_have_been_made(why: str, how: Ended) -> None:
    """The API server answers with a conflict, whatever the error: 200 kills of etcd booked one node twice."""
    message = f'Operation cannot be fulfilled on pods/binding "p": {why}'
    assert ended(pod_write(Verb.CREATE, {}, "binding"), said(409, message, "Conflict")) is how
    assert ended(pod_write(Verb.UPDATE), said(409, message, "Conflict")) is Ended.CONFLICT


def test_an_answer_with_an_object_hands_it_back() -> None:
    outcome = outcome_of(
        pod_write(Verb.CREATE), ApiResponse(201, b'{"kind":"Pod","x":1}'), json.loads, ACCESS
    )
    assert outcome.object == {"kind": "Pod", "x": 1}


@pytest.mark.parametrize("body", [b'{"kind":"Status","status":"Success"}', b"", b"<html>"])
def test_a_bind_that_answers_a_status_is_done_all_the_same(body: bytes) -> None:
    outcome = outcome_of(pod_write(Verb.CREATE, {}, "binding"), ApiResponse(201, body), json.loads, ACCESS)
    assert (outcome.ended, outcome.object) == (Ended.DONE, None)


def test_an_eviction_that_a_budget_forbids_is_refused() -> None:
    assert ended(pod_write(Verb.CREATE, {}, "eviction"), said(429)) is Ended.REFUSED


def test_an_api_that_does_not_exist_is_not_mistaken_for_an_object_that_is_gone() -> None:
    outcome = outcome_of(pod_write(Verb.UPDATE), ApiResponse(404, b"404 page not found"), json.loads, ACCESS)
    assert outcome.ended is Ended.REFUSED
    assert "does not serve pods of v1" in outcome.message


@pytest.mark.parametrize(
    ("code", "kind"), [(404, NotServed), (410, Stale), (429, Unreachable), (503, Unreachable)]
)
def test_trouble_is_told_by_kind(code: int, kind: type[Exception]) -> None:
    found = api_error_of(code, b"", PODS, ACCESS)
    assert type(found) is kind
    assert "https://api.test" in str(found)


def test_a_body_that_is_no_status_is_quoted_briefly() -> None:
    assert status_of(b"x" * 5000).message == "x" * 500
    assert status_of(b"\xff").message == "\ufffd"
    assert status_of(b'{"kind":"Pod","message":"m"}').reason == ""
