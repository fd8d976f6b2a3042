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

from bayplan.assembly.install_settings import DASHBOARD_ACCOUNT, DASHBOARD_USER, NAME, InstallSettings
from bayplan.assembly.manifests import custom_resources, dashboard_objects, manifests
from bayplan.runtime.webhooks.http_server import Address
from tests.end_to_end.objects import Object, eventually, kwok_node, kwok_pod, namespace
from tests.support.listening import free_address

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

HERE = "dash-role"
ACCESS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
RBAC = "rbac.authorization.k8s.io"


def account_kubeconfig(cluster: Cluster, path: Path, account: str = DASHBOARD_ACCOUNT) -> Path:
    """A kubeconfig of a service account."""
    text = yaml.safe_load(cluster.kubeconfig.read_text())
    token = cluster.kubectl("create", "token", account, "-n", HERE).strip()
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
    user = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "dash-role-user"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": DASHBOARD_USER},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": HERE}],
    }
    made = [one for one in dashboard_objects(settings) if one["kind"] in ACCESS]
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


def test_a_replica_with_the_dashboard_shows_its_own_journal(
    role: tuple[Address, Address], cluster: Cluster, tmp_path: Path
) -> None:
    """With `dashboard.deployment: shared` the role runs in the replicas, under their account."""
    settings = InstallSettings(namespace=HERE, roles=("admission", "scheduler"), dashboard_shared=True)
    made = [one for one in (*manifests(settings), *dashboard_objects(settings)) if one["kind"] in ACCESS]
    cluster.apply(*made)
    kubeconfig = account_kubeconfig(cluster, tmp_path / "kubeconfig", NAME)
    pages, probes = replace(free_address(), host="127.0.0.2"), free_address()
    command = [
        *(sys.executable, "-m", "bayplan", "run", "--kubeconfig", str(kubeconfig), "--namespace", HERE),
        *("--roles", settings.role_list, "--journal", str(tmp_path / "journal")),
        *("--listen", str(probes), "--dashboard-listen", str(pages)),
    ]
    token = cluster.token_of("admin")
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            state, past = f"http://{pages}/api/v1/state", f"http://{pages}/api/v1/time"
            eventually(lambda: answer(state, token)[0] == 200, "the cluster is read", 60)
            assert json.loads(answer(state, token)[1])["notes"] == []
            cluster.apply(_pod("seen-in-time"))
            eventually(lambda: _is_bound(cluster, "seen-in-time"), "the replica schedules", 60)
            eventually(lambda: b"seen-in-time" in answer(f"{past}/decisions", token)[1], "Time has it", 60)
        finally:
            process.terminate()
            status = process.wait(40)
    cluster.kubectl("delete", "pod", "-n", HERE, "seen-in-time", "--wait=false")
    items = json.dumps({"apiVersion": "v1", "kind": "List", "items": made})
    cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=items)
    assert status == 0, (tmp_path / "log").read_text()


def _pod(name: str) -> Object:
    """A pod of our scheduler on the node of this file."""
    made = kwok_pod(HERE, name, {})
    made["spec"] |= {"schedulerName": "bayplan", "nodeSelector": {"kubernetes.io/hostname": "dash-role-h1"}}
    return made


def _is_bound(cluster: Cluster, name: str) -> bool:
    return bool(cluster.get("pod", name, "-n", HERE)["spec"].get("nodeName"))
