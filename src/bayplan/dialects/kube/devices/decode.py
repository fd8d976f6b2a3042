"""Decoding of resource slices, device classes and resource claims into values of the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from bayplan.dialects.kube.decode.pod_spec import node_term
from bayplan.dialects.kube.decode.wire import NodeTerms
from bayplan.dialects.kube.devices.wire import (
    AllocationWire,
    AskWire,
    CapacityWire,
    ClaimStatusWire,
    ClaimTemplateWire,
    ConstraintWire,
    CounterWire,
    DeviceClassWire,
    DeviceTolerationWire,
    DeviceWire,
    Quantity,
    RequestPolicyWire,
    RequestWire,
    ResourceClaimWire,
    ResourceSliceWire,
    ResultWire,
    SelectorWire,
)
from bayplan.dialects.kube.fields.quantity import unclamped_quantity
from bayplan.model.devices.claims import (
    EXACT_COUNT,
    AllocatedDevice,
    ClaimConsumer,
    DeviceAllocation,
    DeviceAsk,
    DeviceClaim,
    DeviceClaimKey,
    DeviceConstraint,
    DeviceRequest,
)
from bayplan.model.devices.inventory import (
    NO_REACH,
    UNIT,
    Amounts,
    AttributeValue,
    CounterSet,
    Device,
    DeviceCapacity,
    DeviceClass,
    DeviceConfig,
    DeviceKey,
    DeviceSlice,
    NodeReach,
    PoolKey,
    RequestPolicy,
)
from bayplan.model.node_rules import NodeSelectorTerm, Taint, Toleration

FROM_CLASS, TRUE = "FromClass", "True"
_ATTRIBUTE_TYPES = {"int": int, "bool": bool, "string": str, "version": str}
_encode = msgspec.json.Encoder(order="deterministic").encode


def slice_of(wire: ResourceSliceWire) -> DeviceSlice:
    """A slice of a pool."""
    spec = wire.spec
    devices = spec.devices or ()
    grouped = any(one.compatibility_groups for device in devices for one in device.consumes_counters or ())
    return DeviceSlice(
        name=wire.metadata.name,
        pool=PoolKey(spec.driver, spec.pool.name),
        generation=spec.pool.generation,
        slice_count=spec.pool.resource_slice_count,
        reach=_reach(spec.node_name, spec.all_nodes, spec.node_selector),
        by_device=bool(spec.per_device_node_selection),
        devices=tuple(_device(one, by_device=bool(spec.per_device_node_selection)) for one in devices),
        counter_sets=tuple(
            CounterSet(one.name, _counters(one.counters)) for one in spec.shared_counters or ()
        ),
        unsupported="compatibility groups are not supported" if grouped else "",
        unusable="optional node operations are not supported" if spec.skip_node_operations else "",
        version=wire.metadata.resource_version,
    )


def class_of(wire: DeviceClassWire) -> DeviceClass:
    """A class of devices."""
    config = tuple(DeviceConfig(_text(one)) for one in wire.spec.config or ())
    return DeviceClass(wire.metadata.name, _selectors(wire.spec.selectors), config)


def claim_of(wire: ResourceClaimWire) -> DeviceClaim:
    """A claim with its allocation, if it has one."""
    meta, devices, status = wire.metadata, wire.spec.devices, wire.status
    owners = [owner.uid for owner in meta.owner_references or () if owner.controller]
    return DeviceClaim(
        key=DeviceClaimKey(meta.namespace or "", meta.name),
        uid=meta.uid,
        requests=tuple(_request(one) for one in devices.requests or ()),
        constraints=tuple(_constraint(one) for one in devices.constraints or ()),
        config=tuple(_config(one) for one in devices.config or ()),
        allocation=None if status.allocation is None else _allocation(status.allocation),
        reserved_for=tuple(
            ClaimConsumer(one.uid, one.name, one.resource, one.api_group or "")
            for one in status.reserved_for or ()
        ),
        owner=owners[0] if owners else "",
        terminating=meta.deletion_timestamp is not None,
        finalizers=tuple(meta.finalizers or ()),
        unready=_unready(status),
        version=meta.resource_version,
    )


def _unready(status: ClaimStatusWire) -> str:
    """Which binding condition of an allocated device does not hold; empty if pods can be bound."""
    told = {
        (one.driver, one.pool, one.device): {
            each.type for each in one.conditions or () if each.status == TRUE
        }
        for one in status.devices or ()
    }
    found = status.allocation.devices.results if status.allocation is not None else None
    for result in found or ():
        device = DeviceKey(result.driver, result.pool, result.device)
        holding = told.get(device, set())
        for name in result.binding_failure_conditions or ():
            if name in holding:
                return f"device {device} has failed: its condition {name} is true"
        for name in result.binding_conditions or ():
            if name not in holding:
                return f"device {device} is not ready: its binding condition {name} is not true"
    return ""


def claim_template_of(wire: ClaimTemplateWire) -> DeviceClaim:
    """A claim as it is made from a template, with the name of the template."""
    devices = wire.spec.spec.devices
    return DeviceClaim(
        key=DeviceClaimKey(wire.metadata.namespace or "", wire.metadata.name),
        requests=tuple(_request(one) for one in devices.requests or ()),
        constraints=tuple(_constraint(one) for one in devices.constraints or ()),
        config=tuple(_config(one) for one in devices.config or ()),
    )


@lru_cache(maxsize=4096)
def exact_amount(value: Quantity) -> int:
    """A quantity in billionths; smaller fractions round up."""
    number = unclamped_quantity(value) * UNIT
    return -(-number.numerator // number.denominator)


def _reach(node: str | None, everywhere: bool | None, terms: NodeTerms | None) -> NodeReach:
    if not (node or everywhere or terms is not None):
        return NO_REACH
    found = None if terms is None or node or everywhere else _terms(terms)
    return NodeReach(node or "", bool(everywhere) and not node, found)


def _terms(wire: NodeTerms) -> tuple[NodeSelectorTerm, ...]:
    return tuple(node_term(one) for one in wire.node_selector_terms or ())


def _device(wire: DeviceWire, *, by_device: bool) -> Device:
    return Device(
        name=wire.name,
        attributes=tuple(
            (name, _attribute(value)) for name, value in sorted((wire.attributes or {}).items())
        ),
        capacity=tuple((name, _capacity(one)) for name, one in sorted((wire.capacity or {}).items())),
        taints=tuple(Taint(one.key, one.value or "", one.effect) for one in wire.taints or ()),
        consumes=tuple((one.counter_set, _counters(one.counters)) for one in wire.consumes_counters or ()),
        reach=_reach(wire.node_name, wire.all_nodes, wire.node_selector) if by_device else NO_REACH,
        shareable=bool(wire.allow_multiple_allocations),
        binds_to_node=bool(wire.binds_to_node),
        binding_conditions=tuple(wire.binding_conditions or ()),
        binding_failure_conditions=tuple(wire.binding_failure_conditions or ()),
    )


def _attribute(wire: Mapping[str, Any]) -> AttributeValue:
    for name, known in _ATTRIBUTE_TYPES.items():
        value = wire.get(name)
        if value is not None and _is_a(value, known):
            return AttributeValue(name, value)
        values = wire.get(f"{name}s")
        if isinstance(values, list) and values and all(_is_a(one, known) for one in values):
            return AttributeValue(f"{name}s", tuple(values))
    return AttributeValue("")


def _is_a(value: object, known: type) -> bool:
    return isinstance(value, known) and (known is bool or not isinstance(value, bool))


def _capacity(wire: CapacityWire) -> DeviceCapacity:
    policy = wire.request_policy
    return DeviceCapacity(exact_amount(wire.value), None if policy is None else _policy(policy))


def _policy(wire: RequestPolicyWire) -> RequestPolicy:
    bounds = wire.valid_range
    return RequestPolicy(
        default=_optional(wire.default),
        values=tuple(exact_amount(one) for one in wire.valid_values or ()),
        has_range=bounds is not None,
        minimum=None if bounds is None else _optional(bounds.min),
        maximum=None if bounds is None else _optional(bounds.max),
        step=None if bounds is None else _optional(bounds.step),
    )


def _optional(value: Quantity | None) -> int | None:
    return None if value is None else exact_amount(value)


def _counters(wire: Mapping[str, CounterWire] | None) -> Amounts:
    return tuple((name, exact_amount(one.value)) for name, one in sorted((wire or {}).items()))


def _selectors(wire: Iterable[SelectorWire] | None) -> tuple[str | None, ...]:
    return tuple(None if one.cel is None else one.cel.expression for one in wire or ())


def _tolerations(wire: Iterable[DeviceTolerationWire] | None) -> tuple[Toleration, ...]:
    return tuple(
        Toleration(one.key or "", one.operator or "Equal", one.value or "", one.effect or "")
        for one in wire or ()
    )


def _request(wire: RequestWire) -> DeviceRequest:
    if wire.first_available:
        asks = tuple(_ask(one, one.name) for one in wire.first_available)
        return DeviceRequest(wire.name, asks, first_available=True)
    return DeviceRequest(wire.name, (_ask(wire.exactly or AskWire(), wire.name),))


def _ask(wire: AskWire, name: str) -> DeviceAsk:
    mode = wire.allocation_mode or EXACT_COUNT
    capacity = wire.capacity
    return DeviceAsk(
        name=name,
        device_class=wire.device_class_name,
        selectors=_selectors(wire.selectors),
        mode=mode,
        count=1 if wire.count is None else wire.count,
        admin=wire.admin_access,
        tolerations=_tolerations(wire.tolerations),
        tolerations_text=_text(wire.tolerations) if wire.tolerations else "",
        capacity=None
        if capacity is None
        else tuple((name, exact_amount(one)) for name, one in sorted((capacity.requests or {}).items())),
        unsupported="cannot handle request with derived attributes, the feature is disabled"
        if wire.derived_attributes
        else "",
    )


def _constraint(wire: ConstraintWire) -> DeviceConstraint:
    match, distinct = wire.match_attribute or "", wire.distinct_attribute or ""
    return DeviceConstraint(tuple(wire.requests or ()), match, "" if match else distinct)


def _config(wire: Mapping[str, Any]) -> DeviceConfig:
    rest = {name: value for name, value in wire.items() if name not in ("requests", "source")}
    return DeviceConfig(_text(rest), tuple(wire.get("requests") or ()), wire.get("source") == FROM_CLASS)


def _text(parameters: object) -> str:
    return _encode(parameters).decode()


def _allocation(wire: AllocationWire) -> DeviceAllocation:
    return DeviceAllocation(
        tuple(_result(one) for one in wire.devices.results or ()),
        None if wire.node_selector is None else _terms(wire.node_selector),
        tuple(_config(one) for one in wire.devices.config or ()),
    )


def _result(wire: ResultWire) -> AllocatedDevice:
    taken = sorted((wire.consumed_capacity or {}).items())
    return AllocatedDevice(
        request=wire.request,
        key=DeviceKey(wire.driver, wire.pool, wire.device),
        admin=bool(wire.admin_access),
        share=wire.share_id,
        consumed=tuple((name, exact_amount(one)) for name, one in taken),
        tolerations=_text(wire.tolerations) if wire.tolerations else "",
        binding_conditions=tuple(wire.binding_conditions or ()),
        binding_failure_conditions=tuple(wire.binding_failure_conditions or ()),
    )
