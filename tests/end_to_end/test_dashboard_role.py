"""`bayplan run --roles dashboard` with the account that the chart gives it: it reads, and users sign in."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from bayplan.assembly.install_settings import DASHBOARD_ACCOUNT, DASHBOARD_USER, InstallSettings
from bayplan.assembly.manifests import custom_resources, dashboard_objects
from bayplan.runtime.webhooks.http_server import Address
from tests.end_to_end.objects import eventually, kwok_node, namespace
from tests.support.listening import free_address

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

HERE = "dash-role"
RBAC = "rbac.authorization.k8s.io"


def account_kubeconfig(cluster: Cluster, path: Path) -> Path:
    """A kubeconfig of the account of the dashboard."""
    text = yaml.safe_load(cluster.kubeconfig.read_text())
    token = cluster.kubectl("create", "token", DASHBOARD_ACCOUNT, "-n", HERE).strip()
    text["users"] = [{"name": one["name"], "user": {"token": token}} for one in text["users"]]
    path.write_text(json.dumps(text))
    path.chmod(0o600)
    return path


def answer(url: str, token: str = "") -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as found:
            return found.status, found.read()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read()
    except OSError:
        return 0, b""


@pytest.fixture(scope="module")
def role(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Address, Address]]:
    """The addresses of pages and probes of the role; it listens where users need a token."""
    settings = InstallSettings(namespace=HERE)
    kinds = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")
    user = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "dash-role-user"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": DASHBOARD_USER},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": HERE}],
    }
    made = [one for one in dashboard_objects(settings) if one["kind"] in kinds]
    cluster.apply(*custom_resources(settings))
    cluster.apply(namespace(HERE))
    cluster.apply(*made, user, kwok_node("dash-role-h1"))
    folder = tmp_path_factory.mktemp("role")
    kubeconfig = account_kubeconfig(cluster, folder / "kubeconfig")
    pages, probes = replace(free_address(), host="127.0.0.2"), free_address()
    command = [
        *(sys.executable, "-m", "bayplan", "run", "--kubeconfig", str(kubeconfig), "--roles", "dashboard"),
        *("--listen", str(probes), "--dashboard-listen", str(pages)),
    ]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield pages, probes
        finally:
            process.terminate()
            status = process.wait(30)
    cluster.kubectl("delete", "node", "dash-role-h1")
    items = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*made, user]})
    cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=items)
    assert status == 0, (folder / "log").read_text()
    assert answer(f"http://{pages}/") == (0, b""), "its process ended with it"


def test_the_account_of_the_chart_is_enough_to_show_everything(
    role: tuple[Address, Address], cluster: Cluster
) -> None:
    pages, probes = role
    state = f"http://{pages}/api/v1/state"
    eventually(lambda: answer(state, cluster.token_of("admin"))[0] == 200, "the cluster is read", 60)
    found = json.loads(answer(state, cluster.token_of("admin"))[1])
    assert "dash-role-h1" in {host for one in found["maps"] for host in one["hosts"]}
    assert found["notes"] == [], "there is no kind that the account may not list"
    assert answer(f"http://{probes}/readyz")[0] == 200


def test_users_need_a_token_and_the_role_of_the_chart(
    role: tuple[Address, Address], cluster: Cluster
) -> None:
    state = f"http://{role[0]}/api/v1/state"
    eventually(partial(_refused, state), "the cluster is read, and nothing is shown without a token", 60)
    with_role = cluster.kubectl("create", "token", "default", "-n", HERE).strip()
    without = cluster.kubectl("create", "token", DASHBOARD_ACCOUNT, "-n", HERE).strip()
    assert answer(state, without)[0] == 403
    status, body = answer(state, with_role)
    assert status == 200 and json.loads(body)["view"]["everything"] is False


def _refused(url: str) -> bool:
    return answer(url)[0] == 401
