"""Topology requests: annotations, requests, Workloads and jobs → localities, segments and gangs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bayplan.dialects.jobs.kinds import is_known
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.job_gang import job_gang
from bayplan.dialects.kueue.fields.topology_and_flavor import flavor, topology
from bayplan.dialects.kueue.fields.topology_request import TopologyRequest, decode_request, topology_request
from bayplan.dialects.kueue.fields.workload import needs_no_placement, workload_gang
from bayplan.dialects.kueue.names.annotations import PREFIX, read_annotations
from bayplan.model.gang import AUTO, Gang, Group, Locality, PodSet, Segment
from bayplan.model.node_rules import Taint, Toleration
from tests.support.api_objects import job, workload

RACK, BLOCK, HOST = "cloud.com/rack", "cloud.com/block", "kubernetes.io/hostname"


def notes(**values: Any) -> dict[str, Any]:
    """Annotations by their short names: required_topology → kueue.x-k8s.io/podset-required-topology."""
    return {f"{PREFIX}podset-{name.replace('_', '-')}": value for name, value in values.items()}


@pytest.mark.parametrize(
    ("annotations", "want"),
    [
        ({}, None),
        (notes(required_topology=RACK), TopologyRequest(Locality(required=RACK))),
        (notes(preferred_topology=RACK), TopologyRequest(Locality(preferred=RACK))),
        (notes(unconstrained_topology="true"), TopologyRequest(Locality())),
        (notes(unconstrained_topology=True), TopologyRequest(Locality())),
        (
            notes(slice_required_topology=RACK, slice_size="4"),
            TopologyRequest(Locality(), (Segment(4, RACK),)),
        ),
        (
            notes(required_topology=BLOCK, slice_required_topology=RACK, slice_size=4),
            TopologyRequest(Locality(required=BLOCK), (Segment(4, RACK),)),
        ),
        (
            notes(
                required_topology="dc",
                slice_required_topology_constraints=f"""[
                    {{"topology": "{BLOCK}", "size": "8"}},
                    {{"topology": "{RACK}", "size": 4}},
                ]""",
            ),
            TopologyRequest(Locality(required="dc"), (Segment(8, BLOCK), Segment(4, RACK))),
        ),
        (
            notes(preferred_topology=RACK, group_name="lws"),
            TopologyRequest(Locality(preferred=RACK), group="lws"),
        ),
        ({PREFIX + "require-topology": RACK}, TopologyRequest(Locality(required=RACK))),
        ({PREFIX + "prefer-topology": "auto"}, TopologyRequest(Locality(preferred=AUTO))),
        ({PREFIX + "require-topology": "auto"}, TopologyRequest(Locality(required=AUTO))),
    ],
)
def test_annotations_become_locality_and_segments(
    annotations: dict[str, Any], want: TopologyRequest | None
) -> None:
    request = topology_request(read_annotations(Field({"annotations": annotations})))
    assert want == (None if request is None else decode_request(Field(request)))


def annotated_job(annotations: dict[str, Any], **spec: Any) -> dict[str, Any]:
    containers = [{"resources": {"limits": {"nvidia.com/gpu": 4}}}]
    template = {"metadata": {"annotations": annotations}, "spec": {"containers": containers}}
    labels = {PREFIX + "queue-name": "q"}
    return job("train", template, namespace="ml", labels=labels, **{"parallelism": 4, **spec})


def only(gang: Gang) -> PodSet:
    (pod_set,) = gang.root.pod_sets()
    return pod_set


def test_a_job_is_one_pod_set_of_as_many_pods_as_run_at_once() -> None:
    field = Field(annotated_job(notes(required_topology=RACK), parallelism=8, completions=6))
    gang = job_gang(field)
    assert field.errors == ()
    assert (gang.source.kind, gang.source.namespace, gang.source.name) == ("Job", "ml", "train")
    assert gang.queue == "q"
    assert replace(only(gang), zones=None) == PodSet(
        "main", count=6, minimum=6, requests={"nvidia.com/gpu": 4}, locality=Locality(required=RACK)
    )
    assert only(job_gang(Field(annotated_job({})))).count == 4


def test_a_job_may_have_a_minimum_parallelism() -> None:
    written = annotated_job({})
    written["metadata"]["annotations"] = {PREFIX + "job-min-parallelism": "2"}
    assert only(job_gang(Field(written))).minimum == 2
    written["metadata"]["annotations"] = {PREFIX + "job-min-parallelism": "9"}
    field = Field(written)
    assert only(job_gang(field)).minimum == 4
    assert [error.why for error in field.errors] == ["should be between 0 and 3"]


def test_the_draft_annotations_may_be_on_the_job() -> None:
    written = annotated_job({})
    written["metadata"]["annotations"] = {PREFIX + "prefer-topology": "auto"}
    assert only(job_gang(Field(written))).locality == Locality(preferred=AUTO)


def job_set(*replicated: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "set"},
        "spec": {"replicatedJobs": list(replicated)},
    }


def replicated_job(name: str, replicas: int, annotations: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "name": name,
        "replicas": replicas,
        "template": {"spec": annotated_job(annotations, **spec)["spec"]},
    }


def test_each_replicated_job_is_a_pod_set_and_its_segment_is_one_job() -> None:
    annotations = notes(preferred_topology=BLOCK, slice_required_topology=HOST)
    field = Field(
        job_set(
            replicated_job("leader", 1, notes(required_topology=BLOCK), parallelism=1),
            replicated_job("workers", 2, annotations, parallelism=4),
        )
    )
    leader, workers = job_gang(field).root.pod_sets()
    assert field.errors == ()
    assert (leader.name, leader.count, leader.segments) == ("leader", 1, ())
    assert (workers.name, workers.count, workers.segments) == ("workers", 8, (Segment(4, HOST),))
    assert workers.locality == Locality(preferred=BLOCK)


def test_pod_sets_of_one_group_name_become_a_group_with_their_locality() -> None:
    annotations = notes(required_topology=RACK, group_name="lws")
    field = Field(
        job_set(
            replicated_job("leader", 1, annotations, parallelism=1),
            replicated_job("other", 1, {}, parallelism=2),
            replicated_job("workers", 1, annotations, parallelism=4),
        )
    )
    group, other = job_gang(field).root.members
    assert field.errors == ()
    assert isinstance(group, Group)
    assert (group.name, group.minimum, group.locality) == ("lws", 2, Locality(required=RACK))
    assert [pod_set.name for pod_set in group.pod_sets()] == ["leader", "workers"]
    assert other.name == "other"


@pytest.mark.parametrize(
    ("replicated", "why"),
    [
        (
            [replicated_job("a", 1, notes(required_topology=RACK, group_name="g"))],
            "exactly 2 pod sets, got: 1",
        ),
        (
            [
                replicated_job("a", 1, notes(required_topology=RACK, group_name="g")),
                replicated_job("b", 1, notes(required_topology=RACK, group_name="g")),
            ],
            "got: 4 replica",
        ),
        (
            [
                replicated_job("a", 1, notes(required_topology=RACK, group_name="g"), parallelism=1),
                replicated_job("b", 1, notes(required_topology=BLOCK, group_name="g")),
            ],
            "topology consistent with",
        ),
        ([replicated_job("a", 1, {}), replicated_job("a", 1, {})], "another pod set"),
        ([replicated_job("a", -1, {})], "must not be less than 0"),
        ([replicated_job("a", 2**30, {})], "makes more than"),
        ([replicated_job("", 1, {})], "must be set"),
        ([], "at least one job"),
    ],
)
def test_invalid_job_sets_are_rejected(replicated: list[dict[str, Any]], why: str) -> None:
    field = Field(job_set(*replicated))
    job_gang(field)
    assert any(why in error.why for error in field.errors), field.errors


@pytest.mark.parametrize(
    ("annotations", "path", "why"),
    [
        (notes(required_topology=RACK, preferred_topology=RACK), "", "more than one topology annotation"),
        (
            {PREFIX + "require-topology": "auto"} | notes(required_topology=RACK),
            "",
            "more than one topology annotation",
        ),
        (notes(required_topology="bad level!"), "podset-required-topology", "name part must consist"),
        (notes(required_topology=""), "podset-required-topology", "must be non-empty"),
        (notes(unconstrained_topology="maybe"), "podset-unconstrained-topology", "boolean"),
        (notes(slice_required_topology=RACK), "podset-slice-size", "must be set when"),
        (notes(slice_size="2"), "podset-slice-size", "is not specified"),
        (notes(slice_required_topology=RACK, slice_size="x"), "podset-slice-size", "numeric"),
        (
            notes(slice_required_topology=RACK, slice_size="-1"),
            "podset-slice-size",
            "greater than or equal to 1",
        ),
        (notes(slice_required_topology=RACK, slice_size=5), "podset-slice-size", "pod set count 4"),
        (notes(slice_required_topology=RACK, slice_size="9" * 30), "podset-slice-size", "numeric"),
        (notes(group_name="7", required_topology=RACK), "podset-group-name", "must not be a number"),
        (notes(group_name="g"), "podset-group-name", "neither"),
        (
            notes(slice_required_topology_constraints="[]"),
            "podset-slice-required-topology-constraints",
            "between 1 and 3",
        ),
        (
            notes(slice_required_topology_constraints="{"),
            "podset-slice-required-topology-constraints",
            "unexpected end of JSON input",
        ),
        (
            notes(slice_required_topology_constraints="[" * 100_000),
            "podset-slice-required-topology-constraints",
            "exceeded max depth",
        ),
        (
            notes(
                slice_required_topology_constraints='[{"topology":"a","size":4},{"topology":"b","size":3}]'
            ),
            "podset-slice-required-topology-constraints][1].size",
            "evenly divide the parent layer size 4",
        ),
        (
            notes(
                slice_required_topology_constraints='[{"topology":"a","size":4},{"topology":"a","size":2}]'
            ),
            "podset-slice-required-topology-constraints][1].topology",
            "",
        ),
    ],
)
def test_invalid_annotations_are_rejected(annotations: dict[str, Any], path: str, why: str) -> None:
    field = Field(annotated_job(annotations))
    job_gang(field)
    assert any(path in error.path and why in error.why for error in field.errors), field.errors
    assert all(error.path.startswith("spec.template.metadata.annotations") for error in field.errors)


def workload_of(*pod_sets: dict[str, Any], **more: Any) -> dict[str, Any]:
    return workload("w", *pod_sets, namespace="n", queueName="q", priority=-5) | more


def test_a_workload_is_a_gang() -> None:
    layers = [{"topology": BLOCK, "size": 4}, {"topology": RACK, "size": 2}]
    field = Field(
        workload_of(
            {"name": "plain", "count": 3, "minCount": 2},
            {
                "name": "one",
                "count": 4,
                "topologyRequest": {"podSetSliceRequiredTopology": RACK, "podSetSliceSize": 2},
            },
            {
                "name": "two",
                "count": 8,
                "topologyRequest": {"required": "dc", "podsetSliceRequiredTopologyConstraints": layers},
            },
        )
    )
    gang = workload_gang(field)
    assert field.errors == ()
    assert (gang.queue, gang.priority) == ("q", -5)
    plain, one, two = gang.root.pod_sets()
    assert (plain.count, plain.minimum, plain.locality, plain.segments) == (3, 2, Locality(), ())
    assert (one.locality, one.segments) == (Locality(), (Segment(2, RACK),))
    assert (two.locality, two.segments) == (Locality(required="dc"), (Segment(4, BLOCK), Segment(2, RACK)))


def test_all_errors_of_a_workload_are_recorded() -> None:
    field = Field(
        workload_of(
            {"name": "a", "count": -1},
            {"name": "a", "count": 2, "minCount": 3, "topologyRequest": {"required": "x", "preferred": "y"}},
            {"count": "many", "topologyRequest": {"podSetSliceRequiredTopology": RACK}},
        )
    )
    workload_gang(field)
    assert {error.path for error in field.errors} == {
        "spec.podSets[0].count",
        "spec.podSets[1].name",
        "spec.podSets[1].minCount",
        "spec.podSets[1].topologyRequest.preferred",
        "spec.podSets[2].name",
        "spec.podSets[2].count",
        "spec.podSets[2].topologyRequest.podSetSliceSize",
    }


def test_an_admitted_or_finished_workload_needs_no_placement() -> None:
    assert not needs_no_placement(Field(workload_of()))
    assert needs_no_placement(Field(workload_of(status={"admission": {"clusterQueue": "c"}})))
    assert needs_no_placement(
        Field(workload_of(status={"conditions": [{"type": "Finished", "status": "True"}]}))
    )


def test_kinds_are_distinguished_by_group() -> None:
    assert is_known(Field({"kind": "Job"}))
    assert is_known(Field({"kind": "Job", "apiVersion": "batch/v1"}))
    assert not is_known(Field({"kind": "Job", "apiVersion": "batch.volcano.sh/v1alpha1"}))
    assert not is_known(Field({"kind": "ConfigMap"}))


def test_topologies_and_flavors() -> None:
    levels = [{"nodeLabel": BLOCK}, {"nodeLabel": HOST}]
    found = topology(Field({"metadata": {"name": "t"}, "spec": {"levels": levels}}))
    assert found is not None
    assert (found.name, found.levels) == ("t", (BLOCK, HOST))
    spec = {
        "nodeLabels": {"pool": "gpu"},
        "nodeTaints": [{"key": "k", "effect": "NoSchedule"}],
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "topologyName": "t",
    }
    kind = flavor(Field({"metadata": {"name": "f"}, "spec": spec}))
    assert (kind.name, kind.labels, kind.topology) == ("f", {"pool": "gpu"}, "t")
    assert kind.taints == (Taint("k", "", "NoSchedule"),)
    assert kind.tolerations == (Toleration("k", "Exists"),)


@pytest.mark.parametrize(
    ("levels", "why"),
    [
        ([], "between 1 and 16"),
        ([{"nodeLabel": f"l{number}"} for number in range(17)], "between 1 and 16"),
        ([{"nodeLabel": HOST}, {"nodeLabel": RACK}], "only be the lowest"),
        ([{"nodeLabel": RACK}, {"nodeLabel": RACK}], "twice"),
        ([{}], "must name a topology level"),
    ],
)
def test_invalid_topologies_are_rejected(levels: list[dict[str, str]], why: str) -> None:
    field = Field({"metadata": {"name": "t"}, "spec": {"levels": levels}})
    topology(field)
    assert any(why in error.why for error in field.errors)
