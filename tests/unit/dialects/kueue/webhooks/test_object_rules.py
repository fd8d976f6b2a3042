"""Validation of Workloads, queues, cohorts, flavors and topologies by the webhook."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from bayplan.dialects.kueue.webhooks.validate import errors
from tests.support.api_objects import cluster_queue, workload

Object = dict[str, Any]
K = "kueue.x-k8s.io/"
WHEN = "2026-01-01T00:00:00Z"
RESERVED = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "lastTransitionTime": WHEN}


def errors_of(new: Object, old: Object | None = None) -> list[str]:
    return [str(error) for error in errors(new, old)]


def paths(new: Object, old: Object | None = None) -> list[tuple[str, str]]:
    return [(str(error.fault), error.path) for error in errors(new, old)]


def pod_set(name: str = "main", count: int = 3, **more: Any) -> Object:
    return {"name": name, "count": count, "template": {"spec": {"containers": []}}, **more}


def workload_of(*pod_sets: Object, status: Object | None = None, **metadata: Any) -> Object:
    return workload("w", *(pod_sets or [pod_set()]), metadata=metadata, status=status or {})


def admitted(usage: str = "3", **status: Any) -> Object:
    assignment = {"name": "main", "count": 3, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": usage}}
    admission = {"clusterQueue": "q", "podSetAssignments": [assignment]}
    return workload_of(status={"conditions": [RESERVED], "admission": admission, **status})


def test_good_workloads_pass() -> None:
    assert errors_of(workload_of()) == errors_of(admitted()) == errors_of(admitted(), admitted()) == []


@pytest.mark.parametrize(
    ("wrong", "fault", "path"),
    [
        (workload_of(pod_set("a", minCount=1), pod_set("b", minCount=1)), "Invalid value", "spec.podSets"),
        (
            workload_of(pod_set(minCount=1), annotations={K + "elastic-job": "true"}),
            "Invalid value",
            "spec.podSets",
        ),
        (workload_of(status={"conditions": [RESERVED]}), "Required value", "status.admission"),
        (
            admitted("3001m"),
            "Invalid value",
            "status.admission.podSetAssignments[0].resourceUsage[cpu]",
        ),
        (
            workload_of(status={"reclaimablePods": [{"name": "main", "count": 4}]}),
            "Invalid value",
            "status.reclaimablePods[main].count",
        ),
        (
            workload_of(status={"reclaimablePods": [{"name": "other", "count": 1}]}),
            "Unsupported value",
            "status.reclaimablePods[other].name",
        ),
        (
            workload_of(status={"admissionChecks": [{"name": "c", "podSetUpdates": [{"name": "other"}]}]}),
            "Unsupported value",
            "status.admissionChecks[0].podSetUpdates[0].name",
        ),
        (
            workload_of(pod_set(topologyRequest={"podSetSliceRequiredTopology": "rack"})),
            "Required value",
            "spec.podSets[0].topologyRequest.podSetSliceSize",
        ),
        (
            workload_of(
                pod_set(template={"spec": {"containers": [{"resources": {"requests": {"pods": 1}}}]}})
            ),
            "Invalid value",
            "spec.podSets[0].template.spec.containers[0].resources.requests[pods]",
        ),
        (
            workload_of(
                pod_set(template={"spec": {"containers": [{"resources": {"limits": {"cpu": "-1"}}}]}})
            ),
            "Invalid value",
            "spec.podSets[0].template.spec.containers[0].resources.limits[cpu]",
        ),
        (
            workload_of(pod_set(template={"metadata": {"labels": {"a": "b c"}}, "spec": {}})),
            "Invalid value",
            "spec.podSets[0].template.metadata.labels",
        ),
        (
            workload_of(status={"conditions": [RESERVED, RESERVED]}),
            "Duplicate value",
            "status.conditions[1].type",
        ),
        (
            workload_of(annotations={K + "priority-boost": ""}),
            "Invalid value",
            f"metadata.annotations[{K}priority-boost]",
        ),
    ],
)
def test_invalid_workloads_are_rejected(wrong: Object, fault: str, path: str) -> None:
    assert (fault, path) in paths(wrong), errors_of(wrong)


def changed(base: Object, **status: Any) -> Object:
    made = copy.deepcopy(base)
    made["status"].update(status)
    return made


def test_pod_sets_are_immutable_while_quota_is_reserved() -> None:
    grown = admitted()
    grown["spec"]["podSets"][0]["count"] = 4
    assert paths(grown, admitted()) == [("Invalid value", "spec.podSets.0")]
    waiting = workload_of()
    waiting["spec"]["podSets"][0]["count"] = 4
    assert errors_of(waiting, workload_of()) == []
    more = admitted()
    more["spec"]["podSets"].append(pod_set("other"))
    assert paths(more, admitted()) == [("Invalid value", "spec.podSets")]


def test_an_admission_is_set_and_cleared_as_a_whole_but_placed_later() -> None:
    moved = admitted()
    moved["status"]["admission"]["clusterQueue"] = "r"
    assert paths(moved, admitted()) == [("Invalid value", "status.admission")]
    placed = admitted()
    placed["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"] = {"levels": ["rack"]}
    assert errors_of(placed, admitted()) == []
    assert errors_of(workload_of(), admitted()) == []


def test_reclaimable_counts_do_not_decrease() -> None:
    before = admitted(reclaimablePods=[{"name": "main", "count": 2}])
    assert paths(admitted(reclaimablePods=[{"name": "main", "count": 1}]), before) == [
        ("Invalid value", "status.reclaimablePods[main].count")
    ]
    assert paths(admitted(reclaimablePods=[]), before) == [("Required value", "status.reclaimablePods[main]")]
    assert errors_of(workload_of(status={"reclaimablePods": []}), before) == []


def test_an_elastic_job_may_scale_down_below_its_reclaimable_pods() -> None:
    before = admitted(reclaimablePods=[{"name": "main", "count": 3}])
    before["metadata"]["annotations"] = {K + "elastic-job": "true"}
    after = copy.deepcopy(before)
    after["spec"]["podSets"][0]["count"] = 2
    assert errors_of(after, before) == []
    after["status"]["reclaimablePods"] = [{"name": "main", "count": 1}]
    assert errors_of(after, before) == []


def test_pod_set_updates_of_a_ready_check_are_immutable() -> None:
    def checked(state: str, label: str) -> Object:
        update = {"name": "main", "labels": {"a": label}}
        return workload_of(
            status={"admissionChecks": [{"name": "c", "state": state, "podSetUpdates": [update]}]}
        )

    assert paths(checked("Ready", "c"), checked("Ready", "b")) == [
        ("Invalid value", "status.admissionChecks[0].podSetUpdates")
    ]
    assert errors_of(checked("Ready", "c"), checked("Pending", "b")) == []


def test_a_cluster_must_have_been_nominated() -> None:
    before = workload_of(status={"nominatedClusterNames": ["a"]})
    assert errors_of(changed(before, clusterName="a"), before) == []
    assert paths(changed(before, clusterName="b"), before) == [("Invalid value", "status.clusterName")]


def cpu_queue(*resources: Object, flavors: int = 1, **spec: Any) -> Object:
    return cluster_queue("q", resources, [f"f{index}" for index in range(flavors)], **spec)


def quota(name: str = "cpu", nominal: str = "5", **limits: str) -> Object:
    return {"name": name, "nominalQuota": nominal, **limits}


AT = "spec.resourceGroups[0].flavors[0].resources[0]."


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (cpu_queue(quota(nominal="-1")), [("Invalid value", AT + "nominalQuota")]),
        (cpu_queue(quota(borrowingLimit="1")), [("Invalid value", AT + "borrowingLimit")]),
        (cpu_queue(quota(lendingLimit="1")), [("Invalid value", AT + "lendingLimit")]),
        (cpu_queue(quota(lendingLimit="6"), cohortName="c"), [("Invalid value", AT + "lendingLimit")]),
        (cpu_queue(quota(lendingLimit="6"), cohort="c"), [("Invalid value", AT + "lendingLimit")]),
        (cpu_queue(quota("@cpu")), [("Invalid value", "spec.resourceGroups[0].coveredResources[0]")]),
        (
            cpu_queue(quota(), namespaceSelector={"matchExpressions": [{"key": "a", "operator": "In"}]}),
            [("Required value", "spec.namespaceSelector.matchExpressions[0].values")],
        ),
        (
            cpu_queue(
                preemption={"reclaimWithinCohort": "Never", "borrowWithinCohort": {"policy": "LowerPriority"}}
            ),
            [("Invalid value", "spec.preemption")],
        ),
        (
            cpu_queue(
                flavorFungibility={"preference": "BorrowingOverPreemption", "whenCanBorrow": "TryNextFlavor"}
            ),
            [("Invalid value", "spec.flavorFungibility.preference")],
        ),
        (cpu_queue(fairSharing={"weight": "-1"}), [("Invalid value", "spec.fairSharing")]),
        (cpu_queue(fairSharing={"weight": "1n"}), [("Invalid value", "spec.fairSharing")]),
        (cpu_queue(quota(), flavors=257), [("Invalid value", "spec.resourceGroups")]),
        (
            cpu_queue(quota(), flavors=17, concurrentAdmissionPolicy={}),
            [("Invalid value", "spec.resourceGroups[0].flavors")],
        ),
        (
            cpu_queue(
                quota(),
                concurrentAdmissionPolicy={"migration": {"mode": "Other", "constraints": {}}},
                queueingStrategy="StrictFIFO",
            ),
            [
                ("Forbidden", "spec.concurrentAdmissionPolicy.migration.constraints"),
                ("Invalid value", "spec.queueingStrategy"),
            ],
        ),
        (
            cpu_queue(
                quota(),
                admissionChecksStrategy={"admissionChecks": [{"name": "c", "onFlavors": ["f0", "other"]}]},
            ),
            [("Unsupported value", "spec.admissionChecksStrategy.admissionChecks[0].onFlavors[1]")],
        ),
    ],
)
def test_invalid_cluster_queues_are_rejected(wrong: Object, expected: list[tuple[str, str]]) -> None:
    assert paths(wrong) == expected


def test_resources_and_flavors_appear_once_and_in_order() -> None:
    made = cpu_queue(quota(), quota("memory"))
    group = made["spec"]["resourceGroups"][0]
    made["spec"]["resourceGroups"].append(copy.deepcopy(group))
    group["flavors"][0]["resources"].reverse()
    assert paths(made) == [
        ("Invalid value", AT + "name"),
        ("Invalid value", AT.replace("resources[0]", "resources[1]") + "name"),
        ("Duplicate value", "spec.resourceGroups[1].coveredResources[0]"),
        ("Duplicate value", "spec.resourceGroups[1].coveredResources[1]"),
        ("Duplicate value", "spec.resourceGroups[1].flavors[0].name"),
    ]


def test_a_valid_queue_in_a_cohort_passes() -> None:
    assert errors_of(cpu_queue(quota(lendingLimit="5", borrowingLimit="9"), cohortName="c")) == []


def test_cohorts_lend_more_than_their_own_but_only_to_a_parent() -> None:
    groups = cpu_queue(quota(lendingLimit="9"))["spec"]["resourceGroups"]
    cohort: Object = {"kind": "Cohort", "metadata": {"name": "c"}, "spec": {"resourceGroups": groups}}
    assert paths(cohort) == [("Invalid value", AT + "lendingLimit")]
    cohort["spec"]["parentName"] = "p"
    assert errors_of(cohort) == []
    cohort["spec"]["parentName"] = "c"
    assert paths(cohort) == [("Invalid value", "spec.parentName")]


def test_the_cluster_queue_of_a_local_queue_is_immutable() -> None:
    before, after = ({"kind": "LocalQueue", "metadata": {}, "spec": {"clusterQueue": q}} for q in "ab")
    assert paths(after, before) == [("Invalid value", "spec.clusterQueue")]


def flavor(**spec: Any) -> Object:
    return {"kind": "ResourceFlavor", "metadata": {"name": "f"}, "spec": spec}


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (flavor(nodeLabels={"@": "a"}), ("Invalid value", "spec.nodeLabels")),
        (
            flavor(nodeTaints=[{"key": "a b", "effect": "NoSchedule"}]),
            ("Invalid value", "spec.nodeTaints[0].key"),
        ),
        (
            flavor(nodeTaints=[{"key": "a", "effect": "NoSchedule"}] * 2),
            ("Duplicate value", "spec.nodeTaints[1]"),
        ),
        (flavor(tolerations=[{"key": "a b"}]), ("Invalid value", "spec.tolerations[0].key")),
        (flavor(topologyName="t"), ("Required value", "spec.nodeLabels")),
    ],
)
def test_invalid_flavors_are_rejected(wrong: Object, expected: tuple[str, str]) -> None:
    assert paths(wrong) == [expected]


def test_the_topology_of_a_flavor_is_immutable() -> None:
    here = flavor(topologyName="t", nodeLabels={"a": "b"})
    assert paths(flavor(topologyName="u", nodeLabels={"a": "b"}), here) == [
        ("Invalid value", "spec.topologyName")
    ]
    assert errors_of(here, flavor(nodeLabels={"a": "b"})) == []


def test_levels_change_only_above_hosts() -> None:
    def topology(*levels: str) -> Object:
        listed = [{"nodeLabel": level} for level in levels]
        return {"kind": "Topology", "metadata": {"name": "t"}, "spec": {"levels": listed}}

    host = "kubernetes.io/hostname"
    assert errors_of(topology("block", "rack", host), topology("rack", host)) == []
    assert paths(topology("block", "rack"), topology("rack")) == [("Invalid value", "spec.levels")]
    assert paths(topology("rack"), topology("rack", host)) == [("Invalid value", "spec.levels")]
