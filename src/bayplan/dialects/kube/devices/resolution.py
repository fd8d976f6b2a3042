"""Which claims a pod has: those that it names, and those made for it from templates; or why it waits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bayplan.dialects.kube.devices.writes import RESERVED_MAX
from bayplan.model.devices.claims import DeviceClaim, DeviceClaimKey
from bayplan.model.devices.inventory import DeviceClass
from bayplan.model.pod import Pod


@dataclass(frozen=True, slots=True)
class PodClaims:
    """The claims of a pod in the order of its spec, or the reason why it cannot be scheduled yet."""

    claims: tuple[DeviceClaim, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ClaimingPod:
    """What of a pod decides on its claims: spec.resourceClaims, and status.resourceClaimStatuses."""

    namespace: str
    name: str
    uid: str
    claims: Sequence[Mapping[str, Any]] = ()
    statuses: Sequence[Mapping[str, Any]] = ()


def resolve_claims(
    pod: ClaimingPod, claims: Mapping[DeviceClaimKey, DeviceClaim], classes: Mapping[str, DeviceClass]
) -> PodClaims:
    """The claims of a pod. A pod without a claim that it needs waits, in the words of kube-scheduler."""
    found = []
    made = {one.get("name"): one for one in pod.statuses}
    for entry in pod.claims:
        name = entry.get("resourceClaimName")
        if not name:
            status = made.get(entry.get("name"))
            if status is None:
                return PodClaims(reason=f'pod "{pod.namespace}/{pod.name}": ResourceClaim not created yet')
            name = status.get("resourceClaimName")
            if not name:
                continue  # the controller found that no claim is needed
        claim = claims.get(DeviceClaimKey(pod.namespace, name))
        if claim is None:
            return PodClaims(reason=f'resourceclaim.resource.k8s.io "{name}" not found')
        reason = _unusable(pod, claim, classes, own=not entry.get("resourceClaimName"))
        if reason:
            return PodClaims(reason=reason)
        found.append(claim)
    return PodClaims(tuple(found))


def with_claim_names(text: str, pod: Pod) -> str:
    """A reason for one pod, with the names of its claims instead of what the pod calls them."""
    devices = pod.spec.signature.devices
    for claim, name in zip(devices.claims, pod.spec.new_claims, strict=False) if devices is not None else ():
        text = re.sub(rf"\bclaim {re.escape(str(claim.key))}(?=[:,])", f"claim {name}", text)
    return text


def _unusable(pod: ClaimingPod, claim: DeviceClaim, classes: Mapping[str, DeviceClass], *, own: bool) -> str:
    if own and claim.owner != pod.uid:
        return (
            f"ResourceClaim {claim.key} was not created for pod {pod.namespace}/{pod.name} (pod is not owner)"
        )
    if claim.terminating:
        return f'resourceclaim "{claim.key.name}" is being deleted'
    reserved = any(one.uid == pod.uid for one in claim.reserved_for)
    if not reserved and len(claim.reserved_for) >= RESERVED_MAX:
        return f"ResourceClaim {claim.key} is reserved for {RESERVED_MAX} objects, the most that are allowed"
    if claim.allocation is not None:
        return f"ResourceClaim {claim.key}: {claim.unready}" if claim.unready else ""
    for request in claim.requests:
        for ask in request.asks:
            if ask.device_class and ask.device_class not in classes:
                return f"request {request.result_name(ask)}: device class {ask.device_class} does not exist"
    return ""
