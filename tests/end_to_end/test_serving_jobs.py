"""Things that serve, and groups of plain pods, from kubectl to their end on a real control plane."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.end_to_end.admission_site import (
    GPU,
    HOST,
    RACK,
    WORKLOADS,
    Site,
    admitting,
    with_queue,
)
from tests.end_to_end.objects import Object, bind, eventually
from tools.controlplane.plan import Trouble

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

POD_INDEX = "apps.kubernetes.io/pod-index"
RANK = "example.com/rank"
PREFIX = "kueue.x-k8s.io/"
QUEUED = {f"{PREFIX}queue-name": "serve"}
IN_ONE_RACK = {f"{PREFIX}podset-required-topology": RACK}
FOREVER = {"bayplan.dev/run-seconds": "100000"}


@pytest.fixture(scope="module")
def site(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A cluster with hosts and a queue for eight pods, and somebody who admits."""
    folder = tmp_path_factory.mktemp("serving")
    with (
        with_queue(cluster, "serving-test", folder, "serve") as found,
        admitting(found, folder / "run", "--pod-batch-seconds=0.1"),
    ):
        yield found
        for kind in ("statefulset,deployment", WORKLOADS, "pod"):
            found.kubectl("delete", kind, "--all", "-n", "default")


def template(notes: dict[str, str], labels: dict[str, str], restart: str = "Always") -> Object:
    amounts = {GPU: "2"}
    container = {"name": "main", "image": "none", "resources": {"requests": amounts, "limits": amounts}}
    spec = {"restartPolicy": restart, "schedulerName": "by-hand", "containers": [container]}
    return {"metadata": {"annotations": {**FOREVER, **notes}, "labels": labels}, "spec": spec}


def serving(kind: str, name: str, replicas: int, notes: dict[str, str], **more: Any) -> Object:
    app = {"app": name}
    spec = {"replicas": replicas, "selector": {"matchLabels": app}, "template": template(notes, app), **more}
    meta = {"name": name, "namespace": "default", "labels": QUEUED}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": meta, "spec": spec}


def group_pod(group: str, rank: int, size: int, name: str = "") -> Object:
    notes = {**IN_ONE_RACK, f"{PREFIX}pod-group-total-count": str(size)}
    notes[f"{PREFIX}pod-group-pod-index-label"] = RANK
    labels = {**QUEUED, f"{PREFIX}pod-group-name": group, "app": group, RANK: str(rank)}
    made = template(notes, labels, "Never")
    meta = {**made["metadata"], "name": name or f"{group}-{rank}", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": made["spec"]}


def create(site: Site, *objects: Object) -> None:
    for one in objects:
        site.kubectl("create", "-f", "-", stdin=json.dumps(one))


def pods_of(site: Site, name: str) -> list[Object]:
    found: list[Object] = site.cluster.get("pods", "-n", "default", "-l", f"app={name}")["items"]
    return found


def bound(site: Site, name: str) -> list[Object]:
    """Bind what is ungated, as kube-scheduler would; the pods that were."""
    placed = []
    for pod in pods_of(site, name):
        spec, leaving = pod["spec"], pod["metadata"].get("deletionTimestamp")
        host = (spec.get("nodeSelector") or {}).get(HOST)
        if host and not spec.get("schedulingGates") and not leaving:
            if not spec.get("nodeName"):
                bind(site.cluster, "default", pod["metadata"]["name"], host)
            placed.append(pod)
    return placed


def in_rank_order(site: Site, name: str, pods: int, label: str) -> list[str]:
    """Wait for all pods; where each rank is: two in a row on each of two hosts of one rack."""
    eventually(lambda: len(bound(site, name)) == pods, f"the {pods} pods of {name} are ungated")
    ranks = {
        int(pod["metadata"]["labels"][label]): pod["spec"]["nodeSelector"][HOST] for pod in bound(site, name)
    }
    assert sorted(ranks) == list(range(pods))
    places = [ranks[rank] for rank in range(pods)]
    assert places == sorted(places) and len(set(places)) == 2
    assert len({host.split("-")[1] for host in places}) == 1
    return places


def workloads(site: Site) -> list[Object]:
    found: list[Object] = site.cluster.get(WORKLOADS, "-n", "default")["items"]
    return found


def scale(site: Site, kind: str, name: str, replicas: int) -> None:
    site.kubectl("scale", f"{kind}/{name}", "-n", "default", f"--replicas={replicas}")


def uses(site: Site, gpus: int) -> None:
    def told() -> str:
        status = site.cluster.get("clusterqueue", "serve").get("status") or {}
        usage = status.get("flavorsReservation") or [{"resources": [{"total": "?"}]}]
        return str(usage[0]["resources"][0]["total"])

    eventually(lambda: told() == str(gpus), f"{gpus} GPUs of the quota are used")


def nothing_is_left(site: Site, name: str) -> None:
    eventually(lambda: not pods_of(site, name) and not workloads(site), "nothing is left")
    uses(site, 0)


@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
def test_a_stateful_set_runs_in_rank_order_rests_and_comes_back(site: Site, policy: str) -> None:
    name = f"store-{policy.lower()}"
    create(site, serving("StatefulSet", name, 4, IN_ONE_RACK, podManagementPolicy=policy, serviceName=name))
    in_rank_order(site, name, 4, POD_INDEX)
    (workload,) = workloads(site)
    assert workload["metadata"]["ownerReferences"][0]["kind"] == "StatefulSet"
    assert workload["spec"]["podSets"][0]["count"] == 4
    uses(site, 8)
    with pytest.raises(Trouble, match="field is immutable"):
        site.patch("statefulset", name, {"replicas": 2})
    scale(site, "statefulset", name, 0)
    eventually(lambda: not pods_of(site, name), "its pods are gone")
    uses(site, 0)
    on_hold = workload["metadata"]["name"]
    eventually(lambda: site.told(on_hold)[1] == "OnHold", "it waits outside the line")
    scale(site, "statefulset", name, 4)
    in_rank_order(site, name, 4, POD_INDEX)
    site.kubectl("delete", "statefulset", name, "-n", "default")
    nothing_is_left(site, name)


def test_a_pod_of_a_stateful_set_that_vanishes_comes_back_where_it_was(site: Site) -> None:
    create(
        site, serving("StatefulSet", "keep", 4, IN_ONE_RACK, podManagementPolicy="Parallel", serviceName="k")
    )
    before = in_rank_order(site, "keep", 4, POD_INDEX)
    uids = {pod["metadata"]["uid"] for pod in pods_of(site, "keep")}
    site.kubectl("delete", "pod", "keep-1", "-n", "default", "--force", "--grace-period=0")

    def replaced() -> bool:
        return len({pod["metadata"]["uid"] for pod in bound(site, "keep")} - uids) == 1

    eventually(replaced, "another pod is made and ungated")
    assert in_rank_order(site, "keep", 4, POD_INDEX) == before
    uses(site, 8)
    site.kubectl("delete", "statefulset", "keep", "-n", "default")
    nothing_is_left(site, "keep")


def test_pods_of_a_deployment_are_admitted_one_by_one_as_far_as_the_quota_goes(site: Site) -> None:
    create(site, serving("Deployment", "web", 2, {}))
    eventually(lambda: len(bound(site, "web")) == 2, "two pods are ungated")
    uses(site, 4)
    assert len(workloads(site)) == 2
    scale(site, "deployment", "web", 10)
    eventually(lambda: len(bound(site, "web")) == 8, "there is quota for eight")
    eventually(lambda: len(workloads(site)) == 10, "two more wait")
    uses(site, 16)
    scale(site, "deployment", "web", 1)
    eventually(lambda: len(pods_of(site, "web")) == 1, "one pod stays")
    uses(site, 2)
    assert len(workloads(site)) == 1
    site.kubectl("delete", "deployment", "web", "-n", "default")
    nothing_is_left(site, "web")


def test_a_group_of_plain_pods_waits_until_it_is_complete_and_runs_in_rank_order(site: Site) -> None:
    create(site, *(group_pod("crew", rank, 4) for rank in (3, 0, 2)))

    def complaints() -> list[str]:
        found = site.cluster.get("events", "-n", "default", "--field-selector=reason=ErrWorkloadCompose")
        return [one["message"] for one in found["items"]]

    eventually(lambda: bool(complaints()), "it is told what it waits for")
    assert complaints() == ["'crew' group has fewer runnable pods than expected"]
    assert not workloads(site) and not bound(site, "crew")
    create(site, group_pod("crew", 1, 4))
    before = in_rank_order(site, "crew", 4, RANK)
    uses(site, 8)
    site.kubectl("delete", "pod", "crew-2", "-n", "default", "--wait=false")
    create(site, group_pod("crew", 2, 4, "crew-2b"))
    eventually(lambda: len(pods_of(site, "crew")) == 4, "one pod took the place of another")
    assert in_rank_order(site, "crew", 4, RANK) == before
    site.kubectl("delete", WORKLOADS, "crew", "-n", "default", "--wait=false")  # pods alone may be replaced
    nothing_is_left(site, "crew")
