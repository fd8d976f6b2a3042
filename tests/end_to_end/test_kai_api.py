"""Pod groups, queues and topologies on a real API server: what our definitions accept, fill in and refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from bayplan.backends.definitions import definitions, is_of_groups
from bayplan.dialects.api import Kind
from bayplan.dialects.kai.api.names import QUEUE, TOPOLOGY
from bayplan.dialects.kai.api.pod_group import pod_group_object, read_pod_group
from bayplan.dialects.kai.grouper.dispatch import group_pod
from bayplan.dialects.kai.grouper.training import REPLICA_TYPE
from bayplan.dialects.kube.fields.reader import Field
from tests.support.kai_api import BAD, Object, obj
from tools.controlplane.plan import Trouble

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

NOTES = {
    "kai.scheduler/segment-size": "4",
    "kai.scheduler/segment-topology-required-placement": "rack",
    "kai.scheduler/topology": "hall",
}


@pytest.fixture(scope="module", autouse=True)
def defined(cluster: Cluster) -> Iterator[None]:
    ours = [one for one in definitions() if is_of_groups(one)]
    cluster.apply(*ours)
    names = [f"crd/{one['metadata']['name']}" for one in ours]
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", *names)
    yield
    cluster.kubectl("delete", *names)  # to kubectl, `queues` are LocalQueues again


@pytest.mark.parametrize(("kind", "spec", "why"), BAD)
def test_the_schema_refuses(cluster: Cluster, kind: Kind, spec: Object, why: str) -> None:
    with pytest.raises(Trouble) as refused:
        cluster.kubectl("create", "-f", "-", stdin=json.dumps(obj(kind, spec)))
    assert why in str(refused.value)


def test_a_group_that_was_made_for_a_pod_is_read_as_it_was_written(cluster: Cluster) -> None:
    template = {"metadata": {"annotations": NOTES}, "spec": {"containers": []}}
    owner = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "train", "namespace": "default", "uid": "1"},
        "spec": {"elasticPolicy": {"minReplicas": 12},
                 "pytorchReplicaSpecs": {"Worker": {"replicas": 1024, "template": template}}},
    }  # fmt: skip
    labels = {REPLICA_TYPE: "worker", "training.kubeflow.org/replica-index": "9"}
    pod = {"metadata": {"name": "train-worker-9", "namespace": "default", "labels": labels}}
    made = group_pod(pod, [owner]).group
    assert made is not None and len(made.sub_groups) == 257
    orphan = pod_group_object(made)
    del orphan["metadata"]["ownerReferences"]  # it is not there, and the garbage collector would notice
    cluster.apply(orphan)
    kept = read_pod_group(Field(cluster.get("podgroups.scheduling.run.ai", "-n", "default", made.name)))
    assert [(one.name, one.minimum, one.parent, one.constraint) for one in kept.sub_groups] == [
        (one.name, one.minimum, one.parent, one.constraint) for one in made.sub_groups
    ]
    shown = cluster.kubectl("get", "podgroups.scheduling.run.ai", "-n", "default", made.name)
    assert shown.split()[:6] == ["NAME", "QUEUE", "MINIMUM", "RUNNING", "PENDING", "AGE"]


def test_what_is_left_out_has_a_default_and_a_topology_stays_as_it_is(cluster: Cluster) -> None:
    cluster.apply(obj(QUEUE, {}, "q"), obj(TOPOLOGY, {"levels": [{"nodeLabel": "zone"}]}, "hall"))
    assert cluster.get("queues.scheduling.run.ai", "q")["spec"]["priority"] == 100
    with pytest.raises(Trouble, match="immutable"):
        cluster.apply(obj(TOPOLOGY, {"levels": [{"nodeLabel": "rack"}]}, "hall"))
