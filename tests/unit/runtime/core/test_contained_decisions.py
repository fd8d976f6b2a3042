"""Gangs whose decision fails or takes too long: their rejection, and how replay handles them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bayplan.cli.commands.replay import replay
from bayplan.dialects.kube.gang_api.gates import V1ALPHA1
from bayplan.dialects.kueue.status.rejection_messages import rejection_message
from bayplan.model.gang import Ref
from bayplan.model.plan import Plan
from bayplan.model.profile import Profile
from bayplan.model.rejection import (
    Obstacle,
    ObstacleKind,
    PodSetAttempts,
    Rejection,
    RejectionReason,
)
from bayplan.model.watchdog import OutOfTime, Watchdog
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.core.clock import VirtualClock
from bayplan.runtime.core.containment import Containment
from bayplan.runtime.core.journal import FileJournal
from bayplan.runtime.core.loop import Loop, Observer
from bayplan.runtime.process.service import Meter, Metered, Service
from bayplan.runtime.telemetry.metrics import Metrics
from bayplan.scheduling.admission import cycle
from bayplan.scheduling.attempt import gang as trying
from bayplan.scheduling.binding import cycle as muster
from bayplan.state.admission.snapshot import AdmissionSnapshot
from tests.support.queued_cluster import RACK, queued_workload
from tests.unit.runtime.controllers.admission.test_controller import Silent, World
from tests.unit.runtime.controllers.scheduler.test_controller import Site
from tests.unit.runtime.core.test_contained_loop import Bug

GANG = Ref("gang", "PodGroup", "default", "g")


# ── queues ─────────────────────────────────────────────────────────────────────────────────────────


class BuggyAdmission(AdmissionController):
    """Fails on gangs of certain names."""

    bad: frozenset[str] = frozenset({"bad"})

    def decide(self, view: AdmissionSnapshot, now: float, watchdog: Watchdog | None = None) -> Plan:
        if any(gang.name in self.bad for gang in self.candidates(view)):
            raise Bug("it is unknown which gang was decided on")
        return super().decide(view, now, watchdog)


def test_a_workload_that_cannot_be_decided_on_is_told_so_and_the_others_are_admitted() -> None:
    world = World()
    world.loop = Loop(world.backend, [BuggyAdmission()], Silent(), containment=Containment())
    for name in ("bad", "good"):
        world.cluster.submit(queued_workload(name, 2, 4, required=RACK))
    world.pass_time()
    world.pass_time(1.5)
    status, reason, words = world.told("bad")["QuotaReserved"]
    assert (status, reason) == ("False", "InternalError") and "workload ml/bad (error id " in words
    assert world.says("good", "Admitted") == ("True", "Admitted")


def test_a_workload_that_could_not_be_decided_on_is_admitted_once_it_can() -> None:
    world, role = World(), BuggyAdmission()
    world.loop = Loop(world.backend, [role], Silent(), containment=Containment())
    world.submit(queued_workload("bad", 2, 4, required=RACK))
    role.bad = frozenset()
    world.pass_time(31.0)
    assert world.says("bad", "Admitted") == ("True", "Admitted")


# ── time ───────────────────────────────────────────────────────────────────────────────────────────


class Ticking(Observer):
    """A stopwatch that advances by a tenth of a second at each reading."""

    def stopwatch(self) -> Callable[[], float]:
        looks = [0.0]

        def elapsed() -> float:
            looks[0] += 0.1
            return looks[0]

        return elapsed


def test_a_watchdog_lets_a_decision_go_on_about_one_gang_only_so_long() -> None:
    looks = iter((0.0, 0.0, 1.9, 2.0, 3.9, 5.0))
    watchdog = Watchdog(lambda: next(looks), 2.0)
    watchdog.turn(GANG)
    watchdog.check()
    watchdog.check()
    watchdog.turn(Ref("gang", "PodGroup", "default", "h"))
    assert watchdog.slowest == (2.0, GANG)
    watchdog.check()
    with pytest.raises(OutOfTime):
        watchdog.check()


def test_a_gang_that_takes_too_long_is_refused_with_what_was_found_so_far() -> None:
    site = Site(V1ALPHA1, cpus=(4, 4), role=SchedulerController(Profile(decision_seconds=0.25)))
    site.loop = Loop(
        site.loop.backend, (site.role,), site.journal, observer=Ticking(), containment=Containment()
    )
    site.workload(6)
    for number in range(6):
        site.pod(f"g{number}", cpu=2, workloadRef={"name": "w", "podGroup": "g"})
    site.pod("small")
    site.run(4)
    status, reason, words = site.said("g0")
    assert (status, reason) == ("False", "DecisionBudgetExceeded"), words
    assert "took longer than the 0.25 s that decisionSeconds allows" in words
    assert site.on("small") != [""]


def test_what_was_found_before_time_ran_out_is_told_too() -> None:
    obstacle = Obstacle(ObstacleKind.FLAVOR_UNKNOWN, "spot")
    refusal = Rejection(
        RejectionReason.OUT_OF_TIME,
        tried=(PodSetAttempts("main", (obstacle,)),),
        gang="ml/a",
        about="5",
    )
    words = rejection_message(refusal)
    assert words.startswith("deciding on workload ml/a took longer than the 5 s that decisionSeconds allows")
    assert "Found by then: couldn't assign flavors to pod set main" in words


def test_gangs_that_were_not_reached_are_decided_on_in_the_next_cycle() -> None:
    site = Site(V1ALPHA1, cpus=(64,), role=SchedulerController(Profile(decision_seconds=3.0)))
    site.loop = Loop(
        site.loop.backend, (site.role,), site.journal, observer=Ticking(), containment=Containment()
    )
    for number in range(20):
        site.pod(f"p{number}")
    site.loop.step(site.now)
    bound = [name for name in (f"p{n}" for n in range(20)) if site.on(name)[0]]
    assert 0 < len(bound) < 20
    site.loop.paused_until.clear()
    for _ in range(20):
        site.loop.step(site.now)
        site.loop.paused_until.clear()
    assert all(site.on(*(f"p{n}" for n in range(20))))


def test_admission_stops_between_heads_when_time_is_up() -> None:
    world = World()
    world.loop = Loop(
        world.backend, [AdmissionController(Profile(decision_seconds=0.5))], Silent(), observer=Ticking(),
        containment=Containment(),
    )  # fmt: skip
    for name in ("a", "b", "c"):
        world.cluster.submit(queued_workload(name, 1, 1, required=RACK))
    for _ in range(60):
        world.loop.paused_until.clear()
        world.pass_time(0.5)
    told = {name: world.told(name)["QuotaReserved"][1] for name in "abc"}
    assert set(told.values()) <= {"QuotaReserved", "DecisionBudgetExceeded"}


# ── replay ─────────────────────────────────────────────────────────────────────────────────────────


def failing_on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug in the core that one gang meets."""
    attempt = trying.attempt

    def bug(look: Any, floor: Any, asked: Any, *rest: Any) -> Any:
        if asked.candidate.spec.source.name == name:
            raise ZeroDivisionError("an unexpected error")
        return attempt(look, floor, asked, *rest)

    monkeypatch.setattr(muster, "attempt", bug)


def recorded(folder: Path) -> tuple[Site, str]:
    """A journal of a gang that fails and one that does not; and the id of the failure."""
    found: list[str] = []
    site = Site(V1ALPHA1, journal=FileJournal(folder))
    containment = Containment(lambda sentence, error, **facts: found.append(facts["id"]))
    site.loop = Loop(site.loop.backend, (site.role,), site.journal, containment=containment)
    site.pod("good")
    site.pod("bad")
    site.run(4)
    site.journal.close()
    [identity] = found
    return site, identity


def test_replay_makes_the_same_refusals_of_the_same_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_on("bad", monkeypatch)
    site, _ = recorded(tmp_path)
    assert site.on("good", "bad") == ["n1", ""]
    outcome = CliRunner().invoke(replay, [str(tmp_path)])
    assert outcome.exit_code == 0, outcome.output
    assert "failures; 0 plans differ when decided again" in outcome.output


def test_replay_says_that_an_error_does_not_come_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        failing_on("bad", broken)
        _, identity = recorded(tmp_path)
    outcome = CliRunner().invoke(replay, [str(tmp_path), "--quiet"])
    assert outcome.exit_code == 0 and "errors are not reproduced" in outcome.output
    outcome = CliRunner().invoke(replay, [str(tmp_path), "--only", identity])
    assert outcome.exit_code == 1 and "does not fail" in outcome.output
    assert "an unexpected error" in outcome.output and "bad: 1 pods on" in outcome.output


def test_replay_of_one_error_brings_it_out_with_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_on("bad", monkeypatch)
    _, identity = recorded(tmp_path)
    outcome = CliRunner().invoke(replay, [str(tmp_path), "--only", identity])
    assert outcome.exit_code == 0, outcome.output
    assert "deciding on Pod default/bad failed: ZeroDivisionError: an unexpected error" in outcome.output
    assert "the same error occurs:\nTraceback" in outcome.output


def test_replay_names_the_errors_there_are_if_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_on("bad", monkeypatch)
    _, identity = recorded(tmp_path)
    outcome = CliRunner().invoke(replay, [str(tmp_path), "--only", "nosuch"])
    assert outcome.exit_code == 1
    assert f"has no error with the id nosuch; it has {identity}" in outcome.output


def test_replay_of_a_gang_that_is_not_there_fails(tmp_path: Path) -> None:
    site = Site(V1ALPHA1, journal=FileJournal(tmp_path))
    site.pod("good")
    site.run(1)
    site.journal.close()
    assert CliRunner().invoke(replay, [str(tmp_path), "--gang", "good"]).exit_code == 0
    outcome = CliRunner().invoke(replay, [str(tmp_path), "--gang", "nosuch"])
    assert outcome.exit_code == 1 and "no entry about a gang nosuch" in outcome.output


UNKNOWN = {
    "role": ('"change","role":"cook","body":{"is":"Started"}', 'role "cook"'),
    "change": ('"change","role":"scheduler","body":{"is":"Odd"}', "entry 1, a change"),
    "field": ('"plan","role":"scheduler","body":{"is":"Plan","x":1}', "entry 1, a plan"),
}


@pytest.mark.parametrize("unknown", UNKNOWN)
def test_replay_says_which_entry_it_does_not_know(tmp_path: Path, unknown: str) -> None:
    entry, told = UNKNOWN[unknown]
    line = f'{{"sequence":1,"now":1.0,"kind":{entry}}}\n'
    (tmp_path / "journal-000000000001.jsonl").write_text(line)
    outcome = CliRunner().invoke(replay, [str(tmp_path)])
    assert outcome.exit_code == 1 and told in outcome.output and "Traceback" not in outcome.output


# ── the service ────────────────────────────────────────────────────────────────────────────────────


def test_a_step_that_fails_as_a_whole_is_contained_and_the_liveness_probe_notices() -> None:
    clock, metrics, stop = VirtualClock(), Metrics(of_process=False), threading.Event()
    counted: list[str] = []
    site = Site(V1ALPHA1)
    loop = Loop(
        Metered(site.loop.backend, metrics),
        (SchedulerController(),),
        Silent(),
        observer=Meter(clock, metrics),
        containment=Containment(count=lambda where, kind: counted.append(where)),
    )
    service = Service(loop, clock, metrics, stop)
    before, steps = service.last_step, [0]

    def step(now: float) -> float:
        steps[0] += 1
        clock.sleep(1.0)
        if steps[0] == 2:
            stop.set()
        raise Bug("all of it")

    loop.step = step  # type: ignore[method-assign]
    stop.wait = lambda timeout=None: stop.is_set()  # type: ignore[method-assign]
    service.run()
    assert counted == ["step", "step"] and service.last_step == before


def test_a_slow_decision_is_named_by_its_gang() -> None:
    told: list[str] = []
    looks = iter((0.0, 2.5))
    watchdog = Watchdog(lambda: next(looks))
    watchdog.turn(GANG)
    watchdog.end_turn()
    Meter(VirtualClock(), Metrics(of_process=False), slow=told.append).watched(watchdog, 3.0)
    assert told == ["a decision took 3.0 s, 2.5 s of it on PodGroup default/g"]


def test_a_slow_unit_of_work_is_named() -> None:
    told: list[tuple[float, str, str, str]] = []
    clock = VirtualClock()
    containment = Containment(clock=clock, slow=lambda *given: told.append(given))

    def work() -> Iterator[str]:
        clock.sleep(3.0)
        yield "write"

    found, done = containment.attempt(work(), "reconcile", "Job", "default/a")
    assert done and found == ["write"] and told == [(3.0, "reconcile", "Job", "default/a")]


def test_decisions_without_a_watchdog_never_run_out_of_time() -> None:
    assert cycle.decide_admissions.__defaults__ == (None,) and muster.decide_gangs.__defaults__ == (None,)
    watchdog = Watchdog()
    watchdog.turn(GANG)
    watchdog.check()
    assert not watchdog.is_over
