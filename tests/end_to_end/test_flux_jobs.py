"""A queued MiniCluster on a real control plane; its operator is imitated, its CRD has no schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from bayplan.backends.fake_controllers.crds import schemaless_crd
from bayplan.dialects.jobs.flux_jobs import MINI_CLUSTER
from tests.end_to_end.admission_site import GPU, HOST, RACK, WORKLOADS, Site, admitting, with_queue
from tests.end_to_end.objects import Object, bind, eventually

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

INDEX = "batch.kubernetes.io/job-completion-index"
SIZE = 4


@pytest.fixture(scope="module")
def site(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("flux")
    with with_queue(cluster, "flux-test", folder, "flux") as found:
        found.apply(schemaless_crd(MINI_CLUSTER.resource))
        found.kubectl("wait", "--for=condition=Established", "crd/miniclusters.flux-framework.org")
        with admitting(found, folder / "run", "--pod-batch-seconds=0.1"):
            yield found
            found.kubectl("delete", "miniclusters,jobs", "--all", "-n", "default", "--cascade=foreground")
        found.kubectl("delete", WORKLOADS, "--all", "-n", "default")
        found.kubectl("delete", "crd", "miniclusters.flux-framework.org")


def mini_cluster(name: str) -> Object:
    limits = {"limits": {GPU: 2}, "requests": {GPU: 2}}
    notes = {"kueue.x-k8s.io/podset-required-topology": RACK}
    meta = {"name": name, "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "flux"}}
    pod = {"annotations": notes, "schedulerName": "by-hand"}
    spec = {"size": SIZE, "containers": [{"image": "none", "resources": limits}], "pod": pod}
    return {"apiVersion": MINI_CLUSTER.api_version, "kind": "MiniCluster", "metadata": meta, "spec": spec}


def operated(cluster: Object) -> Object:
    """The Job that the Flux operator creates: indexed, as large as the cluster, with its labels."""
    meta, spec = cluster["metadata"], cluster["spec"]
    reference = {"apiVersion": cluster["apiVersion"], "kind": "MiniCluster", "name": meta["name"]}
    reference |= {"uid": meta["uid"], "controller": True}
    containers = [{"name": "flux", **one} for one in spec["containers"]]
    pod = {"restartPolicy": "Never", "schedulerName": spec["pod"]["schedulerName"], "containers": containers}
    template = {"metadata": {"annotations": spec["pod"]["annotations"]}, "spec": pod}
    counts = {"parallelism": spec["size"], "completions": spec["size"], "completionMode": "Indexed"}
    own = {"name": meta["name"], "namespace": "default", "labels": spec.get("jobLabels") or {}}
    own["ownerReferences"] = [reference]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": own,
        "spec": {**counts, "template": template},
    }


def bound(site: Site, name: str) -> dict[int, str]:
    """Bind what is ungated, as kube-scheduler would; where each rank is."""
    placed = {}
    for pod in site.cluster.get("pods", "-n", "default", f"-ljob-name={name}")["items"]:
        meta, spec = pod["metadata"], pod["spec"]
        host = (spec.get("nodeSelector") or {}).get(HOST)
        if host and not spec.get("schedulingGates"):
            if not spec.get("nodeName"):
                bind(site.cluster, "default", meta["name"], host)
            placed[int(meta["labels"][INDEX])] = host
    return placed


def test_a_queued_mini_cluster_waits_is_admitted_and_runs_as_a_gang_at_its_ranks(site: Site) -> None:
    site.patch("clusterqueues", "flux", {"stopPolicy": "Hold"})
    text = json.dumps(mini_cluster("lammps"))
    made = json.loads(site.kubectl("create", "-o", "json", "-f", "-", stdin=text))
    site.kubectl("create", "-f", "-", stdin=json.dumps(operated(made)))

    def workloads() -> list[Object]:
        found: list[Object] = site.cluster.get(WORKLOADS, "-n", "default")["items"]
        return found

    eventually(lambda: len(workloads()) == 1, "its Job has a Workload")
    assert workloads()[0]["spec"]["queueName"] == "flux"
    assert site.cluster.get("jobs", "lammps", "-n", "default")["spec"]["suspend"] is True
    assert site.cluster.get("pods", "-n", "default", "-ljob-name=lammps")["items"] == []
    site.patch("clusterqueues", "flux", {"stopPolicy": "None"})
    eventually(lambda: len(bound(site, "lammps")) == SIZE, "all pods are ungated")
    places = bound(site, "lammps")
    ranked = [places[rank] for rank in sorted(places)]
    assert sorted(places) == list(range(SIZE)) and ranked == sorted(ranked)
    assert len({host.split("-")[1] for host in ranked}) == 1, "one rack"
