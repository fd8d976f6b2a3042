"""The writes to a claim, in their order: finalizer, allocation with reservation; and how they are undone.

Each has as its precondition the version of the claim that the decision was made from: if another scheduler or
the controller of claims was faster, it fails, and nothing is allocated twice. The finalizer makes a new
version: the allocation is written to the claim that the server returned for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import msgspec

from bayplan.dialects.api import Verb, Write
from bayplan.dialects.kube.devices.wire import CLAIMS
from bayplan.model.devices.claims import AllocatedDevice, ClaimConsumer, DeviceAllocation, DeviceClaim
from bayplan.model.devices.inventory import UNIT, DeviceConfig
from bayplan.model.node_rules import NodeSelectorTerm, Requirement

FINALIZER = "resource.kubernetes.io/delete-protection"
RESERVED_MAX = 256
"""The number of objects that a claim can be reserved for."""
_SMALL_UNITS = (("", UNIT), ("m", UNIT // 1000), ("u", UNIT // 1_000_000), ("n", 1))
Object = dict[str, Any]


def protect_write(claim: DeviceClaim, tag: object = None) -> Write | None:
    """Add the finalizer that an allocated claim needs; None if it has it."""
    if FINALIZER in claim.finalizers:
        return None
    return _write(claim, {"metadata": {"finalizers": [*claim.finalizers, FINALIZER]}}, "", tag)


def allocate_write(
    claim: DeviceClaim,
    allocation: DeviceAllocation,
    consumers: Iterable[ClaimConsumer],
    share_ids: Iterator[str],
    tag: object = None,
) -> Write:
    """Allocate a claim and reserve it, in one write. A share without an id gets the next of `share_ids`."""
    status = {
        "allocation": allocation_body(allocation, share_ids),
        "reservedFor": [_consumer(one) for one in (*claim.reserved_for, *consumers)],
    }
    return _write(claim, {"status": status}, "status", tag)


def reserve_write(claim: DeviceClaim, consumers: Iterable[ClaimConsumer], tag: object = None) -> Write | None:
    """Reserve an allocated claim; None if it is reserved for these consumers."""
    known = {one.uid for one in claim.reserved_for}
    new = [one for one in consumers if one.uid not in known]
    if not new:
        return None
    reserved = [_consumer(one) for one in (*claim.reserved_for, *new)]
    return _write(claim, {"status": {"reservedFor": reserved}}, "status", tag)


def release_write(claim: DeviceClaim, uids: Collection[str], tag: object = None) -> Write:
    """End the reservation for some consumers, and with the last one the allocation: no device leaks."""
    left = [_consumer(one) for one in claim.reserved_for if one.uid not in uids]
    status: Object = {"reservedFor": left or None}
    if not left:
        status |= {"allocation": None, "devices": None}
    return _write(claim, {"status": status}, "status", tag)


def _write(claim: DeviceClaim, body: Object, subresource: str, tag: object) -> Write:
    return Write(
        Verb.MERGE_PATCH, CLAIMS, claim.key.namespace, claim.key.name, body, subresource,
        uid=claim.uid, version=claim.version, tag=tag,
    )  # fmt: skip


def allocation_body(allocation: DeviceAllocation, share_ids: Iterator[str]) -> Object:
    """An allocation as the API has it."""
    devices: Object = {"results": [_result(one, share_ids) for one in allocation.devices]}
    if allocation.config:
        devices["config"] = [_config(one) for one in allocation.config]
    body: Object = {"devices": devices}
    if allocation.terms is not None:
        body["nodeSelector"] = {"nodeSelectorTerms": [_term(one) for one in allocation.terms]}
    return body


def _result(device: AllocatedDevice, share_ids: Iterator[str]) -> Object:
    driver, pool, name = device.key
    body: Object = {"request": device.request, "driver": driver, "pool": pool, "device": name}
    if device.admin:
        body["adminAccess"] = True
    if device.tolerations:
        body["tolerations"] = msgspec.json.decode(device.tolerations)
    if device.share is not None:
        body["shareID"] = device.share or next(share_ids)
    if device.consumed:
        body["consumedCapacity"] = {key: quantity_text(amount) for key, amount in device.consumed}
    if device.binding_conditions:
        body["bindingConditions"] = list(device.binding_conditions)
    if device.binding_failure_conditions:
        body["bindingFailureConditions"] = list(device.binding_failure_conditions)
    return body


def _config(config: DeviceConfig) -> Object:
    body: Object = {"source": "FromClass" if config.from_class else "FromClaim"}
    if config.requests:
        body["requests"] = list(config.requests)
    parameters: Object = msgspec.json.decode(config.parameters)
    return body | parameters


def _term(term: NodeSelectorTerm) -> Object:
    labels = [_requirement(one) for one in term.requirements if not one.field]
    fields = [_requirement(one) for one in term.requirements if one.field]
    return ({"matchExpressions": labels} if labels else {}) | ({"matchFields": fields} if fields else {})


def _requirement(rule: Requirement) -> Object:
    body: Object = {"key": rule.key, "operator": rule.operator}
    return body | {"values": list(rule.values)} if rule.values else body


def _consumer(consumer: ClaimConsumer) -> Object:
    group = {"apiGroup": consumer.group} if consumer.group else {}
    return group | {"resource": consumer.resource, "name": consumer.name, "uid": consumer.uid}


def quantity_text(amount: int) -> str:
    """An amount in billionths as a quantity: a whole number if it is one."""
    suffix, unit = next(pair for pair in _SMALL_UNITS if amount % pair[1] == 0)
    return f"{amount // unit}{suffix}"
