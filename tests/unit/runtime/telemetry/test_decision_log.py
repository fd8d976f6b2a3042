"""The log of decisions: one event for each gang and decision, and a bounded pace for repetitions."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from bayplan.cli.running.run_telemetry import decision_log
from bayplan.dialects.kueue.names.api_kinds import WORKLOADS
from bayplan.model.change import Change
from bayplan.model.plan import Plan
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.core.clock import VirtualClock
from bayplan.runtime.core.journal import NullJournal
from bayplan.runtime.core.loop import Loop
from bayplan.runtime.process.service import Meter, Shadow
from bayplan.runtime.telemetry import decision_log as module
from bayplan.runtime.telemetry import logs
from bayplan.runtime.telemetry.decision_log import REPEAT_SECONDS, GangIdentity, PacedDecisionLog
from bayplan.runtime.telemetry.metrics import Metrics
from tests.support.queued_cluster import RACK, queued_workload
from tests.support.scheduling_scene import board, gang, node, pod, pods, queue, step, tree
from tests.unit.runtime.controllers.admission.test_controller import Silent, World


class Heard:
    """What was logged: the decision and its facts."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def write(self, decision: str, **facts: Any) -> None:
        self.events.append({"decision": decision, **facts})

    def names(self) -> list[tuple[str, str]]:
        return [(one["decision"], one["gang"]) for one in self.events]


def planned(*plans: Plan, seconds: float = 1.0) -> list[dict[str, Any]]:
    heard = Heard()
    log = PacedDecisionLog(heard.write, lambda _: GangIdentity("team", "u1"), entry=lambda: 7)
    for number, plan in enumerate(plans):
        log.planned("scheduler", plan, 100.0 + number * seconds)
    return heard.events


def test_a_gang_that_is_bound_is_one_event_with_its_queue_and_ids() -> None:
    plan = step(board(node("n1"), node("n2"), tree("train", 4), *pods("train", 4)))
    assert planned(plan) == [
        {
            "decision": "bind", "role": "scheduler", "kind": "Job", "gang": "ns/train", "uid": "u1",
            "queue": "team", "pods": 4, "nodes": 2, "on": "n1, n2", "entry": 7,
        }
    ]  # fmt: skip


def test_a_refused_gang_is_an_event_with_its_reason() -> None:
    plan = step(board(node("n1"), tree("train", 4), *pods("train", 4)))
    (event,) = planned(plan)
    assert (event["decision"], event["detail"]) == ("refuse", "2 of 4 pods fit") and event["reason"]


def test_preempted_pods_are_named_with_the_gang_that_they_yield_to() -> None:
    low: list[Change] = [gang("low", 1), pod("low", 0, on="n1", gpus=4, priority=0, started=1.0)]
    plan = step(board(node("n1"), *low, gang("high", 1, priority=9), pod("high", 0, gpus=4, priority=9)))
    preempted = next(one for one in planned(plan) if one["decision"] == "preempt")
    assert (preempted["gang"], preempted["victims"]) == ("ns/high", "ns/low-0")


def test_the_same_refusal_is_logged_again_only_after_a_while_with_how_often_it_was_made() -> None:
    plan = step(board(node("n1"), tree("train", 4), *pods("train", 4)))
    events = planned(*[plan] * 12, seconds=REPEAT_SECONDS / 10)
    assert [one.get("repeated", 0) for one in events] == [0, 9]


def test_another_reason_is_logged_at_once_and_two_that_alternate_are_paced_as_well() -> None:
    full = step(board(node("n1"), tree("train", 4), *pods("train", 4)))
    limited = step(board(node("n1"), queue("team", 1, 1), gang("train", 2, queue="team"), *pods("train", 2)))
    events = planned(full, limited, full, limited, full)
    assert [one["decision"] for one in events] == ["refuse", "refuse"]
    assert events[0]["reason"] != events[1]["reason"]


def test_what_is_known_of_repetitions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KNOWN_MAX", 3)
    log = PacedDecisionLog(Heard().write)
    for number in range(9):
        log.planned("scheduler", step(board(node("n1"), gang(f"g{number}", 1), pod(f"g{number}", 0))), 1.0)
    assert [key[1].name for key in log.known] == ["g6", "g7", "g8"]


def test_in_the_shadow_decisions_are_logged_although_nothing_is_written() -> None:
    world, stream, clock = World(), io.StringIO(), VirtualClock()
    logs.set_up(logs.Format.JSON, stream=stream)
    role, metrics = AdmissionController(shadow=True), Metrics("test")
    meter = Meter(clock, metrics, decisions=decision_log([role], NullJournal(), shadow=True))
    world.loop = Loop(Shadow(world.backend, metrics), [role], Silent(), observer=meter)
    world.submit(queued_workload("fits", 2, 4, required=RACK), queued_workload("huge", 100, 4, "right"))
    world.pass_time(5.0)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    told = [(one["message"], one["gang"], one["queue"], one["shadow"]) for one in lines]
    assert told == [("admit", "ml/fits", "left", True), ("refuse", "ml/huge", "right", True)]
    assert lines[1]["reason"] == "never_enough_quota" and "400 gpu" in lines[1]["detail"]
    assert not world.cluster.store.list(WORKLOADS).items[0].get("status", {}).get("admission")
