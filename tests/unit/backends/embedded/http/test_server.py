"""The HTTP API server from outside: authentication, and responses to invalid requests."""

from __future__ import annotations

import http.client
import json
import ssl
import stat
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bayplan.backends.embedded.api.status import StatusError
from bayplan.backends.embedded.http import protobuf
from bayplan.backends.embedded.http.kubeconfig import write_kubeconfig
from bayplan.backends.embedded.http.request import RequestPath, place_of
from bayplan.backends.embedded.http.server import BODY_MAX, PORTS, ApiServer, free_port
from bayplan.dialects.errors import Misconfigured
from tests.unit.backends.embedded.storage.test_store import CONFIGS, config, store_at


@pytest.fixture(scope="module")
def face() -> Iterator[ApiServer]:
    started = ApiServer(store_at(), threading.RLock(), token="let me in").start()
    yield started
    started.stop()


def ask(face: ApiServer, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPSConnection(
        face.host, face.port, context=face.credentials.client_context(), timeout=10
    )
    sent = {"Authorization": "Bearer let me in"}
    sent |= {key.replace("_", "-"): value for key, value in headers.items()}
    content = body if body is None or isinstance(body, bytes | str) else json.dumps(body)
    try:
        connection.request(method, path, content, sent)
        answer = connection.getresponse()
        text = answer.read().decode()
        try:
            return answer.status, json.loads(text)
        except json.JSONDecodeError:
            return answer.status, text
    finally:
        connection.close()


def test_it_listens_on_loopback_only_unless_told_so() -> None:
    for host in ("0.0.0.0", "192.168.1.1", "example.com", "::"):
        with pytest.raises(Misconfigured, match="beyond this machine"):
            ApiServer(store_at(), threading.RLock(), host=host)
    assert (
        ApiServer(store_at(), threading.RLock(), host="0.0.0.0", port=29999, beyond_loopback=True).port
        == 29999
    )


def test_a_token_is_needed_for_everything_but_health(face: ApiServer) -> None:
    for wrong in ("", "Bearer", "Bearer guess", "Basic let me in", "bearer let me in", "Bearer let me in x"):
        assert ask(face, "GET", "/api/v1/pods", Authorization=wrong)[0] == 401
        assert ask(face, "GET", "/openapi/v3", Authorization=wrong)[0] == 401
    assert ask(face, "GET", "/healthz", Authorization="") == (200, "ok")
    assert ask(face, "GET", "/api/v1/pods")[0] == 200


def test_tokens_are_random() -> None:
    made = {ApiServer(store_at(), threading.RLock(), port=29998).token for _ in range(3)}
    assert len(made) == 3 and all(len(token) >= 40 for token in made)


def test_its_certificate_is_for_this_host_and_signed_by_its_own_authority(face: ApiServer) -> None:
    connection = http.client.HTTPSConnection(face.host, face.port, timeout=10)
    with pytest.raises(ssl.SSLCertVerificationError):
        connection.request("GET", "/healthz")
    connection.close()


def test_a_port_that_is_taken_is_told(face: ApiServer) -> None:
    with pytest.raises(Misconfigured, match=f"{face.port} cannot be served"):
        ApiServer(store_at(), threading.RLock(), port=face.port).start()


def test_ports_are_chosen_below_those_of_clients() -> None:
    assert free_port() in PORTS
    assert max(PORTS) < 32768


def test_a_face_can_be_stopped_before_it_starts_and_twice() -> None:
    made = ApiServer(store_at(), threading.RLock())
    made.stop()
    made = ApiServer(store_at(), threading.RLock()).start()
    made.stop()
    made.stop()
    with pytest.raises(OSError, match="refused"):
        ask(made, "GET", "/healthz")


def test_the_kubeconfig_is_never_readable_by_others(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "kubeconfig"
    for token in ("one", "two"):
        write_kubeconfig(path, "https://127.0.0.1:1", b"authority", token)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["users"][0]["user"] == {"token": "two"}
    assert [entry.name for entry in path.parent.iterdir()] == ["kubeconfig"]


def test_bodies_have_a_limit(face: ApiServer) -> None:
    large = json.dumps({"metadata": {"name": "x"}, "data": {"k": "v" * BODY_MAX}})
    code, answer = ask(face, "POST", "/api/v1/namespaces/default/configmaps", large)
    assert (code, answer["reason"]) == (413, "RequestEntityTooLarge")


@pytest.mark.parametrize(
    ("body", "form", "code"),
    [
        (b"", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"null", "application/json", 400),
        (b'"text"', "application/json", 400),
        (b'{"metadata": []}', "application/json", 400),
        (b'{"metadata": {"name": ["x"]}}', "application/json", 400),
        (b"\xff\xfe", "application/json", 400),
        (b"a: [b", "application/yaml", 400),
        (b"x" * 10, "application/vnd.kubernetes.protobuf", 415),
        (b"k8s\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "application/vnd.kubernetes.protobuf", 415),
        (b"{}", "text/plain", 415),
    ],
)
def test_nonsense_is_refused_with_a_status(face: ApiServer, body: bytes, form: str, code: int) -> None:
    found, answer = ask(face, "POST", "/api/v1/namespaces/default/configmaps", body, Content_Type=form)
    assert (found, answer["kind"], answer["status"]) == (code, "Status", "Failure")
    found, answer = ask(face, "POST", "/apis/batch/v1/namespaces/default/jobs", body, Content_Type=form)
    assert (found, answer["kind"]) == (code, "Status")


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/pods/..%2f..",
        "/api/v1/namespaces/default/pods/%ff%fe",
        "/api/v1/namespaces/x/pods/a/b/c",
        "/apis//v1",
        "/api/v1/namespaces//pods",
        "//",
    ],
)
def test_odd_paths_lead_nowhere(face: ApiServer, path: str) -> None:
    assert ask(face, "GET", path)[0] in (200, 404)
    assert ask(face, "DELETE", "/api/v1/namespaces/default/pods/none")[0] == 404


def test_server_side_apply_is_refused_with_what_to_do_instead(face: ApiServer) -> None:
    path = "/api/v1/namespaces/default/configmaps/a?fieldManager=kubectl&force=true"
    for form in ("application/apply-patch+yaml", "application/apply-patch+cbor"):
        code, told = ask(face, "PATCH", path, {"data": {"k": "v"}}, Content_Type=form)
        assert (code, told["kind"], told["status"], told["code"]) == (501, "Status", "Failure", 501)
        assert "leave out --server-side" in told["message"]
    assert ask(face, "GET", path.partition("?")[0])[0] == 404


def test_yaml_goes_in_and_comes_out(face: ApiServer) -> None:
    body = "metadata:\n  name: from-yaml\ndata:\n  k: v\n"
    path, form = "/api/v1/namespaces/default/configmaps", "application/yaml"
    assert ask(face, "POST", path, body, Content_Type=form)[0] == 201
    code, text = ask(face, "GET", f"{path}/from-yaml", Accept=form)
    assert code == 200 and "k: v" in text


def test_a_write_by_another_thread_reaches_a_watch(face: ApiServer) -> None:
    connection = http.client.HTTPSConnection(
        face.host, face.port, context=face.credentials.client_context(), timeout=10
    )
    path = "/api/v1/configmaps?watch=1&labelSelector=by=thread&timeoutSeconds=9"
    connection.request("GET", path, headers={"Authorization": "Bearer let me in"})
    answer = connection.getresponse()
    with face.lock:
        for number in range(3):
            labels = {"metadata": {"name": f"t{number}", "labels": {"by": "thread"}}}
            face.store.create(CONFIGS, {**config(""), **labels}, "default")
    names = [json.loads(answer.readline())["object"]["metadata"]["name"] for _ in range(3)]
    connection.close()
    assert names == ["t0", "t1", "t2"]


def test_a_watch_ends_with_its_time(face: ApiServer) -> None:
    assert ask(face, "GET", "/api/v1/secrets?watch=1&timeoutSeconds=0") == (200, "")


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/api/v1/pods", RequestPath("", "v1", "pods")),
        ("/api/v1/namespaces/x", RequestPath("", "v1", "namespaces", "", "x")),
        ("/api/v1/namespaces/x/status", RequestPath("", "v1", "namespaces", "", "x", "status")),
        ("/api/v1/namespaces/x/pods/p/binding", RequestPath("", "v1", "pods", "x", "p", "binding")),
        ("/apis/batch/v1/namespaces/x/jobs/j", RequestPath("batch", "v1", "jobs", "x", "j")),
        ("/apis/a.dev/v1/namespaces/x/status/y", RequestPath("a.dev", "v1", "status", "x", "y")),
        ("/apis/batch/v1", None),
        ("/healthz", None),
        ("/api/v1/pods/a/b/c", None),
    ],
)
def test_where_paths_point(path: str, place: RequestPath | None) -> None:
    assert place_of(path) == place


# ── protobuf ──


def message(*fields: tuple[int, bytes | int]) -> bytes:
    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts.append(varint(number << 3) + varint(value & (2**64 - 1)))
        else:
            parts.append(varint(number << 3 | 2) + varint(len(value)) + value)
    return b"".join(parts)


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def enveloped(api_version: str, kind: str, raw: bytes) -> bytes:
    return b"k8s\x00" + message((1, message((1, api_version.encode()), (2, kind.encode()))), (2, raw))


def test_protobuf_bodies_read_as_their_json() -> None:
    metadata = message((1, b"c"), (11, message((1, b"k"), (2, b"v"))), (8, message((1, 1_800_000_000))))
    raw = message((1, metadata), (2, message((1, b"a"), (2, b"b"))))
    assert protobuf.decoded(enveloped("v1", "ConfigMap", raw)) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "labels": {"k": "v"}, "creationTimestamp": "2027-01-15T08:00:00Z"},
        "data": {"a": "b"},
    }


def test_protobuf_numbers_quantities_and_inlined_messages() -> None:
    resources = message((1, message((1, b"cpu"), (2, message((1, b"2"))))))
    container = message((1, b"c"), (8, resources), (6, message((3, 80))))
    volume = message((1, b"v"), (2, message((2, message((1, b"Memory"))))))  # emptyDir inside volumeSource
    toleration = message((1, b"k"), (5, -1))
    spec = message((1, volume), (2, container), (4, 30), (11, 1), (22, toleration))
    found = protobuf.decoded(enveloped("v1", "Pod", message((2, spec))))["spec"]
    assert found == {
        "volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}],
        "containers": [
            {"name": "c", "resources": {"limits": {"cpu": "2"}}, "ports": [{"containerPort": 80}]}
        ],
        "terminationGracePeriodSeconds": 30,
        "hostNetwork": True,
        "tolerations": [{"key": "k", "tolerationSeconds": -1}],
    }


def test_protobuf_int_or_string() -> None:
    def budget(part: bytes) -> Any:
        body = message((2, message((1, part))))
        return protobuf.decoded(enveloped("policy/v1", "PodDisruptionBudget", body))["spec"]["minAvailable"]

    assert budget(message((1, 0), (2, 7), (3, b""))) == 7
    assert budget(message((1, 1), (2, 0), (3, b"50%"))) == "50%"


CLOUD_VOLUME = message((1, b"v"), (2, message((3, b""))))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"k8s\x00",
        enveloped("v1", "Nobody", b""),
        enveloped("v1", "ConfigMap", b"\x0a\x7f"),
        enveloped("v1", "ConfigMap", b"\x0f"),
        enveloped("v1", "Pod", message((2, message((1, CLOUD_VOLUME))))),
        struct.pack("<I", 7),
    ],
)
def test_protobuf_that_cannot_be_read_asks_for_json(body: bytes) -> None:
    with pytest.raises(StatusError, match="send application/json"):
        protobuf.decoded(body)
