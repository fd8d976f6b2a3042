"""ProvisioningRequests for an autoscaler, and their PodTemplates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from bayplan.dialects.api import Kind
from bayplan.dialects.kube.fields.name_rules import digest
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.jobs.injection import Injected, injection_for
from bayplan.dialects.kueue.jobs.workload import PROVISIONING as PARAMETER
from bayplan.dialects.kueue.names.api_kinds import GROUP, WORKLOADS
from bayplan.dialects.kueue.status.misfit_messages import quoted
from bayplan.model.whole_numbers import whole_number

Object = dict[str, Any]

MANAGED = "kueue.x-k8s.io/managed"
REQUESTS = Kind("autoscaling.x-k8s.io", "v1", "ProvisioningRequest", "provisioningrequests", optional=True)
OLDER_REQUESTS = replace(REQUESTS, version="v1beta1")
TEMPLATES = Kind("", "v1", "PodTemplate", "podtemplates", label_selector=f"{MANAGED}=true")

NAME_MAX, HASH_LENGTH = 253, 5
ATTEMPTS_MAX = 1000  # tried to identify a truncated name
EQUAL_TEMPLATES = "IdenticalPodTemplates"
EQUAL_REQUIREMENTS = "IdenticalWorkloadSchedulingRequirements"


@dataclass(frozen=True, slots=True)
class Config:
    """A decoded ProvisioningRequestConfig: class, parameters and retry strategy of the requests."""

    provisioning_class: str
    parameters: Mapping[str, str]
    managed: frozenset[str]  # resources; if not empty, only pods that use one are requested
    selectors: tuple[tuple[str, str], ...]  # a node label, and the provisioning class detail with its value
    merge: str
    retries: int
    backoff_base_seconds: int
    backoff_max_seconds: int

    @classmethod
    def of(cls, obj: Object) -> Config:
        spec = Field(obj).at("spec")
        retry = spec.at("retryStrategy")
        return cls(
            spec.at("provisioningClassName").text(),
            spec.at("parameters").texts(),
            frozenset(name.text() for name in spec.at("managedResources").items()),
            tuple(
                (label.at("key").text(), label.at("valueFromProvisioningClassDetail").text())
                for label in spec.at("podSetUpdates", "nodeSelector").items()
            ),
            spec.at("podSetMergePolicy").text(),
            retry.at("backoffLimitCount").integer(default=3),
            retry.at("backoffBaseSeconds").integer(default=60),
            retry.at("backoffMaxSeconds").integer(default=1800),
        )

    def backoff_seconds(self, attempt: int) -> int:
        """Backoff in seconds after a failed attempt (the first is 1)."""
        return min(self.backoff_max_seconds, self.backoff_base_seconds << min(attempt - 1, 31))


@dataclass(frozen=True, slots=True)
class Bundle:
    """Pod sets of a Workload that share one entry of a request; name and template are those of the first."""

    names: tuple[str, ...]
    pod_set: Object
    assignment: Object
    count: int


@dataclass(frozen=True, slots=True)
class NewProvisioningRequest:
    """A request to create: templates first, then the request that refers to them."""

    check: str
    name: str
    templates: tuple[Object, ...] = ()
    request: Object | None = None
    error: str = ""  # why it cannot be created, in a sentence


def request_name(workload: str, check: str, attempt: int) -> str:
    """The name of the request of an attempt."""
    return _cut(f"{workload}-{check}-{attempt}")


def template_name(request: str, pod_set: str) -> str:
    """The name of the PodTemplate of a pod set."""
    return _cut(f"ppt-{request}-{pod_set}")


def attempt_of(name: str, workload: str, check: str) -> int | None:
    """The attempt number of a request, by its name; None if it belongs to another Workload or check."""
    rest = name.removeprefix(f"{workload}-{check}-")
    number = whole_number(rest) if rest != name else None
    if number is not None:
        return number
    if len(name) < NAME_MAX:
        return None
    names = ((attempt, request_name(workload, check, attempt)) for attempt in range(1, ATTEMPTS_MAX))
    return next((attempt for attempt, known in names if known == name), None)


def parameters(workload: Object, config: Config) -> dict[str, str]:
    """The parameters of a request: those of the configuration and of the Workload's annotations."""
    annotations = (workload.get("metadata") or {}).get("annotations") or {}
    user_parameters = {
        key.removeprefix(PARAMETER): str(value)
        for key, value in annotations.items()
        if key.startswith(PARAMETER)
    }
    return {**config.parameters, **user_parameters}


def bundles(workload: Object, config: Config) -> list[Bundle] | None:
    """The pod sets to request; empty if none needs it, None if one has no assignment."""
    admission = (workload.get("status") or {}).get("admission") or {}
    assignments = {part.get("name"): part for part in admission.get("podSetAssignments") or ()}
    merged: list[Bundle] = []
    for pod_set in (workload.get("spec") or {}).get("podSets") or ():
        if pod_set.get("count", 1) <= 0 or not _needs_provisioning(pod_set, config.managed):
            continue
        assignment = assignments.get(pod_set["name"])
        if assignment is None:
            return None
        count = assignment.get("count", pod_set.get("count", 1))
        if count > 0:
            _merge_or_append(merged, Bundle((pod_set["name"],), pod_set, assignment, count), config.merge)
    return merged


def new_request(
    workload: Object, check: str, attempt: int, config: Config, flavors: Mapping[str, Object], kind: Kind
) -> NewProvisioningRequest:
    """The request of an attempt, with its templates; `flavors` are ResourceFlavors by name."""
    name = request_name(workload["metadata"]["name"], check, attempt)
    templates, entries = [], []
    for bundle in bundles(workload, config) or ():
        template_title = template_name(name, bundle.names[0])
        template = _template(bundle, flavors)
        if isinstance(template, str):
            return NewProvisioningRequest(
                check, name, error=f"Error creating PodTemplate {quoted(template_title)}: {template}"
            )
        meta = _metadata(workload, template_title)
        templates.append({"apiVersion": "v1", "kind": "PodTemplate", "metadata": meta, "template": template})
        entries.append({"podTemplateRef": {"name": template_title}, "count": bundle.count})
    spec: Object = {"provisioningClassName": config.provisioning_class, "podSets": entries}
    if request_parameters := parameters(workload, config):
        spec["parameters"] = request_parameters
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": _metadata(workload, name)}
    return NewProvisioningRequest(check, name, tuple(templates), {**body, "spec": spec})


def template_names(request: Object) -> list[str]:
    """The names of the templates of a request."""
    entries = (request.get("spec") or {}).get("podSets") or ()
    return [str((entry.get("podTemplateRef") or {}).get("name", "")) for entry in entries]


def _cut(name: str) -> str:
    """A name that is too long is truncated, with a hash of the whole name."""
    longest = NAME_MAX - 1 - HASH_LENGTH
    if len(name) <= longest:
        return name
    return f"{name[:longest]}-{digest(name, HASH_LENGTH)}"


def _metadata(workload: Object, name: str) -> Object:
    meta = workload["metadata"]
    owner = {"apiVersion": WORKLOADS.api_version, "kind": WORKLOADS.kind}
    owner |= {"name": meta["name"], "uid": meta["uid"]}
    return {
        "name": name,
        "namespace": meta.get("namespace", "default"),
        "labels": {MANAGED: "true"},
        "ownerReferences": [{**owner, "controller": True}],
    }


def _needs_provisioning(pod_set: Object, managed: frozenset[str]) -> bool:
    spec = (pod_set.get("template") or {}).get("spec") or {}
    return not managed or any(
        managed.intersection(resources.get(key) or ())
        for resources in _resources(spec)
        for key in ("requests", "limits")
    )


def _containers(spec: Object) -> Iterator[Object]:
    for key in ("initContainers", "containers"):
        yield from spec.get(key) or ()


def _resources(spec: Object) -> Iterator[Object]:
    for container in _containers(spec):
        yield container.get("resources") or {}


def _merge_or_append(merged: list[Bundle], bundle: Bundle, policy: str) -> None:
    """Merge a bundle into one that it may share an entry with, or append it."""
    for index, other in enumerate(merged):
        if _may_share_entry(other.pod_set, bundle.pod_set, policy):
            names, count = other.names + bundle.names, other.count + bundle.count
            merged[index] = replace(other, names=names, count=count)
            return
    merged.append(bundle)


def _may_share_entry(one: Object, other: Object, policy: str) -> bool:
    if policy == EQUAL_TEMPLATES:
        return bool(one.get("template") == other.get("template"))
    return policy == EQUAL_REQUIREMENTS and _requirements(one) == _requirements(other)


def _requirements(pod_set: Object) -> list[object]:
    """The scheduling requirements of a pod set."""
    spec = (pod_set.get("template") or {}).get("spec") or {}
    requests = [
        [(container.get("resources") or {}).get("requests") or {} for container in spec.get(key) or ()]
        for key in ("containers", "initContainers")
    ]
    rules = ("resources", "nodeSelector", "tolerations", "affinity", "resourceClaims")
    return [*requests, *(spec.get(key) or None for key in rules)]


def _template(bundle: Bundle, flavors: Mapping[str, Object]) -> Object | str:
    """The pod template with the injections of the assigned flavors, or an error message."""
    for name in (bundle.assignment.get("flavors") or {}).values():
        if name not in flavors:
            return f"resourceflavors.{GROUP} {quoted(name)} not found"
    injection = injection_for(Field(bundle.assignment), Field(bundle.pod_set), flavors)
    template = bundle.pod_set.get("template") or {}
    meta, spec = dict(template.get("metadata") or {}), dict(template.get("spec") or {})
    for part, key, added in (
        (meta, "annotations", injection.annotations),
        (spec, "nodeSelector", injection.node_selector),
    ):
        conflict = _add_entries(part, key, added)
        if conflict:
            return conflict
    _add_rules(spec, injection)
    _limits_as_requests(spec)
    return {"metadata": meta, "spec": spec} if meta else {"spec": spec}


def _add_entries(part: Object, key: str, added: Mapping[str, str]) -> str:
    """Add entries to a mapping of an object; the error message if one conflicts."""
    present = part.get(key) or {}
    for name in sorted(added):
        if present.get(name, added[name]) != added[name]:
            conflict = f"conflict for key={name}, value1={present[name]}, value2={added[name]}"
            return f"invalid admission check PodSetUpdate: conflict for {key}: {conflict}"
    if added:
        part[key] = {**present, **added}
    return ""


def _add_rules(spec: Object, injection: Injected) -> None:
    gates = tuple({"name": gate} for gate in injection.gates)
    for key, added in (("tolerations", injection.tolerations), ("schedulingGates", gates)):
        present = list(spec.get(key) or ())
        present += [rule for rule in added if rule not in present]
        if present:
            spec[key] = present


def _limits_as_requests(spec: Object) -> None:
    """Set unset requests to the limits."""
    for key in ("initContainers", "containers"):
        if spec.get(key):
            spec[key] = [_with_requests(container) for container in spec[key]]
    if spec.get("resources"):
        spec |= _with_requests({"resources": spec["resources"]})


def _with_requests(holder: Object) -> Object:
    resources = holder.get("resources") or {}
    if not resources.get("limits"):
        return holder
    requests = {**resources["limits"], **(resources.get("requests") or {})}
    return {**holder, "resources": {**resources, "requests": requests}}
