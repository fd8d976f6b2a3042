"""AppWrapper: jobs inside another object, and paths to pod templates where the kind is unknown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bayplan.dialects.jobs.part import Part
from bayplan.dialects.kube.fields import Field

INDEX_LABEL = "workload.codeflare.dev.appwrapper/tas-pod-index-label"
SUBGROUP_LABEL = "workload.codeflare.dev.appwrapper/tas-sub-group-index-label"
SUBGROUP_COUNT = "workload.codeflare.dev.appwrapper/tas-sub-group-count"


def wrapped_parts(wrapper: Field, inner: Callable[[Field], list[Part]]) -> list[Part]:
    """The pod sets of all components, numbered in their order; `inner` reads a component of a known kind."""
    name = wrapper.at("metadata", "name")
    found: list[Part] = []
    for component in wrapper.at("spec", "components").items():
        declared = component.at("podSets").items()
        found += [_declared(component, field) for field in declared] or inner(component.at("template"))
    return [
        replace(part, name=f"{name.text()}-{index}", name_field=name, natural_segment=None)
        for index, part in enumerate(found)
    ]


def _declared(component: Field, field: Field) -> Part:
    steps = [step for step in field.at("path").text().split(".") if step]
    notes = field.at("annotations").texts()
    count = notes.get(SUBGROUP_COUNT, "")
    return Part(
        name="",
        count=field.at("replicas").integer(default=1),
        template=component.at(*steps),
        name_field=field,
        index_label=notes.get(INDEX_LABEL),
        subgroup_label=notes.get(SUBGROUP_LABEL),
        subgroup_count=int(count) if count.isascii() and count.isdigit() else None,
    )
