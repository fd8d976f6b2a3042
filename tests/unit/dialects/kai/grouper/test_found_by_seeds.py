"""Errors that simulation seeds found in PodGroups and Queues, reproduced in a few steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bayplan.backends.embedded.api.options import Deletion
from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.dialects.api import Ended, Event, Write, WriteOutcome
from bayplan.dialects.kai.api.names import POD_GROUP, QUEUE
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.core.journal import MemoryJournal
from bayplan.runtime.core.loop import Loop
from tests.support.kai_site import Site
from tests.support.pod_site import PODS


def test_a_topology_without_a_level_may_be_created_after_the_group() -> None:
    site = Site()
    site.group("g", minMember=1, topologyConstraint={"topology": "hall"})
    site.pod("a", "g")
    site.run(6)
    assert site.on("a") == [""] and "hall does not exist" in site.waits("g")[1]
    site.topology()
    site.run()
    assert all(site.on("a"))


def test_a_recreated_group_gets_its_status_and_events_again() -> None:
    site = Site()
    site.group("g", minMember=3)
    site.pod("a", "g")
    site.run(6)
    words = site.waits("g")
    site.store.delete(POD_GROUP, "default", "g")
    site.group("g", minMember=3)
    site.run(12)
    assert site.waits("g") == words and site.status("g")["pending"] == 1


def test_a_running_group_reports_why_further_pods_are_pending_each_time() -> None:
    site = Site()
    site.queue("team", resources={"cpu": {"quota": 1000, "limit": 1000}})
    site.group("g", minMember=1, queue="team")
    site.pod("a", "g")
    site.pod("b", "g")
    site.run(6)
    reason, words = site.waits("g")
    assert site.on("a") != [""] and reason == "OverLimit"
    site.store.delete(PODS, "default", "b", Deletion.from_body({"gracePeriodSeconds": 0}))
    site.run(6)
    assert "schedulingConditions" not in site.status("g")
    site.pod("c", "g")
    site.run(12)
    assert site.waits("g") == (reason, words)


def test_a_gated_optional_pod_does_not_delay_its_gang() -> None:
    site = Site()
    site.group("g", minMember=1)
    site.pod("a", "g", schedulingGates=[{"name": "example.com/wait"}])
    site.pod("b", "g")
    site.run(6)
    assert site.on("a", "b")[0] == "" and site.on("b") != [""]


def test_pods_without_a_sub_group_have_ranks_independent_of_their_order() -> None:
    def places(*names: str) -> dict[str, int]:
        site = Site((4, 4))
        site.group("g", minMember=1, subGroups=[{"name": "w", "minMember": 1}])
        for name in names:
            site.pod(name, "g", name[:-1])
            site.run(1)
        return {key.name: pod.rank for key, pod in site.role.state.store.pods.items()}

    assert places("w0", "x0", "y0") == places("y0", "w0", "x0")


def test_no_gang_starts_before_queues_are_listed() -> None:
    class Late(EmbeddedBackend):
        """Delivers the events of queues after all others."""

        held: tuple[Event, ...] | None = None

        def events(self) -> Iterable[Event]:
            found = list(super().events())
            if self.held is None:
                self.held = tuple(one for one in found if one.kind.plural == QUEUE.plural)
                return [one for one in found if one not in self.held]
            held, self.held = self.held, ()
            return [*held, *found]

    site = Site()
    site.queue("team", resources={"cpu": {"quota": 0, "limit": 0}})
    site.group("g", minMember=1, queue="team")
    site.pod("a", "g")
    site.loop = Loop(Late(site.store), (SchedulerController(),), MemoryJournal())
    site.run()
    assert site.on("a") == [""]


def test_a_status_write_with_a_conflict_is_retried() -> None:
    class Busy(EmbeddedBackend):
        """The first writes to PodGroups have a conflict."""

        met = 0

        def submit(self, writes: Sequence[Write]) -> None:
            for write in writes:
                if write.kind.plural == POD_GROUP.plural and self.met < 3:
                    self.met += 1
                    self._outcomes.append(WriteOutcome(write, Ended.CONFLICT, 409))
                else:
                    super().submit([write])

    site = Site()
    site.group("g", minMember=2)
    site.pod("a", "g")
    backend = Busy(site.store)
    site.loop = Loop(backend, (SchedulerController(),), MemoryJournal())
    site.run(60)
    assert backend.met == 3 and site.status("g")["pending"] == 1 and site.waits("g")[1]
