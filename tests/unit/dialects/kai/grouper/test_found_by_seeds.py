"""What seeds found in pod groups and queues, told again in a few steps."""

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


def test_a_topology_that_is_only_named_may_come_after_the_group() -> None:
    site = Site()
    site.group("g", minMember=1, topologyConstraint={"topology": "hall"})
    site.pod("a", "g")
    site.run(6)
    assert site.on("a") == [""] and "hall does not exist" in site.waits("g")[1]
    site.topology()
    site.run()
    assert all(site.on("a"))


def test_a_group_of_the_same_name_hears_and_says_anew_how_it_fares() -> None:
    site = Site()
    site.group("g", minMember=3)
    site.pod("a", "g")
    site.run(6)
    words = site.waits("g")
    site.store.delete(POD_GROUP, "default", "g")
    site.group("g", minMember=3)
    site.run(12)
    assert site.waits("g") == words and site.status("g")["pending"] == 1


def test_a_group_that_runs_says_why_others_of_it_wait_and_says_it_again_later() -> None:
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


def test_an_optional_pod_that_is_held_back_holds_nobody_up() -> None:
    site = Site()
    site.group("g", minMember=1)
    site.pod("a", "g", schedulingGates=[{"name": "example.com/wait"}])
    site.pod("b", "g")
    site.run(6)
    assert site.on("a", "b")[0] == "" and site.on("b") != [""]


def test_strays_have_the_same_places_in_whatever_order_they_came() -> None:
    def places(*names: str) -> dict[str, int]:
        site = Site((4, 4))
        site.group("g", minMember=1, subGroups=[{"name": "w", "minMember": 1}])
        for name in names:
            site.pod(name, "g", name[:-1])
            site.run(1)
        return {key.name: pod.rank for key, pod in site.role.state.store.pods.items()}

    assert places("w0", "x0", "y0") == places("y0", "w0", "x0")


def test_nothing_starts_before_it_is_known_which_queues_there_are() -> None:
    class Late(EmbeddedBackend):
        """Hears of queues a moment after everything else."""

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


def test_a_status_that_somebody_got_ahead_of_is_written_again() -> None:
    class Busy(EmbeddedBackend):
        """The first writes about pod groups meet those of others."""

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
