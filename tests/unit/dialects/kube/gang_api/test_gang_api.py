"""Workload and PodGroup on the in-memory cluster: versions, defaults, and validation."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from bayplan.backends.embedded.api.options import Options
from bayplan.backends.embedded.api.status import StatusError
from bayplan.backends.embedded.cluster import new_store
from bayplan.backends.embedded.http import discovery
from bayplan.backends.embedded.kinds.gangs import GangApi
from bayplan.backends.embedded.storage.store import Store
from bayplan.backends.embedded.tables.rendering import table
from bayplan.dialects.api import Kind
from bayplan.dialects.kube.gang_api.gates import ALL_GATES, GROUP, V1ALPHA1, V1ALPHA2, V1BETA1
from tests.support.api_objects import pod

Object = dict[str, Any]

PODS = Kind("", "v1", "Pod", "pods")
JOBS = Kind("batch", "v1", "Job", "jobs")
CLASSES = Kind(GROUP, "v1", "PriorityClass", "priorityclasses", namespaced=False)
WORKLOADS = {
    version: Kind(GROUP, version, "Workload", "workloads") for version in (V1ALPHA1, V1ALPHA2, V1BETA1)
}
GROUPS = {version: Kind(GROUP, version, "PodGroup", "podgroups") for version in (V1ALPHA2, V1BETA1)}
GANG = {"gang": {"minCount": 2}}
LARGER = {"gang": {"minCount": 3}}


def store_of(*versions: str, **settings: Any) -> Store:
    numbers = itertools.count(1)
    api = GangApi(versions, **settings) if versions else GangApi(**settings)
    return new_store(
        lambda: 0.0, lambda: f"uid-{next(numbers)}", lambda: f"{next(numbers):05d}", gang_api=api
    )


def first_workload(*names: str, **spec: Any) -> Object:
    groups = [{"name": name, "policy": GANG} for name in names]
    return {"metadata": {"name": "w"}, "spec": {"podGroups": groups, **spec}}


def workload_of(*names: str, **template: Any) -> Object:
    templates = [{"name": name, "schedulingPolicy": GANG, **template} for name in names]
    return {"metadata": {"name": "w"}, "spec": {"podGroupTemplates": templates}}


def group(**spec: Any) -> Object:
    return {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": GANG, **spec}}


def rejection(store: Store, kind: Kind, item: Object) -> str:
    with pytest.raises(StatusError) as caught:
        store.create(kind, item, "default")
    return str(caught.value.message)


def changed(store: Store, version: str, **spec: Any) -> Object:
    """The stored group with other values of these fields; defaults must be sent back unchanged."""
    kept = store.get(GROUPS[version], "default", "g")
    return {**kept, "spec": {**kept["spec"], **spec}}


def replaced(store: Store, kind: Kind, item: Object, subresource: str = "") -> Object:
    """An update of the stored object."""
    name = item["metadata"]["name"]
    version = store.get(kind, "default", name)["metadata"]["resourceVersion"]
    whole = {**item, "metadata": {**item["metadata"], "resourceVersion": version}}
    return store.update(kind, "default", name, whole, subresource)


def change_rejected(store: Store, kind: Kind, item: Object, subresource: str = "") -> str:
    with pytest.raises(StatusError) as caught:
        replaced(store, kind, item, subresource)
    return str(caught.value.message).partition(" is invalid: ")[2]


# ── versions ──


@pytest.mark.parametrize("version", [V1ALPHA1, V1ALPHA2, V1BETA1])
def test_a_cluster_has_the_version_it_was_made_with(version: str) -> None:
    store = store_of(version)
    listed = discovery.group(store.resources, GROUP)
    assert listed is not None
    beside = {"v1alpha3"} if version == V1BETA1 else set()  # of composite groups
    assert {one["version"] for one in listed["versions"]} == {"v1", version} | beside
    groups = [served for served in GROUPS if store.resources.serves(GROUPS[served])]
    assert groups == ([] if version == V1ALPHA1 else [version])


def test_a_store_serves_every_version_unless_told_otherwise() -> None:
    numbers = itertools.count(1)
    store = new_store(lambda: 0.0, lambda: f"uid-{next(numbers)}", lambda: "abcde")
    assert all(store.resources.serves(kind) for kind in (*WORKLOADS.values(), *GROUPS.values()))


def test_a_workload_is_seen_in_every_version() -> None:
    store = store_of()
    policy = {"basic": {"desiredCount": 3}}
    made = first_workload("a", controllerRef={"kind": "Job", "name": "j"})
    made["spec"]["podGroups"].append({"name": "b", "policy": policy})
    store.create(WORKLOADS[V1ALPHA1], made, "default")
    templates = [{"name": "a", "schedulingPolicy": GANG}, {"name": "b", "schedulingPolicy": policy}]
    for version in (V1ALPHA2, V1BETA1):
        found = store.get(WORKLOADS[version], "default", "w")
        assert found["apiVersion"] == f"{GROUP}/{version}"
        assert found["spec"] == {
            "controllerRef": {"kind": "Job", "name": "j"},
            "podGroupTemplates": templates,
        }
    assert store.get(WORKLOADS[V1ALPHA1], "default", "w")["spec"] == made["spec"]


def test_a_group_is_seen_in_both_versions() -> None:
    store = store_of()
    store.create(WORKLOADS[V1ALPHA2], workload_of("t"), "default")
    reference = {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}}
    store.create(GROUPS[V1ALPHA2], group(podGroupTemplateRef=reference, disruptionMode="PodGroup"), "default")
    found = store.get(GROUPS[V1BETA1], "default", "g")["spec"]
    assert found["workloadRef"] == {"workloadName": "w", "templateName": "t"}
    assert found["disruptionMode"] == {"all": {}}
    back = store.get(GROUPS[V1ALPHA2], "default", "g")["spec"]
    assert (back["podGroupTemplateRef"], back["disruptionMode"]) == (reference, "PodGroup")


def test_a_watch_of_an_old_version_includes_objects_of_a_new_one() -> None:
    store = store_of()
    watch = store.watch(WORKLOADS[V1ALPHA1])
    store.create(WORKLOADS[V1BETA1], workload_of("a"), "default")
    ((_, seen),) = watch.take()
    assert seen["spec"]["podGroups"] == [{"name": "a", "policy": GANG}]


@pytest.mark.parametrize(
    ("version", "known", "strange"),
    [
        (
            V1ALPHA1,
            {"workloadRef": {"name": "w", "podGroup": "a"}},
            {"schedulingGroup": {"podGroupName": "g"}},
        ),
        (
            V1ALPHA2,
            {"schedulingGroup": {"podGroupName": "g"}},
            {"workloadRef": {"name": "w", "podGroup": "a"}},
        ),
    ],
)
def test_a_pod_names_its_gang_as_its_cluster_does(version: str, known: Object, strange: Object) -> None:
    store = store_of(version)
    made = store.create(PODS, pod(**known, **strange), "default")
    assert known.items() <= made["spec"].items()
    assert not made["spec"].keys() & strange
    strict = Options(validation="Strict")
    ((key, _),) = strange.items()
    with pytest.raises(StatusError, match=f'unknown field "spec.{key}"'):
        store.create(PODS, pod(**strange), "default", strict)
    template = {"spec": {**pod(**strange)["spec"], "restartPolicy": "Never"}}
    job = {"metadata": {"name": "j"}, "spec": {"template": template}}
    with pytest.raises(StatusError, match=f'unknown field "spec.template.spec.{key}"'):
        store.create(JOBS, job, "default", strict)


# ── defaults ──


def test_defaults_of_disruption_mode_and_priority() -> None:
    store = store_of()
    store.create(CLASSES, {"metadata": {"name": "high"}, "value": 7, "preemptionPolicy": "Never"})
    spec = store.create(GROUPS[V1ALPHA2], group(priorityClassName="high"), "default")["spec"]
    assert (spec["disruptionMode"], spec["priority"]) == ("Pod", 7)
    later = {**group(priorityClassName="high"), "metadata": {"name": "later"}}
    spec = store.create(GROUPS[V1BETA1], later, "default")["spec"]
    assert (spec["disruptionMode"], spec["priority"], spec["preemptionPolicy"]) == (
        {"single": {}},
        7,
        "Never",
    )
    plain = store.create(GROUPS[V1BETA1], {**group(), "metadata": {"name": "plain"}}, "default")["spec"]
    assert (plain["priority"], plain["preemptionPolicy"]) == (0, "PreemptLowerPriority")


def test_a_priority_other_than_that_of_its_class_is_rejected() -> None:
    store = store_of()
    store.create(CLASSES, {"metadata": {"name": "high"}, "value": 7})
    told = rejection(store, GROUPS[V1BETA1], group(priorityClassName="high", priority=8))
    assert "priority set in the pod group (8) must match the priority computed (7)" in told
    assert "no PriorityClass with name none was found" in rejection(
        store, GROUPS[V1ALPHA2], group(priorityClassName="none")
    )
    told = rejection(store, GROUPS[V1BETA1], group(preemptionPolicy="Never"))
    assert "the string value of PreemptionPolicy (Never) must not be provided in pod group spec" in told


def test_fields_of_disabled_features_are_dropped() -> None:
    store = store_of(V1BETA1, gates=frozenset())
    extra: Object = {
        "schedulingConstraints": {"topology": [{"key": "rack"}]},
        "resourceClaims": [{"name": "c", "resourceClaimName": "r"}],
        "preemptionPolicy": "Never",
        "parentCompositePodGroupName": "parent",
    }
    assert not store.create(GROUPS[V1BETA1], group(**extra), "default")["spec"].keys() & extra
    del extra["parentCompositePodGroupName"]
    made = store.create(WORKLOADS[V1BETA1], workload_of("a", **extra), "default")
    assert not made["spec"]["podGroupTemplates"][0].keys() & extra


def test_a_status_is_only_changed_through_its_subresource() -> None:
    store = store_of()
    condition = {
        "type": "PodGroupInitiallyScheduled",
        "status": "True",
        "reason": "Scheduled",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    item = {**group(), "status": {"conditions": [condition]}}
    assert store.create(GROUPS[V1BETA1], item, "default")["status"] == {}
    item = {"metadata": {"name": "g", "labels": {"a": "b"}}, "status": {"conditions": [condition]}}
    kept = replaced(store, GROUPS[V1BETA1], item, "status")
    assert kept["status"]["conditions"] == [condition]
    assert kept["spec"]["schedulingPolicy"] == GANG and "labels" not in kept["metadata"]
    resource = store.resources.of(GROUPS[V1BETA1])
    (row,) = table(resource, [kept], 5.0, "None", head=True)["rows"]
    assert row["cells"] == ["g", "Gang", "<none>", "Scheduled", "5s"]


# ── validation ──


def test_v1alpha1_reports_all_errors_at_once() -> None:
    store = store_of(V1ALPHA1)
    item = first_workload("a", "a", controllerRef={"kind": "", "name": "x%y"})
    item["spec"]["podGroups"] += [{"name": "B", "policy": {}}]
    item["spec"]["podGroups"] += [{"name": "c", "policy": {"gang": {"minCount": -1}}}]
    item["spec"]["podGroups"] += [{"name": "d", "policy": {"gang": {"minCount": 1}, "basic": {}}}]
    item["spec"]["podGroups"] += [{"name": "e" * 64, "policy": {"basic": {"desiredCount": -2}}}]
    told = rejection(store, WORKLOADS[V1ALPHA1], item)
    assert told.startswith('Workload.scheduling.k8s.io "w" is invalid: [')
    for sentence in (
        "spec.controllerRef.kind: Required value, ",
        "spec.controllerRef.name: Invalid value: \"x%y\": may not contain '%'",
        'spec.podGroups[1].name: Duplicate value: "a"',
        'spec.podGroups[2].name: Invalid value: "B": a lowercase RFC 1123 label must consist of',
        "spec.podGroups[2].policy: Required value: exactly one of `basic`, `gang` is required, ",
        "spec.podGroups[3].policy.gang.minCount: Invalid value: -1: must be greater than zero",
        'spec.podGroups[4].policy: Invalid value: "{`basic`, `gang`}": exactly one of `basic`, `gang` is '
        "required, but multiple fields are set",
        "must be no more than 63 characters",
        "spec.podGroups[5].policy.basic.desiredCount: Invalid value: -2: must be greater than or equal to 0",
    ):
        assert sentence in told, sentence
    many = first_workload(*"abcdefghi")
    assert rejection(store, WORKLOADS[V1ALPHA1], many).endswith(
        "spec.podGroups: Too many: 9: must have at most 8 items"
    )
    assert rejection(store, WORKLOADS[V1ALPHA1], first_workload()).endswith(
        "spec.podGroups: Required value: must have at least one item"
    )


def test_a_workload_of_v1alpha1_is_immutable() -> None:
    store = store_of(V1ALPHA1)
    store.create(WORKLOADS[V1ALPHA1], first_workload("a"), "default")
    told = change_rejected(store, WORKLOADS[V1ALPHA1], first_workload("b"))
    shown = '[{"Name":"b","Policy":{"Basic":null,"Gang":{"MinCount":2}}}]'
    assert told == f"podGroups: Invalid value: {shown}: field is immutable"
    controlled = first_workload("a", controllerRef={"apiGroup": "batch", "kind": "Job", "name": "j"})
    store.update(WORKLOADS[V1ALPHA1], "default", "w", controlled)  # it may be set later, once
    told = change_rejected(
        store, WORKLOADS[V1ALPHA1], first_workload("a", controllerRef={"kind": "Job", "name": "k"})
    )
    shown = '{"APIGroup":"","Kind":"Job","Name":"k"}'
    assert told == f"controllerRef: Invalid value: {shown}: field is immutable"


def test_v1alpha2_objects_are_immutable() -> None:
    store = store_of(V1ALPHA2)
    store.create(WORKLOADS[V1ALPHA2], workload_of("a"), "default")
    told = change_rejected(store, WORKLOADS[V1ALPHA2], workload_of(*"abcdefghi"))
    assert told == (
        "[spec.podGroupTemplates: Invalid value: null: field is immutable, "
        "spec.podGroupTemplates: Too many: 9: must have at most 8 items]"
    )
    store.create(GROUPS[V1ALPHA2], group(), "default")
    told = change_rejected(store, GROUPS[V1ALPHA2], changed(store, V1ALPHA2, schedulingPolicy=LARGER))
    assert told == "spec.schedulingPolicy: Invalid value: null: field is immutable"
    twice = rejection(store, WORKLOADS[V1ALPHA2], workload_of("b", "b"))
    shown = '{"name":"b","schedulingPolicy":{"gang":{"minCount":2}},"schedulingConstraints":null}'
    assert twice.endswith(f"spec.podGroupTemplates[1]: Duplicate value: {shown}")


def test_in_v1beta1_the_size_of_a_gang_may_change_and_its_policy_may_not() -> None:
    store = store_of(V1BETA1)
    store.create(GROUPS[V1BETA1], group(), "default")
    replaced(store, GROUPS[V1BETA1], changed(store, V1BETA1, schedulingPolicy=LARGER))
    assert store.get(GROUPS[V1BETA1], "default", "g")["spec"]["schedulingPolicy"] == LARGER
    told = change_rejected(store, GROUPS[V1BETA1], changed(store, V1BETA1, schedulingPolicy={"basic": {}}))
    assert told == (
        "[spec.schedulingPolicy.basic: Invalid value: null: field is immutable, "
        "spec.schedulingPolicy.gang: Invalid value: null: field cannot be cleared once set]"
    )
    store.create(WORKLOADS[V1BETA1], workload_of("a", "b"), "default")
    told = change_rejected(store, WORKLOADS[V1BETA1], workload_of("a", "c"))
    assert told == (
        "[spec.podGroupTemplates[1]: Forbidden: item may not be added, "
        "spec.podGroupTemplates: Forbidden: item may not be removed]"
    )


def test_an_update_in_v1beta1_needs_a_resource_version() -> None:
    store = store_of()
    store.create(GROUPS[V1BETA1], group(), "default")
    with pytest.raises(StatusError, match=r"metadata.resourceVersion: Invalid value: 0: must be specified"):
        store.update(GROUPS[V1BETA1], "default", "g", group(priority=0))
    store.update(GROUPS[V1ALPHA2], "default", "g", group(priority=0))


def test_the_desired_count_of_a_basic_group_may_change_in_v1beta1() -> None:
    store = store_of(V1BETA1)
    store.create(GROUPS[V1BETA1], group(schedulingPolicy={"basic": {"desiredCount": 0}}), "default")
    more = {"basic": {"desiredCount": 4}}
    made = replaced(store, GROUPS[V1BETA1], changed(store, V1BETA1, schedulingPolicy=more))
    assert made["spec"]["schedulingPolicy"] == more
    fewer = changed(store, V1BETA1, schedulingPolicy={"basic": {"desiredCount": -1}})
    told = change_rejected(store, GROUPS[V1BETA1], fewer)
    assert told.endswith("basic.desiredCount: Invalid value: -1: must be greater than or equal to 0")


def test_unchanged_errors_do_not_prevent_updates() -> None:
    api = {"gates": ALL_GATES}
    store = store_of(V1BETA1, **api)
    constraints = {"topology": [{"key": "rack"}]}
    made = store.create(GROUPS[V1BETA1], group(schedulingConstraints=constraints), "default")
    off = store_of(V1BETA1, gates=frozenset())
    off.put(off.resources.of(GROUPS[V1BETA1]), "default/g", {**made, "metadata": dict(made["metadata"])})
    same = group(schedulingConstraints=constraints, preemptionPolicy="PreemptLowerPriority", priority=0)
    same["metadata"]["labels"] = {"a": "b"}
    assert replaced(off, GROUPS[V1BETA1], same)["spec"]["schedulingConstraints"] == constraints
    same["spec"]["schedulingConstraints"] = {"topology": [{"key": "block"}]}
    assert change_rejected(off, GROUPS[V1BETA1], same) == "spec.schedulingConstraints: Forbidden"


def test_a_group_of_v1alpha2_needs_an_existing_template() -> None:
    store = store_of(V1ALPHA2)
    reference = {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}}
    told = rejection(store, GROUPS[V1ALPHA2], group(podGroupTemplateRef=reference))
    start = 'podgroups.scheduling.k8s.io "g" is forbidden: PodGroup rejected: '
    assert told == f'{start}Workload "w" not found'
    held = workload_of("other")
    held["metadata"]["finalizers"] = ["example.com/held"]
    store.create(WORKLOADS[V1ALPHA2], held, "default")
    told = rejection(store, GROUPS[V1ALPHA2], group(podGroupTemplateRef=reference))
    assert told == f'{start}PodGroupTemplate "t" not found in Workload "w"'
    store.delete(WORKLOADS[V1ALPHA2], "default", "w")
    told = rejection(store, GROUPS[V1ALPHA2], group(podGroupTemplateRef=reference))
    assert told == f'{start}Workload "w" is being deleted'


def test_a_pod_with_an_invalid_gang_reference_is_rejected() -> None:
    store = store_of()
    told = rejection(
        store, PODS, pod(workloadRef={"name": "", "podGroup": "A", "podGroupReplicaKey": "r" * 64})
    )
    for place in ('name: Invalid value: ""', 'podGroup: Invalid value: "A"', "podGroupReplicaKey: Invalid"):
        assert f"spec.workloadRef.{place}" in told
    assert rejection(store, PODS, pod(schedulingGroup={})).endswith(
        "spec.schedulingGroup.podGroupName: Invalid value: null: must specify one of: `podGroupName`"
    )
    store.create(PODS, pod(schedulingGroup={"podGroupName": "g"}), "default")
    with pytest.raises(StatusError, match="pod updates may not change fields"):
        store.patch(PODS, "default", "p", {"spec": {"schedulingGroup": {"podGroupName": "h"}}})


def test_the_conditions_of_a_group_are_well_formed() -> None:
    store = store_of()
    store.create(GROUPS[V1ALPHA2], group(), "default")
    conditions = [{"type": "A", "status": "Maybe", "reason": "no good", "message": "m"}] * 2
    item = {**group(), "status": {"conditions": conditions}}
    told = change_rejected(store, GROUPS[V1ALPHA2], item, "status")
    for sentence in (
        'status.conditions[1].type: Duplicate value: "A"',
        'status.conditions[0].status: Unsupported value: "Maybe": supported values: "False", "True", ',
        "status.conditions[0].lastTransitionTime: Required value",
        'status.conditions[0].reason: Invalid value: "no good": a condition reason must start with',
    ):
        assert sentence in told, sentence
