"""What an autoscaler is asked for: a ProvisioningRequest, and a PodTemplate for each sort of pod."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from bayplan.dialects.api import Kind
from bayplan.dialects.kube.fields.name_rules import digest
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.jobs.injection import Injected, injected
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
ATTEMPTS_MAX = 1000  # looked through for a name that was cut
EQUAL_TEMPLATES = "IdenticalPodTemplates"
EQUAL_NEEDS = "IdenticalWorkloadSchedulingRequirements"


@dataclass(frozen=True, slots=True)
class Config:
    """A ProvisioningRequestConfig: what every request made with it says, and how often it is made again."""

    provisioning_class: str
    parameters: Mapping[str, str]
    managed: frozenset[str]  # resources; only pods that use one are asked for, if there are any
    selectors: tuple[tuple[str, str], ...]  # a node label, and the detail of the answer that gives its value
    merge: str
    retries: int
    first_seconds: int
    longest_seconds: int

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

    def pause(self, attempt: int) -> int:
        """Seconds to wait after an attempt (the first is 1) that came to nothing."""
        return min(self.longest_seconds, self.first_seconds << min(attempt - 1, 31))


@dataclass(frozen=True, slots=True)
class Bundle:
    """Pod sets of a Workload that share one entry of a request; the first lends name and template."""

    names: tuple[str, ...]
    pod_set: Object
    assignment: Object
    count: int


@dataclass(frozen=True, slots=True)
class NewProvisioningRequest:
    """A request ready to be made: templates first, then the request that names them."""

    check: str
    name: str
    templates: tuple[Object, ...] = ()
    request: Object | None = None
    trouble: str = ""  # why there is nothing to make, in a sentence


def request_name(workload: str, check: str, attempt: int) -> str:
    """What the request of an attempt is called."""
    return _cut(f"{workload}-{check}-{attempt}")


def template_name(request: str, pod_set: str) -> str:
    """What the template of a pod set is called."""
    return _cut(f"ppt-{request}-{pod_set}")


def attempt_of(name: str, workload: str, check: str) -> int | None:
    """Which attempt a request is, by its name; None if it is not of this Workload and check."""
    rest = name.removeprefix(f"{workload}-{check}-")
    number = whole_number(rest) if rest != name else None
    if number is not None:
        return number
    if len(name) < NAME_MAX:
        return None
    names = ((attempt, request_name(workload, check, attempt)) for attempt in range(1, ATTEMPTS_MAX))
    return next((attempt for attempt, known in names if known == name), None)


def parameters(workload: Object, config: Config) -> dict[str, str]:
    """The parameters of a request: those of the configuration, and those that the user asked for."""
    notes = (workload.get("metadata") or {}).get("annotations") or {}
    own = {
        key.removeprefix(PARAMETER): str(value) for key, value in notes.items() if key.startswith(PARAMETER)
    }
    return {**config.parameters, **own}


def bundles(workload: Object, config: Config) -> list[Bundle] | None:
    """What to ask for; nothing if no pod needs it, None if the admission does not say what was given."""
    admission = (workload.get("status") or {}).get("admission") or {}
    given = {part.get("name"): part for part in admission.get("podSetAssignments") or ()}
    found: list[Bundle] = []
    for pod_set in (workload.get("spec") or {}).get("podSets") or ():
        if pod_set.get("count", 1) <= 0 or not _is_asked_for(pod_set, config.managed):
            continue
        assignment = given.get(pod_set["name"])
        if assignment is None:
            return None
        count = assignment.get("count", pod_set.get("count", 1))
        if count > 0:
            _put_in(found, Bundle((pod_set["name"],), pod_set, assignment, count), config.merge)
    return found


def asked(
    workload: Object, check: str, attempt: int, config: Config, flavors: Mapping[str, Object], kind: Kind
) -> NewProvisioningRequest:
    """The request of an attempt, with its templates; `flavors` are ResourceFlavors by name."""
    name = request_name(workload["metadata"]["name"], check, attempt)
    templates, entries = [], []
    for bundle in bundles(workload, config) or ():
        title = template_name(name, bundle.names[0])
        template = _template(bundle, flavors)
        if isinstance(template, str):
            return NewProvisioningRequest(
                check, name, trouble=f"Error creating PodTemplate {quoted(title)}: {template}"
            )
        meta = _metadata(workload, title)
        templates.append({"apiVersion": "v1", "kind": "PodTemplate", "metadata": meta, "template": template})
        entries.append({"podTemplateRef": {"name": title}, "count": bundle.count})
    spec: Object = {"provisioningClassName": config.provisioning_class, "podSets": entries}
    if told := parameters(workload, config):
        spec["parameters"] = told
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": _metadata(workload, name)}
    return NewProvisioningRequest(check, name, tuple(templates), {**body, "spec": spec})


def template_names(request: Object) -> list[str]:
    """The templates that a request names."""
    entries = (request.get("spec") or {}).get("podSets") or ()
    return [str((entry.get("podTemplateRef") or {}).get("name", "")) for entry in entries]


def _cut(name: str) -> str:
    """A name that is too long ends in a hash of the whole."""
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


def _is_asked_for(pod_set: Object, managed: frozenset[str]) -> bool:
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


def _put_in(found: list[Bundle], bundle: Bundle, policy: str) -> None:
    """Add pod sets to those that they may share an entry with, or by themselves."""
    for index, other in enumerate(found):
        if _are_alike(other.pod_set, bundle.pod_set, policy):
            names, count = other.names + bundle.names, other.count + bundle.count
            found[index] = replace(other, names=names, count=count)
            return
    found.append(bundle)


def _are_alike(one: Object, other: Object, policy: str) -> bool:
    if policy == EQUAL_TEMPLATES:
        return bool(one.get("template") == other.get("template"))
    return policy == EQUAL_NEEDS and _needs(one) == _needs(other)


def _needs(pod_set: Object) -> list[object]:
    """What a pod needs of its node."""
    spec = (pod_set.get("template") or {}).get("spec") or {}
    requests = [
        [(container.get("resources") or {}).get("requests") or {} for container in spec.get(key) or ()]
        for key in ("containers", "initContainers")
    ]
    rules = ("resources", "nodeSelector", "tolerations", "affinity", "resourceClaims")
    return [*requests, *(spec.get(key) or None for key in rules)]


def _template(bundle: Bundle, flavors: Mapping[str, Object]) -> Object | str:
    """The pod as it will look on the assigned flavor, or why there can be none."""
    for name in (bundle.assignment.get("flavors") or {}).values():
        if name not in flavors:
            return f"resourceflavors.{GROUP} {quoted(name)} not found"
    more = injected(Field(bundle.assignment), Field(bundle.pod_set), flavors)
    template = bundle.pod_set.get("template") or {}
    meta, spec = dict(template.get("metadata") or {}), dict(template.get("spec") or {})
    for part, key, added in (
        (meta, "annotations", more.annotations),
        (spec, "nodeSelector", more.node_selector),
    ):
        trouble = _joined(part, key, added)
        if trouble:
            return trouble
    _add_rules(spec, more)
    _limits_as_requests(spec)
    return {"metadata": meta, "spec": spec} if meta else {"spec": spec}


def _joined(part: Object, key: str, added: Mapping[str, str]) -> str:
    """Add entries to a mapping of an object, or say which one contradicts what is there."""
    there = part.get(key) or {}
    for name in sorted(added):
        if there.get(name, added[name]) != added[name]:
            told = f"conflict for key={name}, value1={there[name]}, value2={added[name]}"
            return f"invalid admission check PodSetUpdate: conflict for {key}: {told}"
    if added:
        part[key] = {**there, **added}
    return ""


def _add_rules(spec: Object, more: Injected) -> None:
    gates = tuple({"name": gate} for gate in more.gates)
    for key, added in (("tolerations", more.tolerations), ("schedulingGates", gates)):
        there = list(spec.get(key) or ())
        there += [rule for rule in added if rule not in there]
        if there:
            spec[key] = there


def _limits_as_requests(spec: Object) -> None:
    """Who names a limit and no request asks for the limit."""
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
