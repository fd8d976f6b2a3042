"""AppWrapper: jobs inside another object, and paths to pod templates where the kind is unknown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from bayplan.dialects.jobs.part import JobPart
from bayplan.dialects.jobs.starting import Injected, InjectionConflict
from bayplan.dialects.kube.fields.reader import Field
from bayplan.model.whole_numbers import INT32_MAX, whole_number

INDEX_LABEL = "workload.codeflare.dev.appwrapper/tas-pod-index-label"
SUBGROUP_LABEL = "workload.codeflare.dev.appwrapper/tas-sub-group-index-label"
SUBGROUP_COUNT = "workload.codeflare.dev.appwrapper/tas-sub-group-count"


def wrapped_parts(wrapper: Field, inner: Callable[[Field], list[JobPart]]) -> list[JobPart]:
    """The pod sets of all components, numbered in their order; `inner` reads a component of a known kind."""
    name = wrapper.at("metadata", "name")
    found = [part for component in parts_by_component(wrapper, inner) for part in component]
    return [
        replace(part, name=f"{name.text()}-{index}", name_field=name, natural_segment=None)
        for index, part in enumerate(found)
    ]


def parts_by_component(wrapper: Field, inner: Callable[[Field], list[JobPart]]) -> list[list[JobPart]]:
    """The pod sets of each component, as it declares them or as its kind has them."""
    found = []
    for component in wrapper.at("spec", "components").items():
        declared = [_declared(component, field) for field in component.at("podSets").items()]
        found.append(declared or inner(component.at("template")))
    return found


def set_pod_set_infos(wrapper: dict[str, Any], sizes: Sequence[int], extras: Sequence[Injected]) -> None:
    """Leave additions with their components; the wrapper's controller puts them into what it makes."""
    if sum(sizes) != len(extras):
        raise InjectionConflict(f"invalid podset infos: expecting {sum(sizes)} podset, got {len(extras)}")
    rest = iter(extras)
    for component, size in zip(wrapper["spec"].get("components") or (), sizes, strict=True):
        if size:
            component["podSetInfos"] = [_written(next(rest)) for _ in range(size)]


def _written(extra: Injected) -> dict[str, Any]:
    fields = {
        "annotations": dict(extra.annotations),
        "labels": dict(extra.labels),
        "nodeSelector": dict(extra.node_selector),
        "tolerations": list(extra.tolerations),
        "schedulingGates": [{"name": gate} for gate in extra.gates],
    }
    return {key: value for key, value in fields.items() if value}


def _declared(component: Field, field: Field) -> JobPart:
    steps = [step for step in field.at("path").text().split(".") if step]
    notes = field.at("annotations").texts()
    return JobPart(
        name="",
        count=field.at("replicas").integer(default=1),
        template=component.at(*steps),
        name_field=field,
        index_label=notes.get(INDEX_LABEL),
        subgroup_label=notes.get(SUBGROUP_LABEL),
        subgroup_count=whole_number(notes.get(SUBGROUP_COUNT), INT32_MAX),
    )
