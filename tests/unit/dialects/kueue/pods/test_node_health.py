"""When a node has failed for a gang, and when a pod cannot be bound."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bayplan.dialects.kube.decode.wire import NodeWire, PodWire
from bayplan.dialects.kueue.pods.node_failures import LISTED_MAX, with_unhealthy_nodes
from bayplan.dialects.kueue.pods.node_health import (
    CORDON,
    NEVER,
    HealthRules,
    Host,
    TaintTolerations,
    check_host,
    gang_pod,
    host_of,
    pod_set_tolerations,
    workload_hosts,
)
from bayplan.model.node import HOSTNAME
from bayplan.model.node_rules import Taint, Toleration
from tests.support.api_objects import pod

NOW = 1_800_000_000.0
RULES = HealthRules()
HOT, HOT_NOW = Taint("hot", "", "NoSchedule"), Taint("hot", "", "NoExecute")
BEARS = Toleration("hot", "Exists")
Object = dict[str, Any]


def unready_node(**spec: Any) -> NodeWire:
    said = {"type": "Ready", "status": "False", "lastTransitionTime": "2027-01-15T08:00:00Z"}
    meta = {"name": "n1", "labels": {HOSTNAME: "host-1"}}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": {"conditions": [said]}}, NodeWire)


def workload_pod(notes: dict[str, str] | None = None, phase: str = "Pending", **spec: Any) -> PodWire:
    own = {"kueue.x-k8s.io/workload": "w", "kueue.x-k8s.io/podset-required-topology": "rack"}
    annotations = own if notes is None else notes
    made = pod(
        namespace="ml", annotations=annotations, metadata={"uid": "u"}, status={"phase": phase}, **spec
    )
    return msgspec.convert(made, PodWire)


def test_a_node_is_known_by_its_hostname_label_and_a_cordon_is_a_taint() -> None:
    assert host_of(unready_node()) == Host("host-1", False, NOW)
    assert host_of(unready_node(unschedulable=True)).taints == (CORDON,)
    told = [{"key": CORDON.key, "effect": CORDON.effect}, {"key": "soft", "effect": "PreferNoSchedule"}]
    assert host_of(unready_node(unschedulable=True, taints=told)).taints == (CORDON,)


@pytest.mark.parametrize("runs", [True, False])
def test_a_deleted_node_or_one_without_a_ready_condition_has_failed(runs: bool) -> None:
    assert check_host(None, [], runs, RULES, NOW).failed
    assert check_host(Host("h", None), [], runs, RULES, NOW).failed


def test_not_ready_is_a_failure_after_a_while_or_once_no_pod_runs_there() -> None:
    lately = Host("h", ready=False, since=NOW - 10)
    assert check_host(lately, [], False, RULES, NOW).failed
    waiting = check_host(lately, [], True, RULES, NOW)
    assert not waiting.failed and waiting.due == NOW + 20
    assert check_host(lately, [], True, RULES, waiting.due).failed
    patient = HealthRules(by_time=False)
    assert check_host(lately, [], True, patient, NOW + 1000).due == NEVER
    assert not check_host(lately, [], False, HealthRules(by_pods=False), NOW).failed


@pytest.mark.parametrize(
    ("taint", "consent", "runs", "failed"),
    [
        (HOT, TaintTolerations(), True, False),
        (HOT, TaintTolerations(), False, True),
        (HOT, TaintTolerations(unlimited=(BEARS,)), False, False),
        (HOT_NOW, TaintTolerations(), True, False),
        (HOT_NOW, TaintTolerations(), False, True),
        (HOT_NOW, TaintTolerations(limited=(BEARS,)), True, False),
        (HOT_NOW, TaintTolerations(limited=(BEARS,)), False, True),
        (HOT_NOW, TaintTolerations(unlimited=(BEARS,), limited=(BEARS,)), False, False),
    ],
)
def test_untolerated_taints_are_failures(
    taint: Taint, consent: TaintTolerations, runs: bool, failed: bool
) -> None:
    host = Host("h", ready=True, taints=(taint,))
    assert check_host(host, [consent], runs, RULES, NOW).failed is failed
    assert (
        check_host(host, [TaintTolerations(unlimited=(BEARS,)), consent], runs, RULES, NOW).failed is failed
    )
    assert not check_host(host, [consent], runs, HealthRules(by_taints=False), NOW).failed


def test_a_pod_waits_for_its_host_if_it_is_pending_ungated_and_placed_by_topology() -> None:
    sent: Object = {"nodeSelector": {HOSTNAME: "h1"}}
    found = gang_pod(workload_pod(**sent))
    assert found is not None and found.is_pending and found.host == "h1" and not found.is_running
    gated = gang_pod(workload_pod(**sent, schedulingGates=[{"name": "kueue.x-k8s.io/topology"}]))
    bound, done = (
        gang_pod(workload_pod(**sent, nodeName="h1")),
        gang_pod(workload_pod(phase="Failed", **sent)),
    )
    chosen = gang_pod(workload_pod({"kueue.x-k8s.io/workload": "w"}, **sent))
    for other in (gated, bound, done, chosen):
        assert other is not None and not other.is_pending
    assert bound is not None and bound.is_running
    assert gang_pod(workload_pod({})) is None
    grown = gang_pod(
        workload_pod({"kueue.x-k8s.io/workload": "w", "kueue.x-k8s.io/workload-slice-name": "first"})
    )
    assert grown is not None and grown.gang == ("ml", "first")


def placed(**status: Any) -> Object:
    assigned = {
        "levels": [HOSTNAME],
        "slices": [
            {"domainCount": 1, "valuesPerLevel": [{"universal": "h1"}], "podCounts": {"universal": 2}},
        ],
    }
    given = {"name": "main", "flavors": {"cpu": "f"}, "topologyAssignment": assigned}
    return {
        "metadata": {"name": "w", "namespace": "ml"},
        "spec": {"podSets": [{"name": "main", "template": {"spec": {"tolerations": [{"key": "own"}]}}}]},
        "status": {"admission": {"podSetAssignments": [given]}, **status},
    }


def test_a_workload_is_on_the_hosts_of_its_assignment_until_it_is_evicted() -> None:
    found = workload_hosts(placed(unhealthyNodes=[{"name": "h1"}]))
    assert found is not None and dict(found.hosts) == {"h1": ("main",)} and found.failed == ("h1",)
    for ended in ("Finished", "Evicted"):
        assert workload_hosts(placed(conditions=[{"type": ended, "status": "True"}])) is None


def test_flavors_and_checks_add_tolerations() -> None:
    update = {"name": "main", "tolerations": [{"key": "asked", "operator": "Exists", "tolerationSeconds": 9}]}
    flavors = {"f": {"spec": {"tolerations": [{"key": "given", "operator": "Exists"}]}}}
    (consent,) = pod_set_tolerations(placed(admissionChecks=[{"podSetUpdates": [update]}]), flavors, ["main"])
    assert [one.key for one in consent.unlimited] == ["own", "given"]
    assert [one.key for one in consent.limited] == ["asked"]


def test_no_more_nodes_are_listed_than_the_api_allows() -> None:
    failed = [f"h{number}" for number in range(20)]
    status = with_unhealthy_nodes(placed(), failed, (), RULES, NOW)
    assert status is not None
    assert [one["name"] for one in status["unhealthyNodes"]] == failed[:LISTED_MAX]
    assert (
        with_unhealthy_nodes(placed(unhealthyNodes=status["unhealthyNodes"]), failed, (), RULES, NOW) is None
    )
    again = with_unhealthy_nodes(placed(unhealthyNodes=status["unhealthyNodes"]), (), failed, RULES, NOW)
    assert again is not None and "unhealthyNodes" not in again
