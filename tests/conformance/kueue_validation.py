"""kueue/validation*: what the webhooks say about jobs and Workloads, and about sets of annotations."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from bayplan.dialects.kube.fields.reader import Field, FieldError, FieldErrorType
from bayplan.dialects.kueue.fields.annotation_rules import check_annotations, check_sizes
from bayplan.dialects.kueue.fields.topology_request import topology_request
from bayplan.dialects.kueue.names.annotations import read_annotations
from bayplan.dialects.kueue.names.feature_switches import FeatureSwitches
from bayplan.dialects.kueue.webhooks.validate import errors

Object = dict[str, Any]

PATH = "spec.template.metadata"
OBJECTS = ("job", "lws", "pod", "sparkApp", "trainJob", "workload", "newJob", "newObj", "newPod", "after")
OLD = ("oldJob", "oldObj", "oldPod", "before")
RUNTIMES = ("clusterTrainingRuntime", "trainingRuntime")
_FAULTS = "|".join(fault for fault in FieldErrorType if fault)
_TOLD = re.compile(rf"(?:^\[?|, )((?:spec|metadata|status|job)[^ ]*): ({_FAULTS})")


def check_case(case: Object) -> list[str]:
    """A table of the peer's: annotations alone, or an object with or without the one before it."""
    given = case["case"]
    rules = _rules(case.get("gates") or {}, given)
    if "annotations" in given:
        return _check_annotations(case, given, rules)
    new = next(given[key] for key in OBJECTS if key in given)
    old = next((given[key] for key in OLD if key in given), None)
    found = errors(new, old, rules, lambda kind, _namespace, name: _runtime(given, kind, name))
    listed = given.get("wantValidationErrs") or given.get("wantErrs")
    if listed is None:
        text = (given.get("wantErr") or {}).get("error", "")
        return _compare(
            Counter((fault, path) for path, fault in _TOLD.findall(text)),
            Counter((str(error.fault), error.path) for error in found),
        )
    return _compare(
        Counter((want["type"], want["field"], want["detail"]) for want in listed),
        Counter((str(error.fault), error.path, error.why) for error in found),
    )


def check_oracle(case: Object) -> list[str]:
    """Annotations: every error word for word; or the request they make, and sizes that are too large."""
    rules = FeatureSwitches(lenient=False)
    metadata = Field({"annotations": case["annotations"]}, case["path"])
    check_annotations(metadata, rules=rules)
    wrong = _compare(_exact(case.get("errors")), _ours(metadata.errors))
    if wrong or case.get("errors"):
        return wrong
    request = topology_request(read_annotations(metadata), forgiving=False)
    if request != case.get("topologyRequest"):
        return [f"want {case.get('topologyRequest')}, got {request}"]
    sized = Field(metadata.value, case["path"])
    check_sizes(sized, case["podSetCount"], rules)
    return _compare(_exact(case.get("upperBoundErrors")), _ours(sized.errors))


def _check_annotations(case: Object, given: Object, rules: FeatureSwitches) -> list[str]:
    metadata = Field({"annotations": given["annotations"]}, PATH)
    if "podSetCount" in given:
        check_sizes(metadata, given["podSetCount"], rules)
    else:
        check_annotations(metadata, rules=rules)
    if "gotErrors" in case or not given.get("wantErrNum"):
        return _compare(_exact(case.get("gotErrors")), _ours(metadata.errors))
    return _compare(Counter({"errors": given["wantErrNum"]}), Counter({"errors": len(metadata.errors)}))


def _rules(gates: dict[str, bool], given: Object) -> FeatureSwitches:
    said = {**gates, **(given.get("featureGates") or {})}
    return FeatureSwitches(
        lenient=False,
        layers=said.get("TASMultiLayerTopology", True),
        segment_sizes=said.get("TASValidateWorkloadSliceSize", True),
        elastic=said.get("ElasticJobsViaWorkloadSlices", True),
        identifiers=said.get("WorkloadIdentifierAnnotations", True),
        jobs_without_queue=bool(given.get("manageAll")),
    )


def _runtime(given: Object, kind: str, name: str) -> object:
    known = (given[key] for key in RUNTIMES if key in given)
    return next((one for one in known if (one["kind"], one["metadata"]["name"]) == (kind, name)), None)


def _exact(wanted: list[Object] | None) -> Counter[Any]:
    return Counter((one["type"], one["field"], one["detail"], one["message"]) for one in wanted or ())


def _ours(found: tuple[FieldError, ...]) -> Counter[Any]:
    return Counter((str(error.fault), error.path, error.why, str(error)) for error in found)


def _compare(want: Counter[Any], got: Counter[Any]) -> list[str]:
    missing = [f"missing {one}" for one in (want - got).elements()]
    return missing + [f"not wanted {one}" for one in (got - want).elements()]


FILES = {"kueue/validation*": check_case, "kueue/validation_oracle*": check_oracle}
