"""What the resource claims of pod templates count as in quota, or why Kueue refuses them, in its words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bayplan.dialects.kueue.fields.counting import CounterSource, Counting, UncountedDevices
from bayplan.model.devices.claims import ALL, EXACT_COUNT, DeviceAsk, DeviceClaim, DeviceClaimKey
from bayplan.model.devices.inventory import DeviceClass

GROUP = "resource.k8s.io"
NAMED_CLAIMS = "KueueDRAIntegration feature does not support use of resource claims"
NAMED_CLAIMS_REQUEUED = "DRA resource claims not supported"
"""The message of the Requeued condition for the same."""

Shortage = Callable[[int, DeviceAsk], str]
"""Why the devices of the cluster do not suffice for a request with this index; empty if they do."""
Charge = Callable[[CounterSource, DeviceAsk], int]
"""What the devices of a request consume of a counter."""


@dataclass(frozen=True, slots=True)
class PodClaim:
    """A claim of a pod template: the index of the pod set, its own index, and what it names."""

    pod_set: str
    path: str
    title: str  # what the pod calls it
    template: str = ""
    claim: str = ""


class Refusal(Exception):
    """A Workload that cannot be admitted as it is, with the reason."""


def pod_claims(workload: Mapping[str, Any]) -> list[PodClaim]:
    """All claims of the pod templates of a Workload, in order; those that name nothing are left out."""
    found = []
    for number, pod_set in enumerate((workload.get("spec") or {}).get("podSets") or ()):
        spec = (pod_set.get("template") or {}).get("spec") or {}
        for at, entry in enumerate(spec.get("resourceClaims") or ()):
            path = f"spec.podSets[{number}].template.spec.resourceClaims[{at}]"
            template, claim = entry.get("resourceClaimTemplateName"), entry.get("resourceClaimName")
            if template or claim:
                name = str(pod_set.get("name") or "main")
                found.append(PodClaim(name, path, str(entry.get("name") or ""), template or "", claim or ""))
    return found


def template_of(
    entry: PodClaim, namespace: str, templates: Mapping[DeviceClaimKey, DeviceClaim]
) -> DeviceClaim:
    """The template of a claim."""
    found = templates.get(DeviceClaimKey(namespace, entry.template))
    if found is None:
        why = (
            f"failed to get claim spec for ResourceClaimTemplate {entry.template} in podset {entry.pod_set}: "
            f'ResourceClaimTemplate.{GROUP} "{entry.template}" not found'
        )
        raise Refusal(f"{entry.path}: Internal error: {why}")
    return found


def check_classes(entry: PodClaim, claim: DeviceClaim, classes: Mapping[str, DeviceClass]) -> None:
    """Refuse a claim with a class that does not exist."""
    for at, request in enumerate(claim.requests):
        for ask in request.asks:
            if ask.device_class and ask.device_class not in classes:
                path = f"{entry.path}.devices.requests[{at}]"
                why = f'DeviceClass.{GROUP} "{ask.device_class}" not found'
                detail = f"{_origin(entry)}: failed to get DeviceClass {ask.device_class}: {why}"
                raise Refusal(f"{path}: Internal error: {detail}")


def check_countable(entry: PodClaim, claim: DeviceClaim, counting: Counting, shortage: Shortage) -> None:
    """Refuse a claim that quota cannot count."""
    for at, request in enumerate(claim.requests):
        path = f"{entry.path}.devices.requests[{at}]"
        if request.first_available:
            raise _invalid(entry, path, "null", "FirstAvailable device selection is not supported")
        (ask,) = request.asks
        if ask.admin:
            raise _invalid(entry, f"{path}.exactly.adminAccess", "null", "AdminAccess is not supported")
        if ask.mode == ALL:
            field = f"{path}.exactly.allocationMode"
            raise _invalid(entry, field, f'"{ALL}"', f"AllocationMode '{ALL}' is not supported")
        if ask.mode != EXACT_COUNT:
            field, why = f"{path}.exactly.allocationMode", f"unsupported allocation mode: {ask.mode}"
            raise _invalid(entry, field, f'"{ask.mode}"', why)
    short = [why for at, request in enumerate(claim.requests) if (why := shortage(at, request.asks[0]))]
    if short:
        texts = [f"{entry.path}.devices.requests{why}" for why in short]
        raise Refusal(texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")
    for request in claim.requests:
        name = request.asks[0].device_class
        if name in counting.by_capacity:
            why = (
                f"DeviceClass {name} is mapped with a capacity as its source, which quota does not count; "
                "map it without sources to count its devices, or set uncountedDevices to admit"
            )
            raise Refusal(f"{entry.path}.resourceClaimTemplateName: Forbidden: {why}")
        if name and not counting.resource_of(name):
            why = f"DeviceClass {name} is not mapped in DRA configuration for podset {entry.pod_set}"
            raise Refusal(f'{entry.path}.resourceClaimTemplateName: Not found: "{why}"')


def counted_devices(claims: Iterable[DeviceClaim], counting: Counting, charge: Charge) -> dict[str, int]:
    """The amounts that quota counts for one pod.

    Of several alternatives it is the largest amount of each resource. Devices that are shared by admin access
    and classes that are not mapped do not count, nor does a request for all devices of a node.
    """
    total: dict[str, int] = {}
    for claim in claims:
        for request in claim.requests:
            most: dict[str, int] = {}
            for ask in request.asks:
                for resource, amount in _amounts(ask, counting, charge).items():
                    most[resource] = max(most.get(resource, 0), amount)
            for resource, count in most.items():
                total[resource] = total.get(resource, 0) + count
    return total


def _amounts(ask: DeviceAsk, counting: Counting, charge: Charge) -> dict[str, int]:
    resource = counting.resource_of(ask.device_class)
    if not resource or ask.mode != EXACT_COUNT or ask.admin:
        return {}
    by_counters: dict[str, int] = {}
    for name, source in counting.counters_of(ask.device_class):
        by_counters[name] = by_counters.get(name, 0) + charge(source, ask)
    return by_counters or {resource: ask.count}


def uncharged(entry: PodClaim, at: int, why: str) -> Refusal:
    """Why it is not known what a request consumes of a counter."""
    return Refusal(f"{entry.path}.devices.requests[{at}]: Internal error: {why}")


def refuses(counting: Counting) -> bool:
    """Whether devices that quota cannot count are refused."""
    return counting.uncounted_devices is UncountedDevices.REFUSE


def too_few(entry: PodClaim, at: int, ask: DeviceAsk, matching: int) -> str:
    """Why a selector matches too few devices, after the path of the requests."""
    why = (
        f"insufficient matching devices for CEL selector in DeviceClass {ask.device_class}: "
        f"{matching} device(s) match in the cluster but {ask.count} requested"
    )
    return f"[{at}].exactly.selectors: Internal error: {_origin(entry)}: {why}"


def failed_selector(entry: PodClaim, at: int, ask: DeviceAsk, error: str) -> str:
    """Why a selector cannot be evaluated, after the path of the requests."""
    why = f"CEL evaluation failed for DeviceClass {ask.device_class}: {error}"
    return f"[{at}].exactly.selectors: Invalid value: null: {_origin(entry)}: {why}"


def described(claims: Iterable[DeviceClaim]) -> str:
    """What the requests of a pod's claims ask for, for people."""
    texts = []
    for claim in claims:
        for request in claim.requests:
            asks = " or ".join(_asked(ask) for ask in request.asks)
            texts.append(f"{asks} (claim {claim.key.name}, request {request.name})")
    return " and ".join(texts)


def _asked(ask: DeviceAsk) -> str:
    selected = " that its selectors match" if ask.selectors else ""
    return f"{'all' if ask.mode == ALL else ask.count} of class {ask.device_class}{selected}"


def _origin(entry: PodClaim) -> str:
    return f"ResourceClaimTemplate {entry.template}"


def _invalid(entry: PodClaim, path: str, value: str, why: str) -> Refusal:
    return Refusal(f"{path}: Invalid value: {value}: {_origin(entry)}: {why}")
