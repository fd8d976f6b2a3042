"""The gang API of the server: served versions, feature gates, conversion and admission."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from bayplan.backends.embedded.api.resource import Resource, key_of, outward
from bayplan.backends.embedded.api.status import FieldProblem, forbidden, from_field
from bayplan.backends.embedded.kinds.priorities import set_priority
from bayplan.backends.embedded.storage.interface import ObjectStorage
from bayplan.backends.embedded.storage.kind_hooks import KindHooks
from bayplan.dialects.kube.gang_api.admission import missing_template
from bayplan.dialects.kube.gang_api.conversion import converter
from bayplan.dialects.kube.gang_api.defaulting import (
    defaulted,
    drop_disabled,
    drop_disabled_status,
    set_defaults,
    set_preemption_policy,
)
from bayplan.dialects.kube.gang_api.gates import (
    COMPOSITE,
    DEFAULT_GATES,
    GROUP,
    POLICY,
    PREEMPTION,
    V1ALPHA1,
    V1ALPHA2,
    V1ALPHA3,
    V1BETA1,
    VERSIONS,
    Gates,
)
from bayplan.dialects.kube.gang_api.rules import errors, status_errors

Object = dict[str, Any]
Read = Callable[[Any, list[str]], Object]

_PLURALS = {"workloads", "podgroups"}
_COMPOSITES = "compositepodgroups"
_GROUPS = {"PodGroup": "pod group", "CompositePodGroup": "composite pod group"}
_REFERENCES = {"workloadRef": {V1ALPHA1}, "schedulingGroup": {V1ALPHA2, V1BETA1}}
_TEMPLATE = ("spec", "template", "spec")
_POD_SPECS = {
    "Pod": ("spec",),
    "PodTemplate": ("template", "spec"),
    "CronJob": ("spec", "jobTemplate", *_TEMPLATE),
    **dict.fromkeys(("Deployment", "StatefulSet", "ReplicaSet", "DaemonSet", "Job"), _TEMPLATE),
}


@dataclass(frozen=True, slots=True)
class GangApi:
    """The versions and features of the gang API that a cluster serves; a real one serves one version."""

    versions: tuple[str, ...] = VERSIONS
    gates: Gates = DEFAULT_GATES
    plugins: bool = True  # priorities are looked up, and a group's template must exist


FULL_GANG_API = GangApi()


def served(found: Iterable[Resource], api: GangApi) -> list[Resource]:
    """The built-in kinds that the cluster serves, each with its conversion to the storage version."""
    strange = tuple(key for key, versions in _REFERENCES.items() if not versions & set(api.versions))
    kept = max(api.versions, key=VERSIONS.index, default="")
    result = []
    for resource in found:
        if resource.group == GROUP and resource.plural in _PLURALS:
            if resource.version in api.versions:
                result.append(_converted(resource, kept))
        elif resource.group == GROUP and resource.plural == _COMPOSITES:
            if V1BETA1 in api.versions and COMPOSITE in api.gates:
                result.append(resource)
        elif strange and resource.type in _POD_SPECS:
            result.append(replace(resource, read=_reader(resource.read, _POD_SPECS[resource.type], strange)))
        else:
            result.append(resource)
    return result


def behaviours(api: GangApi) -> dict[str, KindHooks]:
    """The hooks of each kind."""

    def default(item: Object) -> None:
        set_defaults(item)

    def create(store: ObjectStorage, item: Object) -> None:
        if item["kind"] in _GROUPS:
            item["status"] = {}
            if api.plugins:
                _set_priority(store, item, api.gates)
            set_preemption_policy(item, api.gates)
        drop_disabled(item, None, api.gates)

    def update(_: ObjectStorage, item: Object, old: Object, subresource: str) -> None:
        if subresource == "status":
            item["metadata"] = dict(old["metadata"])
            if item["kind"] == "PodGroup":
                drop_disabled_status(item, api.gates)
        else:
            set_preemption_policy(item, api.gates)
            drop_disabled(item, defaulted(old), api.gates)

    def check(item: Object, old: Object | None) -> list[FieldProblem]:
        before = None if old is None else defaulted(old)
        return [from_field(error) for error in errors(item, before, api.gates)]

    def check_status(item: Object, old: Object | None) -> list[FieldProblem]:
        return [from_field(error) for error in status_errors(item, old, api.gates)]

    first = KindHooks(check=check)
    later = KindHooks(default, create, update, check, check_status)
    second = replace(later, admit=_admit) if api.plugins else later
    return {
        "Workload": first,
        f"{V1ALPHA2}.Workload": later,
        f"{V1BETA1}.Workload": later,
        f"{V1ALPHA2}.PodGroup": second,
        f"{V1BETA1}.PodGroup": later,
        f"{V1ALPHA3}.CompositePodGroup": later,
    }


def _converted(resource: Resource, kept: str) -> Resource:
    if resource.version == kept:
        return resource
    inward, outward = (
        converter(resource.kind, resource.version, kept),
        converter(resource.kind, kept, resource.version),
    )
    return replace(resource, to_storage=inward, from_storage=outward)


def _reader(inner: Read, path: tuple[str, ...], strange: tuple[str, ...]) -> Read:
    """Reads a kind with a pod's specification in it, to which some fields are unknown."""

    def read(body: Any, unknown: list[str]) -> Object:
        item = inner(body, unknown)
        spec: Any = item
        for key in path:
            spec = spec.get(key) or {}
        unknown += [".".join((*path, key)) for key in strange if spec.pop(key, None) is not None]
        return item

    return read


_OTHER_PRIORITY = (
    "priority set in the {what} ({{given}}) must match the priority computed ({{found}}) "
    "based on the priority class set in the spec"
)


def _set_priority(store: ObjectStorage, group: Object, gates: Gates) -> None:
    """The number behind the priority class, as the admission plugin sets it."""
    spec, version = group["spec"], group["apiVersion"].rpartition("/")[2]
    if version == V1ALPHA2 and PREEMPTION not in gates:
        return
    what = _GROUPS[group["kind"]]
    plural = _COMPOSITES if group["kind"] == "CompositePodGroup" else "podgroups"
    resource = store.resources.find(GROUP, version, plural)
    found = set_priority(store, resource, group, _OTHER_PRIORITY.format(what=what))
    if version != V1ALPHA2 and POLICY in gates:
        if spec.get("preemptionPolicy", found.policy) != found.policy:
            message = (
                f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in "
                f"{what} spec; priority admission controller computed {found.policy} from the given "
                "PriorityClass name"
            )
            raise forbidden(resource, group["metadata"].get("name", ""), message)
        spec["preemptionPolicy"] = found.policy


def _admit(store: ObjectStorage, group: Object) -> None:
    """403 if the template of a group does not exist."""
    workloads = store.resources.find(GROUP, V1ALPHA2, "workloads")
    objects, namespace = store.collection_of(workloads).objects, group["metadata"]["namespace"]

    def find(name: str) -> Object | None:
        kept = objects.get(key_of(workloads, namespace, name))
        return None if kept is None else outward(workloads, kept)

    if why := missing_template(group, find):
        groups = store.resources.find(GROUP, V1ALPHA2, "podgroups")
        raise forbidden(groups, group["metadata"].get("name", ""), why)
