"""Metrics behind TLS and authentication, with the tokens and rights of a real control plane."""

from __future__ import annotations

import http.client
import ssl
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from bayplan.runtime.serving import Address
from tests.end_to_end.objects import eventually, namespace
from tests.end_to_end.test_run import rights, scheduler
from tests.listening import free_address

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster


def status(address: Address, token: str = "") -> int:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with closing(
            http.client.HTTPSConnection(address.host, address.port, context=context, timeout=20)
        ) as connection:
            connection.request("GET", "/metrics", headers=headers)
            answer = connection.getresponse()
            assert (b"bayplan_" in answer.read()) == (answer.status == 200)
            return answer.status
    except ConnectionError:
        return 0


def plain_status(address: Address, path: str) -> int:
    with closing(http.client.HTTPConnection(address.host, address.port, timeout=20)) as connection:
        connection.request("GET", path)
        return connection.getresponse().status


def test_the_cluster_says_who_reads_metrics(cluster: Cluster, tmp_path: Path) -> None:
    cluster.apply(namespace("bayplan-system"), namespace("monitoring"))
    cluster.apply(*rights())
    home = ("-n", "monitoring")
    for name in ("reader", "stranger"):
        cluster.kubectl("create", "serviceaccount", name, *home)
    reads = ("clusterrole", "metrics-reader", "--verb=get", "--non-resource-url=/metrics")
    cluster.kubectl("create", *reads)
    binding = ("create", "clusterrolebinding")
    cluster.kubectl(*binding, "reads", "--clusterrole=metrics-reader", "--serviceaccount=monitoring:reader")
    reader, stranger = (cluster.kubectl("create", "token", name, *home) for name in ("reader", "stranger"))
    guarded, probes = free_address(), free_address()
    options = ("--no-elect", "--metrics-listen", str(guarded), "--listen", str(probes))
    try:
        with scheduler(cluster, tmp_path, *options):
            eventually(lambda: status(guarded) == 401, "metrics are served")
            assert status(guarded, reader.strip()) == 503  # we may not ask the cluster yet
            cluster.kubectl(*binding, "asks", "--clusterrole=system:auth-delegator", "--user=bayplan")
            eventually(lambda: status(guarded, reader.strip()) == 200, "the reader reads")
            assert status(guarded, stranger.strip()) == 403
            assert status(guarded, f"{reader.strip()}x") == 401
            eventually(lambda: plain_status(probes, "/healthz") == 200, "probes are answered")
            assert plain_status(probes, "/metrics") == 404
    finally:
        cluster.kubectl("delete", "clusterrolebinding", "reads", "asks")
        cluster.kubectl("delete", "clusterrole", "metrics-reader")
