"""One seed of gangs, plain pods and jobs before our scheduler: faults, contention, calm, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from bayplan.backends.embedded.kinds.gangs import GangApi
from bayplan.dialects.api import Kind
from bayplan.dialects.jobs.running import resource
from bayplan.dialects.kube.decode.wire import PODS_KIND
from bayplan.model.plan import Bind, Plan
from bayplan.model.pod import Pod
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.core.controller import Controller
from bayplan.simulator.core.checkers import belief_is_consistent
from bayplan.simulator.core.faults import NONE, Chances
from bayplan.simulator.core.fixtures import PLAIN_NODES, PLAIN_PODS
from bayplan.simulator.core.scheduler_simulation import ANY_PLACE, SchedulerSimulation
from bayplan.simulator.core.simulation import EPOCH, NEVER
from bayplan.simulator.pods.actors import PodActors
from bayplan.simulator.pods.checkers import PodChecker, everybody_is_told
from bayplan.simulator.pods.gang_view import waits
from bayplan.simulator.pods.world import group_kind, pods_world
from bayplan.state.scheduling.queue import EntryState
from bayplan.state.scheduling.state import SchedulingState

COMING_SECONDS = 130.0  # some still come when the storm is over
IN_DOUBT_SECONDS = 40.0  # so long it may take until we know what became of a write that nobody answered
ROUGH = Chances(missed=0.01, torn=0.002, crash=0.02)
KNOWN_ENDS = replace(ROUGH, conflict=0.0, timeout_done=0.0, timeout_lost=0.0)
WEATHER = (ROUGH, ROUGH, replace(ROUGH, crash=0.002, torn=0.0), KNOWN_ENDS, NONE)
EVENTS = Kind("", "v1", "Event", "events")


class PodsSimulation(SchedulerSimulation):
    """Gangs, pods and jobs that our scheduler finds nodes for, and others who want the same nodes."""

    storm_seconds = 80.0
    calm_seconds = 1200.0

    def __init__(self, seed: int, chances: Chances | None = None) -> None:
        rng = Random(f"pods {seed}")
        weather = rng.choice(WEATHER) if chances is None else chances
        self.world = pods_world(rng, COMING_SECONDS)
        super().__init__(seed, rng, Random(f"ids {seed}"), weather, GangApi((self.world.version,)))
        self.furnish(self.world.nodes, self.world.rules)
        self.hands = PodActors(
            self.store, rng, self.world, group_kind(self.world.version), EPOCH, self.storm_seconds
        )
        self.kinds = {"nodes": PLAIN_NODES, "pods": PLAIN_PODS, "groups": self.hands.groups, "events": EVENTS,
                      "jobs": resource("Job"), "jobsets": resource("JobSet")}  # fmt: skip
        self.kept = tuple(self.kinds)
        self.cast = (self.hands.step, self.crew().step)
        self.watchman = PodChecker(self.world.profile.heal_seconds)

    def roles(self) -> Sequence[Controller]:
        self.scheduler = SchedulerController(self.world.profile)
        self.watchman.restarted()
        return (self.scheduler,)

    def mend(self) -> None:
        self.hands.mend()

    def problems(self) -> Iterator[str]:
        yield from belief_is_consistent(self.scheduler.state)
        exact = self.now - max(self.lost, self.begun) > IN_DOUBT_SECONDS
        yield from self.watchman.check(self.listed, self.now, self._told, self.hands.disturbed, exact=exact)

    def _told(self, pod: dict[str, Any]) -> str:
        meta = pod["metadata"]
        known = self.backend.known.get((PODS_KIND, meta["namespace"], meta["name"]))
        return "" if known is None else known.object.spec.node_name or ""

    def planned(self, plan: Plan) -> Iterator[str]:
        yield from self.watchman.planned(plan, self.listed, self.now)

    def at_rest(self) -> Iterator[str]:
        """Whenever nothing is under way: a fresh start believes the same, and would place nobody else."""
        state = self.scheduler.state
        if not self.may_judge():
            return
        fresh = SchedulerController(self.world.profile)
        view = self.begin_afresh(fresh)
        yield from same_story(state, fresh.state, promises=self.lost == -NEVER)
        for action in self.would_do(fresh, view):
            if isinstance(action, Bind):
                yield f"pod {action.pod.key.name} would fit on {action.node} but waits"
            else:
                yield f"{action.by.name} could have {action.pod.key.name} make room but waits"

    def verdict(self) -> Iterator[str]:
        for entry in self.scheduler.state.entries():
            if entry.place not in ANY_PLACE:
                yield f"{entry.ref.name} is {entry.place} for ever"
        yield from self.watchman.check(self.listed, self.end, self._told, self.hands.disturbed, exact=False)
        yield from self.watchman.in_vain(max(self.hands.meddled, self.begun, self.lost) + IN_DOUBT_SECONDS)
        yield from everybody_is_told(self.listed)

    def sum_up(self) -> None:
        pods = self.listed("pods")
        self.report.jobs = len(self.watchman.bound) + sum(map(waits, pods))
        self.report.finished = len(self.watchman.bound)
        self.report.faults.update(self.hands.injected)
        self.report.faults["displaced"] += len(self.watchman.sent)


def same_story(ours: SchedulingState, theirs: SchedulingState, *, promises: bool) -> Iterator[str]:
    """Two boards at rest believe the same, whichever way they came to it.

    That a promise is taken back is written once; if that write was lost, the API still has it.
    """
    for what, mine, fresh in (
        ("the ledger", ours.store.nodes.ledger.by_node(), theirs.store.nodes.ledger.by_node()),
        ("the index", _indexed(ours), _indexed(theirs)),
        ("who is on nodes", _placed(ours), _placed(theirs)),
        ("promised room", _promised(ours) if promises else {}, _promised(theirs) if promises else {}),
        ("the rules", ours.store.charters, theirs.store.charters),
        ("who stands where", _standing(ours), _standing(theirs)),
    ):
        if mine != fresh:
            keys = sorted(map(str, {k for k in {*mine, *fresh} if mine.get(k) != fresh.get(k)}))
            yield f"{what} is not what a fresh list gives, of {keys[:3]}: {_one(mine, fresh)}"


def _one(mine: Any, fresh: Any) -> str:
    key = min({k for k in {*mine, *fresh} if mine.get(k) != fresh.get(k)}, key=str)
    return f"{mine.get(key)} instead of {fresh.get(key)}"


def _placed(board: SchedulingState) -> dict[Any, Pod]:
    """Which place in its gang one has that is about to leave is of no account."""
    return {
        key: replace(pod, pod_set="", rank=0) if pod.leaving else pod
        for key, pod in board.store.placed.items()
    }


def _indexed(board: SchedulingState) -> dict[Any, Any]:
    names = {slot: name for name, slot in board.store.index.slots.numbers.items()}
    return {key: (names[one.node], one.shape, one.leaving) for key, one in board.store.index.pods.items()}


def _promised(board: SchedulingState) -> dict[Any, str]:
    return {key: node for key, (_, node) in board.store.nominations.items()}


def _standing(board: SchedulingState) -> dict[Any, Any]:
    return {
        entry.ref: (
            "waits" if entry.place in (EntryState.PARKED, EntryState.READY) else str(entry.place),
            tuple(pod.key for pod in board.waiting(entry.ref)),
            tuple(pod.key for pod in board.standing(entry.ref)),
        )
        for entry in board.entries()
    }
