"""SparkApplication: a driver and executors, whose pods are described by fields rather than by templates."""

from __future__ import annotations

import copy
import re
from typing import Any

from bayplan.dialects.jobs.part import Find, Part
from bayplan.dialects.kube.fields import Field

DRIVER, EXECUTOR = "driver", "executor"
_CONTAINERS = {DRIVER: "spark-kubernetes-driver", EXECUTOR: "spark-kubernetes-executor"}
_POD_FIELDS = ("nodeSelector", "affinity", "tolerations", "priorityClassName", "initContainers")
_JAVA_UNITS = {"k": "Ki", "m": "Mi", "g": "Gi", "t": "Ti", "p": "Pi"}

Object = dict[str, Any]


def spark_parts(app: Field, find: Find) -> list[Part]:
    """The driver, and the executors that there are at first."""
    spec = app.at("spec")
    executors = spec.at(EXECUTOR, "instances").integer(default=0)
    return [_part(spec, DRIVER, 1), _part(spec, EXECUTOR, executors)]


def _part(spec: Field, role: str, count: int) -> Part:
    field = spec.at(role)
    written = field.value if isinstance(field.value, dict) else {}
    template = field.derived(_template(written, role), field.path)
    notes = field.derived(template.at("metadata").value, field.path)
    return Part(role, count, template, field, notes=notes)


def _template(written: Object, role: str) -> Object:
    given = written.get("template")
    template: Object = copy.deepcopy(given) if isinstance(given, dict) else {}
    metadata, spec = template.setdefault("metadata", {}), template.setdefault("spec", {})
    for key in ("labels", "annotations"):
        if isinstance(written.get(key), dict):
            metadata[key] = {**(metadata.get(key) or {}), **written[key]}
    spec.update({key: written[key] for key in _POD_FIELDS if written.get(key)})
    container = {"name": _CONTAINERS[role], "resources": _resources(written)}
    spec["containers"] = [container, *(written.get("sidecars") or ())]
    return template


def _resources(written: Object) -> Object:
    requests: Object = {"cpu": written.get("coreRequest"), "memory": _memory(written.get("memory"))}
    limits: Object = {"cpu": written.get("coreLimit"), "memory": _memory(written.get("memoryLimit"))}
    gpu = written.get("gpu")
    if isinstance(gpu, dict) and gpu.get("name"):
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
