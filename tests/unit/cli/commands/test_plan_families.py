"""`bayplan plan` for what names no queue, and for groups of pods, on a cluster in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from bayplan.dialects.kube.decode.wire import PODS_KIND
from tests.support.api_objects import pod
from tests.support.queued_cluster import (
    RACK,
    Object,
    QueuedCluster,
    furnish,
    furniture,
    queued_cluster,
    queued_job,
    queued_workload,
    template,
)

GANG_API = "scheduling.k8s.io/v1beta1"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueuedCluster]:
    with queued_cluster(tmp_path_factory.mktemp("plans")) as made:
        furnish(made)
        yield made


def plan(cluster: QueuedCluster, *documents: Object, options: tuple[str, ...] = ()) -> Result:
    return cluster.run("plan", "-f", "-", *options, stdin=yaml.safe_dump_all(documents))


def records(cluster: QueuedCluster, *documents: Object) -> dict[str, Any]:
    result = plan(cluster, *documents, options=("-o", "json"))
    return {one["gang"]: one for one in json.loads(result.stdout)["gangs"]}


def gpu_pod(
    name: str, gpus: int = 4, labels: Object | None = None, notes: Object | None = None, **spec: Any
) -> Object:
    whole = {"schedulerName": "bayplan", **template(gpus)["spec"], **spec}
    return pod(name, namespace="ml", labels=labels or {}, annotations=notes or {}, **whole)


def our_job(name: str, pods: int, gpus: int, scheduler: str = "bayplan", **notes: str) -> Object:
    made = queued_job(name, pods, gpus, "", **notes)
    made["spec"]["template"]["spec"]["schedulerName"] = scheduler
    del made["spec"]["suspend"]
    return made


def group(name: str, minimum: int) -> Object:
    spec = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
    return {
        "apiVersion": GANG_API,
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": spec,
    }


def test_pods_of_one_queued_group_are_one_gang(cluster: QueuedCluster) -> None:
    labels = {"kueue.x-k8s.io/queue-name": "left", "kueue.x-k8s.io/pod-group-name": "pair"}
    notes = {"kueue.x-k8s.io/pod-group-total-count": "2", "kueue.x-k8s.io/podset-required-topology": RACK}
    pods = [gpu_pod(f"p{number}", labels=labels, notes=notes) for number in range(2)]
    result = plan(cluster, *pods)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("pod group ml/pair: would be admitted now\n")
    assert result.stdout.count("would be admitted") == 1 and "2 pods of 4 gpu" in result.stdout
    lacking = plan(cluster, pods[0])
    assert lacking.exit_code == 2
    assert "pod group ml/pair: 1 of its 2 pods are in the files" in lacking.stderr


def test_pods_of_a_pod_group_are_one_gang_wherever_it_stands_in_the_file(cluster: QueuedCluster) -> None:
    pods = [gpu_pod(f"p{number}", schedulingGroup={"podGroupName": "ring"}) for number in range(9)]
    fits = plan(cluster, *pods[:8], group("ring", 8))
    assert fits.exit_code == 0, fits.output
    assert fits.stdout.startswith("PodGroup ml/ring: would start now\n")
    waits = plan(cluster, group("ring", 9), *pods)
    assert waits.exit_code == 3
    assert waits.stdout.startswith(
        "PodGroup ml/ring: would be pending: pod group is unschedulable: 8 of 9 pods fit"
    )
    short = plan(cluster, group("ring", 9), pods[0])
    assert short.exit_code == 3 and "1 of 9" in short.stdout


def test_groups_of_the_kai_api_are_planned(cluster: QueuedCluster) -> None:
    meta = {"name": "pg", "namespace": "ml"}
    parts: Object = {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": meta}
    pods = [gpu_pod(f"k{number}", notes={"pod-group-name": "pg"}) for number in range(2)]
    result = plan(cluster, {**parts, "spec": {"minMember": 2}}, *pods)
    assert result.exit_code == 0 and result.stdout.startswith("PodGroup ml/pg: would start now\n"), (
        result.output
    )


def test_a_job_without_a_queue_is_planned_as_the_scheduler_would_place_it(cluster: QueuedCluster) -> None:
    result = plan(cluster, our_job("plain", 2, 4, podset_required_topology=RACK))
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "Job ml/plain: would start now",
        "  requests: 2 x 8 cpu, 4 gpu, priority 0",
        "  needs: 2 pods at once",
        "  where:",
        "    rack b1/r1, 2 hosts",
        "    h1: 1 pod",
        "    h2: 1 pod",
    ]
    waits = plan(cluster, our_job("wide", 3, 4, podset_required_topology=RACK))
    assert waits.exit_code == 3
    assert "would be pending: " in waits.stdout and "only 2 out of 3 pod(s)" in waits.stdout


def test_a_job_of_another_scheduler_is_planned_and_that_is_told(cluster: QueuedCluster) -> None:
    result = plan(cluster, our_job("lonely", 1, 1, "default-scheduler"))
    assert result.exit_code == 0
    assert "note: as written, its pods are for the scheduler default-scheduler; " in result.stdout


def test_job_sets_and_controllers_without_a_queue_are_planned(cluster: QueuedCluster) -> None:
    spec = our_job("x", 2, 4)["spec"]
    replicated = [{"name": "w", "replicas": 2, "template": {"spec": spec}}]
    meta = {"name": "set", "namespace": "ml"}
    job_set = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": meta}
    body = {**template(4), "metadata": {"labels": {"app": "web"}}}
    body["spec"] = {**body["spec"], "schedulerName": "bayplan", "restartPolicy": "Always"}
    web: Object = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "ml"},
    }
    web["spec"] = {"replicas": 6, "selector": {"matchLabels": {"app": "web"}}, "template": body}
    found = records(cluster, {**job_set, "spec": {"replicatedJobs": replicated}}, web)
    assert sum(found["JobSet ml/set"]["nodes"].values()) == 4
    assert found["JobSet ml/set"]["admitted"] and not found["Deployment ml/web"]["admitted"]
    assert sum(found["Deployment ml/web"]["nodes"].values()) == 4, "the set took the other four hosts"


def test_gangs_with_and_without_a_queue_share_the_nodes_in_their_order(cluster: QueuedCluster) -> None:
    first, last = our_job("first", 4, 4), our_job("last", 1, 4)
    found = records(cluster, first, queued_workload("queued", 4, 4, "left"), last)
    assert list(found) == ["Job ml/first", "Workload ml/queued", "Job ml/last"]
    assert [one["admitted"] for one in found.values()] == [True, True, False]


def test_queues_in_the_same_file_count(tmp_path: Path) -> None:
    rules = [obj for kind, obj in furniture() if kind.kind not in ("Node", "Namespace")]
    with queued_cluster(tmp_path) as bare:
        for kind, obj in furniture():
            if kind.kind in ("Node", "Namespace"):
                bare.put(kind, obj)
        result = plan(bare, queued_job("train", 2, 4), *rules)
        assert result.exit_code == 0, result.output
        assert result.stdout.startswith("Job ml/train: would be admitted now\n")


def test_objects_that_are_no_gangs_are_skipped_beside_one(cluster: QueuedCluster) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    result = plan(cluster, secret, our_job("plain", 1, 1))
    assert result.exit_code == 0 and result.stderr.startswith("skipped: Secret is not a gang; ")


def test_a_cluster_without_queues_plans_what_needs_none(tmp_path: Path) -> None:
    with queued_cluster(tmp_path, defined=False) as bare:
        for kind, obj in furniture():
            if kind.kind in ("Node", "Namespace"):
                bare.put(kind, obj)
        assert plan(bare, our_job("plain", 8, 4)).exit_code == 0
        queued = plan(bare, queued_job("queued", 1, 1))
        assert queued.exit_code == 1 and "has no queues: it does not serve" in queued.stderr


def test_an_absurd_number_of_pods_is_refused_at_once(cluster: QueuedCluster) -> None:
    result = plan(cluster, our_job("huge", 2_000_000_000, 1))
    assert result.exit_code == 2
    assert (
        "Job ml/huge has 2,000,000,000 pods; without a queue, a plan accepts at most 20,000" in result.stderr
    )


def test_a_pod_that_is_larger_than_any_node_is_told_so(cluster: QueuedCluster) -> None:
    result = plan(cluster, gpu_pod("giant", 5))
    assert result.exit_code == 3 and "too large: " in result.stdout, result.output


def test_nothing_is_written(cluster: QueuedCluster) -> None:
    before = cluster.store.version
    plan(
        cluster,
        our_job("plain", 2, 4),
        group("ring", 2),
        *[gpu_pod("p0", schedulingGroup={"podGroupName": "ring"})],
    )
    assert cluster.store.version == before


def test_what_is_in_the_cluster_already_is_refused(cluster: QueuedCluster) -> None:
    cluster.put(PODS_KIND, gpu_pod("here"))
    result = plan(cluster, gpu_pod("here"))
    assert result.exit_code == 2 and "Pod ml/here is in the cluster already" in result.stderr
    cluster.store.delete(PODS_KIND, "ml", "here")


def test_priority_classes_of_the_file_count(tmp_path: Path) -> None:
    with queued_cluster(tmp_path) as made:
        furnish(made)
        for number in range(8):
            made.put(PODS_KIND, gpu_pod(f"low-{number}", nodeName=f"h{number + 1}"))
        urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        urgent |= {"metadata": {"name": "urgent"}, "value": 100}  # type: ignore[dict-item]
        result = plan(made, gpu_pod("high", priorityClassName="urgent"), urgent)
        assert result.exit_code == 3 and "preempts: ml/low-" in result.stdout, result.output
        missing = plan(made, gpu_pod("high", priorityClassName="urgnet"))
        assert missing.exit_code == 2 and "there is no PriorityClass urgnet" in missing.stderr
