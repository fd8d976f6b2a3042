"""Malformed assignments with all their errors; and conversion of whole Workloads."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayplan.dialects.kube.fields.reader import Field, FieldError
from bayplan.dialects.kueue.conversion.workload import V1BETA1, V1BETA2, convert_workload
from bayplan.dialects.kueue.fields.assignment_decode import DOMAINS_MAX, decode_assignment
from bayplan.dialects.kueue.fields.assignment_encode import ROOTS_MAX, encode_domains, encode_slices
from bayplan.model.assignment import Assignment, DomainAssignment
from bayplan.model.node import HOSTNAME


def read(wire: object) -> tuple[Assignment | None, tuple[FieldError, ...]]:
    field = Field(wire)
    return decode_assignment(field), field.errors


KEYS = """
levels slices domains domainCount valuesPerLevel podCounts
universal individual roots prefix suffix values count
"""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 3) | st.floats(allow_nan=False) | st.text("ab", max_size=2),
    lambda below: (
        st.lists(below, max_size=3) | st.dictionaries(st.sampled_from(KEYS.split()), below, max_size=4)
    ),
    max_leaves=25,
)


@settings(max_examples=100, deadline=None)
@given(JSON)
def test_any_input_is_an_assignment_or_has_errors_never_both(wire: object) -> None:
    assignment, errors = read(wire)
    assert (assignment is None) == bool(errors)


GOOD: dict[str, Any] = {
    "levels": ["block", HOSTNAME],
    "slices": [
        {
            "domainCount": 2,
            "valuesPerLevel": [{"universal": "b"}, {"individual": {"prefix": "x", "roots": ["1", "2"]}}],
            "podCounts": {"individual": [3, 4]},
        }
    ],
}
GOOD_DOMAINS: dict[str, Any] = {"levels": ["rack"], "domains": [{"values": ["r1"], "count": 1}]}
FIRST = "slices[0]"
BLOCK, HOST = f"{FIRST}.valuesPerLevel[0]", f"{FIRST}.valuesPerLevel[1]"


def changed(wire: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """A copy with one field replaced; None removes it."""
    whole = copy.deepcopy(wire)
    place: Any = whole
    *way, last = [
        int(key) if key.isdigit() else key for key in path.replace("[", ".").replace("]", "").split(".")
    ]
    for key in way:
        place = place[key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return whole


def test_the_valid_examples_are_valid() -> None:
    hosts = Assignment(
        ("block", HOSTNAME), (DomainAssignment(("b", "x1"), 3), DomainAssignment(("b", "x2"), 4))
    )
    assert read(GOOD) == (hosts, ())
    assert read(GOOD_DOMAINS) == (Assignment(("rack",), (DomainAssignment(("r1",), 1),)), ())


@pytest.mark.parametrize(
    ("path", "value", "at", "why"),
    [
        ("levels", None, "levels", "must name at least one level"),
        ("levels", [], "levels", "must name at least one level"),
        ("levels", "block", "levels", "must be a list, not text"),
        ("levels", ["block", 7], "levels[1]", "must be text, not a number: write it in quotes"),
        ("levels", ["block", "block"], "levels", "must not name a level twice"),
        ("levels", [f"l{i}" for i in range(17)], "levels", "must not have more than 16 levels"),
        ("domains", [], "", "must have domains or slices, not both"),
        ("slices", {}, "slices", "must be a list, not a mapping"),
        ("slices", GOOD["slices"] * 1001, "slices", "must not have more than 1000 slices"),
        (f"{FIRST}", "x", FIRST, "must be a mapping, not text"),
        (f"{FIRST}.domainCount", None, f"{FIRST}.domainCount", "must be given"),
        (f"{FIRST}.domainCount", 0, f"{FIRST}.domainCount", "must not be less than 1"),
        (f"{FIRST}.domainCount", -2, f"{FIRST}.domainCount", "must not be less than 1"),
        (f"{FIRST}.domainCount", ROOTS_MAX + 1, f"{FIRST}.domainCount", "must not be more than 100000"),
        (f"{FIRST}.domainCount", "2", f"{FIRST}.domainCount", "must be a whole number, not text"),
        (
            f"{FIRST}.valuesPerLevel",
            GOOD["slices"][0]["valuesPerLevel"][1:],
            f"{FIRST}.valuesPerLevel",
            "must have an entry for each of the 2 levels, not 1",
        ),
        (f"{FIRST}.valuesPerLevel[0]", {}, BLOCK, "must have exactly one of universal and individual"),
        (
            f"{BLOCK}.individual",
            {"roots": ["b", "b"]},
            BLOCK,
            "must have exactly one of universal and individual",
        ),
        (f"{BLOCK}.universal", 5, f"{BLOCK}.universal", "must be text, not a number: write it in quotes"),
        (
            f"{HOST}.individual.roots",
            ["1", "2", "3"],
            f"{HOST}.individual.roots",
            "must have an entry for each of the 2 domains (domainCount), not 3",
        ),
        (f"{HOST}.individual.roots", None, f"{HOST}.individual.roots", "must be given"),
        (
            f"{HOST}.individual.roots",
            [1, "2"],
            f"{HOST}.individual.roots[0]",
            "must be text, not a number: write it in quotes",
        ),
        (f"{HOST}.individual.prefix", ["x"], f"{HOST}.individual.prefix", "must be text, not a list"),
        (
            f"{FIRST}.podCounts",
            None,
            f"{FIRST}.podCounts",
            "must have exactly one of universal and individual",
        ),
        (
            f"{FIRST}.podCounts.universal",
            1,
            f"{FIRST}.podCounts",
            "must have exactly one of universal and individual",
        ),
        (f"{FIRST}.podCounts", {"universal": 0}, f"{FIRST}.podCounts.universal", "must not be less than 1"),
        (
            f"{FIRST}.podCounts.individual",
            [3],
            f"{FIRST}.podCounts.individual",
            "must have an entry for each of the 2 domains (domainCount), not 1",
        ),
        (
            f"{FIRST}.podCounts.individual",
            [3, -4],
            f"{FIRST}.podCounts.individual[1]",
            "must not be less than 1",
        ),
        (
            f"{FIRST}.podCounts.individual",
            [0, 1],
            f"{FIRST}.podCounts.individual[0]",
            "must not be less than 1",
        ),
        (f"{FIRST}.podCounts.individual", [3, None], f"{FIRST}.podCounts.individual[1]", "must be given"),
        (f"{FIRST}.podCounts.individual", 3, f"{FIRST}.podCounts.individual", "must be a list, not a number"),
    ],
)
def test_one_wrong_field(path: str, value: object, at: str, why: str) -> None:
    assignment, errors = read(changed(GOOD, path, value))
    assert assignment is None
    assert (at, why) in [(error.path, error.why) for error in errors]
    assert len(errors) == 1 or path == "levels"  # levels that cannot be read leave the rest without a measure


@pytest.mark.parametrize(
    ("path", "value", "at", "why"),
    [
        ("domains", "x", "domains", "must be a list, not text"),
        (
            "domains[0].values",
            ["r1", "x"],
            "domains[0].values",
            "must have a value for each of the 1 levels, not 2",
        ),
        ("domains[0].values", None, "domains[0].values", "must be given"),
        ("domains[0].count", -1, "domains[0].count", "must not be less than 1"),
        ("domains[0].count", None, "domains[0].count", "must be given"),
    ],
)
def test_one_wrong_field_of_the_old_form(path: str, value: object, at: str, why: str) -> None:
    assert [(e.path, e.why) for e in read(changed(GOOD_DOMAINS, path, value))[1]] == [(at, why)]


def test_all_errors_are_reported_at_once() -> None:
    wire = changed(changed(GOOD, f"{FIRST}.podCounts.individual", [0, -1, 2]), f"{HOST}.individual.roots", [])
    _, errors = read(changed(wire, f"{BLOCK}.universal", 1))
    assert [error.path for error in errors] == [
        f"{BLOCK}.universal",
        f"{HOST}.individual.roots",
        f"{FIRST}.podCounts.individual",
        f"{FIRST}.podCounts.individual[0]",
        f"{FIRST}.podCounts.individual[1]",
    ]


def test_a_small_object_cannot_exhaust_memory() -> None:
    part = {"domainCount": ROOTS_MAX, "valuesPerLevel": [{"universal": "r"}], "podCounts": {"universal": 1}}
    wire = {"levels": ["rack"], "slices": [part] * (DOMAINS_MAX // ROOTS_MAX + 1)}
    assert [error.why for error in read(wire)[1]] == ["must not have more than 1000000 domains in all"]


# ── whole Workloads ────────────────────────────────────────────────────────────────────────────────


def assigned_workload(version: str, assignment: dict[str, Any]) -> dict[str, Any]:
    assigned = {"name": "main", "count": 7, "topologyAssignment": assignment}
    return {
        "apiVersion": f"kueue.x-k8s.io/{version}",
        "kind": "Workload",
        "status": {"admission": {"clusterQueue": "cq", "podSetAssignments": [{"name": "none"}, assigned]}},
    }


def test_workloads_are_converted_both_ways_without_modifying_the_input() -> None:
    hosts, _ = read(GOOD)
    assert hosts is not None
    old, new = (
        assigned_workload(V1BETA1, encode_domains(hosts)),
        assigned_workload(V1BETA2, encode_slices(hosts)),
    )
    old["spec"] = {"priorityClassName": "high", "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass"}
    reference = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}
    new["spec"] = {"priorityClassRef": reference}
    old["status"]["accumulatedPastExexcutionTimeSeconds"] = new["status"][
        "accumulatedPastExecutionTimeSeconds"
    ] = 9
    originals = copy.deepcopy((old, new))
    assert convert_workload(old, V1BETA2) == (new, ())
    assert convert_workload(new, V1BETA1) == (old, ())
    assert convert_workload(new, V1BETA2) == (new, ())
    assert (old, new) == originals


def test_fields_that_v1beta1_lacks_are_dropped() -> None:
    request = {
        "required": "rack",
        "podsetSliceRequiredTopologyConstraints": [{"topology": "rack", "size": 2}],
    }
    new = {
        "spec": {"preemptionGates": [], "podSets": [{"name": "a", "topologyRequest": request}, {"name": "b"}]}
    }
    old, _ = convert_workload(new, V1BETA1)
    assert old == {
        "spec": {"podSets": [{"name": "a", "topologyRequest": {"required": "rack"}}, {"name": "b"}]}
    }


def test_a_malformed_assignment_is_reported_with_its_path_and_not_converted() -> None:
    broken = assigned_workload(V1BETA2, changed(GOOD, f"{FIRST}.domainCount", 0))
    converted, (error,) = convert_workload(broken, V1BETA1)
    path = "status.admission.podSetAssignments[1].topologyAssignment.slices[0].domainCount"
    assert (error.path, error.why) == (path, "must not be less than 1")
    assert converted["status"] == broken["status"]


@given(JSON)
def test_no_workload_makes_the_conversion_raise(status: object) -> None:
    for version in (V1BETA1, V1BETA2):
        convert_workload(
            {"status": {"admission": {"podSetAssignments": [{"topologyAssignment": status}]}}}, version
        )
        convert_workload({"status": {"admission": {"podSetAssignments": status}}}, version)
        convert_workload({"status": {"admission": status}, "spec": status}, version)
