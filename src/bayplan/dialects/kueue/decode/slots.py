"""Admitted Workloads as the scheduler sees them: slots on hosts or in domains, and pods that take them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from bayplan.dialects.api import Event, Happened
from bayplan.dialects.dialect import Reader, SlotReader
from bayplan.dialects.kube.decode.wire import PodWire
from bayplan.dialects.kube.devices.objects import DeviceObjects
from bayplan.dialects.kube.devices.wire import TEMPLATES
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.decode.workload_devices import WorkloadDevices
from bayplan.dialects.kueue.decode.workloads import decode_workload, has_quota, is_finished
from bayplan.dialects.kueue.fields.counting import Counting, UncountedDevices
from bayplan.dialects.kueue.fields.pod_sets import source
from bayplan.dialects.kueue.fields.topology_and_flavor import flavor
from bayplan.dialects.kueue.fields.workload import KIND
from bayplan.dialects.kueue.names import api_kinds
from bayplan.dialects.kueue.names.annotations import POD_SET, SLICE_NAME, WORKLOAD_NAME
from bayplan.model.change import Change, FlavorLost, FlavorSeen, QueuedGangLost, QueuedGangSeen
from bayplan.model.gang import Ref
from bayplan.model.node import HOSTNAME
from bayplan.model.pod import Slot
from bayplan.model.whole_numbers import whole_number

WORKLOADS = replace(api_kinds.WORKLOADS, optional=True)
FLAVORS = replace(api_kinds.FLAVORS, optional=True)
ANY_DEVICES = Counting(uncounted_devices=UncountedDevices.ADMIT)
"""A Workload that was admitted holds its devices, whatever quota counted."""


class WorkloadSlots(SlotReader):
    """The functions of this module, for the scheduler; slots have the devices that their pods claim."""

    kinds = (WORKLOADS,)
    templates = TEMPLATES

    def __init__(self, objects: DeviceObjects | None = None) -> None:
        self.devices = WorkloadDevices(ANY_DEVICES, objects)

    def decode(self, event: Event) -> Iterator[Change]:
        for change in decode(event):
            match change:
                case QueuedGangSeen(queued_gang):
                    yield QueuedGangSeen(self.devices.seen(queued_gang, event.object))
                case QueuedGangLost(ref):
                    self.devices.forget(ref)
                    yield change

    def note(self, event: Event) -> None:
        self.devices.note(event)

    def flush(self) -> Iterator[Change]:
        return self.devices.flush()

    def ref_of(self, obj: dict[str, Any]) -> Ref:
        return ref_of(obj)

    def version_of(self, obj: dict[str, Any]) -> int:
        return version_of(obj)


class FlavorReader(Reader):
    """Flavors: on which nodes of a domain pods in its slots will be."""

    kinds = (FLAVORS,)

    def decode(self, event: Event) -> Iterator[Change]:
        if event.happened is Happened.SYNCED:
            return
        obj = Field(event.object)
        if event.happened is Happened.GONE:
            yield FlavorLost(obj.at("metadata", "name").text())
            return
        decoded = flavor(obj)
        if not obj.errors:
            yield FlavorSeen(decoded)


def decode(event: Event) -> Iterator[Change]:
    """The slots of a Workload; none if it has no quota."""
    if event.happened is Happened.SYNCED:
        return
    workload = Field(event.object)
    if event.happened is Happened.GONE or is_finished(workload) or not has_quota(workload):
        yield QueuedGangLost(source(workload, KIND))
        return
    queued_gang = decode_workload(workload)
    if not workload.errors:
        yield QueuedGangSeen(queued_gang)


def ref_of(workload: dict[str, Any]) -> Ref:
    """The gang of a Workload."""
    meta = workload["metadata"]
    return Ref("kueue", KIND, meta.get("namespace", "default"), meta["name"])


def version_of(workload: dict[str, Any]) -> int:
    """Its resourceVersion as a number."""
    return whole_number(str(workload["metadata"].get("resourceVersion", ""))) or 0


def slot_of(wire: PodWire) -> Slot | None:
    """The slot of an ungated pod of an admitted Workload: its node selector names the host.

    Without a host it may be a slot in a domain, which depends on the levels of the Workload's assignment.
    """
    annotations = wire.metadata.annotations or {}
    name = annotations.get(SLICE_NAME) or annotations.get(WORKLOAD_NAME)
    selector = wire.spec.node_selector or {}
    if not name or not selector:
        return None
    gang = Ref("kueue", KIND, wire.metadata.namespace or "default", name)
    return Slot(gang, (wire.metadata.labels or {}).get(POD_SET, ""), selector.get(HOSTNAME, ""))
