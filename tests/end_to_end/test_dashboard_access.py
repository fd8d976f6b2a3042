"""Who sees what in the dashboard, with RBAC of a real API server: no more than kubectl shows that user."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from bayplan.backends.remote.backend import connect
from bayplan.cli.commands.dashboard_source import DashboardSource
from bayplan.cli.watching.watched import WatchedCluster
from bayplan.dashboard.access import TokenAccess
from bayplan.dashboard.host_map import HIDDEN_GANG
from bayplan.dashboard.hub import SnapshotHub
from bayplan.dashboard.server import DashboardServer
from bayplan.runtime.core.clock import SystemClock
from bayplan.runtime.core.containment import Containment
from tests.end_to_end.objects import eventually, kwok_node, kwok_pod
from tests.support.listening import free_address

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

MINE, SECRET = "dash-mine", "dash-secret"
RBAC = "rbac.authorization.k8s.io"


def granted(kind: str, name: str, role: str, account: str, namespace: str = "") -> dict[str, Any]:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": kind,
        "metadata": {"name": name} | ({"namespace": namespace} if namespace else {}),
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": MINE}],
    }


def objects() -> list[dict[str, Any]]:
    """A limited account, one that may not come in, and a pod in each of two namespaces."""
    rules = [
        {"nonResourceURLs": ["/bayplan/dashboard"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]},
    ]
    accounts = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": MINE}}
        for name in ("limited", "outside")
    ]
    meta = {"name": "dash-users"}
    return [
        *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in (MINE, SECRET)),
        *accounts,
        {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": meta, "rules": rules},
        granted("ClusterRoleBinding", "dash-users", "dash-users", "limited"),
        granted("RoleBinding", "view", "view", "limited", MINE),
        kwok_node("dash-h1"),
        kwok_node("dash-h2"),
    ]


@pytest.fixture(scope="module")
def dashboard(cluster: Cluster) -> Iterator[DashboardServer]:
    made = objects()
    cluster.apply(*made)
    for namespace, name, node in ((MINE, "seen", "dash-h1"), (SECRET, "hidden-plan", "dash-h2")):
        pod = kwok_pod(namespace, name, {})
        pod["spec"] |= {"schedulerName": "bayplan", "nodeName": node}
        eventually(partial(has_account, cluster, namespace), f"{namespace} has its account")
        cluster.apply(pod)
    backend, hub, stop = connect(cluster.kubeconfig), SnapshotHub(), threading.Event()
    source = DashboardSource(WatchedCluster(backend, SystemClock()), hub, Containment())
    thread = threading.Thread(target=source.run, args=(stop,), daemon=True)
    thread.start()

    def complete() -> bool:
        found = hub.current()
        return found is not None and {SECRET, MINE} <= namespaces(found[1])

    eventually(complete, "both namespaces are read")

    def current() -> Any:
        found = hub.current()
        return None if found is None else found[1]

    server = DashboardServer(
        hub, source, free_address(), access=TokenAccess(backend.request, SystemClock(), current)
    )
    yield server
    server.stop()
    stop.set()
    thread.join()
    backend.close(0)
    listed = {"apiVersion": "v1", "kind": "List", "items": made}
    cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=json.dumps(listed))


def has_account(cluster: Cluster, namespace: str) -> bool:
    found = cluster.get("serviceaccounts", "-n", namespace)["items"]
    return any(one["metadata"]["name"] == "default" for one in found)


def namespaces(snapshot: Any) -> set[str]:
    return {one.key.namespace for one in snapshot.gangs.values()}


def ask(server: DashboardServer, path: str, token: str = "") -> tuple[int, bytes]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"{server.url}api/v1/{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read()


PATHS = ("state", "gangs", "queues", "topologies", "room", "maps/0", f"gangs/{MINE}/Pod/seen")


@pytest.mark.parametrize("token", ["", "nonsense"])
@pytest.mark.parametrize("path", [*PATHS, "stream"])
def test_without_a_token_that_the_cluster_knows_nothing_is_shown(
    dashboard: DashboardServer, path: str, token: str
) -> None:
    status, body = ask(dashboard, path, token)
    assert status == 401 and b"seen" not in body and b"dash-h" not in body


def test_a_user_who_may_not_come_in_sees_nothing(dashboard: DashboardServer, cluster: Cluster) -> None:
    token = cluster.kubectl("create", "token", "outside", "-n", MINE).strip()
    for path in PATHS:
        status, body = ask(dashboard, path, token)
        assert status == 403 and b"seen" not in body and b"dash-h" not in body


def test_a_limited_user_sees_the_own_namespace_and_anonymous_occupancy(
    dashboard: DashboardServer, cluster: Cluster
) -> None:
    token = cluster.kubectl("create", "token", "limited", "-n", MINE).strip()
    status, body = ask(dashboard, "state", token)
    assert status == 200
    state = json.loads(body)
    assert [one["gang"]["name"] for one in state["gangs"]] == ["seen"]
    number, shown = next((n, one) for n, one in enumerate(state["maps"]) if "dash-h2" in one["hosts"])
    layers = ask(dashboard, f"maps/{number}?version={state['version']}", token)[1]
    at = 4 * shown["hosts"].index("dash-h2")
    assert int.from_bytes(layers[at : at + 4], "little") == HIDDEN_GANG
    assert ask(dashboard, f"gangs/{SECRET}/Pod/hidden-plan", token)[0] == 404
    assert ask(dashboard, f"gangs/{MINE}/Pod/seen", token)[0] == 200
    for path in PATHS:
        assert b"hidden-plan" not in ask(dashboard, path, token)[1], path
        assert SECRET.encode() not in ask(dashboard, path, token)[1], path


def test_an_administrator_sees_all_namespaces(dashboard: DashboardServer, cluster: Cluster) -> None:
    found = json.loads(ask(dashboard, "state", cluster.token_of("admin"))[1])
    assert {"seen", "hidden-plan"} <= {one["gang"]["name"] for one in found["gangs"]}
