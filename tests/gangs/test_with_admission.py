"""Admission places a job and the scheduler binds it there: one cluster, each pod counted once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from bayplan.assembly.local_cluster import ClusterShape, LocalCluster
from bayplan.dialects.api import Event, Happened, Kind
from bayplan.dialects.jobs.batch_jobs import JOBS
from bayplan.dialects.kueue.decode.scheduled_jobs import decode
from bayplan.dialects.kueue.names import api_kinds
from bayplan.model.change import GangSpecSeen
from bayplan.runtime.core.clock import VirtualClock
from tests.support.api_objects import container, job

Object = dict[str, Any]
PODS = Kind("", "v1", "Pod", "pods")
GPU = "nvidia.com/gpu"
RACK = "topology.bayplan.dev/rack"
HOSTS, GPUS, RACKS = 2, 4, 2


def made(name: str, spec: Object) -> Object:
    return {"metadata": {"name": name}, "spec": spec}


@pytest.fixture
def home() -> LocalCluster:
    """Two racks, and a queue for all of them."""
    found = LocalCluster(ClusterShape(1, RACKS, HOSTS, GPUS), VirtualClock(wall=1_800_000_000.0))
    cells = [{"name": GPU, "nominalQuota": HOSTS * GPUS * RACKS}]
    groups = [{"coveredResources": [GPU], "flavors": [{"name": "gpu", "resources": cells}]}]
    found.store.create(
        api_kinds.FLAVORS,
        made("gpu", {"topologyName": "data-centre", "nodeLabels": {"topology.bayplan.dev/block": "b01"}}),
    )
    queue = {"namespaceSelector": {}, "resourceGroups": groups}
    found.store.create(api_kinds.CLUSTER_QUEUES, made("all", queue))
    found.store.create(api_kinds.LOCAL_QUEUES, made("all", {"clusterQueue": "all"}), "default")
    return found


def rack_job(name: str) -> Object:
    """A job of a whole rack, with half a host for each pod."""
    template = {
        "metadata": {"annotations": {"kueue.x-k8s.io/podset-required-topology": RACK}},
        "spec": {
            "schedulerName": "bayplan",
            "restartPolicy": "Never",
            "containers": [container(limits={GPU: "2"})],
        },
    }
    return job(name, template, 4, labels={"kueue.x-k8s.io/queue-name": "all"}, completionMode="Indexed")


def play(home: LocalCluster, seconds: float) -> None:
    clock = home.clock
    assert isinstance(clock, VirtualClock)
    for _ in range(int(seconds * 2)):
        for _ in range(5):
            home.step()
        clock.advance(0.5)


def test_two_jobs_fill_both_racks_to_the_last_device(home: LocalCluster) -> None:
    for name in ("one", "two"):
        home.store.create(JOBS, rack_job(name), "default")
    play(home, 12)
    pods = home.store.list(PODS).items
    assert len(pods) == 8
    for pod in pods:
        assert pod["spec"]["nodeName"] == pod["spec"]["nodeSelector"]["kubernetes.io/hostname"]
    held = Counter(pod["spec"]["nodeName"] for pod in pods)
    assert set(held.values()) == {2} and len(held) == HOSTS * RACKS
    for name in ("one", "two"):
        hosts = {pod["spec"]["nodeName"] for pod in pods if pod["metadata"]["name"].startswith(name)}
        assert len({host.split("-")[1] for host in hosts}) == 1, "a rack for each"


@pytest.mark.parametrize("placed", [False, True])
def test_the_tree_of_a_job_counts_only_until_admission_has_placed_it(placed: bool) -> None:
    """Afterwards each pod names its host; placing the tree again might choose another one."""
    found = rack_job("one")
    found["kind"] = "Job"
    if placed:
        found["spec"]["template"]["metadata"]["annotations"]["kueue.x-k8s.io/workload"] = "job-one"
    (change,) = decode(Event(Happened.SEEN, JOBS, found))
    assert isinstance(change, GangSpecSeen)
    assert (change.spec.tree is None, change.spec.minimum) == (placed, 4)
