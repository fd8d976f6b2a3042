"""The pod sets of a Workload, as a job of any kind describes them."""

from __future__ import annotations

import copy
from typing import Any

from bayplan.dialects.jobs.kinds import Find, JobPart, parts
from bayplan.dialects.jobs.part import nothing
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.job_gang import part_request
from bayplan.dialects.kueue.fields.job_rules import whole_number
from bayplan.dialects.kueue.names.annotations import MINIMUM, read_annotations
from bayplan.dialects.kueue.names.feature_switches import RULES, FeatureSwitches

_OF_THE_CONTROLLER = ("controller-uid", "job-name", "batch.kubernetes.io/controller-uid")
"""Labels that the Job controller puts on its template: they differ from run to run."""
_BARE = ("Pod", "StatefulSet")
"""Kinds whose pod sets keep nothing of the metadata."""

Object = dict[str, Any]


def pod_sets(job: Field, find: Find = nothing, rules: FeatureSwitches = RULES) -> list[Object]:
    """Workload.spec.podSets. ValueError if an annotation cannot be read."""
    return [_pod_set(job, part, rules) for part in parts(job, find)]


def _pod_set(job: Field, part: JobPart, rules: FeatureSwitches) -> Object:
    made: Object = {"name": part.name, "count": part.count, "template": _template(job, part)}
    fewest = read_annotations(job.at("metadata")).get(MINIMUM)
    if fewest is not None and job.at("kind").text() == "Job":
        made["minCount"] = whole_number(fewest)
    request = part_request(part, read_annotations(part.metadata), rules) if rules.topology else None
    if request is not None:
        made["topologyRequest"] = request
    return made


def _template(job: Field, part: JobPart) -> Object:
    given = part.template.value if isinstance(part.template.value, dict) else {}
    template: Object = copy.deepcopy({key: given[key] for key in ("metadata", "spec") if key in given})
    kind = job.at("kind").text()
    if kind in _BARE:
        template.pop("metadata", None)
    if kind == "Job":
        _drop_labels(template)
    spec = template.get("spec")
    for key in ("initContainers", "containers"):
        for container in (spec.get(key) or ()) if isinstance(spec, dict) else ():
            _settle_environment(container)
    return template


def _drop_labels(template: Object) -> None:
    labels = (template.get("metadata") or {}).get("labels") or {}
    for label in _OF_THE_CONTROLLER:
        labels.pop(label, None)


def _settle_environment(container: Object) -> None:
    """Of variables of one name the last counts, and stands where the first stood."""
    if container.get("env"):
        container["env"] = list({variable.get("name"): variable for variable in container["env"]}.values())
