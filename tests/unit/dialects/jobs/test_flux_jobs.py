"""MiniCluster of the Flux operator."""

from __future__ import annotations

from typing import Any

from bayplan.dialects.jobs.kinds import parts
from bayplan.dialects.jobs.part import COMPLETION_INDEX
from bayplan.dialects.jobs.validation import flaws
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.job_gang import job_gang
from bayplan.dialects.kueue.webhooks.job_defaults import default_on_write
from bayplan.dialects.kueue.webhooks.validate import validate
from tests.support.kai_owners import made, owned_pod, thing

Object = dict[str, Any]
QUEUE = "kueue.x-k8s.io/queue-name"
RACK = {"kueue.x-k8s.io/podset-required-topology": "rack"}


def mini_cluster(size: int = 4, labels: Object | None = None, notes: Object | None = None) -> Object:
    container = {"image": "lammps", "resources": {"limits": {"nvidia.com/gpu": 2}}}
    spec = {"size": size, "containers": [container], "pod": {"annotations": notes or {}, "labels": {}}}
    return thing("flux-framework.org/v1alpha2", "MiniCluster", spec, labels)


def test_a_mini_cluster_is_one_pod_set_with_a_broker_in_each_pod() -> None:
    (brokers,) = parts(Field(mini_cluster(notes=RACK)))
    assert (brokers.name, brokers.count, brokers.index_label) == ("main", 4, COMPLETION_INDEX)
    assert brokers.template.at("spec", "containers").value == [
        {"name": "flux-0", "resources": {"limits": {"nvidia.com/gpu": 2}}}
    ]
    (pod_set,) = job_gang(Field(mini_cluster(notes=RACK))).root.pod_sets()
    assert pod_set.locality is not None and "rack" in str(pod_set.locality)


def test_the_queue_of_a_mini_cluster_is_handed_to_its_job_which_waits_in_its_place() -> None:
    cluster = default_on_write(mini_cluster(labels={QUEUE: "hpc"}))
    assert cluster["spec"]["jobLabels"] == {QUEUE: "hpc"}
    reference = {"apiVersion": cluster["apiVersion"], "kind": "MiniCluster", "name": "own", "uid": "u-own"}
    references = [{**reference, "controller": True}]
    job = thing("batch/v1", "Job", {"template": {}}, cluster["spec"]["jobLabels"], ownerReferences=references)
    assert default_on_write(job)["spec"]["suspend"] is True


def test_errors_of_a_mini_cluster_are_told_at_its_fields() -> None:
    wrong = mini_cluster(notes={"kueue.x-k8s.io/podset-slice-size": "2"}, labels={QUEUE: "hpc"})
    assert any("podset-slice-size" in str(error) for error in validate(wrong, None))
    wrong["spec"] = {"size": "four", "pod": [], "containers": {}}
    assert {error.path for error in flaws(wrong)} >= {"spec.size", "spec.pod", "spec.containers"}


def test_the_pods_of_a_mini_cluster_are_one_gang_in_segments_by_rank() -> None:
    job = thing("batch/v1", "Job", {"parallelism": 4, "completionMode": "Indexed"}, name="job")
    whole = made(owned_pod({COMPLETION_INDEX: "3"}), job, mini_cluster())
    assert whole.group is not None and (whole.group.minimum, whole.group.sub_groups) == (4, ())
    notes = {
        "kai.scheduler/segment-size": "2",
        "kai.scheduler/topology": "dc",
        "kai.scheduler/segment-topology-required-placement": "rack",
    }
    cut = made(owned_pod({COMPLETION_INDEX: "3"}, notes), job, mini_cluster(notes=notes))
    assert cut.error == "" and cut.sub_group == "main-1"
