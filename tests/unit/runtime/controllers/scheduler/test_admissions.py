"""Admissions of the same process hold slots at once, and until the result of their write is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayplan.backends.crds import define
from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.dialects.api import Ended, Event, Happened
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.decode.slots import WORKLOADS, WorkloadSlots, version_of
from bayplan.dialects.kueue.decode.workloads import decode_workload
from bayplan.dialects.kueue.names import api_kinds
from bayplan.model.change import Change, QueuedGangLost, QueuedGangSeen
from bayplan.model.plan import Admit, Plan
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.controllers.scheduler.admissions import DOUBT_SECONDS, AdmissionsInFlight
from bayplan.runtime.core.controller import Settled
from bayplan.runtime.core.journal import MemoryJournal
from bayplan.runtime.core.loop import Loop
from tests.support.queued_cluster import NOW, Object, QueuedCluster, furnish, queued_workload
from tests.unit.backends.embedded.storage.test_store import store_at


class Scene:
    """A Workload before and after its admission, and the decision in between."""

    def __init__(self) -> None:
        store = store_at(NOW)
        define(store)
        cluster = QueuedCluster(store, Path("unused"))
        furnish(cluster)
        cluster.submit(queued_workload("gang", 2, 4))
        self.before: Object = store.get(api_kinds.WORKLOADS, "ml", "gang")
        loop = Loop(EmbeddedBackend(store), [AdmissionController()], MemoryJournal())
        for number in range(8):
            loop.step(NOW + number)
        self.after: Object = store.get(api_kinds.WORKLOADS, "ml", "gang")
        admitted = decode_workload(Field(self.after))
        assert admitted.admission is not None
        self.action = Admit(decode_workload(Field(self.before)), admitted.admission)
        self.admissions = AdmissionsInFlight(WorkloadSlots())
        self.decided = list(self.admissions.decided(Plan((self.action,))))

    def seen(self, workload: Object) -> list[Change]:
        return list(self.admissions.seen(Event(Happened.SEEN, WORKLOADS, workload, "")))

    def ended(self, ended: Ended) -> list[Change]:
        return list(self.admissions.ended(Settled(ended, "", self.action), NOW))


@pytest.fixture
def scene() -> Scene:
    return Scene()


def is_held(changes: list[Change]) -> bool:
    """Whether slots are held after these changes, of which there is one."""
    (change,) = changes
    assert isinstance(change, QueuedGangSeen | QueuedGangLost)
    return isinstance(change, QueuedGangSeen)


def test_a_decision_holds_slots_before_it_is_written(scene: Scene) -> None:
    assert is_held(scene.decided)


def test_an_event_from_before_the_decision_does_not_undo_it(scene: Scene) -> None:
    assert scene.seen(scene.before) == []
    scene.admissions.written(scene.action, version_of(scene.after))
    assert scene.seen(scene.before) == []
    assert is_held(scene.seen(scene.after))
    assert not scene.admissions.writes


def test_an_admission_that_was_refused_holds_nothing(scene: Scene) -> None:
    assert not is_held(scene.ended(Ended.REFUSED))


def test_an_admission_that_timed_out_holds_its_slots_for_a_limited_time(scene: Scene) -> None:
    assert scene.ended(Ended.TIMED_OUT) == []
    assert scene.seen(scene.before) == []
    scene.admissions.overdue(NOW + DOUBT_SECONDS - 1)
    assert scene.admissions.take_due() == [] and scene.admissions.in_doubt()
    scene.admissions.overdue(NOW + DOUBT_SECONDS)
    assert not is_held(scene.admissions.take_due()) and not scene.admissions.writes


def test_an_admission_that_timed_out_and_was_written_is_settled_by_its_event(scene: Scene) -> None:
    assert scene.ended(Ended.TIMED_OUT) == []
    assert is_held(scene.seen(scene.after)) and not scene.admissions.in_doubt()


def test_an_event_that_is_newer_than_the_write_counts_as_soon_as_the_write_is_confirmed(scene: Scene) -> None:
    newer = {
        **scene.after,
        "metadata": {**scene.after["metadata"], "resourceVersion": "999999"},
        "status": {},
    }
    assert scene.seen(newer) == []  # it may be from before the decision
    scene.admissions.written(scene.action, version_of(scene.after))
    assert not is_held(scene.admissions.take_due()) and not scene.admissions.writes


def test_a_workload_that_is_deleted_after_its_admission_was_confirmed_holds_nothing(scene: Scene) -> None:
    assert scene.seen(scene.after) == []  # the watch was faster than the answer to the write
    scene.admissions.written(scene.action, version_of(scene.after))
    gone = list(scene.admissions.seen(Event(Happened.GONE, WORKLOADS, scene.after, "")))
    assert not is_held(gone) and scene.admissions.take_due() == []
