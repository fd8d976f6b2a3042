"""Admission counts devices by node and rack, and promises none twice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random

import pytest

from bayplan.model.change import Change, DeviceObjectLost, DeviceObjectSeen, DevicesAssumed, PodLost, PodSeen
from bayplan.model.devices.claims import (
    AllocatedDevice,
    ClaimConsumer,
    DeviceAllocation,
    DeviceClaim,
    DeviceClaimKey,
    PodDevices,
)
from bayplan.model.devices.inventory import DeviceClass, DeviceKey, DeviceSlice, NodeReach, PoolKey
from bayplan.model.node import Node
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import PodSignature
from bayplan.model.quota import Preemption, VictimPolicy
from bayplan.model.rejection import RejectionReason
from tests.support.bindable_gangs import (
    NAMESPACE,
    RACK,
    ZONE,
    AdmissionStage,
    by_host,
    by_label,
    hosts,
    in_rack,
    queued,
    workers,
)
from tests.support.devices import DRIVER, device, exactly, slice_on

FOUR = hosts("z1-r1-1 z1-r1-2 z1-r2-1 z1-r2-2")


def claiming(count: int, *more: DeviceClaim) -> PodSignature:
    """A template whose pods claim devices, each for itself."""
    own = DeviceClaim(DeviceClaimKey(NAMESPACE, "own"), requests=(exactly("gpus", count),))
    return PodSignature(devices=PodDevices((own, *more), tuple(one.key for one in more)))


def devices_on(counts: Iterable[tuple[Node, int]]) -> list[Change]:
    parts = [slice_on(node.name, *(device(f"d{n}") for n in range(count))) for node, count in counts if count]
    return [DeviceObjectSeen(DeviceClass("gpu")), *map(DeviceObjectSeen, parts)]


def held(name: str, node: str, *numbers: int, pod: str = "") -> DeviceClaim:
    """A claim that has devices of a node, for a pod."""
    given = tuple(AllocatedDevice("gpus", DeviceKey(DRIVER, node, f"d{number}")) for number in numbers)
    users = (ClaimConsumer(f"uid-{pod}", pod),) if pod else ()
    key = DeviceClaimKey(NAMESPACE, name)
    return DeviceClaim(
        key, "uid", (exactly("gpus", len(numbers)),), allocation=DeviceAllocation(given), reserved_for=users
    )


def test_a_gang_goes_to_the_only_rack_whose_devices_suffice() -> None:
    racks = [hosts(f"z1-r{rack}-1 z1-r{rack}-2") for rack in range(10, 30)]
    nodes = [node for rack in racks for node in rack]
    counts = [(node, 8 if node in racks[-1] else 4) for node in nodes]
    stage = AdmissionStage(nodes, *devices_on(counts))
    place = stage.admit(queued("a", in_rack(4, claiming(4))))["main"]
    assert by_host(place) == {"z1-r29-1": 2, "z1-r29-2": 2}


def test_devices_that_claims_hold_are_not_free() -> None:
    stage = AdmissionStage(FOUR, *devices_on((node, 4) for node in FOUR))
    stage.see(DeviceObjectSeen(held("other", "z1-r1-1", 3, pod="other")))
    place = stage.admit(queued("a", in_rack(2, claiming(4))))["main"]
    assert by_label(place, FOUR, RACK) == {"z1-r2": 2}


def test_devices_promised_to_a_gang_without_pods_are_not_given_to_the_next() -> None:
    stage = AdmissionStage(FOUR, *devices_on((node, 4) for node in FOUR))
    first = stage.admit(queued("a", in_rack(2, claiming(3))))["main"]
    second = stage.admit(queued("b", in_rack(2, claiming(3))))["main"]
    assert not by_host(first).keys() & by_host(second).keys()
    action = stage.rejection(queued("c", in_rack(1, claiming(3))))
    assert action.rejection.reason is RejectionReason.NO_QUOTA_NOW, "it fits once others have left"


def test_two_gangs_of_one_cycle_do_not_get_the_same_devices() -> None:
    stage = AdmissionStage(FOUR[:1], *devices_on([(FOUR[0], 4)]))
    stage.admit(queued("a", workers(1, claiming(3))), queued("b", workers(1, claiming(3))))
    assert len(stage.admitted) == 1


def test_a_pod_whose_claim_has_no_devices_yet_keeps_those_that_it_was_promised() -> None:
    stage = AdmissionStage(FOUR[:1], *devices_on([(FOUR[0], 4)]))
    gang = queued("a", workers(1, claiming(2)))
    stage.admit(gang)
    ref = gang.gang.source
    pod = Pod(
        PodKey(NAMESPACE, "a-0"), "uid-a-0", {"cpu": 1000, "pods": 1}, FOUR[0].name, gang=ref, pod_set="main",
        unbound=True,
    )  # fmt: skip
    stage.see(PodSeen(pod))
    stage.rejection(queued("b", workers(1, claiming(3))))
    stage.see(DeviceObjectSeen(held("a-0-own", FOUR[0].name, 0, 1, pod="a-0")))
    stage.see(PodSeen(replace(pod, unbound=False)))
    assert stage.admit(queued("c", workers(1, claiming(2)))), "they are not counted twice"


def test_devices_of_a_pod_that_is_being_bound_are_taken_at_once_and_given_back_if_it_is_not() -> None:
    stage = AdmissionStage(FOUR[:1], *devices_on([(FOUR[0], 4)]))
    claim = replace(held("own", FOUR[0].name, 0, 1), allocation=None)
    allocation = held("own", FOUR[0].name, 0, 1).allocation
    assert allocation is not None
    pod = Pod(PodKey(NAMESPACE, "plain"), "uid", {"cpu": 1, "pods": 1}, FOUR[0].name, unbound=True)
    stage.see(DeviceObjectSeen(claim), PodSeen(pod), DevicesAssumed(pod.key, ((claim.key, allocation),)))
    gang = queued("a", workers(1, claiming(3)))
    stage.rejection(gang)
    stage.see(PodLost(pod.key))
    assert by_host(stage.admit(gang)["main"]) == {FOUR[0].name: 1}


def test_a_gang_that_waits_for_devices_is_tried_when_a_slice_or_a_claim_changes() -> None:
    stage = AdmissionStage(FOUR[:1], *devices_on([(FOUR[0], 0)]))
    gang = queued("a", workers(1, claiming(2)))
    assert stage.rejection(gang).rejection.reason is RejectionReason.NO_PLACE
    assert stage.decide().actions == ()
    taken = held("other", FOUR[0].name, 0)
    stage.see(DeviceObjectSeen(taken), *devices_on([(FOUR[0], 2)]))
    assert len(stage.decide().actions) == 1
    assert stage.decide().actions == ()
    stage.see(DeviceObjectLost(taken))
    assert by_host(stage.admit(gang)["main"]) == {FOUR[0].name: 1}


def test_devices_are_promised_on_the_nodes_of_a_rack_if_the_topology_ends_there() -> None:
    nodes = FOUR[:2]
    stage = AdmissionStage(nodes, *devices_on((node, 4) for node in nodes), levels=(ZONE, RACK))
    assert stage.admit(queued("a", in_rack(2, claiming(3))))
    stage.rejection(queued("b", in_rack(1, claiming(2))))
    assert stage.admit(queued("c", in_rack(2, claiming(1))))


def test_devices_that_all_nodes_share_are_counted_once() -> None:
    network = DeviceSlice(
        "net", PoolKey(DRIVER, "net"), reach=NodeReach(everywhere=True),
        devices=tuple(device(f"d{number}") for number in range(3)),
    )  # fmt: skip
    stage = AdmissionStage(FOUR, DeviceObjectSeen(DeviceClass("gpu")), DeviceObjectSeen(network))
    stage.rejection(queued("four", workers(4, claiming(1))))
    place = stage.admit(queued("three", workers(3, claiming(1))))["main"]
    assert sum(by_host(place).values()) == 3


def test_victims_give_their_devices_back() -> None:
    nodes = FOUR[:2]
    stage = AdmissionStage(
        nodes, *devices_on((node, 4) for node in nodes), preempts=Preemption(within=VictimPolicy.LOWER)
    )
    for name in ("a", "b"):
        stage.admit(queued(name, workers(1, claiming(4))))
    stage.see(DeviceObjectSeen(held("a-claim", nodes[0].name, 0, 1, 2, 3, pod="a-0")))
    victims = stage.evicted(queued("high", workers(1, claiming(4)), priority=10))
    assert len(victims) == 1


@pytest.mark.parametrize("seed", range(60))
def test_a_gang_is_admitted_exactly_if_one_rack_has_devices_for_all_its_pods(seed: int) -> None:
    random = Random(seed)
    nodes = hosts(" ".join(f"z1-r{rack}-{number}" for rack in (1, 2, 3) for number in (1, 2, 3)))
    counts = {node.name: random.randint(0, 8) for node in nodes}
    stage = AdmissionStage(nodes, *devices_on((node, counts[node.name]) for node in nodes))
    free = dict(counts)
    for node in nodes:
        used = random.randint(0, counts[node.name])
        if used and random.random() < 0.5:
            stage.see(DeviceObjectSeen(held(f"by-{node.name}", node.name, *range(used))))
            free[node.name] -= used
    for number in range(4):
        pods, each = random.randint(1, 6), random.randint(1, 4)
        room: dict[str, int] = {}
        for node in nodes:
            room[node.labels[RACK]] = room.get(node.labels[RACK], 0) + free[node.name] // each
        before = len(stage.admitted)
        found = stage.admit(queued(f"g{number}", in_rack(pods, claiming(each), cpu=1)))
        assert (len(stage.admitted) > before) == (max(room.values()) >= pods)
        for host, count in by_host(found["main"]).items() if found else ():
            free[host] -= count * each
            assert free[host] >= 0, "a device is promised twice"
