"""The resource claims that a pod names in its spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayplan.dialects.kube.decode.wire import PodSpecWire

WHAT_TO_DO = "request the devices as an extended resource, or name a scheduler that supports resource claims"


def unsupported_claims(spec: PodSpecWire) -> str:
    """What of a pod's resource claims we cannot allocate; empty if it has none.

    The kubelet refuses a pod whose claims are not allocated and reserved for it, so such a pod is not bound.
    """
    claims = spec.resource_claims
    if not claims:
        return ""
    names = ", ".join(_title(claim) for claim in claims)
    verb = "resource claim {} is" if len(claims) == 1 else "resource claims {} are"
    return (
        f"{verb.format(names)} not supported: bayplan does not allocate devices by claim, and a pod without "
        f"its devices cannot start; {WHAT_TO_DO}"
    )


def _title(claim: Mapping[str, Any]) -> str:
    name = claim.get("name", "")
    return f'"{name}" ({_source(claim)})'


def _source(claim: Mapping[str, Any]) -> str:
    if claim.get("resourceClaimName"):
        return f"ResourceClaim {claim['resourceClaimName']}"
    if claim.get("resourceClaimTemplateName"):
        return f"ResourceClaimTemplate {claim['resourceClaimTemplateName']}"
    return "of an unknown source"
