"""Scenarios of KAI, decided by the board and the one decision of the scheduler, round after round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from bayplan.dialects.kai.status.messages import message_for, reason
from bayplan.model.plan import Bind, Nominate, Plan, PreemptPod, ReportUnschedulable
from bayplan.model.profile import NodeChoice, PreemptionMeans, Profile
from bayplan.scheduling.binding.cycle import decide_gangs
from bayplan.state.scheduling.state import SchedulingState
from tests.conformance.kai_scenarios_stage import (
    NAMESPACE,
    NOW,
    Case,
    Standing,
    Standings,
    changes_of,
    names_of,
    standings,
)

MEANS = {
    "consolidation": PreemptionMeans.CONSOLIDATE,
    "reclaim": PreemptionMeans.RECLAIM,
    "preempt": PreemptionMeans.PREEMPT,
}
STALE = "stalegangeviction"
GRACE = 60.0
NEVER = 10.0**9
SPECIAL = "needs GPU sharing, MIG or DRA"


def check(case: Case) -> list[str]:
    """Every task stands where it should after the rounds of the case, and stays there."""
    special = _special(case)
    if special:
        return [f"{SPECIAL}: {special}"]
    rounds = case["rounds"]
    now = standings(case)
    if "defaultRoundsUntilMatch" not in rounds:
        now, told = _round(case, now)
        return [*_differences(case, now), *_messages(case, told)]
    for _ in range(rounds["roundsUntilMatch"] or rounds["defaultRoundsUntilMatch"]):
        now, told = _round(case, now)
        now = _afterwards(case, now)
    found = [*_differences(case, now), *_messages(case, told)]
    for number in range(rounds["roundsAfterMatch"] or rounds["defaultRoundsAfterMatch"]):
        if found:
            break
        now = _afterwards(case, _round(case, now)[0])
        found = [f"{number + 1} rounds later: {line}" for line in _differences(case, now)]
    return found


def _special(case: Case) -> str:
    """What a case needs that is no resource that nodes have so many of."""
    found = case["input"]
    tasks = [task for job in found["jobs"] for task in job["tasks"]]
    if found.get("dra") or any(task.get("resourceClaimNames") for task in tasks):
        return "claims of devices"
    if any(task.get("isLegacyMigTask") or task.get("requiredMigInstances") for task in tasks):
        return "parts of GPUs as devices"
    if any(job["requiredGPUsPerTask"] % 1 or job.get("requiredGpuMemory") for job in found["jobs"]):
        return "parts of GPUs"
    return ""


# ── rounds ─────────────────────────────────────────────────────────────────────────────────────────


def _round(case: Case, before: Standings) -> tuple[Standings, dict[str, str]]:
    """One decision on a board made of how things stand; also what each job was told.

    Gangs that are not whole have their last chance in it; who comes too late for that goes afterwards.
    """
    actions = case["actions"]
    board = SchedulingState(heal_seconds=NEVER)
    board.apply_all(changes_of(case, before))
    means = tuple(MEANS[action] for action in actions if action in MEANS)
    profile = replace(_profile(case), preemption_means=means, preemption=bool(means), keep_after_seconds=0.0)
    plan = decide_gangs(board.snapshot(board.heads(NOW), NOW), profile, NOW)
    after = _after(case, before, plan) if actions != [STALE] else before
    return _without_stale(case, after) if STALE in actions else after, _told(board, plan)


def _profile(case: Case) -> Profile:
    """As the configuration says, if there is one."""
    configured = case["input"].get("schedulerConf") or {}
    plugins = [plugin for tier in configured.get("tiers", ()) for plugin in tier["plugins"]]
    placing: Mapping[str, str] = next(
        (plugin["arguments"] for plugin in plugins if plugin["name"] == "nodeplacement"), {}
    )
    return Profile(gang_nodes=NodeChoice.SPREAD if placing.get("gpu") == "spread" else NodeChoice.PACK)


def _without_stale(case: Case, before: Standings) -> Standings:
    """Without the gangs that were not whole for too long; where nobody says how long, that is at once."""
    waited = [job.get("staleDurationSeconds") for job in case["input"]["jobs"]]
    board = SchedulingState(heal_seconds=0.0 if len(case["actions"]) > 1 else GRACE)
    board.apply_all(changes_of(case, before))
    board.heads(NOW - max((seconds or 0 for seconds in waited), default=0))
    plan = decide_gangs(board.snapshot(board.heads(NOW), NOW), Profile(preemption=False), NOW)
    taken = [action for action in plan.actions if isinstance(action, PreemptPod) and action.undoes]
    return _after(case, before, Plan(tuple(taken)))


def _after(case: Case, before: Standings, plan: Plan) -> Standings:
    names, now = names_of(case), dict(before)
    for action in plan.actions:
        match action:
            case Bind(_, pod, node):
                now[names[pod.key]] = Standing("Binding", node)
            case Nominate(_, pod, node) if node:
                now[names[pod.key]] = Standing("Pipelined", node, node)
            case PreemptPod(pod):
                new = (
                    Standing("Pipelined", action.moves_to)
                    if action.moves_to
                    else Standing("Releasing", pod.node)
                )
                now[names[pod.key]] = new
    return now


def _afterwards(case: Case, now: Standings) -> Standings:
    """Before the next round: who was bound runs, who left is there again, who was promised room waits."""
    ending = {
        task["id"] for job in case["input"]["jobs"] if job.get("deleteJobInTest") for task in job["tasks"]
    }
    found: Standings = {}
    for name, stands in now.items():
        match stands.status:
            case "Binding":
                found[name] = replace(stands, status="Running")
            case "Releasing" if name in ending:
                found[name] = stands
            case "Releasing" | "Pipelined":
                found[name] = Standing("Pending", promised=stands.promised)
            case _:
                found[name] = stands
    return found


def _told(board: SchedulingState, plan: Plan) -> dict[str, str]:
    refused = [action for action in plan.actions if isinstance(action, ReportUnschedulable)]
    found: dict[str, str] = {}
    for action in refused:
        charter = board.store.specs.get(action.gang)
        tree = charter.tree if charter is not None else None
        sentence = message_for(action.rejection, action.gang, None, tree)
        found[action.gang.name] = f"{reason(action.rejection)}: {sentence}"
    return found


# ── comparing ──────────────────────────────────────────────────────────────────────────────────────


def _expected(case: Case) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for job in case["input"]["jobs"]:
        for task in job["tasks"]:
            wanted = case["expectedTasks"].get(task["id"]) or case["expectedJobs"].get(job["name"])
            if wanted is not None:
                yield task["id"], wanted


def _differences(case: Case, now: Standings) -> list[str]:
    found: list[str] = []
    for name, wanted in _expected(case):
        stands = now[name]
        node = wanted.get("nodeName", "")
        if wanted["status"] == "Pending":
            node = ""  # some fixtures name one for tasks that have none
        if stands.status != wanted["status"] or (node and stands.node != node):
            there = f" on {stands.node}" if stands.node else ""
            where = f" on {node}" if node else ""
            found.append(f"{name} is {stands.status}{there}, want {wanted['status']}{where}")
    return found


def _messages(case: Case, told: Mapping[str, str]) -> list[str]:
    """Every line that a job should be told stands in what it is told."""
    found: list[str] = []
    for name, wanted in case["expectedJobs"].items():
        for line in (wanted.get("expectedErrorMessage") or "").splitlines():
            line, said = line.replace("job </", f"job <{NAMESPACE}/"), told.get(name, "")
            if line and line.rstrip(".") not in said:
                found.append(f"{name} is told {said!r}, which lacks {line!r}")
    return found


FILES = {"kai/scenarios_*": check}
