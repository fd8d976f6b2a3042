"""Metrics over HTTPS with authorization by the cluster."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bayplan.cli.commands.main import main
from bayplan.cli.running.metrics_options import guarded_metrics, open_metrics
from bayplan.dialects.errors import Unreachable
from bayplan.runtime.core.clock import SystemClock, VirtualClock
from bayplan.runtime.telemetry.metrics import Metrics
from bayplan.runtime.webhooks.access_reviews import CACHE_MAX, AccessReviews, PathPermission
from bayplan.runtime.webhooks.certificates import renewed
from bayplan.runtime.webhooks.http_server import Server
from bayplan.runtime.webhooks.metrics_server import CertificateFiles, OwnCertificate
from bayplan.runtime.webhooks.probes import serve_health
from tests.support.listening import free_address


class Cluster:
    """Answers reviews as an API server does; `good` may read metrics, `poor` is known but may not."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.gone, self.refuses = False, False

    def request(self, method: str, path: str, body: bytes, seconds: float, /) -> tuple[int, bytes]:
        assert method == "POST"
        if self.gone:
            raise Unreachable("no answer")
        asked = json.loads(body)
        self.asked.append(asked["kind"])
        assert path.endswith(f"/{asked['kind'].lower()}s")
        if self.refuses:
            return 403, json.dumps({"kind": "Status", "message": "no right"}).encode()
        return 201, json.dumps(asked | {"status": self._status(asked["kind"], asked["spec"])}).encode()

    def _status(self, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
        if kind == "TokenReview":
            user = {"username": spec["token"], "uid": "u", "groups": ["g"], "extra": {"a": ["b"]}}
            return (
                {"authenticated": True, "user": user} if spec["token"] in ("good", "poor") else {"user": {}}
            )
        assert spec["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}
        assert spec["groups"] == ["g"] and spec["extra"] == {"a": ["b"]}
        return {"allowed": spec["user"] == "good"}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@contextmanager
def served(cluster: Cluster, *files: Path) -> Iterator[Server]:
    metrics = Metrics()
    metrics.refused("no_room")
    wanted = guarded_metrics(str(free_address()), *(files or (None, None)))
    assert wanted is not None
    server = open_metrics(wanted, cluster.request, metrics, SystemClock())
    try:
        yield server
    finally:
        server.stop()


def get(server: Server, authorization: str | None = None, trusted: str | None = None) -> tuple[int, str]:
    context = ssl.create_default_context(cadata=trusted)
    if trusted is None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    where = (server.address.host, server.address.port)
    with closing(http.client.HTTPSConnection(*where, context=context, timeout=10)) as connection:
        connection.request(
            "GET", "/metrics", headers={"Authorization": authorization} if authorization else {}
        )
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_metrics_are_served_only_to_authorized_users(cluster: Cluster) -> None:
    with served(cluster) as server:
        status, page = get(server, "Bearer good")
        assert status == 200 and "bayplan_placement_refusals_total" in page
        assert get(server, "Bearer poor")[0] == 403
        for other in (None, "Bearer", "Bearer  ", "Bearer bad", "Basic good", "good", f"Bearer {'x' * 7000}"):
            status, page = get(server, other)
            assert status == 401 and "bayplan" not in page


def test_answers_are_kept_for_a_while_and_the_number_of_them_is_bounded(cluster: Cluster) -> None:
    clock = VirtualClock()
    reviews = AccessReviews(cluster.request, clock)
    for _ in range(3):
        assert reviews.ask("good", "/metrics") is PathPermission.ALLOWED
        assert reviews.ask("bad", "/metrics") is PathPermission.UNKNOWN
    assert cluster.asked == ["TokenReview", "SubjectAccessReview", "TokenReview"]
    clock.advance(15.0)
    reviews.ask("good", "/metrics")
    reviews.ask("bad", "/metrics")
    assert len(cluster.asked) == 4
    clock.advance(60.0)
    reviews.ask("good", "/metrics")
    assert len(cluster.asked) == 6
    for number in range(CACHE_MAX + 5):
        reviews.ask(f"bad-{number}", "/metrics")
    assert len(reviews._cache) == CACHE_MAX
    assert all("good" not in repr(key) for key in reviews._cache)


def test_without_an_answer_of_the_cluster_no_user_is_authorized(cluster: Cluster) -> None:
    reviews = AccessReviews(cluster.request, VirtualClock())
    cluster.gone = True
    assert reviews.ask("good", "/metrics") is PathPermission.UNDECIDED
    cluster.gone, cluster.refuses = False, True
    assert reviews.ask("good", "/metrics") is PathPermission.UNDECIDED
    cluster.refuses = False
    assert reviews.ask("good", "/metrics") is PathPermission.ALLOWED
    with served(cluster) as server:
        cluster.gone = True
        assert get(server, "Bearer good")[0] == 503


def test_probes_stay_where_they_are_and_show_no_metrics(cluster: Cluster) -> None:
    server = serve_health(Metrics(), {}, {}, free_address(), with_metrics=False)
    try:
        for path, status in (("/healthz", 200), ("/readyz", 200), ("/metrics", 404)):
            where = (server.address.host, server.address.port)
            with closing(http.client.HTTPConnection(*where, timeout=10)) as connection:
                connection.request("GET", path)
                assert connection.getresponse().status == status
    finally:
        server.stop()


def written(folder: Path, name: str) -> tuple[Path, Path, str]:
    made = renewed(None, ["127.0.0.1"], SystemClock().wall()).served
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    certificate.write_bytes(made.serving.pem)
    key.write_bytes(made.serving.key_pem)
    return certificate, key, made.bundle.decode()


def test_a_certificate_out_of_files_is_served_and_read_again_when_it_is_replaced(
    cluster: Cluster, tmp_path: Path
) -> None:
    certificate, key, bundle = written(tmp_path, "a")
    later, later_key, later_bundle = written(tmp_path, "b")
    with served(cluster, certificate, key) as server:
        assert get(server, "Bearer good", bundle)[0] == 200
        later.replace(certificate)
        assert get(server, "Bearer good", bundle)[0] == 200  # only one of the two files is replaced
        later_key.replace(key)
        get(server)  # the first request reloads it
        assert get(server, "Bearer good", later_bundle)[0] == 200


def test_a_certificate_of_our_own_is_renewed_in_time() -> None:
    clock = VirtualClock(wall=1_800_000_000.0)
    made = OwnCertificate(("localhost",), clock)
    first = made._current
    made.refresh()
    assert made._current is first
    clock.advance(86400.0 * 89)
    made.refresh()
    assert made._current.expires > clock.wall() + 86400.0 * 80


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--metrics-cert-file", "a"), "go together"),
        (("--metrics-cert-file", "a", "--metrics-key-file", "b"), "give that too"),
        (("--metrics-listen", "nowhere"), "an address is written host:port"),
        (
            ("--metrics-listen", ":1", "--metrics-cert-file", "/none", "--metrics-key-file", "/none"),
            "/none and /none are not a certificate and its key: No such file or directory",
        ),
    ],
)
def test_options_that_make_no_sense_are_refused_at_once(options: tuple[str, ...], why: str) -> None:
    result = CliRunner().invoke(main, ["run", *options])
    assert result.exit_code == 2 and why in result.stderr


def test_a_key_that_is_not_of_the_certificate_is_refused(tmp_path: Path) -> None:
    certificate, _, _ = written(tmp_path, "a")
    _, key, _ = written(tmp_path, "b")
    with pytest.raises(ssl.SSLError):
        CertificateFiles(certificate, key)
