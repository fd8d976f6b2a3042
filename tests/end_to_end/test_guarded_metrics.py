"""Metrics behind TLS and authentication, with the tokens and rights of a real control plane."""

from __future__ import annotations

import http.client
import json
import ssl
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from bayplan.assembly.manifests import InstallSettings, manifests
from bayplan.runtime.webhooks.http_server import Address
from tests.end_to_end.admission_site import Site, account_file, running
from tests.end_to_end.objects import eventually, namespace
from tests.end_to_end.test_run import rights, scheduler
from tests.support.listening import free_address

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


def test_metrics_are_guarded_where_the_installation_asks_for_it(cluster: Cluster, tmp_path: Path) -> None:
    home, roles = "secure-metrics", "scheduler"
    settings = InstallSettings(namespace=home, roles=(roles,), metrics_secure=True)
    everything = {"apiVersion": "v1", "kind": "List", "items": manifests(settings)}
    remove = ("delete", "--ignore-not-found", "-f", "-")
    cluster.kubectl(*remove, "--wait", stdin=json.dumps(everything))
    command = [sys.executable, "-m", "bayplan.cli.commands.install", "--kubeconfig", str(cluster.kubeconfig)]
    options = ["--namespace", home, "--roles", roles, "--metrics-secure"]
    subprocess.run([*command, *options], check=True, capture_output=True)
    try:
        for name in ("reader", "stranger"):
            cluster.kubectl("create", "serviceaccount", name, "-n", home)
        bound = ("--clusterrole=bayplan-metrics-reader", f"--serviceaccount={home}:reader")
        cluster.kubectl("create", "clusterrolebinding", "secure-metrics-reads", *bound)
        reader, stranger = (
            cluster.kubectl("create", "token", name, "-n", home).strip() for name in ("reader", "stranger")
        )
        guarded, probes = free_address(), free_address()
        given = cluster.get("deployment", "bayplan", "-n", home)["spec"]["template"]["spec"]["containers"][0]
        addresses = {"--listen": probes, "--metrics-listen": guarded}
        written = [one.partition("=")[0] for one in given["args"]]
        assert set(addresses) <= set(written), "the replica serves both"
        site = Site(cluster, home, account_file(cluster, home, tmp_path))
        started = (f"{option}={address}" for option, address in addresses.items())
        with running(site, tmp_path / "run", f"--roles={roles}", *started):
            eventually(lambda: status(guarded) == 401, "metrics are served, and not without a token")
            eventually(lambda: status(guarded, reader) == 200, "the reader reads")
            assert status(guarded, stranger) == 403
            assert plain_status(probes, "/metrics") == 404
    finally:
        cluster.kubectl("delete", "clusterrolebinding", "secure-metrics-reads", "--ignore-not-found")
        cluster.kubectl(*remove, "--wait=false", stdin=json.dumps(everything))
