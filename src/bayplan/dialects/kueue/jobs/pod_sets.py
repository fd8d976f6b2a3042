"""The pod sets of a Workload, as a job of any kind describes them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from bayplan.dialects.jobs.kinds import kind_of, parts
from bayplan.dialects.jobs.part import Find, JobPart, find_nothing
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.job_gang import part_request
from bayplan.dialects.kueue.fields.job_rules import whole_number
from bayplan.dialects.kueue.names.annotations import MINIMUM, read_annotations
from bayplan.dialects.kueue.names.feature_switches import RULES, FeatureSwitches

Object = dict[str, Any]


def pod_sets(job: Field, find: Find = find_nothing, rules: FeatureSwitches = RULES) -> list[Object]:
    """Workload.spec.podSets. ValueError if an annotation cannot be read."""
    return [_pod_set(job, part, rules) for part in parts(job, find)]


def _pod_set(job: Field, part: JobPart, rules: FeatureSwitches) -> Object:
    pod_set: Object = {"name": part.name, "count": part.count, "template": _template(job, part)}
    minimum = read_annotations(job.at("metadata")).get(MINIMUM)
    if minimum is not None and kind_of(job).partial:
        pod_set["minCount"] = whole_number(minimum)
    request = part_request(part, read_annotations(part.metadata), rules) if rules.topology else None
    if request is not None:
        pod_set["topologyRequest"] = request
    return pod_set


def _template(job: Field, part: JobPart) -> Object:
    source = part.template.value if isinstance(part.template.value, dict) else {}
    template: Object = copy.deepcopy({key: source[key] for key in ("metadata", "spec") if key in source})
    kind = kind_of(job)
    if not kind.copies_metadata:
        template.pop("metadata", None)
    _drop_labels(template, kind.run_labels)
    spec = template.get("spec")
    for key in ("initContainers", "containers"):
        for container in (spec.get(key) or ()) if isinstance(spec, dict) else ():
            _deduplicate_env(container)
    return template


def _drop_labels(template: Object, names: Sequence[str]) -> None:
    """Drop the labels that a controller adds to the template: they differ from run to run."""
    labels = (template.get("metadata") or {}).get("labels") or {}
    for label in names:
        labels.pop(label, None)


def _deduplicate_env(container: Object) -> None:
    """Of variables with the same name the last counts, at the position of the first."""
    if container.get("env"):
        container["env"] = list({variable.get("name"): variable for variable in container["env"]}.values())
