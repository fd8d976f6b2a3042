"""SparkApplication: driver and executors, described by fields instead of pod templates."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import Any

from bayplan.dialects.jobs import status
from bayplan.dialects.jobs.change_rules import NEW, OLD, either, or_empty, same_but, spec_but
from bayplan.dialects.jobs.injection import Injected, InjectionConflict, add, section
from bayplan.dialects.jobs.kind import SUSPEND, JobKind, QueuedJob
from bayplan.dialects.jobs.part import Find, JobPart
from bayplan.dialects.kube.fields.reader import Field, FieldErrorType

DRIVER, EXECUTOR = "driver", "executor"
_CONTAINERS = {DRIVER: "spark-kubernetes-driver", EXECUTOR: "spark-kubernetes-executor"}
_POD_FIELDS = ("nodeSelector", "affinity", "tolerations", "priorityClassName", "initContainers")
_JAVA_UNITS = {"k": "Ki", "m": "Mi", "g": "Gi", "t": "Ti", "p": "Pi"}

Object = dict[str, Any]


def spark_parts(app: Field, find: Find) -> list[JobPart]:
    """The pod sets of a SparkApplication: the driver, and the initial executors."""
    spec = app.at("spec")
    executors = spec.at(EXECUTOR, "instances").integer(default=0)
    return [_part(spec, DRIVER, 1), _part(spec, EXECUTOR, executors)]


def inject_spark(app: Object, infos: Sequence[Injected], find: Find) -> None:
    """Inject pod set infos into the fields of driver and executors; scheduling gates go into the template."""
    if len(infos) != len(_CONTAINERS):
        raise InjectionConflict(
            f"invalid podset infos: expecting {len(_CONTAINERS)} podset, got {len(infos)}"
        )
    for role, info in zip(_CONTAINERS, infos, strict=True):
        fields = section(app["spec"], role)
        template = _as_template(fields)
        add(template, info)
        _write(fields, template)


def restore_spark(app: Object, originals: Sequence[Object]) -> None:
    """Restore the fields of driver and executors, without what their templates already contain."""
    if len(originals) != len(_CONTAINERS):
        return
    for role, original in zip(_CONTAINERS, originals, strict=True):
        fields = section(app["spec"], role)
        _write(fields, _without(original, fields.get("template") or {}))
        if fields.get("template") == {"spec": {}}:
            del fields["template"]


def _as_template(fields: Object) -> Object:
    """The fields of a driver or executor in the form of a pod template."""
    gates = ((fields.get("template") or {}).get("spec") or {}).get("schedulingGates")
    metadata = {key: fields[key] for key in ("labels", "annotations") if key in fields}
    spec = {key: fields[key] for key in ("nodeSelector", "tolerations") if key in fields}
    return {"metadata": metadata, "spec": spec | ({"schedulingGates": gates} if gates else {})}


def _without(original: Object, template: Object) -> Object:
    """The original pod set without the metadata that its template already contains."""
    metadata: Object = {}
    for key in ("labels", "annotations"):
        in_template = (template.get("metadata") or {}).get(key) or {}
        in_pod_set = (original.get("metadata") or {}).get(key) or {}
        if own := {name: value for name, value in in_pod_set.items() if in_template.get(name) != value}:
            metadata[key] = own
    return {"metadata": metadata, "spec": original.get("spec") or {}}


def _write(fields: Object, template: Object) -> None:
    paths = (
        ("labels", "metadata"),
        ("annotations", "metadata"),
        ("nodeSelector", "spec"),
        ("tolerations", "spec"),
    )
    for key, parent in paths:
        if key in template[parent]:
            fields[key] = template[parent][key]
        else:
            fields.pop(key, None)
    gates = template["spec"].get("schedulingGates")
    if gates:
        section(section(fields, "template"), "spec")["schedulingGates"] = gates
    elif isinstance((fields.get("template") or {}).get("spec"), dict):
        fields["template"]["spec"].pop("schedulingGates", None)


def _part(spec: Field, role: str, count: int) -> JobPart:
    field = spec.at(role)
    _check_types(field)
    fields = field.value if isinstance(field.value, dict) else {}
    template = field.derived(_template(fields, role), field.path)
    metadata = field.derived(template.at("metadata").value, field.path)
    return JobPart(role, count, template, field, pod_metadata=metadata)


def _check_types(field: Field) -> None:
    """Record type errors; fields of the wrong type are ignored when the template is built."""
    template = field.at("template")
    for metadata in (field, template.at("metadata")):
        metadata.at("labels").texts()
        metadata.at("annotations").texts()
    template.at("spec").at("containers").items()
    field.at("sidecars").items()
    field.at("gpu", "name").text()


def _template(fields: Object, role: str) -> Object:
    """The pod template that the fields of a driver or executor describe."""
    template_field = fields.get("template")
    template: Object = copy.deepcopy(template_field) if isinstance(template_field, dict) else {}
    for key in ("metadata", "spec"):
        template[key] = template[key] if isinstance(template.get(key), dict) else {}
    metadata, spec = template["metadata"], template["spec"]
    for key in ("labels", "annotations"):
        if isinstance(fields.get(key), dict):
            before = metadata.get(key)
            metadata[key] = {**(before if isinstance(before, dict) else {}), **fields[key]}
    spec.update({key: fields[key] for key in _POD_FIELDS if fields.get(key)})
    container = {"name": _CONTAINERS[role], "resources": _resources(fields)}
    sidecars = fields.get("sidecars")
    spec["containers"] = [container, *(sidecars if isinstance(sidecars, list) else ())]
    return template


def _resources(fields: Object) -> Object:
    requests: Object = {"cpu": fields.get("coreRequest"), "memory": _memory(fields.get("memory"))}
    limits: Object = {"cpu": fields.get("coreLimit"), "memory": _memory(fields.get("memoryLimit"))}
    gpu = fields.get("gpu")
    if isinstance(gpu, dict) and gpu.get("name") and isinstance(gpu["name"], str):
        requests[gpu["name"]] = limits[gpu["name"]] = gpu.get("quantity", 0)
    resources = {"requests": requests, "limits": limits}
    stated = {
        key: {name: value for name, value in one.items() if value is not None}
        for key, one in resources.items()
    }
    return {key: one for key, one in stated.items() if one}


def _memory(text: object) -> object:
    """A quantity for a memory size in Java notation: 512m or 1gb become 512Mi or 1Gi."""
    match = re.fullmatch(r"([0-9]+)([kmgtp])b?", text) if isinstance(text, str) else None
    return match[1] + _JAVA_UNITS[match[2]] if match else text


def _check(app: Field, job: QueuedJob) -> None:
    if not job.queued:
        return
    mode = app.at("spec", "mode")
    if mode.text() != "cluster":
        mode.error("only Cluster mode is supported for a kueue managed job", FieldErrorType.INVALID)
    scaling = app.at("spec", "dynamicAllocation", "enabled")
    if scaling.flag() and not job.elastic:
        why = (
            "a kueue managed job can use dynamicAllocation only when the ElasticJobsViaWorkloadSlices "
            "feature gate is on and the job is an elastic job"
        )
        scaling.error(why, FieldErrorType.INVALID)


def _changes(role: str) -> str:
    new, old = f"{NEW}.spec.{role}", f"{OLD}.spec.{role}"
    known = same_but(new, old, "labels", "annotations", "nodeSelector", "tolerations", "template")
    templates = [or_empty(f"{one}.template") for one in (new, old)]
    specs = [
        f"(has({one}.template) && has({one}.template.spec) ? dyn({one}.template.spec) : dyn({{}}))"
        for one in (new, old)
    ]
    inner = f"{same_but(*templates, 'spec')} && {same_but(*specs, 'schedulingGates')}"
    return either(role, f"{known} && {inner}", f"{NEW}.spec", f"{OLD}.spec")


SPARK_APPLICATION = JobKind(
    "SparkApplication",
    "sparkoperator.k8s.io",
    "v1beta2",
    "sparkapplications",
    spark_parts,
    suspend=SUSPEND,
    status_reader=status.SPARK,
    inject=inject_spark,
    restore=restore_spark,
    prebuilt=False,
    check=_check,
    changes=(spec_but("suspend", DRIVER, EXECUTOR), _changes(DRIVER), _changes(EXECUTOR)),
)

ENTRIES = (SPARK_APPLICATION,)
