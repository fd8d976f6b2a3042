"""Devices for the gangs of `bayplan place`: which are free, which nodes serve the claims, which are taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bayplan.cli.config.device_inputs import DeviceInputs
from bayplan.cli.inputs.class_devices import devices_by_class
from bayplan.cli.render.topology_tree import ClassColumn
from bayplan.dialects.kueue.decode.workload_devices import with_templates
from bayplan.explanation.devices import device_lines
from bayplan.model.assignment import Placement
from bayplan.model.devices.claims import DeviceAllocation, DeviceClaim, DeviceClaimKey, PodDevices
from bayplan.model.devices.inventory import DeviceClass, DeviceSlice
from bayplan.model.gang import Gang, Group, PodSet
from bayplan.model.node import Node
from bayplan.model.pod import PodKey
from bayplan.placement.cluster.node_index import NodeSnapshot, node_index_of
from bayplan.placement.cluster.node_table import table_of
from bayplan.placement.cluster.pod_index import PodIndex
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.cluster.topology_tree import objects
from bayplan.placement.filters.pipeline import FilterInput
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.bindable import BindingTrial, place_bindable, pods_by_node
from bayplan.state.cluster.device_state import DeviceState

Find = Callable[[CapacitySnapshot, Gang], Placement]


@dataclass(frozen=True, slots=True)
class TakenDevices:
    """Devices of one node that pods of a pod set get by one request of a claim."""

    pod_set: str
    node: str
    claim: str
    request: str
    device_class: str
    devices: tuple[str, ...]  # pool and name


class PlacementDevices:
    """The devices in the input. Gangs that were placed hold theirs as claims do."""

    def __init__(self, inputs: DeviceInputs, nodes: Sequence[Node]) -> None:
        self.inputs = inputs
        self.state = DeviceState(inputs.objects.selectors.select)
        known = inputs.objects
        found: list[DeviceClaim | DeviceClass | DeviceSlice] = [*known.classes.values()]
        for item in (*found, *known.slices.values(), *known.claims.values()):
            self.state.seen(item)
        self.pods = PodIndex()
        self.nodes = node_index_of(table_of(objects(list(nodes))), self.pods.slots)
        self.made = 0  # claims for pods of gangs that were placed

    def with_claims(self, gang: Gang) -> Gang:
        """The gang with the devices of its pod sets; only these decide on nodes, beside amounts and rules."""
        devices = self.inputs.devices(gang.source)
        return replace(gang, root=with_templates(_without_templates(gang.root), devices)) if devices else gang

    def place(self, snapshot: CapacitySnapshot, gang: Gang, find: Find) -> Placement:
        """Run `find` so that the devices of the nodes suffice."""
        with self._overlay() as overlay:
            return place_bindable(snapshot, gang, BindingTrial(overlay, gang.source.namespace), find)

    def take(self, snapshot: CapacitySnapshot, gang: Gang, placement: Placement) -> tuple[TakenDevices, ...]:
        """The devices of a gang that was placed; no other gang gets them."""
        given: list[tuple[str, str, DeviceClaim, DeviceAllocation]] = []
        shared: set[DeviceClaimKey] = set()
        with self._overlay() as overlay:
            trial = BindingTrial(overlay, gang.source.namespace)
            assert overlay.devices is not None
            for pod_set, devices in _claiming(gang):
                room, place = trial.room(snapshot, pod_set), placement.assignments[pod_set.name]
                pods = pods_by_node(self.nodes, snapshot, place, None, room)
                for number, row in enumerate(np.repeat(np.arange(len(pods)), pods).tolist()):
                    key = PodKey("", f"{pod_set.name}/{number}")
                    overlay.add_pods(trial.signature_of(pod_set), [key], [row])
                    for at, allocation in overlay.devices.allocations(key, devices):
                        claim = devices.claims[at]
                        if claim.key not in shared:
                            given.append((pod_set.name, overlay.node(row), claim, allocation))
                        shared |= {claim.key} & {*devices.shared}
        return _joined(self._noted(given, shared))

    def shortages(self, gang: Gang, pod_sets: Iterable[str]) -> Iterator[str]:
        """How many pods of some pod sets find devices, and why the other nodes have none for one pod."""
        supply = self.state.supply(always=True)
        assert supply is not None
        for pod_set, devices in _claiming(gang):
            for line in device_lines(supply, self.nodes, devices) if pod_set.name in pod_sets else ():
                yield line.strip()

    def columns(self, supply: CapacitySnapshot, gang: Gang) -> tuple[ClassColumn, ...]:
        """For the drawing: by class that the gang asks for, the devices of each row."""
        asked = {
            ask.device_class
            for _, devices in _claiming(gang)
            for claim in devices.claims
            for request in claim.requests
            for ask in request.asks
        }
        names = [node.name for node in supply.tree.nodes.tolist()]
        return tuple(
            ClassColumn(
                one.name,
                tuple(one.free.get(name, 0) for name in names),
                tuple(one.total.get(name, 0) for name in names),
                (0,) * len(names),
            )
            for one in devices_by_class(self.inputs.objects, self.state.claims.values())
            if one.name in asked
        )

    def _overlay(self) -> NodeOverlay:
        nothing = np.zeros((0, len(self.nodes)), dtype=np.int64)
        snapshot = NodeSnapshot(self.nodes, {}, nothing, nothing)
        return NodeOverlay(FilterInput(snapshot, self.pods, devices=self.state.supply(always=True)))

    def _noted(
        self, given: Iterable[tuple[str, str, DeviceClaim, DeviceAllocation]], shared: set[DeviceClaimKey]
    ) -> Iterator[TakenDevices]:
        """Keep the devices of pods as claims that have them."""
        for pod_set, node, claim, allocation in given:
            key = claim.key
            if key not in shared:
                self.made += 1
                key = DeviceClaimKey("", f"placed/{self.made}")
            held = replace(claim, key=key, allocation=allocation)
            self.inputs.objects.claims[key] = held
            self.state.seen(held)
            for request, names in _by_request(allocation).items():
                yield TakenDevices(pod_set, node, claim.key.name, request, _class_of(claim, request), names)


def with_takes(
    columns: Iterable[ClassColumn], supply: CapacitySnapshot, taken: Iterable[TakenDevices]
) -> tuple[ClassColumn, ...]:
    """The columns with the devices that a gang takes."""
    used: Counter[tuple[str, str]] = Counter()
    for one in taken:
        used[one.device_class, one.node] += len(one.devices)
    names = [node.name for node in supply.tree.nodes.tolist()]
    return tuple(replace(one, takes=tuple(used[one.name, name] for name in names)) for one in columns)


def _claiming(gang: Gang) -> Iterator[tuple[PodSet, PodDevices]]:
    for pod_set in gang.root.pod_sets():
        if pod_set.template is not None and pod_set.template.devices is not None:
            yield pod_set, pod_set.template.devices


def _without_templates(group: Group) -> Group:
    members = tuple(
        _without_templates(one) if isinstance(one, Group) else replace(one, template=None)
        for one in group.members
    )
    return replace(group, members=members)


def _by_request(allocation: DeviceAllocation) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for one in allocation.devices:
        found[one.request] = (*found.get(one.request, ()), f"{one.key.pool}/{one.key.name}")
    return found


def _class_of(claim: DeviceClaim, result: str) -> str:
    asks = (
        (request.result_name(ask), ask.device_class) for request in claim.requests for ask in request.asks
    )
    return dict(asks).get(result, "")


def _joined(taken: Iterable[TakenDevices]) -> tuple[TakenDevices, ...]:
    """One entry for all pods of a pod set on a node."""
    found: dict[TakenDevices, tuple[str, ...]] = {}
    for one in taken:
        key = replace(one, devices=())
        found[key] = found.get(key, ()) + one.devices
    return tuple(replace(one, devices=devices) for one, devices in found.items())
