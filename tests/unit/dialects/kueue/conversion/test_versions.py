"""Objects of the Kueue API in the version that they were not written in, and back."""

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


def queue(version: str = "v1beta2", **spec: Any) -> Object:
    return made("ClusterQueue", "q", spec, version)


def test_a_cohort_changes_its_name() -> None:
    assert convert(queue("v1beta1", cohort="all"), NEW) == queue(cohortName="all")
    assert convert(queue(cohortName="all"), OLD) == queue("v1beta1", cohort="all")


@pytest.mark.parametrize(("field", "word"), [("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")])
def test_old_words_become_new_ones_and_are_remembered(field: str, word: str) -> None:
    old = queue("v1beta1", flavorFungibility={field: word})
    new = convert(old, NEW)
    assert new["spec"] == {"flavorFungibility": {field: "MayStopSearch"}}
    assert convert(new, OLD) == old
    new["spec"]["flavorFungibility"][field] = "TryNextFlavor"
    assert convert(new, OLD) == queue("v1beta1", flavorFungibility={field: "TryNextFlavor"})


def test_a_list_of_checks_becomes_a_strategy() -> None:
    old = queue("v1beta1", admissionChecks=["a", "b"])
    new = convert(old, NEW)
    assert new["spec"] == {"admissionChecksStrategy": {"admissionChecks": [{"name": "a"}, {"name": "b"}]}}
    assert convert(new, OLD) == old


def test_a_strategy_that_was_changed_since_is_the_one_that_counts() -> None:
    new = convert(queue("v1beta1", admissionChecks=["a"]), NEW)
    new["spec"]["admissionChecksStrategy"]["admissionChecks"][0]["onFlavors"] = ["f"]
    old = convert(new, OLD)
    assert old["spec"] == new["spec"] and "annotations" not in old["metadata"]


def test_what_only_the_new_version_can_say_waits_in_an_annotation() -> None:
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


def test_annotations_of_others_stay() -> None:
    new = queue(concurrentAdmissionPolicy={"migration": {"mode": "RetainFirstAdmission"}})
    new["metadata"]["annotations"] = {"mine": "x"}
    old = convert(new, OLD)
    assert old["metadata"]["annotations"].keys() == {"mine", NOTE}
    assert convert(old, NEW) == new


@pytest.mark.parametrize(
    "text", ["", "[", "{}", '[{"path": "x"}]', '[{"path": []}]', '[{"path": ["spec"]}]', "[1]"]
)
def test_a_note_that_somebody_wrote_into_is_dropped(text: str) -> None:
    old = queue("v1beta1", cohort="all")
    old["metadata"]["annotations"] = {NOTE: text}
    assert convert(old, NEW) == queue(cohortName="all")


ADMITTED = {"type": "Admitted", "status": "True", "reason": "x", "lastTransitionTime": "2026-01-01T00:00:00Z"}
DEEP = "[" * 20_000 + "]" * 20_000


def forged(*places: tuple[list[str], Any], **spec: Any) -> Object:
    """A Workload in v1beta1 with a note that its user wrote: values, each for a path where nothing is."""
    old = made("Workload", "w", {"podSets": [pod_set(name="main")], **spec}, "v1beta1")
    note = [{"path": path, "was": value} for path, value in places]
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
def test_a_note_restores_nothing_but_what_the_old_version_cannot_say(path: list[str], value: Any) -> None:
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
def test_a_note_whose_value_breaks_the_schema_is_dropped(value: Any) -> None:
    new = convert(forged((["spec", "preemptionGates"], value)), NEW)
    assert "preemptionGates" not in new["spec"] and "annotations" not in new["metadata"]


def test_a_note_that_is_nested_too_deep_is_dropped() -> None:
    old = forged()
    old["metadata"]["annotations"] = {NOTE: '[{"path":["spec","preemptionGates"],"was":' + DEEP + "}]"}
    assert "preemptionGates" not in convert(old, NEW)["spec"]


def test_a_note_does_not_make_up_for_what_was_wrong_already() -> None:
    """What the client sent stays as it is: only what the note would add is held to the schema."""
    gates = [{"name": "g"}]
    old = forged((["spec", "preemptionGates"], gates), unknown=True)
    new = convert(old, NEW)
    assert new["spec"]["preemptionGates"] == gates and new["spec"]["unknown"] is True


def test_a_note_too_long_for_the_api_server_is_not_written() -> None:
    old = queue("v1beta1", admissionChecks=["x" * SAVED_BYTES_MAX])
    assert "annotations" not in convert(old, NEW)["metadata"]


def test_priority_classes() -> None:
    new = made("Workload", "w", {"priority": 1, "priorityClassRef": REFERENCE})
    old = convert(new, OLD)
    source = "kueue.x-k8s.io/workloadpriorityclass"
    assert old["spec"] == {"priority": 1, "priorityClassName": "high", "priorityClassSource": source}
    assert convert(old, NEW) == new
    nameless = made("Workload", "w", {"priorityClassName": "high", "priorityClassSource": ""}, "v1beta1")
    assert convert(nameless, NEW)["spec"] == {} and convert(convert(nameless, NEW), OLD) == nameless


def test_a_local_queue_says_its_usage_under_another_name() -> None:
    usage = [{"name": "f", "resources": [{"name": "cpu", "total": "1"}]}]
    old = {
        **made("LocalQueue", "q", {}, "v1beta1"),
        "status": {"flavorUsage": usage, "flavors": [{"name": "f"}]},
    }
    new = convert(old, NEW)
    assert new["status"] == {"flavorsUsage": usage} and "annotations" not in new["metadata"]
    assert convert(new, OLD)["status"] == {"flavorUsage": usage}


@pytest.mark.parametrize(("minutes", "noted"), [(15, False), (5, True)])
def test_a_delay_that_is_not_the_default_is_remembered(minutes: int, noted: bool) -> None:
    old = made("AdmissionCheck", "c", {"controllerName": "x", "retryDelayMinutes": minutes}, "v1beta1")
    new = convert(old, NEW)
    assert new["spec"] == {"controllerName": "x"} and ("annotations" in new["metadata"]) == noted
    assert convert(new, OLD) == old


def test_an_assignment_that_cannot_be_read_is_not_converted() -> None:
    assignment = {"name": "main", "topologyAssignment": {"levels": ["host"], "slices": [{"domainCount": 2}]}}
    status = {"admission": {"clusterQueue": "q", "podSetAssignments": [assignment]}}
    with pytest.raises(ValueError, match=r"status\.admission\.podSetAssignments\[0\]\.topologyAssignment"):
        convert({**made("Workload", "w", {}), "status": status}, OLD)


def test_the_object_given_is_left_alone() -> None:
    old = queue("v1beta1", cohort="all", admissionChecks=["a"], flavorFungibility={"whenCanBorrow": "Borrow"})
    before = json.dumps(old)
    convert(old, NEW)
    assert json.dumps(old) == before
