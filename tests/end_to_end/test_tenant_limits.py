"""What a tenant with `edit` in one namespace tries, and what our own account may not do, on a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from bayplan.backends.remote.backend import RemoteBackend
from bayplan.backends.remote.kubeconfig import load
from bayplan.dialects.api import Ended, Verb, Write, WriteOutcome
from bayplan.dialects.kube.decode.wire import PODS_KIND
from bayplan.dialects.kueue.fields.job_rules import SCHEDULING_GATE
from bayplan.dialects.kueue.names.annotations import TOPOLOGY_GATE
from tests.end_to_end.admission_site import Site, installed
from tests.end_to_end.objects import Object, eventually
from tests.support.api_objects import container, job, pod
from tools.controlplane.plan import Trouble

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

HOME, SPACE = "limits-test", "limits-tenant"
TENANT = ("--as=mallory", "--as-group=system:authenticated")
ACCOUNT = (f"--as=system:serviceaccount:{HOME}:bayplan", "--as-group=system:serviceaccounts")
QUEUE, CLASS = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
NEW, OLD = "workloads.v1beta2.kueue.x-k8s.io", "workloads.v1beta1.kueue.x-k8s.io"


@pytest.fixture(scope="module")
def site(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A namespace with a default queue whose tenant may edit everything in it, but no statuses of ours."""
    folder = tmp_path_factory.mktemp("limits")
    with installed(cluster, HOME, folder) as found:
        rights = {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["*"]}
        found.apply(
            space("v1", "Namespace"),
            space("rbac.authorization.k8s.io/v1", "Role", rules=[rights]),
            *(binding(kind, name) for kind, name in (("ClusterRole", "edit"), ("Role", SPACE))),
            space("kueue.x-k8s.io/v1beta2", "LocalQueue", "default", spec={"clusterQueue": "none"}),
        )
        create(found, tenant_pod("probe", queue="default"))
        eventually(lambda: "bayplan" in tried(found, TENANT, "probe", UNGATED), "policies are in force", 60)
        yield found
        found.kubectl("delete", "pods,jobs,jobsets", "--all", "-n", SPACE, "--wait=false")
        for one in found.cluster.get("pods", "-n", SPACE)["items"]:
            patch = json.dumps({"metadata": {"finalizers": None}})
            name = one["metadata"]["name"]
            found.kubectl("patch", "pod", name, "-n", SPACE, "--type=merge", "-p", patch)
        found.kubectl("delete", "namespace", SPACE)


def space(version: str, kind: str, name: str = SPACE, **more: Any) -> Object:
    inside = {} if kind == "Namespace" else {"namespace": SPACE}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **inside}, **more}


def binding(kind: str, name: str) -> Object:
    group = "rbac.authorization.k8s.io"
    return space(
        f"{group}/v1",
        "RoleBinding",
        name,
        roleRef={"apiGroup": group, "kind": kind, "name": name},
        subjects=[{"apiGroup": group, "kind": "User", "name": "mallory"}],
    )


def tenant_pod(name: str, *, queue: str = "", owner: Object | None = None) -> Object:
    owners = {} if owner is None else {"ownerReferences": [owner]}
    return pod(name, namespace=SPACE, labels={QUEUE: queue} if queue else {}, metadata=owners)


def queued_job(name: str, **labels: str) -> Object:
    template = {"spec": {"restartPolicy": "Never", "containers": [container()]}}
    return job(name, template, namespace=SPACE, labels={QUEUE: "default", **labels})


def create(site: Site, obj: Object) -> Object:
    """As the tenant."""
    answer = site.kubectl("create", *TENANT, "-f", "-", "-o", "json", stdin=json.dumps(obj))
    found: Object = json.loads(answer)
    return found


def tried(site: Site, user: tuple[str, ...], name: str, patch: Object, kind: str = "pod") -> str:
    """What a user is told who changes an object, which stays as it is; nothing if it would be changed."""
    way = "strategic" if "containers" in json.dumps(patch) and kind != "jobset" else "merge"
    command = ("patch", kind, name, "-n", SPACE, *user, f"--type={way}", "-p", json.dumps(patch))
    return refusal(site, *command, "--dry-run=server")


def refusal(site: Site, *command: str, stdin: str | None = None) -> str:
    try:
        site.kubectl(*command, stdin=stdin)
    except Trouble as wrong:
        return str(wrong)
    return ""


UNGATED: Object = {"spec": {"schedulingGates": None}}


# ── a tenant ───────────────────────────────────────────────────────────────────────────────────────


def test_the_gates_of_a_queued_pod_stay_until_we_remove_them(site: Site) -> None:
    gates = [one["name"] for one in site.cluster.get("pod", "probe", "-n", SPACE)["spec"]["schedulingGates"]]
    assert gates == [SCHEDULING_GATE, TOPOLOGY_GATE]
    for gate in gates:
        left = {"spec": {"schedulingGates": [{"name": one} for one in gates if one != gate]}}
        assert "can only be removed by bayplan" in tried(site, TENANT, "probe", left)
    for user in (ACCOUNT, ()):  # we may, and so may an administrator
        assert not tried(site, user, "probe", UNGATED)


@pytest.mark.parametrize(
    "change",
    [
        {"labels": {"kueue.x-k8s.io/managed": None}},
        {"labels": {"kueue.x-k8s.io/podset": "other"}},
        {"labels": {"kueue.x-k8s.io/pod-group-name": "other"}},
        {"annotations": {"kueue.x-k8s.io/workload": "none"}},
        {"annotations": {"kueue.x-k8s.io/role-hash": "other"}},
        {"annotations": {"kueue.x-k8s.io/pod-suspending-parent": "deployment"}},
    ],
    ids=json.dumps,
)
def test_what_admission_reads_from_a_pod_cannot_be_changed(site: Site, change: Object) -> None:
    assert "cannot be changed once it exists" in tried(site, TENANT, "probe", {"metadata": change})


def test_everything_else_of_a_pod_stays_the_tenants(site: Site) -> None:
    for change in (
        {"labels": {"mine": "x"}},
        {"annotations": {"kueue.x-k8s.io/retriable-in-group": "false"}},
    ):
        assert not tried(site, TENANT, "probe", {"metadata": change})


def test_an_invented_owner_exempts_nothing_from_the_default_queue(site: Site) -> None:
    other = json.loads(site.kubectl("get", "serviceaccount", "default", "-n", SPACE, "-o", "json"))
    real = {"apiVersion": "v1", "kind": "ServiceAccount", "name": "default", "uid": other["metadata"]["uid"]}
    invented = {"apiVersion": "batch/v1", "kind": "Job", "name": "none", "uid": "1-2-3"}
    for number, owner in enumerate((real, invented, {**real, "kind": "Job", "apiVersion": "batch/v1"})):
        found = create(site, tenant_pod(f"owned-{number}", owner={**owner, "controller": True}))
        assert found["metadata"]["labels"][QUEUE] == "default", owner
        assert found["spec"]["schedulingGates"], owner


def test_the_pods_of_a_job_that_is_there_are_left_to_it(site: Site) -> None:
    boss = create(site, queued_job("boss"))
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "boss", "uid": boss["metadata"]["uid"]}
    made_by = tenant_pod("child", owner={**owner, "controller": True})
    made_by["metadata"]["labels"] = boss["spec"]["selector"]["matchLabels"]
    assert QUEUE not in create(site, made_by)["metadata"]["labels"]
    stray = create(site, tenant_pod("stray", owner={**owner, "controller": True}))
    assert stray["metadata"]["labels"][QUEUE] == "default", "the job controller would let go of it"


def test_a_priority_class_has_to_exist(site: Site) -> None:
    wrong = json.dumps(queued_job("above", **{CLASS: "above-all"}))
    told = refusal(site, "create", *TENANT, "-f", "-", stdin=wrong)
    assert "there is no WorkloadPriorityClass of this name" in told
    best = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "value": 1}
    site.apply({**best, "metadata": {"name": "above-all"}})
    create(site, queued_job("above", **{CLASS: "above-all"}))  # known at once


def test_a_status_cannot_be_written_by_way_of_a_conversion(site: Site) -> None:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "100"}}}
    part = {
        "name": "main",
        "count": 1,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    when = {"reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    admitted = [{"type": kind, "status": "True", **when} for kind in ("QuotaReserved", "Admitted")]
    note = [
        {"path": ["status", "conditions"], "original": admitted},
        {"path": ["spec", "preemptionGates"], "original": 7},
        {"path": ["spec", "active"], "original": "text"},
    ]
    forged = space(
        "kueue.x-k8s.io/v1beta1", "Workload", "forged", spec={"podSets": [part], "queueName": "default"}
    )
    forged["metadata"]["annotations"] = {"bayplan.dev/v1beta2": json.dumps(note)}
    create(site, forged)
    found = site.cluster.get(NEW, "forged", "-n", SPACE)
    assert not (found.get("status") or {}).get("conditions") and "preemptionGates" not in found["spec"]
    assert found["spec"].get("active", True) is True
    site.kubectl("annotate", OLD, "forged", "-n", SPACE, *TENANT, f"bayplan.dev/v1beta2={json.dumps(note)}")
    assert not (site.cluster.get(NEW, "forged", "-n", SPACE).get("status") or {}).get("conditions")
    denied = {"status": {"conditions": admitted}}
    command = ("patch", NEW, "forged", "-n", SPACE, *TENANT, "--subresource=status", "--type=merge")
    assert "forbidden" in refusal(site, *command, "-p", json.dumps(denied)).lower()


# ── our own account ────────────────────────────────────────────────────────────────────────────────

IMAGE = {"spec": {"containers": [{"name": "main", "image": "other"}]}}


@pytest.mark.parametrize(
    "change",
    [
        IMAGE,
        {"spec": {"activeDeadlineSeconds": 5}},
        {
            "metadata": {
                "finalizers": None,
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y"}],
            }
        },
        {"metadata": {"finalizers": ["example.com/mine"]}},
    ],
    ids=lambda change: json.dumps(change)[:60],
)
def test_our_account_cannot_change_what_a_pod_runs(site: Site, change: Object) -> None:
    assert "bayplan may change only" in tried(site, ACCOUNT, "probe", change)


def test_our_account_can_ungate_a_pod_and_say_where_it_goes(site: Site) -> None:
    meta = {"labels": {"kueue.x-k8s.io/podset": "main"}, "finalizers": None}
    known = site.cluster.get("pod", "probe", "-n", SPACE)["spec"].get("tolerations", [])
    spec = {"nodeSelector": {"x": "y"}, "tolerations": [*known, {"operator": "Exists"}]} | UNGATED["spec"]
    assert not tried(site, ACCOUNT, "probe", {"metadata": meta, "spec": spec})


def test_our_account_can_tell_a_pod_why_it_waits_but_not_how_it_is(site: Site) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "x"}
    backend = RemoteBackend(load(site.kubeconfig, None))

    def told(status: Object) -> str:
        body = {"status": status}
        backend.submit([Write(Verb.STRATEGIC_PATCH, PODS_KIND, SPACE, "probe", body, "status")])
        found: list[WriteOutcome] = []

        def has_ended() -> bool:
            found.extend(backend.outcomes())
            return bool(found)

        eventually(has_ended, "the write ends")
        return "" if found[0].ended is Ended.DONE else found[0].message

    try:
        assert not told({"conditions": [condition]})
        for status in ({"podIP": "10.0.0.1"}, {"phase": "Succeeded"}):
            assert "of a pod's status" in told(status)
    finally:
        backend.close()


@pytest.mark.parametrize(
    "spec",
    [
        {"activeDeadlineSeconds": 5},
        {"backoffLimit": 0},
        {"template": {"spec": {"containers": [{"name": "main", "image": "other"}]}}},
        {"template": {"spec": {"serviceAccountName": "default"}}},
    ],
    ids=lambda spec: json.dumps(spec)[:60],
)
def test_our_account_cannot_change_what_a_job_runs(site: Site, spec: Object) -> None:
    if refusal(site, "get", "job", "steady", "-n", SPACE):
        create(site, queued_job("steady"))
    told = tried(site, ACCOUNT, "steady", {"spec": spec}, "job")
    assert "bayplan may change only the suspend flag of a Job" in told or "field is immutable" in told


def test_our_account_can_start_a_job(site: Site) -> None:
    create(site, queued_job("starts"))
    template = {
        "metadata": {"labels": {"x": "y"}},
        "spec": {"nodeSelector": {"x": "y"}, "schedulingGates": [{"name": "g"}]},
    }
    assert not tried(site, ACCOUNT, "starts", {"spec": {"suspend": False, "template": template}}, "job")


def test_our_account_can_start_a_job_set_and_change_nothing_else_of_it(site: Site) -> None:
    inner = {"spec": {"template": queued_job("x")["spec"]["template"]}}
    spec: Object = {"replicatedJobs": [{"name": "a", "template": inner}, {"name": "b", "template": inner}]}
    found = space("jobset.x-k8s.io/v1alpha2", "JobSet", "several", spec=spec)
    found["metadata"]["labels"] = {QUEUE: "default"}
    site.apply(found)
    kept = site.cluster.get("jobset", "several", "-n", SPACE)["spec"]["replicatedJobs"]

    def changed(**pod: Any) -> Object:
        jobs = json.loads(json.dumps(kept))
        jobs[1]["template"]["spec"]["template"]["spec"] |= pod
        return {"spec": {"suspend": False, "replicatedJobs": jobs}}

    assert not tried(site, ACCOUNT, "several", changed(nodeSelector={"x": "y"}), "jobset")
    other = [{**kept[1]["template"]["spec"]["template"]["spec"]["containers"][0], "image": "other"}]
    assert "bayplan may change only" in tried(site, ACCOUNT, "several", changed(containers=other), "jobset")


# ── what the policies are made of ──────────────────────────────────────────────────────────────────


def test_the_api_server_finds_nothing_wrong_with_the_expressions(site: Site) -> None:
    def listed() -> list[Object]:
        found = site.cluster.get("validatingadmissionpolicies", "-l", "app.kubernetes.io/part-of=bayplan")
        return list(found["items"])

    def is_checked(one: Object) -> bool:
        """A status that is too large is never written: kube-controller-manager then tries again for ever."""
        return bool(one.get("status", {}).get("observedGeneration") == one["metadata"]["generation"])

    eventually(lambda: all(is_checked(one) for one in listed()), "every policy is checked", 60)
    for one in listed():
        checking = one["status"].get("typeChecking", {})
        assert not checking.get("expressionWarnings"), one["metadata"]["name"]
