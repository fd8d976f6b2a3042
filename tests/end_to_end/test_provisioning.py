"""Nodes made to order on a real control plane, with only the rights that were installed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from bayplan.backends.fake_controllers.crds import provisioning_requests
from tests.end_to_end.admission_site import (
    GPU,
    POOL,
    RACK,
    WORKLOADS,
    Site,
    admitting,
    flavor,
    gang_workload,
    gpu_queues,
    hosts,
    installed,
    made,
    replayed,
)
from tests.end_to_end.objects import Object, eventually, kwok_node

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

REQUESTS = "provisioningrequests.autoscaling.x-k8s.io"
GROUP = "example.com/node-group"


@pytest.fixture(scope="module")
def site(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("provisioning")
    with installed(cluster, "provisioning-test", folder) as found:
        _furnish(found)
        with admitting(found, folder / "replica"):
            yield found
            found.kubectl("delete", WORKLOADS, "--all", "-n", "default")
            found.kubectl("delete", "clusterqueue", "made", "--timeout=120s")
            found.kubectl("delete", "admissioncheck", "prov", "--timeout=120s")
            found.kubectl("delete", "--ignore-not-found", "crd", REQUESTS)
        assert replayed(folder / "replica").endswith("; 0 plans differ when decided again")


def _furnish(site: Site) -> None:
    reference = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "slow"}
    spec = {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": reference}
    label = {"key": GROUP, "valueFromProvisioningClassDetail": "NodeGroup"}
    config = {
        "provisioningClassName": "queued.example.com",
        "managedResources": [GPU],
        "podSetUpdates": {"nodeSelector": [label]},
        "retryStrategy": {"backoffLimitCount": 0},
    }
    strategy = {"admissionChecks": [{"name": "prov"}]}
    site.apply(
        made("ProvisioningRequestConfig", "slow", config),
        made("AdmissionCheck", "prov", spec),
        flavor("made"),
        *gpu_queues("made", 16, admissionChecksStrategy=strategy),
    )
    site.add_hosts(*hosts("made", racks=1))


def _check(site: Site, name: str) -> Object:
    (found,) = site.workload(name)["status"]["admissionChecks"]
    return dict(found)


def _answer(site: Site, name: str, kind: str, message: str, **status: Object) -> None:
    """As the autoscaler would."""
    told = {"type": kind, "status": "True", "reason": kind, "message": message}
    value = {"status": {"conditions": [told | {"lastTransitionTime": "2026-01-01T00:00:00Z"}], **status}}
    change = ("--type=merge", "-p", json.dumps(value))
    site.kubectl("patch", REQUESTS, name, "-n", "default", "--subresource=status", *change)


def _there(site: Site, kind: str) -> list[str]:
    return [one["metadata"]["name"] for one in site.cluster.get(kind, "-n", "default")["items"]]


def test_a_gang_waits_for_the_kind_then_for_its_nodes_and_stands_on_exactly_those(site: Site) -> None:
    site.apply(gang_workload("train", "made", 2, 4, required=RACK))
    site.wait("train", "QuotaReserved", "True", "QuotaReserved")
    eventually(lambda: "is not served" in _check(site, "train")["message"], "the kind is missed")

    site.apply(provisioning_requests())
    eventually(lambda: REQUESTS in site.kubectl("get", "crd", "-o", "name"), "the kind is there")
    eventually(lambda: _there(site, REQUESTS) == ["train-prov-1"], "a request is made")
    assert _there(site, "podtemplates") == ["ppt-train-prov-1-main"]
    template = site.cluster.get("podtemplate", "ppt-train-prov-1-main", "-n", "default")["template"]
    assert template["spec"]["nodeSelector"] == {POOL: "made"}

    _answer(site, "train-prov-1", "Provisioned", "there", provisioningClassDetails={"NodeGroup": "g1"})
    site.wait("train", "Admitted", "False", "PendingDelayedTopologyRequests")
    fresh = {POOL: "made", "example.com/block": "b1", RACK: "r9", GROUP: "g1"}
    site.add_hosts(*(kwok_node(f"fresh-{number}", 4, **fresh) for number in (1, 2)))
    eventually(lambda: site.told("train", "Admitted")[0] == "True", "a place was found")
    assert site.hosts("train") == {"fresh-1": 1, "fresh-2": 1}

    site.finish("train")
    eventually(lambda: _there(site, REQUESTS) + _there(site, "podtemplates") == [], "all is cleared")


def test_a_request_that_fails_for_good_deactivates_the_gang(site: Site) -> None:
    site.apply(gang_workload("never", "made", 2, 4, required=RACK))
    eventually(lambda: _there(site, REQUESTS) == ["never-prov-1"], "a request is made")
    _answer(site, "never-prov-1", "Failed", "no such machines")
    site.wait("never", "Evicted", "True", "DeactivatedDueToAdmissionCheck")
    assert site.workload("never")["spec"]["active"] is False
    eventually(lambda: _there(site, REQUESTS) + _there(site, "podtemplates") == [], "all is cleared")
