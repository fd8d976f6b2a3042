"""One seed of groups with sub-groups, queues and jobs: faults, contention, calm, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import msgspec

from bayplan.backends.fake_controllers.manifests import NAMESPACE
from bayplan.dialects.jobs.running import resource
from bayplan.dialects.kai.api import names, wire
from bayplan.dialects.kube.decode.wire import PODS_KIND
from bayplan.model.gang import Ref
from bayplan.model.plan import Bind, Plan
from bayplan.model.pod import PodKey
from bayplan.runtime.controllers.pod_grouper.controller import PodGrouperController
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.core.controller import Controller
from bayplan.simulator.core.checkers import belief_is_consistent
from bayplan.simulator.core.faults import Chances
from bayplan.simulator.core.fixtures import PLAIN_NODES, PLAIN_PODS
from bayplan.simulator.core.scheduler_simulation import REST_SECONDS, RESTING_STATES, SchedulerSimulation
from bayplan.simulator.core.simulation import EPOCH, NEVER
from bayplan.simulator.pods.checkers import check_pending_reasons
from bayplan.simulator.pods.gang_view import waits
from bayplan.simulator.pods.run import (
    ARRIVAL_SECONDS,
    CHANCES_BY_SEED,
    EVENTS,
    UNCERTAIN_SECONDS,
    check_same_state,
)
from bayplan.simulator.subgroups.actors import SubgroupActors
from bayplan.simulator.subgroups.checkers import (
    SubgroupChecker,
    check_group_status,
    check_no_partial_groups,
    check_queue_status,
)
from bayplan.simulator.subgroups.group_view import GroupView, books, group_views
from bayplan.simulator.subgroups.placement_oracle import FreeHosts, fits_on_free_hosts
from bayplan.simulator.subgroups.queue_view import CPU, QueueUsageView, amounts_of_pod
from bayplan.simulator.subgroups.world import trees_world
from bayplan.state.scheduling.state import SchedulingState

Object = dict[str, Any]
TOLD = {"pods": PODS_KIND, "groups": wire.POD_GROUPS, "queues": wire.QUEUES}


class TreesSimulation(SchedulerSimulation):
    """Groups with trees of sub-groups that share nodes by queue, and jobs that are put into groups."""

    fault_seconds = 80.0
    quiet_seconds = 1200.0
    must_settle = False  # who waits is tried again now and then; but nothing may come of it

    def __init__(self, seed: int, chances: Chances | None = None) -> None:
        rng = Random(f"trees {seed}")
        fault_chances = rng.choice(CHANCES_BY_SEED) if chances is None else chances
        self.world = trees_world(rng, ARRIVAL_SECONDS)
        super().__init__(seed, rng, Random(f"ids {seed}"), fault_chances)
        self.create_initial(self.world.nodes, self.world.rules)
        minds = Random(f"minds {seed}")
        self.actors = SubgroupActors(self.store, rng, self.world, EPOCH, self.fault_seconds, minds)
        self.kinds = {"nodes": PLAIN_NODES, "pods": PLAIN_PODS, "events": EVENTS} | {
            "queues": names.QUEUE, "groups": names.POD_GROUP, "jobs": resource("Job"),
            "jobsets": resource("JobSet"),
        }  # fmt: skip
        self.compared = tuple(self.kinds)
        self.environment = (self.actors.step, self.fake_controllers().step)
        self.checker = SubgroupChecker(self.world.profile.heal_seconds)
        self.changed, self.seen = EPOCH, 0  # when any object did, and what that made of the store

    def controllers(self) -> Sequence[Controller]:
        self.scheduler = SchedulerController(self.world.profile, awaits_grouper=True)
        self.checker.restarted()
        return (self.scheduler, PodGrouperController())

    def recover_all(self) -> None:
        self.actors.recover_all()

    def act(self) -> None:
        super().act()
        if self.store.version != self.seen:
            self.changed, self.seen = self.now, self.store.version

    # ── what may never be seen ──

    def problems(self) -> Iterator[str]:
        yield from belief_is_consistent(self.scheduler.state)
        sure = self.now - max(self.outcome_lost_at, self.started_at, self.actors.ruled) > UNCERTAIN_SECONDS
        exact = sure and not self._rules_were_lost()
        told = {key for key, pod in self.scheduler.state.store.pods.items() if pod.node}
        yield from self.checker.check(self.listed, self.now, told, exact=exact)

    def _rules_were_lost(self) -> bool:
        """Pods of a group that was deleted count for no queue; when it comes back, they do again."""
        return bool(self.actors.injected["group_deleted"] + self.actors.injected["gang_deleted"])

    def check_plan(self, plan: Plan) -> Iterator[str]:
        yield from self.checker.check_plan(plan, self.told, self.scheduler.state, self.now)

    def told(self, plural: str) -> list[Object]:
        """All objects of a kind as we were told of them last."""
        kind = TOLD[plural]
        known = (event.object for (of, _, _), event in self.backend.known.items() if of == kind)
        return [msgspec.to_builtins(found) for found in known]

    # ── what must hold whenever nothing is under way ──

    def check_idle(self) -> Iterator[str]:
        """A fresh start believes the same and would place nobody; whose minima have room does not wait."""
        state = self.scheduler.state
        if not self.is_checkable():
            return
        fresh = SchedulerController(self.world.profile, awaits_grouper=True)
        view = self.load_fresh(fresh)
        yield from check_same_state(state, fresh.state, promises=self.outcome_lost_at == -NEVER)
        yield from check_same_queue_usage(state, fresh.state)
        yield from self._check_startable(state)
        for action in self.would_do(fresh, view):
            if isinstance(action, Bind):
                yield f"pod {action.pod.key.name} would fit on {action.node} but waits"
            else:
                yield f"{action.by.name} could have {action.pod.key.name} preempted but is pending"

    def _check_startable(self, state: SchedulingState) -> Iterator[str]:
        """Groups whose minima have room on free nodes, within what their queues may have."""
        found = group_views(self.listed)
        kept = books(self.listed, found)
        reserved = state.gangs.kept
        keeper, spared = ("", frozenset[str]()) if reserved is None else (reserved[0].name, reserved[1])
        for view in found.values():
            told = state.told(Ref(names.DIALECT, names.POD_GROUP.kind, NAMESPACE, view.name))
            if (told is not None and told.unsure) or not is_startable(view, kept):
                continue
            nodes = self.listed("nodes")
            if keeper and view.name != keeper:
                nodes = [node for node in nodes if node["metadata"]["name"] not in spared]
            if fits_on_free_hosts(view, FreeHosts.of(nodes, self.listed("pods"))):
                yield f"{view.name} waits, though it fits on free nodes for all that it needs"

    def final_violations(self) -> Iterator[str]:
        if not self.is_quiet() and self.now - self.changed < REST_SECONDS:
            yield f"there is no rest after {self.now - EPOCH:.0f} s"
        for entry in self.scheduler.state.entries():
            if entry.place not in RESTING_STATES:
                yield f"{entry.ref.name} stays {entry.place} forever"
        told = {PodKey(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in self.listed("pods")}
        yield from self.checker.check(self.listed, self.end, told, exact=False)
        yield from self.checker.check_useful_preemptions(
            max(self.actors.disturbed_at, self.started_at, self.outcome_lost_at) + UNCERTAIN_SECONDS
        )
        yield from check_no_partial_groups(self.listed)
        yield from check_pending_reasons(self.listed)
        yield from check_group_status(self.listed)
        yield from check_queue_status(self.listed)

    def summarize(self) -> None:
        pods = self.listed("pods")
        self.report.jobs = len(self.checker.bound) + sum(map(waits, pods))
        self.report.finished = len(self.checker.bound)
        self.report.faults.update(self.actors.injected)
        self.report.faults["displaced"] += len(self.checker.sent)


def is_startable(view: GroupView, kept: QueueUsageView) -> bool:
    """Whether nothing but nodes can be in the way of a group's minima."""
    short = view.short(view.standing())
    if not view.known or view.flawed or not short:
        return False
    if not kept.queues:
        return True
    if not kept.is_leaf(view.queue):
        return False
    then = replace(kept, use=dict(kept.use), lasting=dict(kept.lasting))
    for leaf, lack in short.items():
        mine = [pod for pod in view.waiting() if view.leaf_of(pod) == leaf]
        for pod in mine[:lack]:
            then.take(view.queue, amounts_of_pod(pod).get(CPU, 0), lasting=view.lasting)
    return not any(then.over_limit(view.queue, lasting=view.lasting))


def check_same_queue_usage(ours: SchedulingState, theirs: SchedulingState) -> Iterator[str]:
    """Two boards at rest believe the same of what queues have and want."""
    mine, fresh = ours.store.fair.view(), theirs.store.fair.view()
    if (mine is None) != (fresh is None):
        yield f"queues are known to one of us only: {mine} and {fresh}"
    if mine is None or fresh is None:
        return
    for what in ("has", "lasting", "wants"):
        one, other = _amounts(getattr(mine, what)), _amounts(getattr(fresh, what))
        if one != other:
            yield f"what each queue {what} is not what a fresh list gives: {one}, not {other}"
    if _some(mine.capacity) != _some(fresh.capacity) or mine.queues != fresh.queues:
        yield f"capacity or queues are not what a fresh list gives: {mine}, not {fresh}"


def _amounts(by_queue: Any) -> dict[str, Any]:
    return {queue: some for queue, amounts in by_queue.items() if (some := _some(amounts))}


def _some(amounts: Any) -> dict[str, int]:
    return {resource: amount for resource, amount in amounts.items() if amount}
