"""One bad object stops no other: its failure is contained, logged, counted and tried again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bayplan.backends.embedded.api.options import Deletion
from bayplan.dialects.api import Event
from bayplan.dialects.kube.gang_api.gates import V1ALPHA1
from bayplan.model.change import Change
from bayplan.model.plan import Action, Plan
from bayplan.model.pod import PodKey
from bayplan.model.watchdog import Watchdog
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.controllers.scheduler.controller import CycleInput, SchedulerController
from bayplan.runtime.core.containment import Containment
from bayplan.runtime.core.loop import Loop
from bayplan.runtime.core.quarantine import title
from bayplan.simulator.core.checkers import check_consistency
from bayplan.state.admission import snapshot
from bayplan.state.scheduling.snapshot import SnapshotBuilder
from bayplan.state.scheduling.state_machine import GangStateMachine
from bayplan.state.scheduling.store import SchedulingStore
from tests.support.pod_site import NODES, PODS
from tests.support.queued_cluster import RACK, queued_workload
from tests.unit.runtime.controllers.admission.test_controller import Silent, World
from tests.unit.runtime.controllers.scheduler.test_controller import Site


class Bug(Exception):
    """An unexpected error."""


class Buggy(SchedulerController):
    """Fails on what has certain names."""

    def __init__(self) -> None:
        super().__init__()
        self.unreadable: set[str] = set()
        self.undecidable: set[str] = set()
        self.unwritable: set[str] = set()
        self.anonymous = False  # it is unknown which gang failed
        self.decisions = 0

    def decode(self, event: Event) -> Iterator[Change]:
        if title(event.object) in self.unreadable:
            raise Bug("decode")
        return super().decode(event)

    def decide(self, view: CycleInput, now: float, watchdog: Watchdog | None = None) -> Plan:
        self.decisions += 1
        for gang in self.candidates(view):
            if gang.name in self.undecidable:
                if watchdog is not None and not self.anonymous:
                    watchdog.turn(gang)
                raise Bug("decide")
        return super().decide(view, now, watchdog)

    def _encoded(self, action: Action, *rest: Any) -> Iterator[Any]:
        if action.gang.name in self.unwritable:
            raise Bug("encode")
        return super()._encoded(action, *rest)


class ContainedSite(Site):
    """A site whose loop contains errors, and records what it contained."""

    def __init__(self, *cpus: int) -> None:
        self.bugs = Buggy()
        super().__init__(V1ALPHA1, cpus=cpus or (4, 4), role=self.bugs)
        self.logged: list[dict[str, str]] = []
        self.counted: Counter[tuple[str, str]] = Counter()
        containment = Containment(self._report, lambda where, kind: self.counted.update([(where, kind)]))
        self.loop = Loop(self.loop.backend, (self.role,), self.journal, containment=containment)

    def _report(self, sentence: str, error: BaseException, **facts: str) -> None:
        assert isinstance(error, Bug), error
        self.logged.append({"sentence": sentence, **facts})


@pytest.fixture
def site() -> ContainedSite:
    return ContainedSite()


def change(site: Site, name: str, **labels: str) -> None:
    site.store.patch(PODS, "default", name, {"metadata": {"labels": labels}})


# ── decode ─────────────────────────────────────────────────────────────────────────────────────────


def test_an_object_that_cannot_be_read_stops_no_other_in_the_same_step(site: ContainedSite) -> None:
    site.bugs.unreadable.add("default/bad")
    site.pod("bad")
    site.pod("good")
    site.run(1)
    assert site.on("bad", "good") == ["", "n1"]
    assert site.logged == [
        {
            "sentence": "contained an error in decode of Pod default/bad",
            "id": site.logged[0]["id"],
            "where": "decode",
            "kind": "Pod",
            "object": "default/bad",
        }
    ]
    assert site.counted["decode", "Pod"] == 1


def test_an_object_that_could_not_be_read_is_read_when_it_changes(site: ContainedSite) -> None:
    site.bugs.unreadable.add("default/bad")
    site.pod("bad")
    site.run(1)
    change(site, "bad", again="yes")
    site.run(1)
    assert site.on("bad") == [""] and site.counted["decode", "Pod"] == 2 and len(site.logged) == 1
    site.bugs.unreadable.clear()
    change(site, "bad", again="no")
    site.run(1)
    assert site.on("bad") != [""]


def test_an_object_that_could_not_be_read_is_tried_again_after_a_while(site: ContainedSite) -> None:
    site.bugs.unreadable.add("default/bad")
    site.pod("bad")
    site.run(1)
    site.bugs.unreadable.clear()
    site.run(61)
    assert site.on("bad") != [""]


def test_what_was_known_of_an_object_counts_until_it_is_read_again() -> None:
    site = ContainedSite(4)
    site.pod("bad", cpu=3)
    site.run(1)
    site.bugs.unreadable.add("default/bad")
    change(site, "bad", again="yes")
    site.pod("good", cpu=2)
    site.run(1)
    assert site.on("good") == [""], "the other still has 3 of 4 CPUs"


def test_a_pod_that_was_never_read_still_takes_the_room_it_has_on_its_node() -> None:
    site = ContainedSite(4)
    site.bugs.unreadable.add("default/bad")
    site.pod("bad", cpu=3, nodeName="n1")
    site.pod("large", cpu=2)
    site.pod("small", cpu=1)
    site.run(1)
    assert site.on("large", "small") == ["", "n1"]


def test_a_pod_that_cannot_be_read_takes_no_room_once_it_is_deleted() -> None:
    site = ContainedSite(4)
    site.pod("bad", cpu=3)
    site.run(1)
    site.bugs.unreadable.add("default/bad")
    site.store.delete(PODS, "default", "bad", Deletion(grace=0))
    site.pod("good", cpu=2)
    site.run(1)
    site.bugs.unreadable.clear()
    site.run(70)
    assert site.on("good") == ["n1"]


# ── apply ──────────────────────────────────────────────────────────────────────────────────────────


def failing_fold(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that raises when half of it is applied."""
    enrol = SchedulingStore._update_gang

    def thrown(store: SchedulingStore, pod: Any, before: Any) -> None:
        if pod.key.name == name:
            raise Bug("fold")
        enrol(store, pod, before)

    monkeypatch.setattr(SchedulingStore, "_update_gang", thrown)


def test_a_change_that_cannot_be_folded_in_leaves_nothing_behind(
    site: ContainedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.pod("before")
    site.run(1)
    failing_fold("bad", monkeypatch)
    site.pod("bad", cpu=4, nodeName="n2")
    site.pod("good", cpu=4)
    site.run(1)
    assert PodKey("default", "bad") not in site.role.state.store.pods
    assert not list(check_consistency(site.role.state))
    assert site.on("before", "good") == ["n1", "n2"]
    assert site.counted == {("fold", "Pod"): 1}


def test_what_was_being_bound_is_still_assumed_when_the_state_is_built_anew(
    site: ContainedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.pod("first", cpu=4)
    site.loop.apply_events(site.now)
    view = site.role.snapshot(site.now)
    assert view is not None
    site.role.assume(site.role.decide(view, site.now), site.now)  # and the write is in flight
    failing_fold("bad", monkeypatch)
    site.pod("bad")
    site.loop.apply_events(site.now)
    assert site.role.state.store.assumed == {PodKey("default", "first"): "n1"}
    assert site.role.state.store.nodes.ledger.by_node()["n1"]["cpu"] == 4000


# ── decide ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("anonymous", [False, True], ids=["whose turn it was is known", "it is sought"])
def test_a_gang_that_cannot_be_decided_on_is_refused_and_the_others_go_on(anonymous: bool) -> None:
    site = ContainedSite(8)
    site.bugs.undecidable.add("p3")
    site.bugs.anonymous = anonymous
    for number in range(7):
        site.pod(f"p{number}")
    site.loop.step(site.now)
    assert [name for name in (f"p{n}" for n in range(7)) if not site.on(name)[0]] == ["p3"]
    site.run(1)
    status, reason, words = site.said("p3")
    assert (status, reason) == ("False", "InternalError")
    assert "Pod default/p3" in words and site.logged[-1]["id"] in words
    assert site.counted["decide", "Pod"] >= 1


def test_a_gang_that_cannot_be_decided_on_backs_off_longer_each_time(site: ContainedSite) -> None:
    site.bugs.undecidable.add("bad")
    site.pod("bad")
    site.run(100)
    tries = site.counted["decide", "Pod"]
    assert 8 <= tries <= 20, "1, 2, 4, 8, 10, 10 … seconds"
    site.bugs.undecidable.clear()
    site.run(11)
    assert site.on("bad") != [""]


def test_gangs_that_fail_only_together_are_decided_on_one_after_the_other(site: ContainedSite) -> None:
    class Together(Buggy):
        def decide(self, view: CycleInput, now: float, watchdog: Watchdog | None = None) -> Plan:
            names = {gang.name for gang in self.candidates(view)}
            if {"a", "b"} <= names:
                raise Bug("together")
            return super().decide(view, now, watchdog)

    site.loop = Loop(site.loop.backend, (Together(),), site.journal, containment=Containment())
    for name in "abc":
        site.pod(name)
    site.run(1)
    assert all(site.on("a", "b", "c"))


def test_a_trial_that_breaks_off_in_the_middle_leaves_nothing_in_the_state(
    site: ContainedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = site.role.state.store.index._count

    def thrown(counts: Any, shape: Any, *rest: Any) -> None:
        if dict(shape.labels).get("app") == "bad":
            raise Bug("in the middle of a step")
        count(counts, shape, *rest)

    site.pod("before")
    site.run(1)
    monkeypatch.setattr(site.role.state.store.index, "_count", thrown)
    site.pod("bad")
    site.run(0.2)
    assert PodKey("default", "bad") not in site.role.state.store.index.pods
    assert not site.role.state.store.index.damaged and not list(check_consistency(site.role.state))
    site.pod("good", cpu=4)
    site.run(2)
    assert site.on("before", "good") == ["n1", "n2"]


# ── encode ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_binding_that_cannot_be_written_down_is_given_back_and_tried_again(
    site: ContainedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin: Callable[..., Any] = site.role.devices.begin

    def thrown(gang: Any, *rest: Any) -> Any:
        if gang.name == "bad":
            raise Bug("encode")
        return begin(gang, *rest)

    with monkeypatch.context() as broken:
        broken.setattr(site.role.devices, "begin", _lazy(thrown))
        site.pod("bad", cpu=4)
        site.pod("good", cpu=1)
        site.run(0.3)
        assert site.on("bad", "good") == ["", "n2"]
        assert not site.role.state.store.assumed and site.role.bindings_in_flight == 0
    site.run(20)
    assert site.on("bad") == ["n1"]


def _lazy(work: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    def given(*arguments: Any) -> Iterator[Any]:
        yield from work(*arguments)

    return given


def test_nodes_that_cannot_be_read_are_left_out_and_the_others_used(site: ContainedSite) -> None:
    site.bugs.unreadable.add("n3")
    site.node("n3", 64)
    site.pod("large", cpu=8)
    site.pod("small", cpu=2)
    site.run(1)
    assert site.on("large", "small") == ["", "n1"]
    site.bugs.unreadable.clear()
    site.store.patch(NODES, "", "n3", {"metadata": {"labels": {"again": "yes"}}})
    site.run(1)
    assert site.on("large") == ["n3"]


# ── snapshot ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("part", "where"),
    [(SnapshotBuilder, "_candidate"), (GangStateMachine, "_recompute")],
    ids=["look", "state"],
)
def test_a_gang_that_cannot_be_looked_at_keeps_no_other_from_its_turn(
    site: ContainedSite, monkeypatch: pytest.MonkeyPatch, part: type, where: str
) -> None:
    work = getattr(part, where)

    def thrown(self: Any, one: Any, *rest: Any) -> Any:
        if getattr(one, "ref", one).name == "bad":
            raise Bug(where)
        return work(self, one, *rest)

    monkeypatch.setattr(part, where, thrown)
    for name in ("a", "bad", "z"):
        site.pod(name)
    site.run(0.3)
    assert all(site.on("a", "z")) and site.on("bad") == [""]
    assert sum(site.counted.values()) < 4, "it backs off"


def test_a_workload_that_cannot_be_looked_at_keeps_no_other_from_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, found = World(), snapshot.head_of

    def thrown(rules: Any, lines: Any, standing: Any, *now: float) -> Any:
        if standing.queued_gang.gang.source.name == "bad":
            raise Bug("look")
        return found(rules, lines, standing, *now)

    monkeypatch.setattr(snapshot, "head_of", thrown)
    world.loop = Loop(world.backend, [AdmissionController()], Silent(), containment=Containment())
    for name in ("bad", "good"):
        world.cluster.submit(queued_workload(name, 2, 4, required=RACK))
    world.pass_time()
    world.pass_time(1.5)
    assert world.says("good", "Admitted") == ("True", "Admitted")
