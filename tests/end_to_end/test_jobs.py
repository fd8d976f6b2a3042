"""Jobs and JobSets that name a queue, from kubectl to their end, on a real control plane."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.end_to_end.admission_site import (
    GPU,
    HOST,
    POOL,
    RACK,
    WORKLOADS,
    Site,
    admitting,
    made,
    with_queue,
)
from tests.end_to_end.objects import Object, bind, eventually

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

INDEX = "batch.kubernetes.io/job-completion-index"
JOB_INDEX = "jobset.sigs.k8s.io/job-index"
FOREVER = "100000"


@pytest.fixture(scope="module")
def site(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A cluster with hosts and a queue, and somebody who admits."""
    folder = tmp_path_factory.mktemp("jobs")
    with with_queue(cluster, "jobs-test", folder, "jobs") as found:
        with admitting(found, folder / "run", "--pod-batch-seconds=0.1"):
            yield found
            found.kubectl("delete", "job,jobset", "--all", "-n", "default", "--cascade=foreground")
        found.kubectl("delete", WORKLOADS, "--all", "-n", "default")


def template(seconds: str) -> Object:
    limits = {GPU: "2"}
    container = {"name": "main", "image": "none", "resources": {"requests": limits, "limits": limits}}
    notes = {"bayplan.dev/run-seconds": seconds, "kueue.x-k8s.io/podset-required-topology": RACK}
    spec = {"restartPolicy": "Never", "schedulerName": "by-hand", "containers": [container]}
    return {"metadata": {"annotations": notes}, "spec": spec}


def timed_job(name: str, seconds: str) -> Object:
    counts = {"parallelism": 4, "completions": 4, "completionMode": "Indexed"}
    return queued("batch/v1", "Job", name, {**counts, "template": template(seconds)})


def job_set(name: str, seconds: str) -> Object:
    counts = {"parallelism": 2, "completions": 2, "completionMode": "Indexed"}
    part = {"name": "workers", "replicas": 2}
    inner = {"spec": {**counts, "template": template(seconds)}}
    return queued(
        "jobset.x-k8s.io/v1alpha2", "JobSet", name, {"replicatedJobs": [{**part, "template": inner}]}
    )


def queued(version: str, kind: str, name: str, spec: Object) -> Object:
    meta = {"name": name, "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "jobs"}}
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}


def pods_of(site: Site, name: str) -> list[Object]:
    found: list[Object] = site.cluster.get("pods", "-n", "default")["items"]
    return [pod for pod in found if pod["metadata"]["name"].startswith(f"{name}-")]


def bound(site: Site, name: str) -> dict[tuple[int, int], str]:
    """Bind what is ungated, as kube-scheduler would; where each rank is."""
    placed = {}
    for pod in pods_of(site, name):
        meta, spec = pod["metadata"], pod["spec"]
        host = (spec.get("nodeSelector") or {}).get(HOST)
        if host and not spec.get("schedulingGates"):
            if not spec.get("nodeName") and not meta.get("deletionTimestamp"):
                bind(site.cluster, "default", meta["name"], host)
            placed[int(meta["labels"].get(JOB_INDEX, "0")), int(meta["labels"][INDEX])] = host
    return placed


def own_workload(site: Site, uid: str) -> Object | None:
    label = f"-lkueue.x-k8s.io/job-uid={uid}"
    found = site.cluster.get(WORKLOADS, "-n", "default", label)["items"]
    return found[0] if found else None


def holds(obj: Object, kind: str) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or []
    return any(one["type"] == kind and one["status"] == "True" for one in conditions)


def reasons(site: Site, name: str) -> list[str]:
    ours = "involvedObject.kind!=Workload,involvedObject.kind!=Pod"
    selector = f"--field-selector=involvedObject.name={name},{ours}"
    found = site.cluster.get("events", "-n", "default", selector)["items"]
    mine = [one for one in found if one["source"].get("component") == "bayplan"]
    mine.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
    return [one["reason"] for one in mine]


@pytest.mark.parametrize(
    ("made", "done"),
    [(timed_job("plain", "2"), "Complete"), (job_set("set", "2"), "Completed")],
    ids=["Job", "JobSet"],
)
def test_a_queued_job_runs_in_one_rack_in_rank_order_and_ends(site: Site, made: Object, done: str) -> None:
    kind, name = made["kind"].lower(), made["metadata"]["name"]
    site.kubectl("create", "-f", "-", stdin=json.dumps(made))
    first = site.cluster.get(kind, name, "-n", "default")
    uid = first["metadata"]["uid"]
    eventually(lambda: len(bound(site, name)) == 4, "all pods are ungated")
    places = bound(site, name)
    ranked = [places[key] for key in sorted(places)]
    assert ranked == sorted(ranked) and len(set(ranked)) == 2
    assert len({host.split("-")[1] for host in ranked}) == 1
    eventually(lambda: holds(site.cluster.get(kind, name, "-n", "default"), done), f"the {kind} ends")
    eventually(lambda: holds(own_workload(site, uid) or {}, "Finished"), "its Workload is finished")
    eventually(lambda: reasons(site, name)[-1:] == ["FinishedWorkload"], "it is announced")
    assert reasons(site, name) == ["CreatedWorkload", "Started", "FinishedWorkload"]
    eventually(lambda: _used(site) == "0", "the quota is back")
    site.kubectl("delete", kind, name, "-n", "default")
    eventually(lambda: own_workload(site, uid) is None and not pods_of(site, name), "nothing is left")


@pytest.mark.parametrize(
    "made", [timed_job("leaver", FOREVER), job_set("leavers", FOREVER)], ids=["Job", "JobSet"]
)
def test_a_job_that_has_to_leave_is_as_it_was_and_comes_back(site: Site, made: Object) -> None:
    kind, name = made["kind"].lower(), made["metadata"]["name"]
    before = json.loads(site.kubectl("create", "-o", "json", "-f", "-", stdin=json.dumps(made)))
    assert before["spec"]["suspend"] is True
    uid = before["metadata"]["uid"]
    eventually(lambda: len(bound(site, name)) == 4, "all pods are ungated")
    workload = own_workload(site, uid)
    assert workload is not None
    site.patch(WORKLOADS, workload["metadata"]["name"], {"active": False})
    eventually(lambda: _used(site) == "0", "the quota is back")
    eventually(lambda: not pods_of(site, name), "its pods are gone")
    after = site.cluster.get(kind, name, "-n", "default")
    assert _scheduling(after) == _scheduling(before)
    assert after["spec"]["suspend"] is True
    assert after["metadata"].get("annotations") == before["metadata"].get("annotations")
    site.patch(WORKLOADS, workload["metadata"]["name"], {"active": True})
    eventually(lambda: len(bound(site, name)) == 4, "it runs again")
    assert {pod["spec"]["nodeSelector"][POOL] for pod in pods_of(site, name)} == {"jobs"}
    site.kubectl("delete", kind, name, "-n", "default")
    eventually(lambda: own_workload(site, uid) is None and not pods_of(site, name), "nothing is left")


def test_a_group_of_plain_pods_runs_together_and_ends_its_workload(site: Site) -> None:
    made = template("2")
    notes = {**made["metadata"]["annotations"], "kueue.x-k8s.io/pod-group-total-count": "2"}
    labels = {"kueue.x-k8s.io/queue-name": "jobs", "kueue.x-k8s.io/pod-group-name": "band"}
    for number in range(2):
        meta = {"name": f"band-{number}", "namespace": "default", "annotations": notes}
        meta["labels"] = {**labels, INDEX: str(number)}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": made["spec"]}
        site.kubectl("create", "-f", "-", stdin=json.dumps(body))
    eventually(lambda: len(bound(site, "band")) == 2, "both pods are ungated")
    eventually(lambda: holds(site.workload("band"), "Finished"), "the Workload is finished")
    assert site.told("band", "Finished") == ("True", "Succeeded", "Pods succeeded: 2/2.")
    eventually(lambda: _used(site) == "0", "the quota is back")
    site.kubectl("delete", "pod", "band-0", "band-1", "-n", "default")
    eventually(lambda: not _there(site, "band"), "nothing is left")


def test_where_there_is_a_default_queue_jobs_without_one_run_through_it(site: Site) -> None:
    site.apply(made("LocalQueue", "default", {"clusterQueue": "jobs"}))
    plain = timed_job("homeless", FOREVER)
    del plain["metadata"]["labels"]

    def queued_by_default() -> bool:  # the webhooks hear of a queue a moment after it was made
        told = site.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(plain))
        return json.loads(told)["spec"].get("suspend") is True

    eventually(queued_by_default, "jobs are queued by default")
    site.kubectl("create", "-f", "-", stdin=json.dumps(plain))
    labels = site.cluster.get("job", "homeless", "-n", "default")["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/queue-name"] == "default"
    eventually(lambda: len(bound(site, "homeless")) == 4, "all pods are ungated")
    assert all(
        "kueue.x-k8s.io/queue-name" not in pod["metadata"]["labels"] for pod in pods_of(site, "homeless")
    )
    site.kubectl("delete", "job", "homeless", "-n", "default")
    site.kubectl("delete", "localqueue", "default", "-n", "default")
    eventually(lambda: not queued_by_default(), "and no longer without that queue")
    eventually(lambda: not pods_of(site, "homeless"), "nothing is left")


def _there(site: Site, name: str) -> bool:
    found = site.cluster.get(WORKLOADS, "-n", "default")["items"]
    return any(one["metadata"]["name"] == name for one in found)


def _used(site: Site) -> str:
    status = site.cluster.get("clusterqueue", "jobs").get("status") or {}
    usage = status.get("flavorsReservation") or [{"resources": [{"total": "?"}]}]
    return str(usage[0]["resources"][0]["total"])


def _scheduling(obj: Object) -> list[Object]:
    """The pod templates of a Job or JobSet."""
    spec = obj["spec"]
    parts = [one["template"]["spec"] for one in spec.get("replicatedJobs") or ()] or [spec]
    return [part["template"] for part in parts]
