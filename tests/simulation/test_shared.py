"""The play of shared nodes in one process and in two: seeds, equal bytes, and mutations that are caught."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, partial
from itertools import count
from random import Random
from typing import Any

import pytest

from bayplan.backends.embedded.api.options import Deletion
from bayplan.backends.embedded.cluster import new_store
from bayplan.backends.embedded.storage.store import Store
from bayplan.backends.fake_controllers.manifests import BLOCK, GPU, RACK, Object, node
from bayplan.dialects.kueue.names.annotations import POD_SET, WORKLOAD_NAME
from bayplan.placement.pods.host_rooms import HostRooms
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.simulator.core.faults import NONE
from bayplan.simulator.core.fixtures import PLAIN_NODES, PLAIN_PODS
from bayplan.simulator.core.report import SeedReport
from bayplan.simulator.shared.checkers import TAKEN_SECONDS, ClaimChecker
from bayplan.simulator.shared.run import SharedSimulation
from bayplan.simulator.shared.world import SlotLevel
from bayplan.simulator.shared.zones import ZoneActors
from bayplan.state.admission.domain_usage import DomainUsage
from bayplan.state.admission.numa_usage import NumaUsage
from bayplan.state.admission.taken_nodes import TakenNodes
from bayplan.state.scheduling.claims import SlotClaims
from bayplan.state.scheduling.domain_claims import DomainClaims
from tests.simulation.trying import assert_all_happen, check_same_bytes, check_sound, violations

SEEDS = (1, 14, 420002, 520021)  # `make sim` runs a thousand
FOUND = {  # seeds of worlds that are not dense, in two processes, and what they found
    83: "a process that is paused when the faults end was compared before it had read its events",
    126: "a backfill reservation kept a pod from the slot of its admitted gang",
    160: "a job that starts finished pods again was neither started nor evicted",
    285: "pods were bound to what a preempted gang had left",
}
FOUND_IN_ONE = {  # worlds as the seed draws them, in one process
    29: "slots of a rack were held on a host that pending pods in slots of that host needed",
    139: "a Workload that was deleted right after its admission kept its hosts for ever",
    186: "slots of a rack were checked although a node was lost under them",
    235: "a pod group that had a finished pod was evicted again and again as not ready",
}
MORE_SEEDS = (0, *range(2, 14), *range(15, 40), 300025)
PROCESSES = {"shared": 1, "split": 2}
ON_HOSTS: dict[str, Any] = {"with_zones": False, "slots": SlotLevel.HOSTS}
IN_RACKS: dict[str, Any] = {
    "with_zones": False,
    "slots": SlotLevel.RACKS,
    "is_dense": True,
    "with_pod_groups": False,
}

IN_BOTH: dict[str, Any] = {"with_zones": False, "slots": SlotLevel.BOTH, "is_dense": True}


@cache
def report_of(play: str, seed: int) -> SeedReport:
    return SharedSimulation(seed, processes=PROCESSES[play]).run()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("play", PROCESSES)
def test_seed(play: str, seed: int) -> None:
    check_sound(report_of(play, seed))


@pytest.mark.long
@pytest.mark.parametrize("seed", MORE_SEEDS)
@pytest.mark.parametrize("play", PROCESSES)
def test_another_seed(play: str, seed: int) -> None:
    check_sound(report_of(play, seed))


def test_no_zone_is_promised_or_used_twice() -> None:
    check_sound(SharedSimulation(1, with_zones=True).run())


@pytest.mark.parametrize("processes", PROCESSES.values())
def test_slots_on_hosts_and_in_racks_of_the_same_nodes_are_never_promised_twice(processes: int) -> None:
    check_sound(SharedSimulation(7, processes=processes, **IN_BOTH).run())


@pytest.mark.parametrize("seed", FOUND, ids=FOUND.get)
def test_a_seed_that_found_a_mistake(seed: int) -> None:
    simulation = SharedSimulation(seed, processes=2, is_dense=False, with_pod_groups=False, **ON_HOSTS)
    check_sound(simulation.run())


@pytest.mark.parametrize("seed", FOUND_IN_ONE, ids=FOUND_IN_ONE.get)
def test_a_seed_that_found_a_mistake_in_one_process(seed: int) -> None:
    check_sound(SharedSimulation(seed).run())


def test_faults_and_actions_of_many_kinds_happen() -> None:
    kinds = {
        "conflict", "crash", "delay_events", "delay_outcome", "duplicate", "relist", "timeout_done",
        "timeout_lost", "pause", "not_ready", "node_lost", "tainted", "cordoned", "pod_deleted",
    }  # fmt: skip
    assert_all_happen(kinds, (report_of(play, seed) for seed in (*SEEDS, *MORE_SEEDS) for play in PROCESSES))


@pytest.mark.long
@pytest.mark.parametrize("play", PROCESSES)
def test_a_seed_gives_the_same_bytes_whatever_the_hash_seed(play: str) -> None:
    check_same_bytes(play, 5)


# ── the checker of claims ──────────────────────────────────────────────────────────────────────────


def small_host(name: str) -> Object:
    return node(name, "b", "r", 4)


def bound_pod(name: str, on: str, of: str = "") -> Object:
    """A pod for a whole host, bound if it has a node."""
    meta: Object = {"name": name, "namespace": "default", "uid": name}
    if of:
        meta |= {"annotations": {WORKLOAD_NAME: of}, "labels": {POD_SET: "main"}}
    return {"metadata": meta, "spec": {"nodeName": on, **template()}, "status": {"phase": "Running"}}


def template() -> Object:
    resources = {"requests": {GPU: "4"}, "limits": {GPU: "4"}}
    return {"containers": [{"name": "main", "image": "i", "resources": resources}]}


def admitted_on(*hosts: str, evicted: bool = False, reclaimable: int = 0) -> Object:
    """A Workload that is admitted with a pod on each of these hosts."""
    slices = [
        {"domainCount": 1, "valuesPerLevel": [{"universal": h}], "podCounts": {"universal": 1}} for h in hosts
    ]
    assignment = {"levels": ["kubernetes.io/hostname"], "slices": slices}
    part = {"name": "main", "count": len(hosts), "topologyAssignment": assignment}
    conditions = [{"type": "Admitted", "status": "True"}]
    conditions += [{"type": "Evicted", "status": "True"}] if evicted else []
    return {
        "metadata": {"name": "gang"},
        "spec": {"podSets": [{"name": "main", "count": len(hosts), "template": {"spec": template()}}]},
        "status": {
            "admission": {"clusterQueue": "q", "podSetAssignments": [part]},
            "conditions": conditions,
            "reclaimablePods": [{"name": "main", "count": reclaimable}],
        },
    }


def found(checker: ClaimChecker, workloads: list[Object], pods: list[Object], now: float = 0.0) -> list[str]:
    objects = {"nodes": [small_host("x1"), small_host("x2")], "workloads": workloads, "pods": pods}
    return list(checker.check(objects.__getitem__, now, 0.0))


def test_a_pod_on_a_host_that_is_promised_is_caught() -> None:
    assert "node x1 has 8 nvidia.com/gpu used and promised of 4" in "".join(
        found(ClaimChecker(1), [admitted_on("x1", "x2")], [bound_pod("plain", "x1")])
    )


def test_a_pod_in_its_own_slot_counts_once() -> None:
    assert found(ClaimChecker(1), [admitted_on("x1", "x2")], [bound_pod("one", "x1", of="gang")]) == []


def test_an_evicted_gang_is_promised_nothing() -> None:
    assert found(ClaimChecker(1), [admitted_on("x1", evicted=True)], [bound_pod("plain", "x1")]) == []


def test_a_slot_that_is_needed_no_longer_is_not_promised() -> None:
    pods = [bound_pod("plain", "x1"), bound_pod("one", "x2", of="gang")]
    assert found(ClaimChecker(1), [admitted_on("x1", "x2", reclaimable=1)], pods) == []


def test_two_processes_may_cross_for_a_limited_time() -> None:
    checker, state = ClaimChecker(2), ([admitted_on("x1", "x2")], [bound_pod("plain", "x1")])
    assert found(checker, *state, now=1.0) == []
    assert found(checker, *state, now=TAKEN_SECONDS) == []
    assert "for 31 s" in "".join(found(checker, *state, now=1.0 + TAKEN_SECONDS + 1.0))


def test_a_gang_that_starts_although_a_slot_is_taken_is_caught() -> None:
    checker = ClaimChecker(2)
    assert found(checker, [admitted_on("x1", "x2")], [bound_pod("plain", "x1")]) == []
    pods = [bound_pod("plain", "x1"), bound_pod("one", "x2", of="gang")]
    assert found(checker, [admitted_on("x1", "x2")], pods) == [
        "gang gang starts in part: its slots on x1 are taken"
    ]


# ── slots in racks ─────────────────────────────────────────────────────────────────────────────────


def admitted_to_rack(pods: int) -> Object:
    """A Workload that is admitted to the rack of both hosts."""
    workload = admitted_on(*(["x1"] * pods))
    values = [{"universal": "b"}, {"universal": "r"}]
    slices = [{"domainCount": 1, "valuesPerLevel": values, "podCounts": {"universal": pods}}]
    (part,) = workload["status"]["admission"]["podSetAssignments"]
    part["topologyAssignment"] = {"levels": [BLOCK, RACK], "slices": slices}
    return workload


def small_pod(name: str, on: str) -> Object:
    """A pod for half a host."""
    pod = bound_pod(name, on)
    for amounts in pod["spec"]["containers"][0]["resources"].values():
        amounts[GPU] = "2"
    return pod


def test_a_rack_in_which_promised_pods_find_no_host_is_caught() -> None:
    problems = found(ClaimChecker(1), [admitted_to_rack(2)], [bound_pod("plain", "x1")])
    assert f"{RACK} b/r is used and promised: no hosts for all of 2 slots of gang/main" in "".join(problems)


def test_pods_of_a_rack_are_not_split_over_hosts() -> None:
    pods = [small_pod("one", "x1"), small_pod("two", "x2")]
    assert "no hosts for all of 1 slots" in "".join(found(ClaimChecker(1), [admitted_to_rack(1)], pods))
    assert (
        found(ClaimChecker(1), [admitted_to_rack(1)], [small_pod("one", "x1"), small_pod("two", "x1")]) == []
    )


def test_a_rack_that_lost_a_node_was_taken_by_no_pod() -> None:
    checker = ClaimChecker(1)
    objects = {"nodes": [small_host("x1"), small_host("x2")], "workloads": [admitted_to_rack(1)]}
    objects["pods"] = [bound_pod("plain", "x1")]
    assert list(checker.check(objects.__getitem__, 0.0, 0.0)) == []
    objects["nodes"] = [small_host("x1")]
    assert list(checker.check(objects.__getitem__, 1.0, 0.0)) == []


def test_a_gang_that_starts_although_its_rack_is_taken_is_caught() -> None:
    checker = ClaimChecker(2)
    assert found(checker, [admitted_to_rack(2)], [bound_pod("plain", "x1")]) == []
    pods = [bound_pod("plain", "x1"), bound_pod("one", "x2", of="gang")]
    assert found(checker, [admitted_to_rack(2)], pods) == [
        f"gang gang starts in part: its slots on {RACK} b/r are taken"
    ]


# ── zones ──────────────────────────────────────────────────────────────────────────────────────────


def zoned_host() -> tuple[Store, ZoneActors]:
    """A host with two zones of two GPUs."""
    numbers = count()
    store = new_store(lambda: 0.0, lambda: f"uid-{next(numbers)}", lambda: str(next(numbers)))
    store.create(PLAIN_NODES, small_host("x1"))
    return store, ZoneActors(store, Random(1), store.list(PLAIN_NODES).items, 0.0)


def run_on_host(store: Store, zones: ZoneActors, name: str, gpus: int) -> None:
    resources = {"requests": {GPU: str(gpus)}, "limits": {GPU: str(gpus)}}
    spec = {"nodeName": "x1", "containers": [{"name": "main", "image": "i", "resources": resources}]}
    store.create(PLAIN_PODS, {"metadata": {"name": name}, "spec": spec}, "default")
    zones.step(0.0)


def zone_problems(store: Store, zones: ZoneActors, slot_gpus: int) -> list[str]:
    workload = admitted_on("x1")
    requests = workload["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]
    for amounts in requests.values():
        amounts[GPU] = str(slot_gpus)
    objects = {"nodes": [small_host("x1")], "workloads": [workload], "pods": store.list(PLAIN_PODS).items}
    return list(ClaimChecker(1, zones).check(objects.__getitem__, 0.0, 0.0))


def test_a_zone_that_is_promised_and_used_is_caught_although_the_node_has_room() -> None:
    store, zones = zoned_host()
    run_on_host(store, zones, "first", 2)  # zone 0
    run_on_host(store, zones, "second", 1)  # zone 1
    store.delete(PLAIN_PODS, "default", "first", Deletion.from_body({"gracePeriodSeconds": 0}))
    assert zone_problems(store, zones, slot_gpus=2) == []
    run_on_host(store, zones, "third", 1)  # zone 0
    assert zones.free("x1") == [1, 1]
    assert "has [1, 1] GPUs in zones, promised to pods of [2]" in "".join(zone_problems(store, zones, 2))
    assert zone_problems(store, zones, slot_gpus=1) == []


def test_a_pod_that_its_node_refuses_is_caught() -> None:
    store, zones = zoned_host()
    for name in ("first", "second"):
        run_on_host(store, zones, name, 1)
    run_on_host(store, zones, "third", 2)
    run_on_host(store, zones, "fourth", 1)
    assert "pod fourth was refused by x1" in "".join(zone_problems(store, zones, slot_gpus=1))


# ── broken one way after the other ─────────────────────────────────────────────────────────────────


def first_violation(words: str, *, processes: int = 1, seeds: Iterable[int] = range(40)) -> str:
    play = partial(SharedSimulation, processes=processes, with_pod_groups=False, **ON_HOSTS)
    return violations(play, words, seeds, calm=True)


@pytest.mark.long
def test_a_scheduler_that_ignores_the_slots_of_admitted_gangs_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SlotClaims, "gang_seen", lambda self, queued_gang: False)
    assert "used and promised" in first_violation("used and promised")


@pytest.mark.long
def test_an_admission_that_leaves_gangs_on_hosts_that_were_taken_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TakenNodes, "check", lambda self: set())
    play = partial(SharedSimulation, processes=2, is_dense=True, with_pod_groups=False, **ON_HOSTS)
    assert "used and promised" in violations(play, "used and promised", range(30), calm=True)


@pytest.mark.long
def test_a_scheduler_that_starts_groups_of_which_a_host_is_taken_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pods of a queued group are decided on one by one: only its slots keep the others back."""
    monkeypatch.setattr(SlotClaims, "taken", lambda self, without_zones=(): {})
    play = partial(SharedSimulation, processes=2, is_dense=True, with_pod_groups=True, **ON_HOSTS)
    assert "starts in part" in violations(play, "starts in part", (50, *range(20)))


@pytest.mark.long
def test_a_scheduler_that_ignores_the_slots_of_racks_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DomainClaims, "set_open", lambda self, slot, demand: False)
    play = partial(SharedSimulation, **IN_RACKS)
    assert "is used and promised" in violations(play, "no hosts for all of", range(20), calm=True)


@pytest.mark.long
def test_an_admission_that_leaves_gangs_in_racks_that_were_taken_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(DomainUsage, "check", lambda self: iter(()))
    play = partial(SharedSimulation, processes=2, **IN_RACKS)
    assert "is used and promised" in violations(play, "no hosts for all of", (42, *range(20)), calm=True)


@pytest.mark.long
def test_an_admission_that_counts_the_sums_of_racks_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        HostRooms, "place", lambda self, snapshot, gang, find, empty=False: find(snapshot, gang)
    )
    monkeypatch.setattr(HostRooms, "fit", lambda self, snapshot, wanted: True)
    play = partial(SharedSimulation, **IN_RACKS)
    assert "is used and promised" in violations(play, "no hosts for all of", range(20))


@pytest.mark.long
def test_an_admission_that_counts_each_topology_alone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostRooms, "beside_other_topologies", lambda self, snapshot: snapshot)
    play = partial(SharedSimulation, **IN_BOTH)
    assert "used and promised" in violations(play, "used and promised", range(20))


@pytest.mark.long
def test_an_admission_that_promises_zones_twice_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NumaUsage, "stocks", lambda self, supplies: {})
    play = partial(
        SharedSimulation, is_dense=True, with_pod_groups=False, with_zones=True, slots=SlotLevel.HOSTS
    )
    assert "GPUs in zones, promised to pods of" in violations(play, "GPUs in zones", range(20), calm=True)


@pytest.mark.long
def test_a_gang_leaves_a_rack_that_was_taken() -> None:
    """The same seed as above, with an admission that looks at racks."""
    check_sound(SharedSimulation(42, NONE, processes=2, **IN_RACKS).run())


@pytest.mark.long
def test_a_group_of_which_a_host_is_taken_does_not_start() -> None:
    """The same seed as above, with a scheduler that respects slots."""
    simulation = SharedSimulation(50, processes=2, is_dense=True, with_pod_groups=True, **ON_HOSTS)
    check_sound(simulation.run())


@pytest.mark.long
def test_an_admission_that_ignores_what_is_being_bound_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AdmissionController, "peer_changes", lambda self, plan: iter(()))
    play = partial(SharedSimulation, is_dense=True, with_pod_groups=False, **ON_HOSTS)
    assert "used and promised" in violations(play, "used and promised", (1,))  # events have to be late
