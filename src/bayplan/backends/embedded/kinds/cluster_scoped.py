"""The remaining built-in kinds: namespaces, nodes, services, secrets, volumes, priorities, budgets, roles."""

from __future__ import annotations

import base64
import re
from typing import Any

from bayplan.backends.embedded.api.status import FieldProblem, required, unwanted, wrong
from bayplan.backends.embedded.storage.interface import ObjectStorage
from bayplan.backends.embedded.storage.kind_hooks import KindHooks

Object = dict[str, Any]

_RBAC = "rbac.authorization.k8s.io"
_USER_PRIORITY_MAX = 1_000_000_000
_PERCENT = re.compile(r"[0-9]{1,9}%")
_PERCENT_MESSAGE = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%', or '93%', "
    "regex used for validation is '[0-9]+%')"
)


def _namespace_default(namespace: Object) -> None:
    metadata = namespace["metadata"]
    name = metadata.get("name")
    if name:
        metadata["labels"] = {**metadata.get("labels", {}), "kubernetes.io/metadata.name": name}


def _namespace_create(_: ObjectStorage, namespace: Object) -> None:
    namespace["status"] = {"phase": "Active"}
    finalizers = namespace["spec"].get("finalizers") or []
    namespace["spec"]["finalizers"] = [*(one for one in finalizers if one != "kubernetes"), "kubernetes"]


def _namespace_update(_: ObjectStorage, namespace: Object, old: Object, subresource: str) -> None:
    if subresource != "finalize":
        namespace["spec"] = old["spec"]


def _node_check(node: Object, old: Object | None) -> list[FieldProblem]:
    problems = []
    for place, taint in enumerate(node["spec"].get("taints") or ()):
        if not taint.get("effect"):
            problems.append(required(f"metadata.taints[{place}].effect"))
    provider = (old or {}).get("spec", {}).get("providerID")
    if provider and provider != node["spec"].get("providerID"):
        problems.append(
            unwanted("spec.providerID", 'node updates may not change providerID except from "" to valid')
        )
    return problems


def _secret_default(secret: Object) -> None:
    secret.setdefault("type", "Opaque")
    texts = secret.pop("stringData", None)
    if texts:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in texts.items()}
        secret["data"] = {**secret.get("data", {}), **encoded}


def _frozen_check(item: Object, old: Object | None) -> list[FieldProblem]:
    """Immutable ConfigMaps and Secrets."""
    if not old or not old.get("immutable"):
        return []
    message = "field is immutable when `immutable` is set"
    problems = [] if item.get("immutable") else [unwanted("immutable", message)]
    return problems + [
        unwanted(key, message) for key in ("data", "binaryData") if item.get(key) != old.get(key)
    ]


def _service_default(service: Object) -> None:
    spec = service["spec"]
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    spec.setdefault("internalTrafficPolicy", "Cluster")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if not port.get("targetPort"):
            port["targetPort"] = port["port"]


def _service_create(store: ObjectStorage, service: Object) -> None:
    spec = service["spec"]
    service["status"] = {"loadBalancer": {}}
    if spec["type"] == "ExternalName":
        return
    if not spec.get("clusterIP"):
        taken = {
            one["spec"].get("clusterIP")
            for one in store.collection_of(store.resources.find("", "v1", "services")).objects.values()
        }
        number = next(number for number in range(2, 2**16) if _address(number) not in taken)
        spec["clusterIP"] = _address(number)
    spec.setdefault("clusterIPs", [spec["clusterIP"]])
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")


def _address(number: int) -> str:
    return f"10.96.{number >> 8}.{number & 255}"


def _service_update(_: ObjectStorage, service: Object, old: Object, __: str) -> None:
    for key in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if key in old["spec"]:
            service["spec"].setdefault(key, old["spec"][key])


def _service_check(service: Object, old: Object | None) -> list[FieldProblem]:
    spec = service["spec"]
    if not spec.get("ports") and spec["type"] != "ExternalName" and spec.get("clusterIP") != "None":
        return [required("spec.ports")]
    return []


def _volume_default(volume: Object) -> None:
    volume["spec"].setdefault("persistentVolumeReclaimPolicy", "Retain")
    volume["spec"].setdefault("volumeMode", "Filesystem")


def _claim_default(claim: Object) -> None:
    claim["spec"].setdefault("volumeMode", "Filesystem")


def _pending(_: ObjectStorage, item: Object) -> None:
    item["status"] = {"phase": "Pending"}


def _priority_default(priority: Object) -> None:
    priority.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _priority_check(priority: Object, old: Object | None) -> list[FieldProblem]:
    name, value = priority["metadata"].get("name", ""), priority["value"]
    problems = []
    if value > _USER_PRIORITY_MAX and not name.startswith("system-"):
        message = f"maximum allowed value of a user defined priority is {_USER_PRIORITY_MAX}"
        problems.append(unwanted("value", message))
    if old is not None:
        problems += [
            unwanted(key, "may not be changed in an update.")
            for key in ("value", "preemptionPolicy")
            if priority.get(key) != old.get(key)
        ]
    return problems


def _budget_create(_: ObjectStorage, budget: Object) -> None:
    counts = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
    budget["status"] = dict.fromkeys(counts, 0)


def _budget_check(budget: Object, _: Object | None) -> list[FieldProblem]:
    spec = budget["spec"]
    if "minAvailable" in spec and "maxUnavailable" in spec:
        return [wrong("spec", spec, "minAvailable and maxUnavailable cannot be both set")]
    problems = []
    for key in ("minAvailable", "maxUnavailable"):
        if isinstance(spec.get(key), int) and spec[key] < 0:
            problems.append(wrong(f"spec.{key}", spec[key], "must be greater than or equal to 0"))
        elif isinstance(spec.get(key), str) and not _PERCENT.fullmatch(spec[key]):
            problems.append(wrong(f"spec.{key}", spec[key], _PERCENT_MESSAGE))
    return problems


def _lease_check(lease: Object, _: Object | None) -> list[FieldProblem]:
    spec = lease["spec"]
    problems = []
    if spec.get("leaseDurationSeconds", 1) <= 0:
        problems.append(
            wrong("spec.leaseDurationSeconds", spec["leaseDurationSeconds"], "must be greater than 0")
        )
    if spec.get("leaseTransitions", 0) < 0:
        message = "must be greater than or equal to 0"
        problems.append(wrong("spec.leaseTransitions", spec["leaseTransitions"], message))
    return problems


def _binding_default(binding: Object) -> None:
    if binding["roleRef"].get("apiGroup", "") == "":
        binding["roleRef"]["apiGroup"] = _RBAC
    for subject in binding.get("subjects") or ():
        if subject.get("kind") in ("User", "Group"):
            subject.setdefault("apiGroup", _RBAC)


def _binding_check(binding: Object, old: Object | None) -> list[FieldProblem]:
    if old is not None and binding["roleRef"] != old["roleRef"]:
        return [wrong("roleRef", binding["roleRef"], "cannot change roleRef")]
    return [] if binding["roleRef"].get("name") else [required("roleRef.name")]


BEHAVIOURS = {
    "Namespace": KindHooks(_namespace_default, _namespace_create, _namespace_update),
    "Node": KindHooks(check=_node_check),
    "ConfigMap": KindHooks(check=_frozen_check),
    "Secret": KindHooks(_secret_default, check=_frozen_check),
    "Service": KindHooks(_service_default, _service_create, _service_update, _service_check),
    "PersistentVolume": KindHooks(_volume_default, _pending),
    "PersistentVolumeClaim": KindHooks(_claim_default, _pending),
    "PriorityClass": KindHooks(_priority_default, check=_priority_check),
    "PodDisruptionBudget": KindHooks(create=_budget_create, check=_budget_check),
    "Lease": KindHooks(check=_lease_check),
    "RoleBinding": KindHooks(_binding_default, check=_binding_check),
    "ClusterRoleBinding": KindHooks(_binding_default, check=_binding_check),
}
