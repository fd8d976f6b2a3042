"""gang/validation*, live* and unit*admission*: what is said about Workloads, PodGroups and their pods."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bayplan.backends.embedded.api import metadata
from bayplan.backends.embedded.api.resource import Resource
from bayplan.backends.embedded.api.status import FieldProblem, StatusError, from_field
from bayplan.backends.embedded.cluster import new_store
from bayplan.backends.embedded.kinds.gangs import GangApi
from bayplan.backends.embedded.kinds.pod_rules import check_spec
from bayplan.backends.embedded.storage.store import Store
from bayplan.dialects.api import Kind
from bayplan.dialects.kube.gang_api.admission import missing_template
from bayplan.dialects.kube.gang_api.defaulting import defaulted
from bayplan.dialects.kube.gang_api.gates import (
    ALL_GATES,
    CLAIMS,
    GROUP,
    PREEMPTION,
    TOPOLOGY,
    V1ALPHA1,
    V1ALPHA2,
    V1BETA1,
    Gates,
)
from bayplan.dialects.kube.gang_api.rules import errors, status_errors
from tests.conformance.registry import Check, ForFile, NothingToRun

Object = dict[str, Any]

PLURALS = {"Workload": "workloads", "PodGroup": "podgroups", "Pod": "pods"}
VERSIONS = {"v1.35": V1ALPHA1, "v1.36": V1ALPHA2, "v1.37": V1BETA1}
GATES = {"TopologyAwareScheduling": TOPOLOGY}  # the tables' names where they are not the real ones


def check_case(case: Object) -> list[str]:
    """A table of upstream's: every error by its sort and place, and by its words where some are given."""
    told = _problems(case)
    if "expected_errors" not in case or (case["expect_invalid"] and not case["expected_errors"]):
        return [] if bool(told) is case["expect_invalid"] else [f"refused is {bool(told)}: {told}"]
    got = Counter((problem.message.partition(":")[0], problem.field) for problem in told)
    wanted = case["expected_errors"]
    wrong = _compare(Counter((error["type"], error["field"]) for error in wanted), got)
    return wrong or [
        f"other words at {error['field']}: {error['detail']}"
        for error in wanted
        if error.get("detail") and not any(_says(problem, error) for problem in told)
    ]


def live_check(path: Path) -> Check:
    """The answers of a real API server to the same objects, word for word, on a store that plays it."""
    objects: dict[str, Object] = {}
    for file in sorted(path.parent.glob("validation_*.json")):
        objects |= {case["id"]: case for case in json.loads(file.read_text(encoding="utf-8"))["cases"]}
    version = next(served for start, served in VERSIONS.items() if start in path.name)
    gates = frozenset({TOPOLOGY, CLAIMS, PREEMPTION}) if "gates_on" in path.name else frozenset[str]()

    def check(answer: Object) -> list[str]:
        given = objects.get(answer["id"])
        if given is None:  # answers are recorded without their objects
            raise NothingToRun(answer["id"])
        code, message, causes = _answer(given, GangApi((version,), gates, plugins=False))
        want = (answer["http"], answer.get("message", ""), _listed(answer.get("causes") or ()))
        got = (code, message, _listed(causes))
        return [f"want {a}, got {b}" for a, b in zip(want, got, strict=True) if a != b]

    return check


def check_admission(case: Object) -> list[str]:
    """Whether a PodGroup may be created, by the Workload it refers to."""
    asked = case["attrs"]
    group, about = asked.get("object"), (asked["resource"]["resource"], asked["subresource"])
    refused = ""
    if case["enableFeatureGate"] and about == ("podgroups", "") and group is not None:
        known = {one["metadata"]["name"]: one for one in case.get("workloads") or ()}
        refused = missing_template(group, known.get)
    return [] if bool(refused) is case["wantErr"] else [f"want an error: {case['wantErr']}, got {refused!r}"]


def check_admission_whole(case: Object) -> list[str]:
    """The same on a whole cluster. The groups are functions upstream; what they make is in the names."""
    store = _store(GangApi((V1ALPHA2,)))
    names = ("worker", "test-workload")
    if "non-existent Workload" in case["name"]:
        names = ("worker", "non-existent-workload")
    elif "non-existent template" in case["name"]:
        names = ("non-existent-template", "test-workload")
    spec: Object = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    if "without templateRef" not in case["name"]:
        reference = {"podGroupTemplateName": names[0], "workloadName": names[1]}
        spec["podGroupTemplateRef"] = {"workload": reference}
    if "workload" in case:
        store.create(_kind(case["workload"]), case["workload"], "ns")
        if case["deleteWorkload"]:
            store.delete(_kind(case["workload"]), "ns", case["workload"]["metadata"]["name"])
    group = {
        "apiVersion": f"{GROUP}/{V1ALPHA2}",
        "kind": "PodGroup",
        "metadata": {"name": "pg1"},
        "spec": spec,
    }
    try:
        store.create(_kind(group), group, "ns")
    except StatusError as refusal:
        right = case["expectError"] and refusal.code == 403 and "PodGroup rejected: " in refusal.message
        return [] if right else [refusal.message]
    return ["was created, should be refused"] if case["expectError"] else []


def _problems(case: Object) -> list[FieldProblem]:
    """What the functions behind the store say, with no server between that drops or fills in anything."""
    item, old = case["object"], case.get("old")
    if item["kind"] == "Pod":
        return check_spec(item["spec"], "spec")
    gates = _gates(case.get("gates"))
    if case.get("gates") is None:  # a table of the checks behind the server, which has filled in everything
        item, old = defaulted(item), None if old is None else defaulted(old)
    found = metadata.check(item, _resource(item)) if old is None else metadata.check_update(item, old)
    status = case["op"] == "update_status"
    wrong = status_errors(item, old, gates) if status else errors(item, old, gates)
    return found + [from_field(error) for error in wrong]


def _says(problem: FieldProblem, error: Object) -> bool:
    return problem.field == error["field"] and problem.message.endswith(error["detail"])


def _gates(said: Mapping[str, bool] | None) -> Gates:
    if said is None:
        return ALL_GATES
    return frozenset(GATES.get(name, name) for name, on in said.items() if on)


def _answer(given: Object, api: GangApi) -> tuple[int, str, Iterable[Object]]:
    """What the store answers: code, message, causes."""
    store, item, old = _store(api), given["object"], given.get("old")
    if item["kind"] == "Pod":
        item = {**item, "metadata": {"name": "p", **item["metadata"]}}
    kind, namespace = _kind(item), item["metadata"].get("namespace", "default")
    if old is not None:
        kept = store.create(kind, _without_version(old), old["metadata"]["namespace"])
        version = {"resourceVersion": kept["metadata"]["resourceVersion"]}
        item = {**item, "metadata": {**item["metadata"], **version}}
    try:
        if old is None:
            store.create(kind, item, namespace)
            return 201, "", ()
        subresource = "status" if given["op"] == "update_status" else ""
        store.update(kind, namespace, old["metadata"]["name"], item, subresource)
    except StatusError as refusal:
        causes = (refusal.details or {}).get("causes", ()) if refusal.code == 422 else ()
        return refusal.code, refusal.message, causes
    return 200, "", ()


def _store(api: GangApi) -> Store:
    numbers = itertools.count(1)
    store = new_store(
        lambda: 0.0, lambda: f"uid-{next(numbers)}", lambda: f"{next(numbers):05d}", gang_api=api
    )
    store.create(Kind("", "v1", "Namespace", "namespaces", namespaced=False), {"metadata": {"name": "ns"}})
    return store


def _kind(item: Object) -> Kind:
    group, _, version = item["apiVersion"].rpartition("/")
    return Kind(group, version, item["kind"], PLURALS[item["kind"]])


def _resource(item: Object) -> Resource:
    return _EVERYTHING.resources.of(_kind(item))


def _without_version(item: Object) -> Object:
    kept = {key: value for key, value in item["metadata"].items() if key != "resourceVersion"}
    return {**item, "metadata": kept}


def _listed(causes: Iterable[Object]) -> list[tuple[str, str, str]]:
    return [(cause["reason"], cause["field"], cause["message"]) for cause in causes]


def _compare(want: Counter[Any], got: Counter[Any]) -> list[str]:
    missing = [f"missing {one}" for one in (want - got).elements()]
    return missing + [f"not wanted {one}" for one in (got - want).elements()]


_EVERYTHING = _store(GangApi())

FILES = {
    "gang/validation_*": check_case,
    "gang/live_*": ForFile(live_check),
    "gang/unit_*_admission": check_admission,
    "gang/unit_*_admission_it": check_admission_whole,
}
