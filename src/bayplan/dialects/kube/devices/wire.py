"""The objects of resource.k8s.io as the API server sends them, as far as they are used."""

from __future__ import annotations

from typing import Any

from msgspec import field

from bayplan.dialects.api import Kind
from bayplan.dialects.kube.decode.wire import Metadata, NodeTerms, OwnerReference, Struct

GROUP, VERSION = "resource.k8s.io", "v1"
Quantity = str | int | float


class DeviceTaintWire(Struct, frozen=True):
    """A taint of a device."""

    key: str = ""
    value: str | None = None
    effect: str = ""


class DeviceTolerationWire(Struct, frozen=True):
    """A toleration of a request."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class RangeWire(Struct, frozen=True):
    """The range in which a capacity can be requested."""

    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class RequestPolicyWire(Struct, frozen=True):
    """How a capacity can be requested."""

    default: Quantity | None = None
    valid_values: list[Quantity] | None = None
    valid_range: RangeWire | None = None


class CapacityWire(Struct, frozen=True):
    """A capacity of a device."""

    value: Quantity = 0
    request_policy: RequestPolicyWire | None = None


class CounterWire(Struct, frozen=True):
    """A counter."""

    value: Quantity = 0


class CounterSetWire(Struct, frozen=True):
    """The counters that devices of a pool share."""

    name: str = ""
    counters: dict[str, CounterWire] | None = None


class ConsumptionWire(Struct, frozen=True):
    """What a device takes of a counter set."""

    counter_set: str = ""
    counters: dict[str, CounterWire] | None = None
    compatibility_groups: list[str] | None = None


class DeviceWire(Struct, frozen=True):
    """A device of a slice."""

    name: str = ""
    attributes: dict[str, dict[str, Any]] | None = None
    capacity: dict[str, CapacityWire] | None = None
    taints: list[DeviceTaintWire] | None = None
    consumes_counters: list[ConsumptionWire] | None = None
    node_name: str | None = None
    node_selector: NodeTerms | None = None
    all_nodes: bool | None = None
    allow_multiple_allocations: bool | None = None
    binds_to_node: bool | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None


class PoolWire(Struct, frozen=True):
    """The pool of a slice."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class SliceSpecWire(Struct, frozen=True):
    """The spec of a ResourceSlice."""

    driver: str = ""
    pool: PoolWire = PoolWire()
    node_name: str | None = None
    node_selector: NodeTerms | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: list[DeviceWire] | None = None
    shared_counters: list[CounterSetWire] | None = None
    skip_node_operations: list[Any] | None = None


class ResourceSliceWire(Struct, frozen=True):
    """A ResourceSlice."""

    metadata: Metadata = Metadata()
    spec: SliceSpecWire = SliceSpecWire()


class CelWire(Struct, frozen=True):
    """An expression that selects devices."""

    expression: str = ""


class SelectorWire(Struct, frozen=True):
    """A selector of devices."""

    cel: CelWire | None = None


class ClassSpecWire(Struct, frozen=True):
    """The spec of a DeviceClass."""

    selectors: list[SelectorWire] | None = None
    config: list[dict[str, Any]] | None = None


class DeviceClassWire(Struct, frozen=True):
    """A DeviceClass."""

    metadata: Metadata = Metadata()
    spec: ClassSpecWire = ClassSpecWire()


class CapacityRequestsWire(Struct, frozen=True):
    """The capacities that a request asks for."""

    requests: dict[str, Quantity] | None = None


class AskWire(Struct, frozen=True):
    """What a request asks for: `exactly`, or one entry of `firstAvailable`."""

    name: str = ""
    device_class_name: str = ""
    selectors: list[SelectorWire] | None = None
    allocation_mode: str | None = None
    count: int | None = None
    admin_access: bool | None = None
    tolerations: list[DeviceTolerationWire] | None = None
    capacity: CapacityRequestsWire | None = None
    derived_attributes: list[Any] | None = None


class RequestWire(Struct, frozen=True):
    """A request of a claim."""

    name: str = ""
    exactly: AskWire | None = None
    first_available: list[AskWire] | None = None


class ConstraintWire(Struct, frozen=True):
    """A constraint of a claim."""

    requests: list[str] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DevicesWire(Struct, frozen=True):
    """What a claim asks for."""

    requests: list[RequestWire] | None = None
    constraints: list[ConstraintWire] | None = None
    config: list[dict[str, Any]] | None = None


class ResourceClaimSpecWire(Struct, frozen=True):
    """The spec of a ResourceClaim."""

    devices: DevicesWire = DevicesWire()


class ResultWire(Struct, frozen=True):
    """A device that a claim has."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: list[DeviceTolerationWire] | None = None
    share_id: str | None = field(default=None, name="shareID")
    consumed_capacity: dict[str, Quantity] | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None


class ResultsWire(Struct, frozen=True):
    """The devices of a claim."""

    results: list[ResultWire] | None = None
    config: list[dict[str, Any]] | None = None


class AllocationWire(Struct, frozen=True):
    """The allocation of a claim."""

    devices: ResultsWire = ResultsWire()
    node_selector: NodeTerms | None = None


class ConsumerWire(Struct, frozen=True):
    """An object for which a claim is reserved."""

    api_group: str | None = None
    resource: str = ""
    name: str = ""
    uid: str = ""


class DeviceConditionWire(Struct, frozen=True):
    """A condition of an allocated device."""

    type: str = ""
    status: str = ""


class DeviceStatusWire(Struct, frozen=True):
    """What its driver says of an allocated device."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    conditions: list[DeviceConditionWire] | None = None


class ClaimStatusWire(Struct, frozen=True):
    """The status of a ResourceClaim."""

    allocation: AllocationWire | None = None
    reserved_for: list[ConsumerWire] | None = None
    devices: list[DeviceStatusWire] | None = None


class ClaimMetadata(Struct, frozen=True):
    """The metadata of a ResourceClaim."""

    name: str = ""
    namespace: str | None = None
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    deletion_timestamp: str | None = None
    finalizers: list[str] | None = None


class ResourceClaimWire(Struct, frozen=True):
    """A ResourceClaim."""

    metadata: ClaimMetadata = ClaimMetadata()
    spec: ResourceClaimSpecWire = ResourceClaimSpecWire()
    status: ClaimStatusWire = ClaimStatusWire()


class ClaimTemplateSpecWire(Struct, frozen=True):
    """The spec of a ResourceClaimTemplate: that of the claims made from it."""

    spec: ResourceClaimSpecWire = ResourceClaimSpecWire()


class ClaimTemplateWire(Struct, frozen=True):
    """A ResourceClaimTemplate."""

    metadata: ClaimMetadata = ClaimMetadata()
    spec: ClaimTemplateSpecWire = ClaimTemplateSpecWire()


class TaintSelectorWire(Struct, frozen=True):
    """The devices that a rule taints: all criteria must hold."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class TaintRuleSpecWire(Struct, frozen=True):
    """The spec of a DeviceTaintRule."""

    device_selector: TaintSelectorWire | None = None
    taint: DeviceTaintWire = DeviceTaintWire()


class TaintRuleWire(Struct, frozen=True):
    """A DeviceTaintRule."""

    metadata: Metadata = Metadata()
    spec: TaintRuleSpecWire = TaintRuleSpecWire()


CLAIMS = Kind(GROUP, VERSION, "ResourceClaim", "resourceclaims", wire=ResourceClaimWire, optional=True)
TEMPLATES = Kind(
    GROUP, VERSION, "ResourceClaimTemplate", "resourceclaimtemplates", wire=ClaimTemplateWire, optional=True
)
CLASSES = Kind(
    GROUP, VERSION, "DeviceClass", "deviceclasses", namespaced=False, wire=DeviceClassWire, optional=True
)
SLICES = Kind(
    GROUP, VERSION, "ResourceSlice", "resourceslices", namespaced=False, wire=ResourceSliceWire, optional=True
)
TAINT_RULES = tuple(
    Kind(
        GROUP, version, "DeviceTaintRule", "devicetaintrules", namespaced=False, wire=TaintRuleWire,
        optional=True,
    )
    for version in ("v1", "v1beta2", "v1alpha3")
)  # fmt: skip
