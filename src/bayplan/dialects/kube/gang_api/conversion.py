"""Conversion of Workloads and PodGroups between API versions that are served together.

Fields that an older version does not have are lost: a write through that version drops them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bayplan.dialects.kube.gang_api.gates import GROUP, V1ALPHA1, V1ALPHA2, V1BETA1, VERSIONS

Object = dict[str, Any]

_LATER = ("preemptionPolicy",)  # template fields that v1alpha2 does not have
_MODES = {"Pod": "single", "PodGroup": "all"}


def converter(kind: str, start: str, end: str) -> Callable[[Object], Object]:
    """The function that converts an object from one version to another."""
    here, there = VERSIONS.index(start), VERSIONS.index(end)
    steps = [(kind, one, one + 1) for one in range(here, there)]
    steps += [(kind, one, one - 1) for one in range(here, there, -1)]
    functions = [_STEPS[kind, VERSIONS[one], VERSIONS[two]] for kind, one, two in steps]

    def convert(item: Object) -> Object:
        spec = item["spec"]
        for function in functions:
            spec = function(spec)
        return {**item, "apiVersion": f"{GROUP}/{end}", "spec": spec}

    return convert


def _workload_up(spec: Object) -> Object:
    groups = [{"name": one["name"], "schedulingPolicy": one["policy"]} for one in spec.get("podGroups") or ()]
    return {**_without(spec, "podGroups"), "podGroupTemplates": groups}


def _workload_down(spec: Object) -> Object:
    groups = [
        {"name": one["name"], "policy": one["schedulingPolicy"]}
        for one in spec.get("podGroupTemplates") or ()
    ]
    return {**_without(spec, "podGroupTemplates"), "podGroups": groups}


def _templates_up(spec: Object) -> Object:
    return {**spec, "podGroupTemplates": [_mode_up(one) for one in spec.get("podGroupTemplates") or ()]}


def _templates_down(spec: Object) -> Object:
    templates = [_without(_mode_down(one), *_LATER) for one in spec.get("podGroupTemplates") or ()]
    return {**_without(spec, "compositePodGroupTemplates"), "podGroupTemplates": templates}


def _group_up(spec: Object) -> Object:
    reference = (spec.get("podGroupTemplateRef") or {}).get("workload")
    converted = _without(spec, "podGroupTemplateRef")
    if reference is not None:
        names = reference.get("workloadName", ""), reference.get("podGroupTemplateName", "")
        converted["workloadRef"] = {"workloadName": names[0], "templateName": names[1]}
    return _mode_up(converted)


def _group_down(spec: Object) -> Object:
    converted = _without(spec, "workloadRef", "parentCompositePodGroupName", *_LATER)
    reference = spec.get("workloadRef")
    if reference is not None:
        names = reference.get("workloadName", ""), reference.get("templateName", "")
        converted["podGroupTemplateRef"] = {
            "workload": {"workloadName": names[0], "podGroupTemplateName": names[1]}
        }
    return _mode_down(converted)


def _mode_up(spec: Object) -> Object:
    mode = spec.get("disruptionMode")
    return spec if mode is None else {**spec, "disruptionMode": {_MODES.get(mode, "single"): {}}}


def _mode_down(spec: Object) -> Object:
    mode = spec.get("disruptionMode")
    return spec if mode is None else {**spec, "disruptionMode": "PodGroup" if "all" in mode else "Pod"}


def _without(spec: Object, *keys: str) -> Object:
    return {key: value for key, value in spec.items() if key not in keys}


_STEPS: dict[tuple[str, str, str], Callable[[Object], Object]] = {
    ("Workload", V1ALPHA1, V1ALPHA2): _workload_up,
    ("Workload", V1ALPHA2, V1ALPHA1): _workload_down,
    ("Workload", V1ALPHA2, V1BETA1): _templates_up,
    ("Workload", V1BETA1, V1ALPHA2): _templates_down,
    ("PodGroup", V1ALPHA2, V1BETA1): _group_up,
    ("PodGroup", V1BETA1, V1ALPHA2): _group_down,
}
