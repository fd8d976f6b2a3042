"""`bayplan install` on a real API server: all of it is taken, and its account may do its work and no more."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from bayplan.assembly.manifests import InstallSettings, manifests
from bayplan.assembly.rbac import COMMON_RULES, LEASE_NAME, ROLES, RbacRule
from bayplan.backends.remote.backend import RemoteBackend
from bayplan.backends.remote.kubeconfig import load
from bayplan.dialects.api import Ended, Happened, Kind, Verb, Write, WriteOutcome
from bayplan.dialects.errors import Forbidden
from bayplan.dialects.kube.decode.wire import NODES, PODS_KIND
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.core.api_object import LEASE, SECRET, ApiObject
from bayplan.runtime.core.clock import SystemClock
from bayplan.runtime.process.election import Election
from tests.end_to_end.objects import eventually, job_spec, kwok_node, kwok_pod

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

HOME = "install-test"
ACCOUNT = f"system:serviceaccount:{HOME}:bayplan"
TOPOLOGY = "topologies.kueue.x-k8s.io"
EVENTS = Kind("", "v1", "Event", "events")


INSTALLED = ("scheduler", "webhooks")
"""Without admission, which may touch pods and jobs: what a scheduler may not do shows best alone."""


def install(cluster: Cluster, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bayplan.cli.commands.install", "--kubeconfig", str(cluster.kubeconfig)]
    return subprocess.run(
        [*command, "--namespace", HOME, "--roles", ",".join(INSTALLED), *options],
        capture_output=True,
        text=True,
        check=False,
    )


def remove(cluster: Cluster) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": manifests(InstallSettings(namespace=HOME))}
    cluster.kubectl("delete", "--ignore-not-found", "--wait", "-f", "-", stdin=json.dumps(listed))


@pytest.fixture(scope="module")
def installed(cluster: Cluster) -> Iterator[Cluster]:
    remove(cluster)
    answer = install(cluster)
    assert answer.returncode == 0, answer.stderr
    told = answer.stdout.splitlines()
    assert len(told) == len(manifests(InstallSettings(roles=INSTALLED))) and "applied" in answer.stdout
    yield cluster
    remove(cluster)


@pytest.fixture(scope="module")
def kubeconfig(installed: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the account that the replicas run under."""
    token = installed.kubectl("create", "token", "bayplan", "-n", HOME).strip()
    path = tmp_path_factory.mktemp("account") / "kubeconfig"
    names = {"cluster": "c", "user": "u"}
    content = {
        "clusters": [
            {
                "name": "c",
                "cluster": {"server": installed.server, "certificate-authority": str(installed.authority)},
            }
        ],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "x", "context": names}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture
def account(kubeconfig: Path) -> Iterator[RemoteBackend]:
    backend = RemoteBackend(load(kubeconfig, None))
    yield backend
    backend.close()


def outcome(backend: RemoteBackend, write: Write) -> tuple[Ended, int]:
    backend.submit([write])
    found: list[WriteOutcome] = []

    def ended() -> bool:
        found.extend(backend.outcomes())
        return bool(found)

    eventually(ended, "the write ends")
    return found[0].ended, found[0].status


# ── what was installed ─────────────────────────────────────────────────────────────────────────────


def test_installing_again_changes_nothing(installed: Cluster) -> None:
    def versions() -> dict[str, str]:
        listed = {
            "apiVersion": "v1",
            "kind": "List",
            "items": manifests(InstallSettings(namespace=HOME, roles=INSTALLED)),
        }
        found = json.loads(installed.kubectl("get", "-o", "json", "-f", "-", stdin=json.dumps(listed)))[
            "items"
        ]
        return {
            f"{one['kind']} {one['metadata']['name']}": str(one["metadata"].get("generation", ""))
            + json.dumps(one.get("rules") or one.get("spec") or "")
            for one in found
        }

    before = versions()
    assert install(installed).returncode == 0
    assert versions() == before


def test_replicas_are_admitted_under_the_restricted_standard(installed: Cluster) -> None:
    def pods() -> list[Any]:
        found: list[Any] = installed.get("pods", "-n", HOME)["items"]
        return found

    eventually(lambda: len(pods()) == 2, "two replicas are made")
    assert {one["spec"]["serviceAccountName"] for one in pods()} == {"bayplan"}


def test_a_definition_of_somebody_else_is_left_alone(installed: Cluster) -> None:
    installed.kubectl("label", "crd", TOPOLOGY, "app.kubernetes.io/part-of=somebody-else", "--overwrite")
    answer = install(installed)
    assert answer.returncode == 0 and f"{TOPOLOGY} exists without the labels of Bayplan" in answer.stdout
    labels = installed.get("crd", TOPOLOGY)["metadata"]["labels"]
    assert labels["app.kubernetes.io/part-of"] == "somebody-else"


def of_kueue(plural: str, kind: str) -> dict[str, Any]:
    """A definition as Kueue installs it: two versions, converted by a Service of Kueue."""
    service = {"name": "kueue-webhook-service", "namespace": "kueue-system", "path": "/convert"}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    versions = [
        {"name": name, "served": True, "storage": name == "v1beta2", "schema": {"openAPIV3Schema": schema}}
        for name in ("v1beta1", "v1beta2")
    ]
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    webhook = {"conversionReviewVersions": ["v1"], "clientConfig": {"service": service}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.kueue.x-k8s.io"},
        "spec": {
            "group": "kueue.x-k8s.io", "scope": "Cluster", "names": names, "versions": versions,
            "conversion": {"strategy": "Webhook", "webhook": webhook},
        },
    }  # fmt: skip


def test_definitions_of_kueue_are_taken_over_on_demand(installed: Cluster) -> None:
    left_over, ours = "multikueueclusters.kueue.x-k8s.io", "cohorts.kueue.x-k8s.io"
    installed.kubectl("delete", "crd", ours)
    installed.apply(of_kueue("multikueueclusters", "MultiKueueCluster"), of_kueue("cohorts", "Cohort"))
    try:
        assert install(installed).returncode == 0
        for name in (left_over, ours):
            conversion = installed.get("crd", name)["spec"]["conversion"]
            assert conversion["webhook"]["clientConfig"]["service"]["name"] == "kueue-webhook-service"
        tried = install(installed, "--take-over-crds", "--dry-run")
        assert f"{left_over} would be served in its stored version only" in tried.stdout
        done = install(installed, "--take-over-crds")
        assert done.returncode == 0, done.stderr
        service = installed.get("crd", ours)["spec"]["conversion"]["webhook"]["clientConfig"]["service"]
        assert (service["namespace"], service["name"]) == (HOME, "bayplan-webhooks")
        spec = installed.get("crd", left_over)["spec"]
        assert spec["conversion"] == {"strategy": "None"}
        assert {one["name"]: one["served"] for one in spec["versions"]} == {"v1beta1": False, "v1beta2": True}
        assert left_over not in install(installed, "--take-over-crds").stdout, "it is done once"
    finally:
        installed.kubectl("delete", "crd", left_over)


def test_who_may_not_install_is_told_so(installed: Cluster, kubeconfig: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "bayplan.cli.commands.install",
        "--kubeconfig",
        str(kubeconfig),
        "--namespace",
        HOME,
    ]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert (
        "not applied" in answer.stderr and "forbidden" in answer.stderr and "Traceback" not in answer.stderr
    )


# ── what its account may do ────────────────────────────────────────────────────────────────────────


def may(
    cluster: Cluster, verb: str, resource: str, group: str = "", name: str = "", namespace: str = ""
) -> bool:
    plural, _, part = resource.partition("/")
    attributes = {"verb": verb, "resource": plural, "subresource": part, "group": group, "name": name}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": ACCOUNT, "resourceAttributes": {**attributes, "namespace": namespace}},
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    answer = cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(review))
    return bool(json.loads(answer)["status"]["allowed"])


def each(rights: list[RbacRule]) -> list[tuple[str, str, str, str]]:
    return [
        (verb, resource, right.group, name)
        for right in rights
        for resource in right.resources
        for verb in right.verbs
        for name in right.names or ("",)
    ]


def test_every_right_in_the_table_is_granted(installed: Cluster) -> None:
    rights = [COMMON_RULES, *(ROLES[role] for role in INSTALLED)]
    for verb, resource, group, name in each([right for one in rights for right in one.clusterwide]):
        assert may(installed, verb, resource, group, name, "default"), (verb, resource)
    for verb, resource, group, name in each([right for one in rights for right in one.namespaced]):
        assert may(installed, verb, resource, group, name, HOME), (verb, resource)


REFUSED = [
    ("deletecollection", "pods", ""),
    ("patch", "pods", ""),
    ("update", "pods/status", ""),
    ("create", "pods", ""),
    ("create", "pods/exec", ""),
    ("create", "pods/eviction", ""),
    ("get", "pods/log", ""),
    ("patch", "nodes", ""),
    ("delete", "nodes", ""),
    ("list", "secrets", ""),
    ("get", "secrets", ""),
    ("list", "configmaps", ""),
    ("delete", "events", ""),
    ("patch", "jobs", "batch"),
    ("delete", "jobs", "batch"),
    ("create", "topologies", "kueue.x-k8s.io"),
    ("create", "leases", "coordination.k8s.io"),
    ("create", "clusterrolebindings", "rbac.authorization.k8s.io"),
    ("update", "customresourcedefinitions", "apiextensions.k8s.io"),
    ("update", "validatingwebhookconfigurations", "admissionregistration.k8s.io"),
    ("create", "serviceaccounts/token", ""),
    ("impersonate", "users", ""),
    ("*", "*", "*"),
]


@pytest.mark.parametrize(("verb", "resource", "group"), REFUSED)
def test_the_rest_is_refused(installed: Cluster, verb: str, resource: str, group: str) -> None:
    assert not may(installed, verb, resource, group, namespace="default")


def test_at_home_it_has_its_own_lease_and_nothing_else(installed: Cluster) -> None:
    leases = "coordination.k8s.io"
    assert not may(installed, "update", "leases", leases, "kube-scheduler", HOME)
    assert not may(installed, "delete", "leases", leases, LEASE_NAME, HOME)
    assert not may(installed, "list", "secrets", "", "", HOME)


# ── and does ───────────────────────────────────────────────────────────────────────────────────────


def test_it_watches_binds_tells_and_leads(installed: Cluster, account: RemoteBackend) -> None:
    installed.apply(kwok_node("install-n1"), kwok_pod("default", "install-p1", {"run-seconds": "1"}))
    try:
        account.watch(SchedulerController.kinds)
        synced: set[str] = set()

        def all_synced() -> bool:
            synced.update(event.kind.kind for event in account.events() if event.happened is Happened.SYNCED)
            return synced >= {kind.kind for kind in SchedulerController.kinds if not kind.optional}

        eventually(all_synced, "everything it watches is known")
        target = {"target": {"apiVersion": "v1", "kind": "Node", "name": "install-n1"}}
        bind = Write(Verb.CREATE, PODS_KIND, "default", "install-p1", target, "binding")
        assert outcome(account, bind) == (Ended.DONE, 201)
        about = {"kind": "Pod", "namespace": "default", "name": "install-p1"}
        event = {"metadata": {"generateName": "install-"}, "involvedObject": about, "reason": "Tested"}
        assert outcome(account, Write(Verb.CREATE, EVENTS, "default", "", event)) == (Ended.DONE, 201)

        said = {"type": "bayplan.dev/tested", "status": "True"}
        body = {"status": {"conditions": [said]}}
        told = Write(Verb.STRATEGIC_PATCH, PODS_KIND, "default", "install-p1", body, "status")
        assert outcome(account, told) == (Ended.DONE, 200)
        conditions = installed.get("pod", "-n", "default", "install-p1")["status"]["conditions"]
        assert {"PodScheduled", "bayplan.dev/tested"} <= {one["type"] for one in conditions}

        clock = SystemClock()
        lease = ApiObject(account.request, LEASE, HOME, LEASE_NAME)
        election = Election(lease, "tested", clock, random.random)
        election.step()
        assert election.is_leader(clock.monotonic())
        election.step()
        election.release()
        spec = installed.get("lease", LEASE_NAME, "-n", HOME)["spec"]
        assert "holderIdentity" not in spec and spec["leaseTransitions"] == 0

        patch = {"metadata": {"labels": {"x": "y"}}}
        for refused in (
            Write(Verb.DELETE, NODES, "", "install-n1"),
            Write(Verb.MERGE_PATCH, PODS_KIND, "default", "install-p1", patch),
            Write(Verb.MERGE_PATCH, NODES, "", "install-n1", patch),
        ):
            assert outcome(account, refused) == (Ended.REFUSED, 403)
        gone = Write(Verb.DELETE, PODS_KIND, "default", "install-p1")  # as those who make room are
        assert outcome(account, gone) == (Ended.DONE, 200)
        for kind, namespace in ((SECRET, HOME), (LEASE, "default")):
            with pytest.raises(Forbidden):
                ApiObject(account.request, kind, namespace, "x").get(10)
    finally:
        installed.kubectl("delete", "pod", "install-p1", "--force", "--ignore-not-found")
        installed.kubectl("delete", "node", "install-n1")


def test_a_scheduler_with_these_rights_only_runs_a_job(
    installed: Cluster, kubeconfig: Path, tmp_path: Path
) -> None:
    played = {"run-seconds": "1"}
    spec = job_spec(3, played)
    spec["template"]["spec"]["schedulerName"] = "bayplan"
    metadata = {"name": "install-job", "namespace": "default"}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
    for kind in ("mutating", "validating"):
        installed.kubectl("delete", f"{kind}webhookconfiguration", "bayplan")  # its Service has no pods here
    with running(kubeconfig, tmp_path / "run.log") as said:
        installed.apply(kwok_node("install-n2"), job)
        try:
            installed.kubectl(
                "wait", "--for=condition=Complete", "--timeout=90s", "job/install-job", "-n", "default"
            )
        finally:
            installed.kubectl("delete", "job", "install-job", "-n", "default", "--ignore-not-found")
            installed.kubectl("delete", "node", "install-n2")
    assert "forbidden" not in said().lower()


class running:  # noqa: N801 - reads as a phrase
    """A scheduler process, ended as a kubelet would end it."""

    def __init__(self, kubeconfig: Path, log: Path) -> None:
        self.log = log
        command = [
            sys.executable,
            "-m",
            "bayplan",
            "run",
            "--kubeconfig",
            str(kubeconfig),
            "--namespace",
            HOME,
        ]
        self.command = [*command, "--roles", ",".join(INSTALLED), "--log-format", "json"]

    def __enter__(self) -> Callable[[], str]:
        with self.log.open("w") as out:
            self.process = subprocess.Popen(self.command, stdout=out, stderr=out)
        return self.log.read_text

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            assert self.process.wait(40) == 0, self.log.read_text()
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
