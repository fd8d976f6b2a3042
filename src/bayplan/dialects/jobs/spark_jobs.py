"""SparkApplication: a driver and executors, whose pods are described by fields rather than by templates."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import Any

from bayplan.dialects.jobs.part import Find, JobPart
from bayplan.dialects.jobs.starting import Injected, InjectionConflict, add
from bayplan.dialects.kube.fields.reader import Field

DRIVER, EXECUTOR = "driver", "executor"
_CONTAINERS = {DRIVER: "spark-kubernetes-driver", EXECUTOR: "spark-kubernetes-executor"}
_POD_FIELDS = ("nodeSelector", "affinity", "tolerations", "priorityClassName", "initContainers")
_JAVA_UNITS = {"k": "Ki", "m": "Mi", "g": "Gi", "t": "Ti", "p": "Pi"}

Object = dict[str, Any]


def spark_parts(app: Field, find: Find) -> list[JobPart]:
    """The driver, and the executors that there are at first."""
    spec = app.at("spec")
    executors = spec.at(EXECUTOR, "instances").integer(default=0)
    return [_part(spec, DRIVER, 1), _part(spec, EXECUTOR, executors)]


def begin_spark(app: Object, extras: Sequence[Injected], find: Find) -> None:
    """Additions go into the fields of the driver and the executors; gates have none but the template's."""
    if len(extras) != len(_CONTAINERS):
        raise InjectionConflict(
            f"invalid podset infos: expecting {len(_CONTAINERS)} podset, got {len(extras)}"
        )
    for role, extra in zip(_CONTAINERS, extras, strict=True):
        written = app["spec"].setdefault(role, {})
        found = _as_template(written)
        add(found, extra)
        _write(written, found)


def take_back_spark(app: Object, originals: Sequence[Object]) -> None:
    """The fields as they were; what only a template says is left to it."""
    if len(originals) != len(_CONTAINERS):
        return
    for role, original in zip(_CONTAINERS, originals, strict=True):
        written = app["spec"].setdefault(role, {})
        _write(written, _without(original, written.get("template") or {}))
        if written.get("template") == {"spec": {}}:
            del written["template"]


def _as_template(written: Object) -> Object:
    gates = ((written.get("template") or {}).get("spec") or {}).get("schedulingGates")
    metadata = {key: written[key] for key in ("labels", "annotations") if key in written}
    spec = {key: written[key] for key in ("nodeSelector", "tolerations") if key in written}
    return {"metadata": metadata, "spec": spec | ({"schedulingGates": gates} if gates else {})}


def _without(original: Object, template: Object) -> Object:
    """What of a pod set its fields said, given the template beside them."""
    metadata: Object = {}
    for key in ("labels", "annotations"):
        inner = (template.get("metadata") or {}).get(key) or {}
        whole = (original.get("metadata") or {}).get(key) or {}
        if kept := {name: value for name, value in whole.items() if inner.get(name) != value}:
            metadata[key] = kept
    return {"metadata": metadata, "spec": original.get("spec") or {}}


def _write(written: Object, found: Object) -> None:
    below = (
        ("labels", "metadata"),
        ("annotations", "metadata"),
        ("nodeSelector", "spec"),
        ("tolerations", "spec"),
    )
    for key, part in below:
        if key in found[part]:
            written[key] = found[part][key]
        else:
            written.pop(key, None)
    gates = found["spec"].get("schedulingGates")
    if gates:
        written.setdefault("template", {}).setdefault("spec", {})["schedulingGates"] = gates
    elif isinstance(written.get("template"), dict):
        written["template"].get("spec", {}).pop("schedulingGates", None)


def _part(spec: Field, role: str, count: int) -> JobPart:
    field = spec.at(role)
    _check_types(field)
    written = field.value if isinstance(field.value, dict) else {}
    template = field.derived(_template(written, role), field.path)
    notes = field.derived(template.at("metadata").value, field.path)
    return JobPart(role, count, template, field, notes=notes)


def _check_types(field: Field) -> None:
    """Note what is not as the kind promises: it is passed over below."""
    inner = field.at("template")
    for metadata in (field, inner.at("metadata")):
        metadata.at("labels").texts()
        metadata.at("annotations").texts()
    inner.at("spec").at("containers").items()
    field.at("sidecars").items()
    field.at("gpu", "name").text()


def _template(written: Object, role: str) -> Object:
    given = written.get("template")
    template: Object = copy.deepcopy(given) if isinstance(given, dict) else {}
    for key in ("metadata", "spec"):
        template[key] = template[key] if isinstance(template.get(key), dict) else {}
    metadata, spec = template["metadata"], template["spec"]
    for key in ("labels", "annotations"):
        if isinstance(written.get(key), dict):
            before = metadata.get(key)
            metadata[key] = {**(before if isinstance(before, dict) else {}), **written[key]}
    spec.update({key: written[key] for key in _POD_FIELDS if written.get(key)})
    container = {"name": _CONTAINERS[role], "resources": _resources(written)}
    sidecars = written.get("sidecars")
    spec["containers"] = [container, *(sidecars if isinstance(sidecars, list) else ())]
    return template


def _resources(written: Object) -> Object:
    requests: Object = {"cpu": written.get("coreRequest"), "memory": _memory(written.get("memory"))}
    limits: Object = {"cpu": written.get("coreLimit"), "memory": _memory(written.get("memoryLimit"))}
    gpu = written.get("gpu")
    if isinstance(gpu, dict) and gpu.get("name") and isinstance(gpu["name"], str):
        requests[gpu["name"]] = limits[gpu["name"]] = gpu.get("quantity", 0)
    found = {"requests": requests, "limits": limits}
    kept = {
        key: {name: value for name, value in one.items() if value is not None} for key, one in found.items()
    }
    return {key: one for key, one in kept.items() if one}


def _memory(text: object) -> object:
    """Java writes 512m or 1gb where Kubernetes writes 512Mi or 1Gi."""
    match = re.fullmatch(r"([0-9]+)([kmgtp])b?", text) if isinstance(text, str) else None
    return match[1] + _JAVA_UNITS[match[2]] if match else text
