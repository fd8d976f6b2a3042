"""Binding holds the devices of admitted gangs until the claims of their pods have them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bayplan.model.assignment import Assignment, DomainAssignment
from bayplan.model.change import DeviceObjectSeen, NodeSeen, PodLost, PodSeen, QueuedGangLost, QueuedGangSeen
from bayplan.model.devices.claims import DeviceClaim, DeviceClaimKey, PodDevices
from bayplan.model.devices.inventory import DeviceClass
from bayplan.model.node import HOSTNAME, Node
from bayplan.model.pod import Pod, PodKey, Slot
from bayplan.model.pod_spec import PodSignature, PodSpec
from bayplan.model.queued_gang import Admission, PodSetAdmission, QueuedGang
from bayplan.state.scheduling.store import SchedulingStore
from tests.support.bindable_gangs import queued, workers
from tests.support.devices import claim_for, device, exactly, slice_on

HOST = "h1"
OWN = DeviceClaim(DeviceClaimKey("team", "own"), requests=(exactly("gpus", 2),))
SHARED = DeviceClaim(DeviceClaimKey("team", "shared"), requests=(exactly("gpus", 1),))
NEEDS = PodDevices((OWN,))
ONE = PodDevices((claim_for(exactly("r", 1)),))


def store() -> SchedulingStore:
    found = SchedulingStore()
    node = Node(HOST, {HOSTNAME: HOST}, {"cpu": 64_000, "pods": 110})
    part = slice_on(HOST, *(device(f"d{number}") for number in range(5)))
    for change in (NodeSeen(node), DeviceObjectSeen(DeviceClass("gpu")), DeviceObjectSeen(part)):
        found.apply(change)
    return found


def admitted(pods: int, devices: PodDevices = NEEDS) -> QueuedGang:
    gang = queued("a", workers(pods, PodSignature(devices=devices)))
    place = Assignment((HOSTNAME,), (DomainAssignment((HOST,), pods),))
    part = PodSetAdmission("main", pods, {"cpu": "f"}, {"cpu": 1000 * pods}, place)
    return replace(gang, admission=Admission("q", (part,)))


def room(of: SchedulingStore, devices: PodDevices = ONE, host: str = HOST) -> int:
    """How many pods the free devices of a host suffice for."""
    node_index = of.nodes.flat.view()[1].node_index
    supply = of.device_supply(node_index) or of.devices.supply(always=True)
    assert supply is not None
    return int(supply.counts(node_index, devices, 9)[node_index.row(host)])


def pod_of(gang: QueuedGang, devices: PodDevices | None) -> Pod:
    slot = Slot(gang.gang.source, "main", HOST)
    spec = PodSpec(PodSignature(devices=devices))
    return Pod(PodKey("team", "a-0"), "uid", {"cpu": 1000, "pods": 1}, "", spec=spec, ours=True, slot=slot)


def test_open_slots_hold_the_devices_of_their_pods() -> None:
    found = store()
    assert room(found) == 5
    found.apply(QueuedGangSeen(admitted(2)))
    assert room(found) == 1
    found.apply(QueuedGangLost(admitted(2).gang.source))
    assert room(found) == 5


def test_a_pod_that_has_no_claims_yet_leaves_the_devices_of_its_slot_held() -> None:
    found, gang = store(), admitted(2)
    found.apply(QueuedGangSeen(gang))
    found.apply(PodSeen(pod_of(gang, None)))
    assert room(found) == 1
    found.apply(PodSeen(pod_of(gang, NEEDS)))
    assert room(found) == 3, "the pod claims its devices itself"
    found.apply(PodLost(PodKey("team", "a-0")))
    assert room(found) == 1


def test_a_claim_that_pods_share_is_held_once() -> None:
    found = store()
    found.apply(QueuedGangSeen(admitted(2, PodDevices((SHARED,), (SHARED.key,)))))
    assert room(found) == 4


def test_slots_of_a_rack_hold_devices_on_the_hosts_that_have_them() -> None:
    found = store()
    bare, rack = "h0", {"rack": "r1"}
    for name in (bare, HOST):
        found.apply(NodeSeen(Node(name, {HOSTNAME: name, **rack}, {"cpu": 64_000, "pods": 110})))
    gang = admitted(2)
    assert gang.admission is not None
    place = Assignment(("rack",), (DomainAssignment(("r1",), 2),))
    parts = (replace(gang.admission.pod_sets[0], assignment=place),)
    found.apply(QueuedGangSeen(replace(gang, admission=Admission("q", parts))))
    found.claims.settle(None, found.device_room)
    assert room(found, host=HOST) == 1
    assert {node for node, _ in found.claims.devices()} == {HOST}


def test_a_trial_sees_what_is_promised_and_takes_only_the_rest() -> None:
    found = store()
    found.apply(QueuedGangSeen(admitted(2)))
    node_index = found.nodes.flat.view()[1].node_index
    supply = found.device_supply(node_index)
    assert supply is not None
    trial = supply.trial()
    keys = [PodKey("ns", "p0"), PodKey("ns", "p1")]
    nodes = node_index.table.nodes
    trial.step(ONE, keys[:1], np.array([0]), nodes, added=True)
    assert not trial.is_missing(keys)
    assert int(trial.counts(node_index, ONE, 9)[0]) == 0
    trial.step(ONE, keys[1:], np.array([0]), nodes, added=True)
    assert trial.is_missing(keys)
    trial.undo()
    trial.undo()
    assert int(trial.counts(node_index, ONE, 9)[0]) == 1
    assert found.device_supply(node_index) is supply, "nothing changed"
