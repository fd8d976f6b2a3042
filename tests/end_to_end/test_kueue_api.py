"""The Kueue API with kubectl, on a real control plane where we installed it and on the cluster in memory."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bayplan.assembly.crds import converted
from bayplan.assembly.in_process_webhooks import hooks
from bayplan.assembly.manifests import InstallSettings, manifests
from bayplan.assembly.webhooks import SECRET_NAME, registry
from bayplan.backends.crds import define
from bayplan.backends.embedded.cluster import new_store
from bayplan.backends.embedded.http.server import ApiServer
from bayplan.backends.embedded.schema import cel
from bayplan.runtime.webhooks.http_server import Address
from tests.end_to_end.objects import eventually
from tests.support.kueue_api import BAD, CHANGES, GROUP, PLURALS, Bad, Change, contains, good, made, quota
from tests.support.listening import free_address
from tools.controlplane.plan import Trouble

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

HOME = "kueue-api-test"
SETTINGS = InstallSettings(namespace=HOME, roles=("webhooks",))
CONFIGURATIONS = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")
OTHER = {"v1beta1": "v1beta2", "v1beta2": "v1beta1"}
Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Server:
    """An API server, and kubectl in front of it."""

    program: str
    kubeconfig: Path

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """What kubectl prints; Trouble with its complaint when it fails."""
        command = [self.program, f"--kubeconfig={self.kubeconfig}", *arguments]
        answer = subprocess.run(command, input=stdin, text=True, capture_output=True, check=False)
        if answer.returncode:
            raise Trouble(answer.stderr.strip())
        return answer.stdout

    def get(self, *arguments: str) -> Object:
        found: Object = json.loads(self.kubectl("get", *arguments, "-o", "json"))
        return found


@pytest.fixture(scope="module", params=[pytest.param("real", marks=pytest.mark.real), "in-memory"])
def api(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The API as a real control plane serves it, and as the cluster in memory does."""
    serve = real if request.param == "real" else in_memory
    with serve(request, tmp_path_factory.mktemp(request.param)) as found:
        yield found


@contextmanager
def real(request: pytest.FixtureRequest, folder: Path) -> Iterator[Server]:
    """A cluster with what `bayplan install` makes, and a replica that answers its questions."""
    cluster: Cluster = request.getfixturevalue("cluster")
    remove(cluster)
    where = ["--kubeconfig", str(cluster.kubeconfig), "--namespace", HOME, "--roles", "webhooks"]
    subprocess.run(
        [sys.executable, "-m", "bayplan.cli.commands.install", *where], check=True, capture_output=True
    )
    address = free_address()
    point(cluster, f"https://{address}")
    with replica(cluster, folder, address) as log:
        eventually(lambda: trusted(cluster), "the cluster trusts the replica wherever it asks")
        yield Server(str(cluster.kubectl_path), cluster.kubeconfig)
        assert "forbidden" not in log.read_text(), "all rights that it needs were installed"
        remove(cluster)  # while there is somebody to convert what is left


@contextmanager
def in_memory(request: pytest.FixtureRequest, folder: Path) -> Iterator[Server]:
    """A cluster in memory that asks the functions behind the webhooks."""
    if not cel.available():
        pytest.skip("the extra cel is not installed")
    store = new_store(time.time, lambda: str(uuid.uuid4()), lambda: secrets.token_hex(3))
    for hook in hooks(registry()):
        store.admission.register(hook)
    define(store, groups=False)
    face = ApiServer(store, threading.RLock()).start()
    face.write_kubeconfig(folder / "kubeconfig")
    try:
        yield Server(request.getfixturevalue("program"), folder / "kubeconfig")
    finally:
        face.stop()


def remove(cluster: Cluster) -> None:
    everything = {"apiVersion": "v1", "kind": "List", "items": manifests(SETTINGS)}
    cluster.kubectl("delete", "--ignore-not-found", "--wait", "-f", "-", stdin=json.dumps(everything))


def point(cluster: Cluster, url: str) -> None:
    """Have the API server ask the replica here, as no Service leads to it."""
    for kind in CONFIGURATIONS:
        hooks = cluster.get(kind, "bayplan")["webhooks"]
        for hook in hooks:
            hook["clientConfig"] = {"url": url + hook["clientConfig"]["service"]["path"]}
        patch(cluster, kind, "bayplan", "json", [{"op": "replace", "path": "/webhooks", "value": hooks}])
    for name in converted():
        config = {
            "op": "replace",
            "path": "/spec/conversion/webhook/clientConfig",
            "value": {"url": f"{url}/convert"},
        }
        patch(cluster, "crd", name, "json", [config])


@contextmanager
def replica(cluster: Cluster, folder: Path, address: Address) -> Iterator[Path]:
    """`bayplan run`, with the rights that were installed and no others; what it logs."""
    admin = json.loads(cluster.kubectl("config", "view", "--raw", "-o", "json"))
    token = cluster.kubectl("create", "token", "bayplan", "-n", HOME).strip()
    (folder / "kubeconfig").write_text(
        json.dumps({**admin, "users": [{"name": "admin", "user": {"token": token}}]})
    )
    command = [sys.executable, "-m", "bayplan", "run", "--roles=webhooks", f"--namespace={HOME}"]
    command += [f"--kubeconfig={folder / 'kubeconfig'}", f"--webhook-listen={address}"]
    log = folder / "log"
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        yield log
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def trusted(cluster: Cluster) -> bool:
    certificates = cluster.get("secret", SECRET_NAME, "-n", HOME).get("data") or {}
    hooks = [hook for kind in CONFIGURATIONS for hook in cluster.get(kind, "bayplan")["webhooks"]]
    definitions = cluster.get("crd", *converted())["items"]
    asked = [*hooks, *(one["spec"]["conversion"]["webhook"] for one in definitions)]
    bundles = {one["clientConfig"].get("caBundle") for one in asked}
    return len(bundles) == 1 and None not in bundles and bool(certificates)


def listed(objects: list[Object]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


def stubs(objects: list[Object], version: str) -> str:
    return listed([{**one, "apiVersion": f"{GROUP}/{version}"} for one in objects])


def patch(server: Cluster | Server, kind: str, name: str, sort: str, change: Any, *more: str) -> str:
    return server.kubectl("patch", kind, name, f"--type={sort}", "-p", json.dumps(change), *more)


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_both_versions_are_written_and_read(api: Server, version: str) -> None:
    objects = renamed(good(version))
    api.kubectl("create", "--validate=strict", "-f", "-", stdin=listed(objects))
    try:
        there = json.loads(api.kubectl("get", "-o", "json", "-f", "-", stdin=stubs(objects, OTHER[version])))
        assert {one["apiVersion"] for one in there["items"]} == {f"{GROUP}/{OTHER[version]}"}
        api.kubectl("replace", "--validate=strict", "-f", "-", stdin=json.dumps(there))
        back = json.loads(api.kubectl("get", "-o", "json", "-f", "-", stdin=stubs(objects, version)))
        for found, wanted in zip(back["items"], objects, strict=True):
            assert contains(found, wanted), wanted["kind"]
    finally:
        api.kubectl("delete", "-f", "-", stdin=stubs(objects, "v1beta2"))


def test_what_the_old_version_cannot_say_survives_a_write_in_it(api: Server) -> None:
    policy = {"migration": {"mode": "RetainFirstAdmission"}}
    old_queue = f"clusterqueues.v1beta1.{GROUP}"
    queue = made("ClusterQueue", "kept", {"concurrentAdmissionPolicy": policy, "resourceGroups": quota()})
    api.kubectl("apply", "-f", "-", stdin=json.dumps(queue))
    try:
        assert "concurrentAdmissionPolicy" not in api.get(old_queue, "kept")["spec"]
        patch(api, old_queue, "kept", "merge", {"spec": {"stopPolicy": "Hold"}})
        pending = {
            "pendingWorkloads": 3,
            "pendingWorkloadsStatus": {"lastChangeTime": "2026-01-01T00:00:00Z"},
        }
        patch(api, old_queue, "kept", "merge", {"status": pending}, "--subresource=status")
        new = api.get("clusterqueues", "kept")
        assert new["spec"]["concurrentAdmissionPolicy"] == policy and new["spec"]["stopPolicy"] == "Hold"
        assert new["status"] == {"pendingWorkloads": 3}
        assert api.get(old_queue, "kept")["status"] == {"pendingWorkloads": 3}
    finally:
        api.kubectl("delete", "clusterqueue", "kept")


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.what)
def test_a_mistake_is_refused(api: Server, bad: Bad) -> None:
    with pytest.raises(Trouble) as refusal:
        api.kubectl("create", "-f", "-", stdin=json.dumps(bad.object))
    assert bad.said in str(refusal.value)


def renamed(objects: Sequence[Object]) -> list[Object]:
    """The same objects under other names, so that they can exist beside those of other tests."""
    text = json.dumps(objects)
    for name in {one["metadata"]["name"] for one in objects}:
        text = text.replace(f'"{name}"', f'"{name}-renamed"')
    found: list[Object] = json.loads(text)
    return found


@pytest.fixture(scope="module")
def there(api: Server) -> Iterator[Server]:
    """One object of each kind."""
    api.kubectl("create", "-f", "-", stdin=listed(good("v1beta2")))
    yield api
    api.kubectl("delete", "-f", "-", stdin=listed(good("v1beta2")))


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change.kind} {json.dumps(change.patch)}")
def test_what_may_change_and_what_may_not(there: Server, change: Change) -> None:
    kind = f"{PLURALS[change.kind]}.{GROUP}"
    if not change.said:
        patch(there, kind, change.name, "merge", change.patch, "-n", "default")
        return
    with pytest.raises(Trouble, match=change.said):
        patch(there, kind, change.name, "merge", change.patch, "-n", "default")


def test_a_workload_that_holds_quota_keeps_its_queue(there: Server) -> None:
    moment = {"lastTransitionTime": "2026-01-01T00:00:00Z", "message": "", "reason": "Test"}
    amounts = {"count": 1, "flavors": {"cpu": "default-flavor"}, "resourceUsage": {"cpu": "1"}}
    admission = {"clusterQueue": "team-queue", "podSetAssignments": [{"name": "main", **amounts}]}
    status = {"conditions": [{"type": "QuotaReserved", "status": "True", **moment}], "admission": admission}
    name = (f"workloads.{GROUP}", "job-a", "merge")
    patch(there, *name, {"status": status}, "--subresource=status", "-n", "default")
    with pytest.raises(Trouble, match="queueName is immutable while workload quota reserved"):
        patch(there, *name, {"spec": {"queueName": "other"}}, "-n", "default")
    assert "team-queue" in there.kubectl("get", "kwl", "-n", "default"), "reserved in"
    patch(there, *name, {"status": dict.fromkeys(status)}, "--subresource=status", "-n", "default")


def test_defaults_are_filled_in_by_the_schema_and_by_the_webhook(there: Server) -> None:
    spec = there.get(f"workloads.{GROUP}", "job-a", "-n", "default")["spec"]
    assert spec["active"] is True and spec["podSets"][0]["name"] == "main"
    container = spec["podSets"][0]["template"]["spec"]["containers"][0]
    assert container["ports"] == [{"containerPort": 80, "protocol": "TCP"}], "only the webhook knows of pods"
    assert container["resources"]["requests"] == {"cpu": 1, "memory": "200Mi"}


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("cq",), ["NAME", "COHORT", "PENDING", "WORKLOADS", "team-queue", "all"]),
        (("cq", "-o", "wide"), ["STRATEGY", "BestEffortFIFO", "ADMITTED"]),
        (("queues", "-n", "default"), ["CLUSTERQUEUE", "team-queue"]),
        (("kwl", "-n", "default"), ["QUEUE", "RESERVED", "IN", "ADMITTED", "FINISHED", "AGE", "team"]),
        (("wpc",), ["VALUE", "7"]),
        (("topo",), ["TOP LEVEL", "AGE", "racks"]),
        (("rf,co,ac,prc",), ["default-flavor", "prov"]),
    ],
)
def test_columns_and_short_names(there: Server, asked: tuple[str, ...], words: list[str]) -> None:
    shown = there.kubectl("get", *asked)
    assert all(word in shown for word in words), shown


@pytest.mark.parametrize(
    ("field", "sentence"),
    [
        (
            "clusterqueue.spec.preemption",
            "Which admitted workloads may be preempted for a pending one.",
        ),
        ("kwl.spec.podSets.topologyRequest", "How close together the pods must be."),
        ("resourceflavor.spec.topologyName", "The Topology that places pods within this flavor"),
    ],
)
def test_fields_are_explained(api: Server, field: str, sentence: str) -> None:
    assert sentence in " ".join(api.kubectl("explain", field).split())
