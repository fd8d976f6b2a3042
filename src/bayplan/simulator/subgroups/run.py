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
from bayplan.simulator.core.scheduler_simulation import ANY_PLACE, REST_SECONDS, SchedulerSimulation
from bayplan.simulator.core.simulation import EPOCH, NEVER
from bayplan.simulator.pods.checkers import everybody_is_told
from bayplan.simulator.pods.gang_view import waits
from bayplan.simulator.pods.run import (
    COMING_SECONDS,
    EVENTS,
    IN_DOUBT_SECONDS,
    WEATHER,
    same_story,
)
from bayplan.simulator.subgroups.actors import SubgroupActors
from bayplan.simulator.subgroups.checkers import (
    SubgroupChecker,
    groups_are_told,
    nobody_is_stale,
    queues_are_told,
)
from bayplan.simulator.subgroups.group_view import GroupView, books, groves
from bayplan.simulator.subgroups.placement_oracle import FreeHosts, has_room
from bayplan.simulator.subgroups.queue_view import CPU, QueueUsageView, amounts_of_pod
from bayplan.simulator.subgroups.world import trees_world
from bayplan.state.scheduling.state import SchedulingState

Object = dict[str, Any]
TOLD = {"pods": PODS_KIND, "groups": wire.POD_GROUPS, "queues": wire.QUEUES}


class TreesSimulation(SchedulerSimulation):
    """Groups with trees of sub-groups that share nodes by queue, and jobs that are put into groups."""

    storm_seconds = 80.0
    calm_seconds = 1200.0
    must_rest = False  # who waits is tried again now and then; but nothing may come of it

    def __init__(self, seed: int, chances: Chances | None = None) -> None:
        rng = Random(f"trees {seed}")
        weather = rng.choice(WEATHER) if chances is None else chances
        self.world = trees_world(rng, COMING_SECONDS)
        super().__init__(seed, rng, Random(f"ids {seed}"), weather)
        self.furnish(self.world.nodes, self.world.rules)
        minds = Random(f"minds {seed}")
        self.hands = SubgroupActors(self.store, rng, self.world, EPOCH, self.storm_seconds, minds)
        self.kinds = {"nodes": PLAIN_NODES, "pods": PLAIN_PODS, "events": EVENTS} | {
            "queues": names.QUEUE, "groups": names.POD_GROUP, "jobs": resource("Job"),
            "jobsets": resource("JobSet"),
        }  # fmt: skip
        self.kept = tuple(self.kinds)
        self.cast = (self.hands.step, self.crew().step)
        self.watchman = SubgroupChecker(self.world.profile.heal_seconds)
        self.changed, self.seen = EPOCH, 0  # when any object did, and what that made of the store

    def roles(self) -> Sequence[Controller]:
        self.scheduler = SchedulerController(self.world.profile, awaits_grouper=True)
        self.watchman.restarted()
        return (self.scheduler, PodGrouperController())

    def mend(self) -> None:
        self.hands.mend()

    def act(self) -> None:
        super().act()
        if self.store.version != self.seen:
            self.changed, self.seen = self.now, self.store.version

    # ── what may never be seen ──

    def problems(self) -> Iterator[str]:
        yield from belief_is_consistent(self.scheduler.state)
        sure = self.now - max(self.lost, self.begun, self.hands.ruled) > IN_DOUBT_SECONDS
        exact = sure and not self._rules_were_lost()
        told = {key for key, pod in self.scheduler.state.store.pods.items() if pod.node}
        yield from self.watchman.check(self.listed, self.now, told, exact=exact)

    def _rules_were_lost(self) -> bool:
        """Pods of a group that was deleted count for no queue; when it comes back, they do again."""
        return bool(self.hands.injected["group_deleted"] + self.hands.injected["gang_deleted"])

    def planned(self, plan: Plan) -> Iterator[str]:
        yield from self.watchman.planned(plan, self.told, self.scheduler.state, self.now)

    def told(self, plural: str) -> list[Object]:
        """All objects of a kind as we were told of them last."""
        kind = TOLD[plural]
        known = (event.object for (of, _, _), event in self.backend.known.items() if of == kind)
        return [msgspec.to_builtins(found) for found in known]

    # ── what must hold whenever nothing is under way ──

    def at_rest(self) -> Iterator[str]:
        """A fresh start believes the same and would place nobody; whose minima have room does not wait."""
        state = self.scheduler.state
        if not self.may_judge():
            return
        fresh = SchedulerController(self.world.profile, awaits_grouper=True)
        view = self.begin_afresh(fresh)
        yield from same_story(state, fresh.state, promises=self.lost == -NEVER)
        yield from same_shares(state, fresh.state)
        yield from self._who_could_start(state)
        for action in self.would_do(fresh, view):
            if isinstance(action, Bind):
                yield f"pod {action.pod.key.name} would fit on {action.node} but waits"
            else:
                yield f"{action.by.name} could have {action.pod.key.name} make room but waits"

    def _who_could_start(self, state: SchedulingState) -> Iterator[str]:
        """Groups whose minima have room on free nodes, within what their queues may have."""
        found = groves(self.listed)
        kept = books(self.listed, found)
        reserved = state.gangs.kept
        keeper, spared = ("", frozenset[str]()) if reserved is None else (reserved[0].name, reserved[1])
        for grove in found.values():
            told = state.told(Ref(names.DIALECT, names.POD_GROUP.kind, NAMESPACE, grove.name))
            if (told is not None and told.unsure) or not may_start(grove, kept):
                continue
            nodes = self.listed("nodes")
            if keeper and grove.name != keeper:
                nodes = [node for node in nodes if node["metadata"]["name"] not in spared]
            if has_room(grove, FreeHosts.of(nodes, self.listed("pods"))):
                yield f"{grove.name} waits, though there is room for all that it needs"

    def verdict(self) -> Iterator[str]:
        if not self.is_quiet() and self.now - self.changed < REST_SECONDS:
            yield f"there is no rest after {self.now - EPOCH:.0f} s"
        for entry in self.scheduler.state.entries():
            if entry.place not in ANY_PLACE:
                yield f"{entry.ref.name} is {entry.place} for ever"
        told = {PodKey(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in self.listed("pods")}
        yield from self.watchman.check(self.listed, self.end, told, exact=False)
        yield from self.watchman.in_vain(max(self.hands.meddled, self.begun, self.lost) + IN_DOUBT_SECONDS)
        yield from nobody_is_stale(self.listed)
        yield from everybody_is_told(self.listed)
        yield from groups_are_told(self.listed)
        yield from queues_are_told(self.listed)

    def sum_up(self) -> None:
        pods = self.listed("pods")
        self.report.jobs = len(self.watchman.bound) + sum(map(waits, pods))
        self.report.finished = len(self.watchman.bound)
        self.report.faults.update(self.hands.injected)
        self.report.faults["displaced"] += len(self.watchman.sent)


def may_start(grove: GroupView, kept: QueueUsageView) -> bool:
    """Whether nothing but nodes can be in the way of a group's minima."""
    short = grove.short(grove.standing())
    if not grove.known or grove.flawed or not short:
        return False
    if not kept.queues:
        return True
    if not kept.is_leaf(grove.queue):
        return False
    then = replace(kept, use=dict(kept.use), lasting=dict(kept.lasting))
    for leaf, lack in short.items():
        mine = [pod for pod in grove.waiting() if grove.leaf_of(pod) == leaf]
        for pod in mine[:lack]:
            then.take(grove.queue, amounts_of_pod(pod).get(CPU, 0), lasting=grove.lasting)
    return not any(then.too_much(grove.queue, lasting=grove.lasting))


def same_shares(ours: SchedulingState, theirs: SchedulingState) -> Iterator[str]:
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
