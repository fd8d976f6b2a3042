"""Claims for devices: defaults of their requests, and what a status may change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bayplan.backends.embedded.api.status import FieldProblem, unwanted, wrong
from bayplan.backends.embedded.storage.kind_hooks import KindHooks

Object = dict[str, Any]
RESERVED_MAX = 256
_IMMUTABLE = "field is immutable"


def _claim_default(claim: Object) -> None:
    _requests_default(claim["spec"])


def _template_default(template: Object) -> None:
    _requests_default(template["spec"]["spec"])


def _requests_default(spec: Object) -> None:
    for ask in _asks(spec):
        ask.setdefault("allocationMode", "ExactCount")
        if ask["allocationMode"] == "ExactCount":
            ask.setdefault("count", 1)


def _asks(spec: Object) -> Iterator[Object]:
    for request in (spec.get("devices") or {}).get("requests") or ():
        if request.get("exactly") is not None:
            yield request["exactly"]
        yield from request.get("firstAvailable") or ()


def _spec_check(item: Object, old: Object | None) -> list[FieldProblem]:
    if old is not None and item["spec"] != old["spec"]:
        return [wrong("spec", item["spec"], _IMMUTABLE)]
    return []


def _status_check(claim: Object, old: Object | None) -> list[FieldProblem]:
    """Devices stay as long as the claim is reserved, and it is reserved only with devices."""
    now, before = claim.get("status") or {}, (old or {}).get("status") or {}
    reserved, known = now.get("reservedFor") or (), before.get("reservedFor") or ()
    problems = []
    if len(reserved) > RESERVED_MAX:
        problems.append(unwanted("status.reservedFor", f"may not have more than {RESERVED_MAX} entries"))
    if reserved and not now.get("allocation"):
        problems.append(unwanted("status.reservedFor", "may not be specified when `allocated` is not set"))
    if claim["metadata"].get("deletionTimestamp") and any(one not in known for one in reserved):
        message = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        problems.append(unwanted("status.reservedFor", message))
    if reserved and before.get("allocation") and now.get("allocation") != before["allocation"]:
        problems.append(wrong("status.allocation", now.get("allocation"), _IMMUTABLE))
    return problems


BEHAVIOURS = {
    "resource.ResourceClaim": KindHooks(_claim_default, check=_spec_check, check_status=_status_check),
    "resource.ResourceClaimTemplate": KindHooks(_template_default, check=_spec_check),
}
