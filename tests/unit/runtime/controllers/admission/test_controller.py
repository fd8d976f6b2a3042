"""The admission controller in its loop, on a cluster in memory: queues stop and start, and writes fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from bayplan.backends.crds import define
from bayplan.backends.embedded.api.status import StatusError
from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.dialects.api import Ended, Kind, Write, WriteOutcome
from bayplan.dialects.kube.fields.times import timestamp
from bayplan.dialects.kueue.names import api_kinds
from bayplan.model.plan import Admit, Plan
from bayplan.runtime.controllers.admission.controller import (
    REPEAT_SECONDS,
    RETRY_SECONDS,
    AdmissionController,
)
from bayplan.runtime.core.loop import Loop
from tests.support.kueue_workloads import conditions
from tests.support.queued_cluster import (
    EVENTS,
    NOW,
    RACK,
    Object,
    QueuedCluster,
    furnish,
    queued_workload,
    quota,
)
from tests.unit.backends.embedded.storage.test_store import store_at


class Silent:
    """A journal that records nothing."""

    def record(self, now: float, what: str, body: object, role: str = "") -> None: ...


class Flaky(EmbeddedBackend):
    """Drops selected writes: they end with the given outcome, and never happen."""

    lose: Callable[[Write], bool] = staticmethod(lambda write: False)
    ended = Ended.TIMED_OUT
    lost = 0

    late = False

    def outcomes(self) -> Iterable[WriteOutcome]:
        """The outcomes of writes; none yet while `late`, though the watch reports them."""
        return [] if self.late else super().outcomes()

    def submit(self, writes: Sequence[Write]) -> None:
        for write in writes:
            if self.lose(write):
                self.lost += 1
                self._outcomes.append(WriteOutcome(write, self.ended))
            else:
                super().submit([write])


class World:
    """A prepared cluster with an admission loop."""

    def __init__(self, role: AdmissionController | None = None) -> None:
        store = store_at(NOW)
        define(store)
        self.cluster = QueuedCluster(store, Path("unused"))
        furnish(self.cluster)
        self.backend = Flaky(store)
        self.loop = Loop(self.backend, [role or AdmissionController()], Silent())
        self.now = NOW

    def pass_time(self, seconds: float = 0.0) -> None:
        self.now += seconds
        for _ in range(30):
            self.loop.step(self.now)

    def submit(self, *workloads: Object) -> None:
        for each in workloads:
            self.cluster.submit(each)
        self.pass_time()

    def change(self, kind: Kind, name: str, spec: Object) -> None:
        namespace = "ml" if kind.namespaced else ""
        self.cluster.store.patch(kind, namespace, name, {"spec": spec})
        self.pass_time()

    def told(self, name: str) -> dict[str, tuple[str, str, str]]:
        return conditions(self.cluster.store.get(api_kinds.WORKLOADS, "ml", name)["status"])

    def says(self, name: str, kind: str) -> tuple[str, str]:
        status, reason, _ = self.told(name)[kind]
        return status, reason

    def events(self, name: str) -> list[tuple[str, str]]:
        found = self.cluster.store.list(EVENTS, "ml").items
        return [(e["reason"], e["message"]) for e in found if e["involvedObject"]["name"] == name]


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(
    ("kind", "name", "told"),
    [
        (api_kinds.CLUSTER_QUEUES, "left-queue", "ClusterQueue"),
        (api_kinds.LOCAL_QUEUES, "left", "LocalQueue"),
    ],
)
def test_a_draining_queue_evicts_its_gangs_and_admits_again_when_resumed(
    world: World, kind: Kind, name: str, told: str
) -> None:
    world.submit(queued_workload("in", 2, 4, required=RACK))
    assert world.says("in", "Admitted") == ("True", "Admitted")
    world.change(kind, name, {"stopPolicy": "HoldAndDrain"})
    assert world.told("in")["Evicted"] == ("True", f"{told}Stopped", f"The {told} is stopped")
    assert world.told("in")["QuotaReserved"] == ("False", "Suspended", f"{told} {name} is inactive")
    assert (f"EvictedDueTo{told}Stopped", f"The {told} is stopped") in world.events("in")
    world.change(kind, name, {"stopPolicy": "None"})
    assert world.says("in", "Requeued") == ("True", f"{told}Restarted")
    assert world.says("in", "Admitted") == ("True", "Admitted")
    assert world.says("in", "Evicted") == ("False", "QuotaReserved")


def test_a_queue_is_kept_from_vanishing_before_it_admits_the_first_gang(world: World) -> None:
    world.pass_time()
    store = world.cluster.store
    queue = store.get(api_kinds.CLUSTER_QUEUES, "", "left-queue")
    assert queue["metadata"]["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]
    world.submit(queued_workload("first", 1, 4))
    assert world.told("first")["Admitted"][0] == "True"
    store.delete(api_kinds.CLUSTER_QUEUES, "", "left-queue")
    world.pass_time(2)
    assert store.get(api_kinds.CLUSTER_QUEUES, "", "left-queue")["metadata"]["deletionTimestamp"]


def test_no_gang_is_admitted_before_its_queue_is_protected(world: World) -> None:
    world.backend.ended = Ended.TIMED_OUT
    world.backend.lose = lambda write: write.kind == api_kinds.CLUSTER_QUEUES and not write.subresource
    world.submit(queued_workload("early", 1, 4))
    world.pass_time(1)
    assert "status" not in world.cluster.store.get(api_kinds.WORKLOADS, "ml", "early")
    world.backend.lose = lambda write: False
    world.pass_time(2)
    assert world.says("early", "Admitted") == ("True", "Admitted")


def test_a_queue_that_is_deleted_before_it_is_protected_admitted_nothing(world: World) -> None:
    world.backend.lose = lambda write: write.kind == api_kinds.CLUSTER_QUEUES and not write.subresource
    world.submit(queued_workload("early", 1, 4))
    world.cluster.store.delete(api_kinds.CLUSTER_QUEUES, "", "left-queue")
    world.pass_time(2)
    assert world.told("early")["QuotaReserved"] == (
        "False",
        "Misconfigured",
        "ClusterQueue left-queue doesn't exist",
    )
    assert "Admitted" not in {reason for reason, _ in world.events("early")}


def test_a_queue_whose_finalizer_is_refused_shows_why_and_admits_once_it_is_allowed(world: World) -> None:
    world.backend.ended = Ended.REFUSED
    world.backend.lose = lambda write: write.kind == api_kinds.CLUSTER_QUEUES and not write.subresource
    world.submit(queued_workload("early", 1, 4))
    world.pass_time(2)
    world.pass_time(2)

    def active() -> tuple[str, str]:
        queue = world.cluster.store.get(api_kinds.CLUSTER_QUEUES, "", "left-queue")
        return conditions(queue["status"])["Active"][:2]

    assert active() == ("False", "NotProtected")
    world.backend.lose = lambda write: False
    for _ in range(5):
        world.pass_time(2)
    assert active() == ("True", "Ready")
    assert world.says("early", "Admitted") == ("True", "Admitted")


def test_a_queue_status_that_is_refused_is_not_written_every_second(world: World) -> None:
    world.pass_time()
    world.backend.ended = Ended.REFUSED
    world.backend.lose = lambda write: write.kind == api_kinds.CLUSTER_QUEUES and write.name == "left-queue"
    world.submit(queued_workload("in", 1, 4))
    for _ in range(60):
        world.pass_time(1)
    assert 3 <= world.backend.lost <= 5
    world.backend.lose = lambda write: False
    world.pass_time(60)
    queue = world.cluster.store.get(api_kinds.CLUSTER_QUEUES, "", "left-queue")
    assert queue["status"]["admittedWorkloads"] == 1


def test_in_the_shadow_a_queue_without_a_finalizer_admits_as_well() -> None:
    world = World(AdmissionController(shadow=True))
    world.backend.lose = lambda write: write.kind == api_kinds.CLUSTER_QUEUES
    world.submit(queued_workload("early", 1, 4))
    assert world.says("early", "Admitted") == ("True", "Admitted")


def test_a_queue_that_is_being_deleted_admits_nothing_more_and_goes_with_its_last_gang(world: World) -> None:
    world.submit(queued_workload("first", 1, 4))
    store = world.cluster.store
    store.delete(api_kinds.CLUSTER_QUEUES, "", "left-queue")
    world.submit(queued_workload("second", 1, 1))
    world.pass_time(2)
    assert world.told("first")["Admitted"][0] == "True"
    assert world.told("second")["Admitted"][0] == "False"
    assert world.told("second")["QuotaReserved"] == (
        "False",
        "Suspended",
        "ClusterQueue left-queue is inactive",
    )
    told = conditions(store.get(api_kinds.CLUSTER_QUEUES, "", "left-queue")["status"])
    assert told["Active"] == (
        "False",
        "Terminating",
        "Can't admit new workloads; clusterQueue is terminating",
    )
    store.delete(api_kinds.WORKLOADS, "ml", "first")
    world.pass_time(2)
    with pytest.raises(StatusError):
        store.get(api_kinds.CLUSTER_QUEUES, "", "left-queue")


def test_a_queue_on_hold_keeps_admitted_gangs_and_admits_no_other(world: World) -> None:
    world.submit(queued_workload("in", 1, 4))
    world.change(api_kinds.CLUSTER_QUEUES, "left-queue", {"stopPolicy": "Hold"})
    world.submit(queued_workload("out", 1, 4))
    assert world.says("in", "Admitted") == ("True", "Admitted")
    assert world.told("out")["QuotaReserved"] == ("False", "Suspended", "ClusterQueue left-queue is inactive")
    world.change(api_kinds.CLUSTER_QUEUES, "left-queue", {"stopPolicy": "None"})
    assert world.says("out", "Admitted") == ("True", "Admitted")


def test_a_queue_that_is_not_there_is_named_until_it_comes(world: World) -> None:
    world.submit(queued_workload("lost", 1, 4, queue="late"))
    assert world.told("lost")["QuotaReserved"] == ("False", "Misconfigured", "LocalQueue late doesn't exist")
    spec = {"clusterQueue": "left-queue"}
    meta = {"name": "late", "namespace": "ml"}
    world.cluster.put(api_kinds.LOCAL_QUEUES, {"metadata": meta, "spec": spec})
    world.pass_time()
    assert world.says("lost", "Admitted") == ("True", "Admitted")


def test_a_reason_that_was_not_written_is_written_later(world: World) -> None:
    for pods, ended in enumerate((Ended.TIMED_OUT, Ended.CONFLICT), start=9):
        world.backend.ended, world.backend.lose = ended, lambda write: write.kind == api_kinds.WORKLOADS
        name = f"big-{ended.replace('_', '-')}"
        world.submit(queued_workload(name, pods, 4, required=RACK))
        assert not world.cluster.store.get(api_kinds.WORKLOADS, "ml", name).get("status")
        world.backend.lose = lambda write: False
        world.pass_time(RETRY_SECONDS)
        assert world.told(name)["QuotaReserved"][0] == "False"


def test_a_gang_that_joins_equivalent_ones_gets_their_reason(world: World) -> None:
    world.submit(queued_workload("first", 9, 4, required=RACK))
    world.submit(queued_workload("second", 9, 4, required=RACK))
    assert world.says("first", "QuotaReserved") == ("False", "ExceedsMaxQuota")
    bypassed = "Bypassed scheduling evaluation because an equivalent workload recently failed"
    assert world.told("second")["QuotaReserved"] == ("False", "ExceedsMaxQuota", bypassed)
    assert world.events("second") == []


def test_who_waits_for_a_place_that_others_hold_is_told_where_it_nearly_fits_and_who_is_there(
    world: World,
) -> None:
    world.submit(*(queued_workload(f"sits-{number}", 1, 3) for number in range(8)))
    world.submit(queued_workload("rack", 2, 4, queue="right", required=RACK))
    status, reason, message = world.told("rack")["QuotaReserved"]
    assert (status, reason) == ("False", "WaitingForQuota")
    assert "doesn't allow to fit any of 2 pod(s)" in message
    assert f"Closest is {RACK} b1/r1: 0 of 2 pod(s) fit" in message
    assert "Held there by ml/sits-0, ml/sits-1." in message


def test_an_eviction_that_was_lost_is_made_again(world: World) -> None:
    world.submit(queued_workload("low", 8, 4, priority=1))
    world.backend.lose = lambda write: write.name == "low" and not world.backend.lost
    world.submit(queued_workload("high", 4, 4, priority=9))
    assert world.backend.lost == 1
    assert world.says("high", "Admitted") == ("True", "Admitted")
    assert world.says("low", "Preempted") == ("True", "InClusterQueue")


def test_quota_that_could_not_be_given_back_is_given_back_later(world: World) -> None:
    world.submit(queued_workload("in", 1, 4))
    world.backend.lose = lambda write: write.kind == api_kinds.WORKLOADS
    world.change(api_kinds.WORKLOADS, "in", {"active": False})
    assert world.says("in", "QuotaReserved")[0] == "True"
    world.backend.lose = lambda write: False
    world.pass_time(RETRY_SECONDS)
    assert world.told("in")["QuotaReserved"] == ("False", "Deactivated", "The workload is deactivated")


def test_a_gang_to_be_deactivated_is_deactivated(world: World) -> None:
    world.submit(queued_workload("in", 1, 4))
    found = world.cluster.store.get(api_kinds.WORKLOADS, "ml", "in")
    target = {"type": "DeactivationTarget", "status": "True", "reason": "AdmissionCheck", "message": "no"}
    status = {"conditions": [*found["status"]["conditions"], target | {"lastTransitionTime": _AT}]}
    world.cluster.store.patch(api_kinds.WORKLOADS, "ml", "in", {"status": status}, subresource="status")
    world.pass_time()
    assert world.cluster.store.get(api_kinds.WORKLOADS, "ml", "in")["spec"]["active"] is False
    assert world.says("in", "Evicted") == ("True", "DeactivatedDueToAdmissionCheck")


def test_a_gang_that_was_put_off_is_back_in_line_in_time_though_it_is_not_tried(world: World) -> None:
    """Equivalent gangs were rejected, so no decision writes anything about it."""
    world.submit(
        queued_workload("first", 9, 4, required=RACK), queued_workload("second", 9, 4, required=RACK)
    )
    found = world.cluster.store.get(api_kinds.WORKLOADS, "ml", "second")
    off = {"type": "Requeued", "status": "False", "reason": "AdmissionCheck", "message": "not now"}
    status = {
        "conditions": [*found["status"]["conditions"], off | {"lastTransitionTime": _AT}],
        "requeueState": {"requeueAt": timestamp(world.now + 100.0)},
    }
    world.cluster.store.patch(api_kinds.WORKLOADS, "ml", "second", {"status": status}, subresource="status")
    world.pass_time(99.0)
    assert world.says("second", "Requeued")[0] == "False"
    world.pass_time(1.0)
    assert world.says("second", "Requeued") == ("True", "BackoffFinished")


def test_the_same_reason_in_other_figures_is_told_after_a_while(world: World) -> None:
    world.submit(queued_workload("in", 2, 4), queued_workload("also", 1, 4), queued_workload("big", 8, 4))
    first = world.told("big")["QuotaReserved"]
    assert first[:2] == ("False", "WaitingForQuota")
    world.cluster.store.delete(api_kinds.WORKLOADS, "ml", "also")
    world.pass_time()
    assert world.told("big")["QuotaReserved"] == first
    world.pass_time(REPEAT_SECONDS)
    again = world.told("big")["QuotaReserved"]
    assert again[:2] == first[:2]
    assert again[2] != first[2]


def test_a_report_that_was_postponed_does_not_replace_a_newer_one(world: World) -> None:
    world.submit(queued_workload("in", 2, 4), queued_workload("also", 1, 4), queued_workload("big", 8, 4))
    world.cluster.store.delete(api_kinds.WORKLOADS, "ml", "also")
    world.pass_time()  # other figures, to be told later
    world.change(
        api_kinds.CLUSTER_QUEUES, "left-queue", {"cohortName": None, "resourceGroups": [quota("a100", 8)]}
    )
    world.pass_time()
    newest = world.told("big")["QuotaReserved"]
    assert newest[1] != "WaitingForQuota"
    world.pass_time(REPEAT_SECONDS)
    assert world.told("big")["QuotaReserved"] == newest


def test_a_queue_status_is_right_though_it_changed_during_its_write(world: World) -> None:
    def used() -> int:
        return int(
            world.cluster.store.get(api_kinds.CLUSTER_QUEUES, "", "left-queue")["status"]["admittedWorkloads"]
        )

    world.submit(queued_workload("in", 1, 4))
    world.pass_time(2.0)
    assert used() == 1
    world.submit(queued_workload("also", 1, 4))
    world.backend.late = True
    world.pass_time(2.0)
    world.cluster.store.delete(api_kinds.WORKLOADS, "ml", "also")
    world.pass_time(2.0)
    world.backend.late = False
    world.pass_time(2.0)
    assert used() == 1


def test_a_decision_on_a_gang_of_the_past_is_not_shown_of_its_namesake(world: World) -> None:
    role = world.loop.controllers[0]
    assert isinstance(role, AdmissionController)
    world.submit(queued_workload("twin", 1, 4))
    action = next(iter(role.state.usage.by_gang.values())).queued_gang
    world.cluster.store.delete(api_kinds.WORKLOADS, "ml", "twin")
    world.submit(queued_workload("twin", 9, 4, required=RACK))
    assert action.admission is not None
    assert list(role.encode(Plan((Admit(action, action.admission),)), world.now)) == []


_AT = "2027-01-15T08:00:00Z"


def test_a_level_that_no_topology_has_is_told_with_the_one_that_was_meant(world: World) -> None:
    near = RACK.removesuffix("ck") + "k"
    world.submit(
        queued_workload("typo", 1, 1, required=near), queued_workload("large", 100, 4, required=RACK)
    )
    told = world.told("typo")["QuotaReserved"][2]
    upstream = 'couldn\'t assign flavors to pod set main: Flavor "a100" does not contain the requested level'
    assert told == f"{upstream}. {near} is no level of a topology; did you mean {RACK}?"
    assert "did you mean" not in world.told("large")["QuotaReserved"][2]
