"""Conversion of Kueue objects to the other version, and back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bayplan.backends.conversion import convert
from bayplan.dialects.kueue.conversion.round_trip_fields import SAVED_BYTES_MAX
from tests.support.kueue_api import REFERENCE, made, pod_set

Object = dict[str, Any]
OLD, NEW = "kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2"
NOTE = "bayplan.dev/v1beta2"


def cluster_queue(version: str = "v1beta2", **spec: Any) -> Object:
    return made("ClusterQueue", "q", spec, version)


def test_the_cohort_field_is_renamed() -> None:
    assert convert(cluster_queue("v1beta1", cohort="all"), NEW) == cluster_queue(cohortName="all")
    assert convert(cluster_queue(cohortName="all"), OLD) == cluster_queue("v1beta1", cohort="all")


@pytest.mark.parametrize(("field", "word"), [("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")])
def test_values_of_v1beta1_are_converted_and_restored(field: str, word: str) -> None:
    old = cluster_queue("v1beta1", flavorFungibility={field: word})
    new = convert(old, NEW)
    assert new["spec"] == {"flavorFungibility": {field: "MayStopSearch"}}
    assert convert(new, OLD) == old
    new["spec"]["flavorFungibility"][field] = "TryNextFlavor"
    assert convert(new, OLD) == cluster_queue("v1beta1", flavorFungibility={field: "TryNextFlavor"})


def test_a_list_of_checks_becomes_a_strategy() -> None:
    old = cluster_queue("v1beta1", admissionChecks=["a", "b"])
    new = convert(old, NEW)
    assert new["spec"] == {"admissionChecksStrategy": {"admissionChecks": [{"name": "a"}, {"name": "b"}]}}
    assert convert(new, OLD) == old


def test_a_strategy_that_was_changed_since_is_not_overwritten() -> None:
    new = convert(cluster_queue("v1beta1", admissionChecks=["a"]), NEW)
    new["spec"]["admissionChecksStrategy"]["admissionChecks"][0]["onFlavors"] = ["f"]
    old = convert(new, OLD)
    assert old["spec"] == new["spec"] and "annotations" not in old["metadata"]


def test_fields_that_only_v1beta2_has_are_saved_in_an_annotation() -> None:
    constraints = [{"topology": "rack", "size": 4}]
    request = {"required": "block", "podsetSliceRequiredTopologyConstraints": constraints}
    pod_sets = [pod_set(name="a"), pod_set(name="b", topologyRequest=request)]
    new = made("Workload", "w", {"podSets": pod_sets, "preemptionGates": [{"name": "g"}]})
    old = convert(new, OLD)
    assert old["spec"]["podSets"][1]["topologyRequest"] == {"required": "block"}
    assert list(old["metadata"]["annotations"]) == [NOTE] and "preemptionGates" not in old["spec"]
    assert convert(old, NEW) == new
    del old["spec"]["podSets"][1]["topologyRequest"]
    expected = made("Workload", "w", {"podSets": [pod_set(name="a"), pod_set(name="b")]})
    assert convert(old, NEW)["spec"]["podSets"] == expected["spec"]["podSets"], (
        "gone with what it was part of"
    )


def test_other_annotations_are_preserved() -> None:
    new = cluster_queue(concurrentAdmissionPolicy={"migration": {"mode": "RetainFirstAdmission"}})
    new["metadata"]["annotations"] = {"mine": "x"}
    old = convert(new, OLD)
    assert old["metadata"]["annotations"].keys() == {"mine", NOTE}
    assert convert(old, NEW) == new


@pytest.mark.parametrize(
    "text", ["", "[", "{}", '[{"path": "x"}]', '[{"path": []}]', '[{"path": ["spec"]}]', "[1]"]
)
def test_a_malformed_annotation_is_dropped(text: str) -> None:
    old = cluster_queue("v1beta1", cohort="all")
    old["metadata"]["annotations"] = {NOTE: text}
    assert convert(old, NEW) == cluster_queue(cohortName="all")


ADMITTED = {"type": "Admitted", "status": "True", "reason": "x", "lastTransitionTime": "2026-01-01T00:00:00Z"}
DEEP = "[" * 20_000 + "]" * 20_000


def forged(*places: tuple[list[str], Any], **spec: Any) -> Object:
    """A v1beta1 Workload with a forged annotation: values for paths that are unset."""
    old = made("Workload", "w", {"podSets": [pod_set(name="main")], **spec}, "v1beta1")
    note = [{"path": path, "original": value} for path, value in places]
    old["metadata"]["annotations"] = {NOTE: json.dumps(note)}
    return old


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["status", "conditions"], [ADMITTED]),
        (["status", "admission"], {"clusterQueue": "q", "podSetAssignments": []}),
        (["status", "preemptionGates"], [{"name": "g", "position": "Open"}]),
        (["metadata", "finalizers"], ["x"]),
        (["spec", "active"], False),
        (["spec", "queueName"], "other"),
        (["spec", "podSets", "main", "minCount"], 1),
        (["spec"], {"queueName": "other"}),
    ],
)
def test_only_fields_that_the_other_version_lacks_are_restored(path: list[str], value: Any) -> None:
    old = {**forged((path, value)), "status": {}}
    wanted = made("Workload", "w", {"podSets": [pod_set(name="main")]}, status={})
    assert convert(old, NEW) == wanted


@pytest.mark.parametrize(
    "value",
    [
        7,
        "text",
        [{"name": 5}],
        [{}],
        [{"name": "g", "more": 1}],
        [{"name": "g"}, {"name": "g"}],
        {"name": "g"},
        [{"name": "x" * 400}],
    ],
    ids=str,
)
def test_a_saved_value_that_violates_the_schema_is_dropped(value: Any) -> None:
    new = convert(forged((["spec", "preemptionGates"], value)), NEW)
    assert "preemptionGates" not in new["spec"] and "annotations" not in new["metadata"]


def test_a_saved_value_that_is_nested_too_deep_is_dropped() -> None:
    old = forged()
    old["metadata"]["annotations"] = {NOTE: '[{"path":["spec","preemptionGates"],"original":' + DEEP + "}]"}
    assert "preemptionGates" not in convert(old, NEW)["spec"]


def test_errors_of_the_object_itself_do_not_drop_the_saved_values() -> None:
    """The object is not validated: only the restored values have to satisfy the schema."""
    gates = [{"name": "g"}]
    old = forged((["spec", "preemptionGates"], gates), unknown=True)
    new = convert(old, NEW)
    assert new["spec"]["preemptionGates"] == gates and new["spec"]["unknown"] is True


def test_an_annotation_too_long_for_the_api_server_is_not_written() -> None:
    old = cluster_queue("v1beta1", admissionChecks=["x" * SAVED_BYTES_MAX])
    assert "annotations" not in convert(old, NEW)["metadata"]


def test_priority_classes() -> None:
    new = made("Workload", "w", {"priority": 1, "priorityClassRef": REFERENCE})
    old = convert(new, OLD)
    source = "kueue.x-k8s.io/workloadpriorityclass"
    assert old["spec"] == {"priority": 1, "priorityClassName": "high", "priorityClassSource": source}
    assert convert(old, NEW) == new
    nameless = made("Workload", "w", {"priorityClassName": "high", "priorityClassSource": ""}, "v1beta1")
    assert convert(nameless, NEW)["spec"] == {} and convert(convert(nameless, NEW), OLD) == nameless


def test_the_usage_field_of_a_local_queue_is_renamed() -> None:
    usage = [{"name": "f", "resources": [{"name": "cpu", "total": "1"}]}]
    old = {
        **made("LocalQueue", "q", {}, "v1beta1"),
        "status": {"flavorUsage": usage, "flavors": [{"name": "f"}]},
    }
    new = convert(old, NEW)
    assert new["status"] == {"flavorsUsage": usage} and "annotations" not in new["metadata"]
    assert convert(new, OLD)["status"] == {"flavorUsage": usage}


@pytest.mark.parametrize(("minutes", "noted"), [(15, False), (5, True)])
def test_a_delay_that_is_not_the_default_is_saved(minutes: int, noted: bool) -> None:
    old = made("AdmissionCheck", "c", {"controllerName": "x", "retryDelayMinutes": minutes}, "v1beta1")
    new = convert(old, NEW)
    assert new["spec"] == {"controllerName": "x"} and ("annotations" in new["metadata"]) == noted
    assert convert(new, OLD) == old


def test_an_invalid_assignment_is_not_converted() -> None:
    assignment = {"name": "main", "topologyAssignment": {"levels": ["host"], "slices": [{"domainCount": 2}]}}
    status = {"admission": {"clusterQueue": "q", "podSetAssignments": [assignment]}}
    with pytest.raises(ValueError, match=r"status\.admission\.podSetAssignments\[0\]\.topologyAssignment"):
        convert({**made("Workload", "w", {}), "status": status}, OLD)


def test_the_input_object_is_not_modified() -> None:
    old = cluster_queue(
        "v1beta1", cohort="all", admissionChecks=["a"], flavorFungibility={"whenCanBorrow": "Borrow"}
    )
    before = json.dumps(old)
    convert(old, NEW)
    assert json.dumps(old) == before
