"""Our webhooks and a real API server: trusted by it, asked by it, with only the rights of their role."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from bayplan.assembly.manifests import (
    InstallSettings,
    common_objects,
    custom_resources,
    namespace,
    role_objects,
)
from bayplan.assembly.webhooks import SECRET_NAME, WebhookEndpoint, Webhooks
from bayplan.backends.remote.backend import RemoteBackend
from bayplan.backends.remote.kubeconfig import load
from bayplan.runtime.core.clock import SystemClock
from bayplan.runtime.telemetry.metrics import Metrics
from tests.end_to_end.objects import eventually, job_spec
from tests.support.api_objects import job
from tests.support.kueue_api import pod_set
from tests.support.listening import free_address
from tools.controlplane.plan import Trouble

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

HOME = "webhook-test"
WORKLOADS = "workloads.kueue.x-k8s.io"
ANNOTATION = "kueue.x-k8s.io/podset-"
Object = dict[str, Any]


def pointed(obj: Object, url: str) -> Object:
    """The webhook configuration, with the server where this test runs it."""
    hooks = []
    for hook in obj["webhooks"]:
        path = hook["clientConfig"]["service"]["path"]
        hooks.append({**hook, "clientConfig": {"url": url + path}})
    return {**obj, "webhooks": hooks}


def workload_definition(settings: InstallSettings, url: str) -> Object:
    """Workloads in two versions, converted by the server where this test runs it."""
    (found,) = [one for one in custom_resources(settings) if one["metadata"]["name"] == WORKLOADS]
    found["spec"]["conversion"]["webhook"]["clientConfig"] = {"url": f"{url}/convert"}
    return found


@pytest.fixture(scope="module")
def asked(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Webhooks]]:
    """A cluster that asks our webhooks, which run as their account."""
    settings = InstallSettings(namespace=HOME, roles=("webhooks",))
    address = free_address()
    objects = [
        pointed(one, f"https://{address}") if "webhooks" in one else one
        for one in role_objects("webhooks", settings)
    ]
    account = [one for one in common_objects(settings) if one["kind"] == "ServiceAccount"]
    everything = [*account, workload_definition(settings, f"https://{address}"), *objects]
    cluster.apply(namespace(settings))
    cluster.apply(*everything)
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=120s", f"crd/{WORKLOADS}")
    token = cluster.kubectl("create", "token", "bayplan", "-n", HOME).strip()
    path = tmp_path_factory.mktemp("account") / "kubeconfig"
    admin = json.loads(cluster.kubectl("config", "view", "--raw", "-o", "json"))
    path.write_text(json.dumps({**admin, "users": [{"name": "admin", "user": {"token": token}}]}))
    backend = RemoteBackend(load(path, None))
    webhooks = Webhooks(
        backend.request, WebhookEndpoint(HOME, address, (WORKLOADS,)), SystemClock(), Metrics()
    )
    eventually(lambda: trusted(cluster, webhooks), "the cluster trusts the certificate")
    yield cluster, webhooks
    listed = {"apiVersion": "v1", "kind": "List", "items": [*everything, namespace(settings)]}
    cluster.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=json.dumps(listed))
    webhooks.stop()
    backend.close()


def trusted(cluster: Cluster, webhooks: Webhooks) -> bool:
    hooks = cluster.get("validatingwebhookconfiguration", "bayplan")["webhooks"]
    bundles = [hook["clientConfig"].get("caBundle") for hook in hooks]
    definition = cluster.get("crd", WORKLOADS)["spec"]["conversion"]["webhook"]["clientConfig"]
    assert webhooks.certificates is not None
    wanted = base64.b64encode(webhooks.certificates.bundle).decode()
    return {*bundles, definition.get("caBundle")} == {wanted}


def suspended_job(name: str, scheduler: str, **annotations: str) -> Object:
    spec = job_spec(2, {})
    template = spec["template"]
    template["spec"]["schedulerName"] = scheduler
    template["metadata"]["annotations"] = {
        ANNOTATION + key.replace("_", "-"): value for key, value in annotations.items()
    }
    return job(name, namespace="default", suspend=True, **spec)


def create(cluster: Cluster, obj: Object) -> str:
    """What kubectl says; the object is gone again if it was made."""
    try:
        cluster.kubectl("create", "-f", "-", stdin=json.dumps(obj))
    except Trouble as refused:
        return str(refused)
    cluster.kubectl("delete", obj["kind"], obj["metadata"]["name"], "-n", "default", "--wait=false")
    return "created"


WRONG = {"required_topology": "rack", "preferred_topology": "block", "slice_size": "x"}


def test_the_certificate_is_in_the_secret(asked: tuple[Cluster, Webhooks]) -> None:
    cluster, webhooks = asked
    assert webhooks.certificates is not None
    assert cluster.get("secret", SECRET_NAME, "-n", HOME)["data"] == webhooks.certificates.data()


def test_a_job_with_mistakes_is_refused_with_all_of_them(asked: tuple[Cluster, Webhooks]) -> None:
    cluster, _ = asked
    answer = create(cluster, suspended_job("webhook-bad", "bayplan", **WRONG))
    assert 'The Job "webhook-bad" is invalid' in answer
    assert answer.count("\n* spec.template.metadata.annotations") >= 2, "each in a line of its own"


def test_good_jobs_and_jobs_of_others_pass(asked: tuple[Cluster, Webhooks]) -> None:
    cluster, _ = asked
    assert create(cluster, suspended_job("webhook-good", "bayplan", required_topology="rack")) == "created"
    assert create(cluster, suspended_job("webhook-other", "default-scheduler", **WRONG)) == "created"


def test_a_workload_is_read_in_the_version_it_was_not_written_in(asked: tuple[Cluster, Webhooks]) -> None:
    cluster, _ = asked
    reference = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "webhook-w", "namespace": "default"},
        "spec": {"priority": 1, "priorityClassRef": reference, "podSets": [pod_set()]},
    }
    cluster.apply(workload)
    try:
        old = cluster.get("workloads.v1beta1.kueue.x-k8s.io", "webhook-w", "-n", "default")
        assert old["apiVersion"] == "kueue.x-k8s.io/v1beta1"
        assert old["spec"]["priorityClassName"] == "high" and "priorityClassRef" not in old["spec"]
    finally:
        cluster.kubectl("delete", "workloads.kueue.x-k8s.io", "webhook-w", "-n", "default")


def test_trust_that_somebody_removed_comes_back(asked: tuple[Cluster, Webhooks]) -> None:
    cluster, webhooks = asked
    patch = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
    name = ("validatingwebhookconfiguration", "bayplan")
    cluster.kubectl("patch", *name, "--type=json", "-p", json.dumps(patch))
    assert not trusted(cluster, webhooks)
    webhooks.write_ca_bundles()
    assert trusted(cluster, webhooks)
