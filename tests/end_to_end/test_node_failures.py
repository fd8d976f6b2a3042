"""Nodes of a real control plane are deleted and cordoned under the pods of real Jobs, which go elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.end_to_end.admission_site import (
    HOST,
    WORKLOADS,
    Site,
    admitting,
    with_queue,
)
from tests.end_to_end.objects import eventually
from tests.end_to_end.test_ungating import INDEX, admitted_job, pods_of, unconstrained_workload

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster


@pytest.fixture(scope="module")
def site(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A cluster with hosts and a queue, and somebody who admits."""
    folder = tmp_path_factory.mktemp("failures")
    with with_queue(cluster, "failures-test", folder, "gate") as found:
        with admitting(found, folder / "run"):
            yield found
        found.kubectl("delete", "job", "--all", "-n", "default", "--cascade=foreground")
        found.kubectl("delete", WORKLOADS, "--all", "-n", "default")


def start(site: Site, name: str, pods: int) -> dict[int, str]:
    """A gang whose pods were sent to their hosts, which nobody binds them to."""
    site.apply(unconstrained_workload(name, pods))
    site.wait_admitted(name)
    site.apply(admitted_job(name, pods))
    eventually(lambda: len(sent(site, name)) == pods, f"the pods of {name} are ungated")
    return sent(site, name)


def sent(site: Site, name: str) -> dict[int, str]:
    """Where each rank was sent that is not over."""
    found = {}
    for pod in pods_of(site, name):
        host = (pod["spec"].get("nodeSelector") or {}).get(HOST)
        if host and pod["status"]["phase"] != "Failed":
            found[int(pod["metadata"]["labels"][INDEX])] = host
    return found


def check_moved(site: Site, name: str, before: dict[int, str], lost: str) -> None:
    """The pods of a lost host were failed, their successors went to another one, and nobody else moved."""

    def elsewhere() -> bool:
        now = sent(site, name)
        return len(now) == len(before) and lost not in now.values()

    eventually(elsewhere, f"the pods of {lost} are elsewhere")
    after = sent(site, name)
    assert {rank: host for rank, host in before.items() if host != lost}.items() <= after.items()
    assert Counter(after.values()) == site.hosts(name)
    failed = [pod for pod in pods_of(site, name) if pod["status"]["phase"] == "Failed"]
    assert len(failed) == Counter(before.values())[lost], "each once"
    for pod in failed:
        told = [c for c in pod["status"]["conditions"] if c["type"] == "TerminatedByKueue"]
        assert [(c["status"], c["reason"]) for c in told] == [("True", "UnschedulableOnAssignedNode")]
        selector = f"involvedObject.uid={pod['metadata']['uid']},reason=PodTerminatedByKueue"
        assert site.cluster.get("events", "-n", "default", f"--field-selector={selector}")["items"]
    status = site.workload(name)["status"]
    assert "unhealthyNodes" not in status and site.told(name, "Evicted")[0] != "True"


def test_a_node_is_deleted_under_a_gang(site: Site) -> None:
    before = start(site, "bereft", 6)
    lost = Counter(before.values()).most_common()[-1][0]
    site.kubectl("delete", "node", lost)
    check_moved(site, "bereft", before, lost)
    site.kubectl("delete", "job", "bereft", "-n", "default", "--cascade=foreground")
    site.kubectl("delete", WORKLOADS, "bereft", "-n", "default")


def test_a_node_is_cordoned_before_the_pods_of_a_gang_got_there(site: Site) -> None:
    before = start(site, "shut-out", 6)
    lost = Counter(before.values()).most_common()[-1][0]
    site.kubectl("cordon", lost)
    check_moved(site, "shut-out", before, lost)
    site.kubectl("uncordon", lost)
