"""Ungating on a real control plane: pods of real Jobs, with only the rights that were installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.end_to_end.admission_site import (
    GPU,
    HOST,
    WORKLOADS,
    Site,
    admitting,
    gang_workload,
    with_queue,
)
from tests.end_to_end.objects import Object, eventually
from tests.support.api_objects import container, job

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

INDEX = "batch.kubernetes.io/job-completion-index"
GATE = "kueue.x-k8s.io/topology"


@pytest.fixture(scope="module")
def site(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A cluster with hosts and a queue, and nobody yet who admits."""
    with with_queue(cluster, "ungating-test", tmp_path_factory.mktemp("ungating"), "gate") as found:
        yield found
        found.kubectl("delete", "job", "--all", "-n", "default", "--cascade=foreground")
        found.kubectl("delete", WORKLOADS, "--all", "-n", "default")


def admitted_job(name: str, pods: int) -> Object:
    """An indexed Job as it is when its Workload was admitted."""
    notes = {"kueue.x-k8s.io/workload": name, "kueue.x-k8s.io/podset-unconstrained-topology": "true"}
    template = {
        "metadata": {"labels": {"kueue.x-k8s.io/podset": "main"}, "annotations": notes},
        "spec": {
            "restartPolicy": "Never",
            "schedulerName": "by-hand",
            "schedulingGates": [{"name": GATE}],
            "containers": [container(limits={GPU: "1"})],
        },
    }
    return job(name, template, pods, namespace="default", completionMode="Indexed")


def unconstrained_workload(name: str, pods: int) -> Object:
    made = gang_workload(name, "gate", pods, 1)
    made["spec"]["podSets"][0]["topologyRequest"] = {"unconstrained": True, "podIndexLabel": INDEX}
    return made


def pods_of(site: Site, name: str) -> list[Object]:
    found: list[Object] = site.cluster.get("pods", "-n", "default", "-l", f"job-name={name}")["items"]
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def sent(site: Site, name: str) -> dict[int, str]:
    """Where each rank was sent; gated pods were sent nowhere."""
    found = {}
    for pod in pods_of(site, name):
        selector = pod["spec"].get("nodeSelector") or {}
        assert (HOST in selector) != bool(pod["spec"].get("schedulingGates"))
        if HOST in selector:
            found[int(pod["metadata"]["labels"][INDEX])] = selector[HOST]
    return found


def slots(site: Site, name: str) -> dict[int, str]:
    ranks = [host for host, count in site.hosts(name).items() for _ in range(count)]
    return dict(enumerate(ranks))


def all_sent(site: Site, name: str, pods: int) -> None:
    eventually(lambda: len(sent(site, name)) == pods, f"the {pods} pods of {name} are ungated")
    assert sent(site, name) == slots(site, name)


def test_pods_made_before_during_and_after_a_restart_start_in_rank_order(site: Site, tmp_path: Path) -> None:
    with admitting(site, tmp_path / "first") as process:
        site.apply(unconstrained_workload("train", 10))
        site.wait_admitted("train")
        site.apply(admitted_job("train", 10))
        eventually(lambda: len(pods_of(site, "train")) > 0, "the first pods are made")
        process.kill()
        process.wait()
    eventually(lambda: len(pods_of(site, "train")) == 10, "all pods are made")
    with admitting(site, tmp_path / "second"):
        all_sent(site, "train", 10)
        before = {pod["metadata"]["uid"] for pod in pods_of(site, "train")}
        for pod in pods_of(site, "train")[:2]:
            site.kubectl(
                "delete", "pod", "-n", "default", pod["metadata"]["name"], "--force", "--grace-period=0"
            )

        def replaced() -> bool:
            now = {pod["metadata"]["uid"] for pod in pods_of(site, "train")}
            return len(now) == 10 and len(now - before) == 2

        eventually(replaced, "the Job makes two more")
        all_sent(site, "train", 10)
