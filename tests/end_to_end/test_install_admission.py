"""`bayplan install` for admission on a real API server: its account may do what the table says, no more."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from bayplan.assembly.manifests import InstallSettings, manifests
from bayplan.assembly.rbac import COMMON_RULES, ROLES, RbacRule

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

HOME = "install-admission-test"
ROLE = "admission"
REVIEWS = "/apis/authorization.k8s.io/v1"
Granted = set[tuple[str, str, str, str]]  # verb, group, resource, name


@pytest.fixture(scope="module")
def installed(cluster: Cluster) -> Iterator[Cluster]:
    settings = InstallSettings(namespace=HOME, roles=(ROLE,))
    everything = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests(settings)})
    remove = ("delete", "--ignore-not-found", "--wait", "-f", "-")
    cluster.kubectl(*remove, stdin=everything)
    command = [sys.executable, "-m", "bayplan.cli.commands.install", "--kubeconfig", str(cluster.kubeconfig)]
    subprocess.run([*command, "--namespace", HOME, "--roles", ROLE], check=True, capture_output=True)
    yield cluster
    cluster.kubectl(*remove, stdin=everything)


def account(name: str) -> str:
    return f"system:serviceaccount:{HOME}:{name}"


def granted(cluster: Cluster, name: str, namespace: str) -> Granted:
    """Everything that an account may do in a namespace, as the API server itself tells it."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    path = f"{REVIEWS}/selfsubjectrulesreviews"
    asked = ("create", f"--as={account(name)}", "--raw", path, "-f", "-")
    status = json.loads(cluster.kubectl(*asked, stdin=json.dumps(review)))["status"]
    assert not status["incomplete"]
    return {
        (verb, group, resource, one)
        for rule in status["resourceRules"]
        for verb in rule["verbs"]
        for group in rule.get("apiGroups") or [""]
        for resource in rule.get("resources") or []
        for one in rule.get("resourceNames") or [""]
    }


def of_table(*rights: RbacRule) -> Granted:
    return {
        (verb, right.group, resource, name)
        for right in rights
        for resource in right.resources
        for verb in right.verbs
        for name in right.names or ("",)
    }


def test_it_may_do_everywhere_what_the_table_says_and_nothing_else(installed: Cluster) -> None:
    anybody = granted(installed, "default", "default")
    ours = granted(installed, "bayplan", "default")
    assert ours - anybody == of_table(*COMMON_RULES.clusterwide, *ROLES[ROLE].clusterwide)
    assert anybody <= ours


def test_at_home_it_may_have_its_lease_besides(installed: Cluster) -> None:
    there = granted(installed, "bayplan", HOME) - granted(installed, "bayplan", "default")
    assert there == of_table(*COMMON_RULES.namespaced, *ROLES[ROLE].namespaced)


def may(cluster: Cluster, verb: str, resource: str, group: str) -> bool:
    plural, _, part = resource.partition("/")
    attributes = {"verb": verb, "resource": plural, "subresource": part, "group": group}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": account("bayplan"), "resourceAttributes": {**attributes, "namespace": "default"}},
    }
    path = f"{REVIEWS}/subjectaccessreviews"
    answer = cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(review))
    return bool(json.loads(answer)["status"]["allowed"])


@pytest.mark.parametrize(
    ("verb", "resource", "group"),
    [
        ("patch", "pods", ""),
        ("patch", "jobs", "batch"),
        ("patch", "jobs/status", "batch"),
        ("create", "workloads", "kueue.x-k8s.io"),
        ("update", "workloads/status", "kueue.x-k8s.io"),
        ("list", "localqueues", "kueue.x-k8s.io"),
    ],
)
def test_what_its_work_needs_is_allowed(installed: Cluster, verb: str, resource: str, group: str) -> None:
    assert may(installed, verb, resource, group)


@pytest.mark.parametrize(
    ("verb", "resource", "group"),
    [
        ("create", "pods", ""),
        ("create", "pods/binding", ""),
        ("create", "pods/exec", ""),
        ("create", "pods/eviction", ""),
        ("patch", "nodes", ""),
        ("delete", "nodes", ""),
        ("get", "secrets", ""),
        ("list", "configmaps", ""),
        ("delete", "events", ""),
        ("delete", "jobs", "batch"),
        ("create", "jobs", "batch"),
        ("patch", "statefulsets", "apps"),
        ("patch", "deployments", "apps"),
        ("create", "clusterqueues", "kueue.x-k8s.io"),
        ("delete", "clusterqueues", "kueue.x-k8s.io"),
        ("update", "clusterqueues", "kueue.x-k8s.io"),
        ("patch", "localqueues", "kueue.x-k8s.io"),
        ("create", "topologies", "kueue.x-k8s.io"),
        ("patch", "priorityclasses", "scheduling.k8s.io"),
        ("update", "customresourcedefinitions", "apiextensions.k8s.io"),
        ("update", "mutatingwebhookconfigurations", "admissionregistration.k8s.io"),
        ("create", "clusterrolebindings", "rbac.authorization.k8s.io"),
        ("create", "serviceaccounts/token", ""),
        ("impersonate", "users", ""),
        ("*", "*", "*"),
    ],
)
def test_the_rest_is_refused(installed: Cluster, verb: str, resource: str, group: str) -> None:
    assert not may(installed, verb, resource, group)
