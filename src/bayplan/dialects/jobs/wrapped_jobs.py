"""AppWrapper: its components are jobs of known kinds, or declare paths to their pod templates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from bayplan.dialects.jobs import status
from bayplan.dialects.jobs.change_rules import NEW, OLD, either, spec_but
from bayplan.dialects.jobs.injection import Injected, InjectionConflict
from bayplan.dialects.jobs.kind import SUSPEND, JobKind, Parts
from bayplan.dialects.jobs.part import Find, JobPart
from bayplan.dialects.kube.fields.reader import Field
from bayplan.model.whole_numbers import INT32_MAX, whole_number

INDEX_LABEL = "workload.codeflare.dev.appwrapper/tas-pod-index-label"
SUBGROUP_LABEL = "workload.codeflare.dev.appwrapper/tas-sub-group-index-label"
SUBGROUP_COUNT = "workload.codeflare.dev.appwrapper/tas-sub-group-count"


def app_wrapper(inner: Parts) -> JobKind:
    """The entry of AppWrapper; `inner` reads the pod sets of a component of any known kind."""

    def parts(wrapper: Field, find: Find) -> list[JobPart]:
        return wrapped_parts(wrapper, lambda component: inner(component, find))

    def inject(wrapper: dict[str, Any], infos: Sequence[Injected], find: Find) -> None:
        components = parts_by_component(Field(wrapper), lambda component: inner(component, find))
        set_pod_set_infos(wrapper, [len(pod_sets) for pod_sets in components], infos)

    return JobKind(
        "AppWrapper",
        "workload.codeflare.dev",
        "v1beta2",
        "appwrappers",
        parts,
        suspend=SUSPEND,
        status_reader=status.APP_WRAPPER,
        inject=inject,
        restore=_restore,
        changes=(
            spec_but("suspend", "components"),
            either("components", _unchanged("template", "{}"), f"{NEW}.spec", f"{OLD}.spec"),
            either("components", _unchanged("podSets", "[]"), f"{NEW}.spec", f"{OLD}.spec"),
        ),
    )


def _unchanged(key: str, absent: str) -> str:
    """CEL: a field is unchanged in all components of an AppWrapper."""
    new, old = (f"{one}.spec.components.map(it, has(it.{key}) ? it.{key} : {absent})" for one in (NEW, OLD))
    return f"{new} == {old}"


def _restore(wrapper: dict[str, Any], originals: Sequence[dict[str, Any]]) -> None:
    for component in wrapper["spec"].get("components") or ():
        if component is not None:
            component.pop("podSetInfos", None)


def wrapped_parts(wrapper: Field, inner: Callable[[Field], list[JobPart]]) -> list[JobPart]:
    """The pod sets of all components, numbered in order; `inner` reads components of known kinds."""
    name = wrapper.at("metadata", "name")
    parts = [part for component in parts_by_component(wrapper, inner) for part in component]
    return [
        replace(part, name=f"{name.text()}-{index}", name_field=name, natural_segment=None)
        for index, part in enumerate(parts)
    ]


def parts_by_component(wrapper: Field, inner: Callable[[Field], list[JobPart]]) -> list[list[JobPart]]:
    """The pod sets of each component: those it declares, else those of its kind."""
    parts = []
    for component in wrapper.at("spec", "components").items():
        declared = [_declared(component, field) for field in component.at("podSets").items()]
        parts.append(declared or inner(component.at("template")))
    return parts


def set_pod_set_infos(wrapper: dict[str, Any], sizes: Sequence[int], infos: Sequence[Injected]) -> None:
    """Write pod set infos to their components; the AppWrapper controller injects them."""
    if sum(sizes) != len(infos):
        raise InjectionConflict(f"invalid podset infos: expecting {sum(sizes)} podset, got {len(infos)}")
    remaining = iter(infos)
    for component, size in zip(wrapper["spec"].get("components") or (), sizes, strict=True):
        if size:
            component["podSetInfos"] = [_pod_set_info(next(remaining)) for _ in range(size)]


def _pod_set_info(info: Injected) -> dict[str, Any]:
    """One entry of podSetInfos."""
    fields = {
        "annotations": dict(info.annotations),
        "labels": dict(info.labels),
        "nodeSelector": dict(info.node_selector),
        "tolerations": list(info.tolerations),
        "schedulingGates": [{"name": gate} for gate in info.gates],
    }
    return {key: value for key, value in fields.items() if value}


def _declared(component: Field, field: Field) -> JobPart:
    steps = [step for step in field.at("path").text().split(".") if step]
    annotations = field.at("annotations").texts()
    return JobPart(
        name="",
        count=field.at("replicas").integer(default=1),
        template=component.at(*steps),
        name_field=field,
        index_label=annotations.get(INDEX_LABEL),
        subgroup_label=annotations.get(SUBGROUP_LABEL),
        subgroup_count=whole_number(annotations.get(SUBGROUP_COUNT), INT32_MAX),
    )
