"""The ungating controller in its loop, on a cluster in memory: pods are ungated, writes fail, restarts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bayplan.backends.crds import DEFINITIONS, define
from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.backends.fake_controllers.controller_manager import FakeControllerManager
from bayplan.backends.fake_controllers.crds import foreign_crds
from bayplan.dialects.api import Ended, Event, Happened, Write, WriteOutcome
from bayplan.dialects.kube.decode.wire import PODS_KIND, PodWire
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.assignment_decode import decode_assignment
from bayplan.dialects.kueue.names import api_kinds
from bayplan.dialects.kueue.names.annotations import SLICE_NAME, TOPOLOGY_GATE
from bayplan.model.node import HOSTNAME
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.controllers.ungating import BATCH_SECONDS, RETRY_SECONDS, UngatingController
from bayplan.runtime.core.controller import Controller
from bayplan.runtime.core.loop import Loop
from tests.support.gated_gangs import INDEX, assigned_gang, wire
from tests.support.gated_gangs import gang_pod as gated
from tests.support.queued_cluster import (
    EVENTS,
    JOBS,
    NOW,
    RACK,
    Object,
    QueuedCluster,
    furnish,
    queued_job,
    queued_workload,
)
from tests.unit.backends.embedded.storage.test_store import store_at

PODS = replace(PODS_KIND, wire=None)
OFFSET = "kueue.x-k8s.io/pod-index-offset"


class Silent:
    """A journal that records nothing."""

    def record(self, now: float, what: str, body: object, role: str = "") -> None: ...


class Flaky(EmbeddedBackend):
    """Lets a test choose how writes end; what is not done never happens, but for `unheard` ones."""

    ends: Callable[[Write], Ended] = staticmethod(lambda write: Ended.DONE)
    unheard = False
    made: list[Write]

    def submit(self, writes: Sequence[Write]) -> None:
        self.made = [*getattr(self, "made", []), *(w for w in writes if w.kind == PODS_KIND)]
        for write in writes:
            ended = self.ends(write) if write.kind == PODS_KIND else Ended.DONE
            if ended is Ended.DONE or self.unheard:
                super().submit([write])
                if ended is not Ended.DONE:
                    self._outcomes.pop()
            if ended is not Ended.DONE:
                self._outcomes.append(WriteOutcome(write, ended))


class World:
    """A prepared cluster, its job controllers, and a loop that admits and ungates."""

    def __init__(self) -> None:
        store = store_at(NOW)
        define(store)
        for definition in foreign_crds():
            store.create(DEFINITIONS, definition)
        self.cluster, self.store, self.now = QueuedCluster(store, Path("unused")), store, NOW
        furnish(self.cluster)
        self.crew = FakeControllerManager(EmbeddedBackend(store))
        self.removed: list[tuple[str, bool, float]] = []
        self.restart()

    def restart(self) -> None:
        """The process restarts: only the API has state."""
        self.backend = Flaky(self.store)
        self.role = UngatingController(removed=lambda *told: self.removed.append(told))
        roles: list[Controller] = [AdmissionController(), self.role]
        self.loop = Loop(self.backend, roles, Silent())

    def play(self, seconds: float = 0.0) -> None:
        end = self.now + seconds
        while True:
            for _ in range(4):
                self.crew.step(self.now)
                self.loop.step(self.now)
            if self.now >= end:
                return
            self.now = min(self.now + 0.25, end)

    def admit(self, name: str, pods: int, **request: Any) -> None:
        obj = queued_workload(name, pods, 2, required=RACK if pods <= 4 else "")
        ask = obj["spec"]["podSets"][0].setdefault("topologyRequest", {"unconstrained": True})
        ask |= {"podIndexLabel": INDEX, **request}
        self.cluster.submit(obj)
        self.play()

    def pods(self) -> list[Object]:
        return self.store.list(PODS, "ml").items

    def start(self, name: str, pods: int) -> None:
        """The job of the Workload starts: its pods are created with their gate."""
        obj = queued_job(name, pods, 2, "")
        spec = obj["spec"]
        spec |= {"suspend": False, "completionMode": "Indexed"}
        labels, notes = {"kueue.x-k8s.io/podset": "main"}, {"kueue.x-k8s.io/workload": name}
        spec["template"]["metadata"] = {"labels": labels, "annotations": notes}
        spec["template"]["spec"]["schedulingGates"] = [{"name": TOPOLOGY_GATE}]
        self.cluster.put(JOBS, obj)

    def hosts(self) -> dict[int, str]:
        """The hosts of the ungated pods, by index."""
        found = {}
        for pod in self.pods():
            selector = pod["spec"].get("nodeSelector") or {}
            assert bool(selector) != bool(pod["spec"].get("schedulingGates"))
            if selector and pod.get("status", {}).get("phase") != "Failed":
                found[int(pod["metadata"]["labels"][INDEX])] = selector[HOSTNAME]
        return found

    def slots(self, name: str) -> dict[int, str]:
        """The host of each rank, as the Workload says."""
        status = self.store.get(api_kinds.WORKLOADS, "ml", name)["status"]
        given = status["admission"]["podSetAssignments"][0]["topologyAssignment"]
        read = decode_assignment(Field(given))
        assert read is not None
        return {rank: path[-1] for rank, path in enumerate(read.ranks())}


@pytest.fixture
def world() -> World:
    return World()


def test_the_pods_of_an_indexed_job_start_in_rank_order(world: World) -> None:
    world.admit("train", 4)
    world.play(1)
    world.start("train", 4)
    world.play(3)
    assert world.hosts() == world.slots("train") and len(world.hosts()) == 4
    assert len(world.backend.made) == 4, "one patch a pod"
    assert [told[:2] for told in world.removed] == [("left-queue", False)] * 4
    assert all(0 < seconds <= 3 for _, _, seconds in world.removed)


def test_pods_are_gathered_for_a_moment(world: World) -> None:
    world.admit("train", 4)
    world.start("train", 3)
    world.play(BATCH_SECONDS - 0.25)
    assert world.hosts() == {} and len(world.pods()) == 3, "one more may come"
    world.play(0.5)
    assert len(world.hosts()) == 3


def test_pods_are_not_gathered_any_more_when_the_last_one_is_there(world: World) -> None:
    world.admit("train", 4)
    world.start("train", 4)
    world.play()
    assert world.hosts() == world.slots("train") and len(world.hosts()) == 4
    world.store.delete(PODS, "ml", world.pods()[2]["metadata"]["name"])
    world.play()
    assert world.hosts() == world.slots("train") and len(world.backend.made) == 5


def test_pods_that_were_there_first_start_at_once_when_their_gang_is_admitted(world: World) -> None:
    world.start("train", 4)
    world.play(3)
    assert world.hosts() == {}
    world.admit("train", 4)
    assert world.hosts() == world.slots("train") and len(world.hosts()) == 4


@pytest.mark.parametrize("done", [0, 1, 3])
def test_a_restart_in_the_middle_goes_on_where_it_stopped(world: World, done: int) -> None:
    world.admit("train", 4)
    world.start("train", 4)
    world.backend.ends = lambda write: Ended.DONE if len(world.hosts()) < done else Ended.TIMED_OUT
    world.play(2)
    assert len(world.hosts()) == done
    world.restart()
    world.play(2)
    assert world.hosts() == world.slots("train") and len(world.hosts()) == 4


def test_a_pod_that_failed_or_vanished_leaves_its_slot_to_its_successor(world: World) -> None:
    world.admit("train", 4)
    world.start("train", 4)
    world.play(2)
    failed, gone = (pod["metadata"] for pod in world.pods()[:2])
    world.store.patch(PODS, "ml", failed["name"], {"status": {"phase": "Failed"}}, subresource="status")
    world.store.delete(PODS, "ml", gone["name"])
    world.play(3)
    assert world.hosts() == world.slots("train") and len(world.hosts()) == 4
    assert {failed["uid"], gone["uid"]}.isdisjoint(p["metadata"]["uid"] for p in world.pods() if _lives(p))


@pytest.mark.parametrize("ended", [Ended.TIMED_OUT, Ended.CONFLICT, Ended.REFUSED])
@pytest.mark.parametrize("unheard", [False, True])
def test_writes_that_fail_are_made_again(world: World, ended: Ended, unheard: bool) -> None:
    """Also those that did happen without an answer: then there is nothing left to do."""
    world.admit("train", 4)
    world.start("train", 4)
    world.backend.ends, world.backend.unheard = (lambda write: ended), unheard
    world.play(BATCH_SECONDS + 0.25)
    assert len(world.backend.made) >= 4
    world.backend.ends = lambda write: Ended.DONE
    world.play(RETRY_SECONDS + 2)
    assert world.hosts() == world.slots("train") and len(world.hosts()) == 4


def test_who_may_not_be_ungated_is_put_off_and_does_not_hold_up_others(world: World) -> None:
    world.admit("train", 4)
    world.start("train", 4)
    world.backend.ends = lambda write: Ended.REFUSED if write.name.startswith("train-0-") else Ended.DONE
    world.play(20)
    assert sorted(world.hosts()) == [1, 2, 3]
    assert 4 < len(world.backend.made) <= 4 + 20 / RETRY_SECONDS


def test_an_evicted_gang_ungates_no_further_pod(world: World) -> None:
    world.admit("train", 4)
    world.store.patch(api_kinds.CLUSTER_QUEUES, "", "left-queue", {"spec": {"stopPolicy": "HoldAndDrain"}})
    world.play(1)
    world.start("train", 4)
    world.play(3)
    assert world.hosts() == {}


def test_a_pod_that_makes_no_sense_is_told_once(world: World) -> None:
    world.start("train", 2)
    world.play()
    name = world.pods()[0]["metadata"]["name"]
    world.store.patch(PODS, "ml", name, {"metadata": {"annotations": {OFFSET: "one"}}})
    world.admit("train", 2)
    world.play(5)
    told = [e for e in world.store.list(EVENTS, "ml").items if e["reason"] == "UngatingFailed"]
    assert len(told) == 1 and OFFSET in told[0]["message"] and world.hosts() == {}
    world.store.patch(PODS, "ml", name, {"metadata": {"annotations": {OFFSET: None}}})
    world.play(2)
    assert world.hosts() == world.slots("train")


def test_nothing_is_remembered_of_gangs_that_are_gone(world: World) -> None:
    world.admit("train", 2)
    world.start("train", 2)
    world.play(2)
    world.store.delete(JOBS, "ml", "train")
    for pod in world.pods():
        world.store.delete(PODS, "ml", pod["metadata"]["name"])
    world.store.delete(api_kinds.WORKLOADS, "ml", "train")
    world.play(3)
    assert world.role.gangs == {} and world.role.gang_of == {}
    assert world.role.next_due(world.now) == float("inf")


def test_gangs_do_not_mix(world: World) -> None:
    for name in ("one", "two"):
        world.admit(name, 2)
        world.start(name, 2)
    world.play(3)
    sent = Counter(
        (pod["metadata"]["annotations"]["kueue.x-k8s.io/workload"], pod["spec"]["nodeSelector"][HOSTNAME])
        for pod in world.pods()
    )
    assert sent == Counter(
        [("one", host) for host in world.slots("one").values()]
        + [("two", host) for host in world.slots("two").values()]
    )


def test_a_doubtful_slot_is_given_to_no_other_pod() -> None:
    """The first patch may have arrived, so that the outcome of the second proves nothing."""
    role, one, two = UngatingController(), wire(gated("a")), wire(gated("b"))
    for event in (Event(Happened.SEEN, api_kinds.WORKLOADS, assigned_gang(("x1", 1))), _seen(one)):
        list(role.decode(event))
    (first,) = role.reconcile(NOW)
    list(role.on_outcome(WriteOutcome(first, Ended.TIMED_OUT), NOW))
    list(role.decode(_seen(two)))
    (second,) = role.reconcile(NOW + RETRY_SECONDS)
    assert (second.name, second.body) == ("a", first.body)
    list(role.on_outcome(WriteOutcome(second, Ended.REFUSED), NOW + RETRY_SECONDS))
    assert [write.name for write in role.reconcile(NOW + 2 * RETRY_SECONDS)] == ["a"]
    list(role.decode(Event(Happened.GONE, PODS_KIND, one)))
    role.changed[("ml", "gang")] = True
    assert [write.name for write in role.reconcile(NOW + 3 * RETRY_SECONDS)] == ["b"]


def test_a_pod_may_be_told_to_belong_elsewhere() -> None:
    role = UngatingController()
    for name, host in (("gang", "x1"), ("other", "x2")):
        list(role.decode(Event(Happened.SEEN, api_kinds.WORKLOADS, assigned_gang((host, 1), name=name))))
    list(role.decode(_seen(wire(gated("a")))))
    list(role.decode(_seen(wire(gated("a", of="other")))))
    (write,) = role.reconcile(NOW)
    assert write.body["spec"]["nodeSelector"] == {HOSTNAME: "x2"}


def _seen(pod: PodWire) -> Event:
    return Event(Happened.SEEN, PODS_KIND, pod)


def _lives(pod: Object) -> bool:
    return pod.get("status", {}).get("phase") != "Failed" and "deletionTimestamp" not in pod["metadata"]


def test_a_workload_whose_slice_name_changes_leaves_its_former_gang() -> None:
    role = UngatingController()
    obj = assigned_gang(("n1", 2))
    renamed = obj | {"metadata": obj["metadata"] | {"annotations": {SLICE_NAME: "another"}}}
    for happened, seen in ((Happened.SEEN, obj), (Happened.SEEN, renamed)):
        role.decode(Event(happened, api_kinds.WORKLOADS, seen))
    assert list(role.gangs) == [(obj["metadata"]["namespace"], "another")]
    role.decode(Event(Happened.GONE, api_kinds.WORKLOADS, renamed))
    assert not role.gangs
    assert not role.gang_of_workload
