"""The webhooks for PodGroups, Queues, Topologies, and for pods in segments."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from bayplan.assembly.in_process_webhooks import register_webhooks
from bayplan.assembly.webhooks import registry
from bayplan.backends.embedded.api.status import StatusError
from bayplan.dialects.kai.api.names import SEGMENT_REQUIRED, SEGMENT_SIZE, TOPOLOGY_NAME
from bayplan.dialects.kai.decode.webhooks import set_segment_index, validate
from bayplan.runtime.controllers.pod_grouper.controller import PodGrouperController
from bayplan.runtime.webhooks.admission_review import admit
from tests.support.kai_site import RACK, Site
from tests.support.pod_site import Object

NOTES = {TOPOLOGY_NAME: "hall", SEGMENT_SIZE: "4", SEGMENT_REQUIRED: RACK}
INDEX = "training.kubeflow.org/replica-index"
WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
CYCLE = [{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}]


def variables(pod: Object) -> dict[str, str]:
    return {one["name"]: one["value"] for one in pod["spec"]["containers"][0].get("env") or ()}


def made(labels: Mapping[str, str], notes: Mapping[str, str] = NOTES, kind: str = "PyTorchJob") -> Object:
    ref = {"apiVersion": "kubeflow.org/v1", "kind": kind, "name": "t", "uid": "1", "controller": True}
    meta = {"name": "p", "namespace": "default", "labels": dict(labels), "annotations": dict(notes)}
    container = {"name": "c", "env": [{"name": "MINE", "value": "1"}]}
    return {"metadata": {**meta, "ownerReferences": [ref]}, "spec": {"containers": [container]}}


def test_the_in_memory_cluster_uses_the_same_webhooks() -> None:
    site = Site(grouper=PodGrouperController())
    register_webhooks(site.store)
    with pytest.raises(StatusError, match="cycle detected in subgroups"):
        site.group("g", subGroups=CYCLE)
    with pytest.raises(StatusError, match="must not be less than the quota"):
        site.queue("q", resources={"cpu": {"quota": 4, "limit": 2}})
    template = {"metadata": {"annotations": NOTES}, "spec": {"containers": []}}
    types = {"Worker": {"replicas": 8, "template": template}}
    ref = site.owner("PyTorchJob", "train", {"pytorchReplicaSpecs": types})
    labels = {"training.kubeflow.org/replica-type": "worker", INDEX: "6"}
    site.pod("w6", labels=labels, owner=ref, notes=NOTES)
    assert variables(site.get("w6")) == {"KAI_SEGMENT_INDEX": "1"}
    assert site.get("w6")["metadata"]["annotations"]["kai.scheduler/segment-index"] == "1"
    site.pod("plain", labels=labels, owner=ref)
    assert variables(site.get("plain")) == {}


@pytest.mark.parametrize(
    ("labels", "notes", "segment"),
    [
        ({INDEX: "9"}, NOTES, "2"),
        ({WORKER_INDEX: "4"}, NOTES, "0"),  # the leader is number 0, and counted before the workers
        ({WORKER_INDEX: "5"}, NOTES, "1"),
        ({"rank": "4"}, {**NOTES, "kai.scheduler/pod-index-label": "rank"}, "1"),
        ({INDEX: "x"}, NOTES, None),
        ({}, NOTES, None),
        ({INDEX: "9"}, {**NOTES, SEGMENT_SIZE: "0"}, None),
        ({INDEX: "9"}, {}, None),
    ],
)
def test_a_pod_gets_its_segment_index_while_its_owner_is_unknown(
    labels: dict[str, str], notes: dict[str, str], segment: str | None
) -> None:
    pod = made(labels, notes)
    told = set_segment_index(pod, None)
    assert variables(told).get("KAI_SEGMENT_INDEX") == segment and variables(told)["MINE"] == "1"
    assert set_segment_index(told, None) == told, "doing it twice is doing it once"
    assert set_segment_index(pod, pod) is pod, "only new pods are told"


def test_pods_of_the_jobs_of_a_cron_job_get_their_segment_index() -> None:
    ref = {"apiVersion": "batch/v1", "controller": True}
    notes = {SEGMENT_SIZE: "2", SEGMENT_REQUIRED: RACK}
    pod = made({"batch.kubernetes.io/job-completion-index": "3"}, notes)
    pod["metadata"]["ownerReferences"] = [{**ref, "kind": "Job", "name": "run", "uid": "2"}]
    spec = {"parallelism": 4, "completionMode": "Indexed", "template": {"metadata": {"annotations": notes}}}
    above = [{**ref, "kind": "CronJob", "name": "cron", "uid": "3"}]
    run: Object = {"metadata": {"name": "run", "uid": "2", "ownerReferences": above}, "spec": spec}
    meta = {"name": "cron", "uid": "3", "annotations": {TOPOLOGY_NAME: "hall"}}
    known: dict[str, Object] = {"Job": run, "CronJob": {"metadata": meta, "spec": {}}}

    def owner(group: str, kind: str, namespace: str, name: str) -> Object | None:
        return known.get(kind)

    assert variables(set_segment_index(pod, None, owner))["KAI_SEGMENT_INDEX"] == "1"


def test_a_pod_of_an_unknown_set_is_accepted() -> None:
    pod = made({"leaderworkerset.sigs.k8s.io/name": "serve", WORKER_INDEX: "3"}, {}, "LeaderWorkerSet")
    assert "KAI_SEGMENT_INDEX" not in variables(set_segment_index(pod, None))


def test_existing_errors_do_not_prevent_updates() -> None:
    def group(*names: str, parent: str = "") -> Object:
        parts = [{"name": name, "parent": parent} for name in names]
        return {"kind": "PodGroup", "metadata": {"name": "g"}, "spec": {"subGroups": parts}}

    bad = group("a", parent="gone")
    assert [str(one) for one in validate(bad, None)]
    assert not validate(bad, bad) and not validate(None, bad)
    assert not validate({**bad, "spec": {**bad["spec"], "queue": "q"}}, bad)
    assert validate(group("a", "a"), group("a"))


def test_a_topology_is_immutable() -> None:
    old, new = (
        {"kind": "Topology", "metadata": {"name": "t"}, "spec": {"levels": [{"nodeLabel": label}]}}
        for label in ("zone", "rack")
    )
    assert "immutable" in str(validate(new, old)[0])


def test_a_minimum_that_differs_from_the_sub_groups_is_accepted_with_a_warning() -> None:
    def answer(minimum: int) -> Object:
        spec = {"minMember": minimum, "subGroups": [{"name": "a", "minMember": 2}]}
        group = {"kind": "PodGroup", "metadata": {"name": "g"}, "spec": spec}
        what = {"resource": {"group": "scheduling.run.ai", "resource": "podgroups"}, "operation": "CREATE"}
        request = {"uid": "1", "kind": {"kind": "PodGroup"}, **what, "object": group}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        said: Object = admit(json.dumps(review).encode(), registry(), mutating=False).body["response"]
        return said

    assert answer(2) == {"uid": "1", "allowed": True}
    assert answer(50)["allowed"] and "its sub-groups need 2 pods" in answer(50)["warnings"][0]
