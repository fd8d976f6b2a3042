"""The play of gangs, plain pods and jobs under contention: faults, then the final checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from bayplan.backends.embedded.kinds.gangs import GangApi
from bayplan.backends.fake_controllers.device_claims import CLAIMS
from bayplan.dialects.api import Kind
from bayplan.dialects.jobs.start_stop import resource
from bayplan.dialects.kube.decode.wire import PODS_KIND
from bayplan.model.plan import Bind, Plan
from bayplan.model.pod import Pod
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.controllers.scheduler.device_binding import HELD_SECONDS
from bayplan.runtime.core.controller import Controller
from bayplan.simulator.core.checkers import check_consistency
from bayplan.simulator.core.faults import NONE, Chances
from bayplan.simulator.core.fixtures import PLAIN_NODES, PLAIN_PODS
from bayplan.simulator.core.scheduler_simulation import RESTING_STATES, SchedulerSimulation
from bayplan.simulator.core.simulation import EPOCH, NEVER
from bayplan.simulator.pods.actors import PodActors
from bayplan.simulator.pods.checkers import PodChecker, check_pending_reasons
from bayplan.simulator.pods.device_actors import DeviceActors
from bayplan.simulator.pods.device_checker import DeviceChecker, idle_claims
from bayplan.simulator.pods.device_world import with_devices
from bayplan.simulator.pods.gang_view import is_pending
from bayplan.simulator.pods.world import group_kind, pods_world
from bayplan.state.scheduling.queue import EntryState
from bayplan.state.scheduling.state import SchedulingState

ARRIVAL_SECONDS = 130.0  # some still come when the storm is over
UNCERTAIN_SECONDS = 40.0  # until the outcome of a write without an answer is known
ROUGH = Chances(missed=0.01, torn=0.002, crash=0.02)
WITHOUT_LOST_WRITES = replace(ROUGH, conflict=0.0, timeout_done=0.0, timeout_lost=0.0)
CHANCES_BY_SEED = (ROUGH, ROUGH, replace(ROUGH, crash=0.002, torn=0.0), WITHOUT_LOST_WRITES, NONE)
EVENTS = Kind("", "v1", "Event", "events")


class PodsSimulation(SchedulerSimulation):
    """Gangs, pods and jobs of our scheduler, and pods of another scheduler on the same nodes."""

    fault_seconds = 80.0
    quiet_seconds = 1200.0

    def __init__(self, seed: int, chances: Chances | None = None, *, devices: bool = False) -> None:
        rng, device_rng = Random(f"pods {seed}"), Random(f"devices {seed}")
        fault_chances = rng.choice(CHANCES_BY_SEED) if chances is None else chances
        self.world, slices = pods_world(rng, ARRIVAL_SECONDS), []
        if devices:
            claiming = with_devices(self.world, device_rng)
            self.world, slices = claiming.pods, claiming.slices
        super().__init__(seed, rng, Random(f"ids {seed}"), fault_chances, GangApi((self.world.version,)))
        self.create_initial(self.world.nodes, self.world.rules)
        self.device_actors = (
            DeviceActors(self.store, device_rng, slices, EPOCH, self.fault_seconds) if devices else None
        )
        self.actors = PodActors(
            self.store, rng, self.world, group_kind(self.world.version), EPOCH, self.fault_seconds
        )
        self.kinds = {"nodes": PLAIN_NODES, "pods": PLAIN_PODS, "groups": self.actors.groups,
                      "events": EVENTS, "jobs": resource("Job"), "jobsets": resource("JobSet")}  # fmt: skip
        self.environment = (self.actors.step, self.fake_controllers().step)
        if self.device_actors is not None:
            self.kinds["resourceclaims"] = CLAIMS
            self.environment = (self.actors.step, self.device_actors.step, self.fake_controllers().step)
        self.compared = tuple(self.kinds)
        self.checker, self.device_checker = PodChecker(self.world.profile.heal_seconds), DeviceChecker()
        self.checker.decides_before = HELD_SECONDS if devices else 0.0

    def controllers(self) -> Sequence[Controller]:
        self.scheduler = SchedulerController(self.world.profile)
        self.checker.restarted()
        return (self.scheduler,)

    def recover_all(self) -> None:
        self.actors.recover_all()
        if self.device_actors is not None:
            self.device_actors.recover_all()

    def problems(self) -> Iterator[str]:
        yield from check_consistency(self.scheduler.state)
        exact = self.now - max(self.outcome_lost_at, self.started_at) > UNCERTAIN_SECONDS
        yield from self.checker.check(
            self.listed, self.now, self._known_node, self.actors.disturbed, exact=exact
        )
        if self.device_actors is not None:
            heal_seconds = self.world.profile.heal_seconds
            yield from self.device_checker.check(self.listed, self.now, heal_seconds)

    def _known_node(self, pod: dict[str, Any]) -> str:
        meta = pod["metadata"]
        known = self.backend.known.get((PODS_KIND, meta["namespace"], meta["name"]))
        return "" if known is None else known.object.spec.node_name or ""

    def check_plan(self, plan: Plan) -> Iterator[str]:
        yield from self.checker.check_plan(plan, self.listed, self.now)

    def check_idle(self) -> Iterator[str]:
        """While idle: a fresh scheduler has the same state and would bind no other pod."""
        state = self.scheduler.state
        if not self.is_checkable():
            return
        fresh = SchedulerController(self.world.profile)
        view = self.load_fresh(fresh)
        nominations_known = self.outcome_lost_at == -NEVER and self.device_actors is None
        yield from check_same_state(state, fresh.state, with_nominations=nominations_known)
        for action in self.would_do(fresh, view):
            if isinstance(action, Bind):
                yield f"pod {action.pod.key.name} would fit on {action.node} but is pending"
            else:
                yield f"{action.by.name} could have {action.pod.key.name} preempted but is pending"

    def final_violations(self) -> Iterator[str]:
        for entry in self.scheduler.state.entries():
            if entry.state not in RESTING_STATES:
                yield f"{entry.ref.name} stays {entry.state} forever"
        yield from self.checker.check(
            self.listed, self.end, self._known_node, self.actors.disturbed, exact=False
        )
        disturbed_at = max(self.actors.disturbed_at, self.started_at, self.outcome_lost_at)
        if self.device_actors is not None:
            disturbed_at = max(disturbed_at, self.device_actors.disturbed_at)
            for _, idle in idle_claims(self.listed("resourceclaims"), self.listed("pods")):
                yield f"{idle} in the end"
        yield from self.checker.check_useful_preemptions(disturbed_at + UNCERTAIN_SECONDS)
        yield from check_pending_reasons(self.listed)

    def summarize(self) -> None:
        pods = self.listed("pods")
        self.report.jobs = len(self.checker.bound) + sum(map(is_pending, pods))
        self.report.finished = len(self.checker.bound)
        self.report.faults.update(self.actors.injected)
        if self.device_actors is not None:
            self.report.faults.update(self.device_actors.injected)
        self.report.faults["displaced"] += len(self.checker.preempted)


def check_same_state(
    own: SchedulingState, fresh: SchedulingState, *, with_nominations: bool
) -> Iterator[str]:
    """Two idle schedulers have the same state, whatever events led to it.

    Clearing a nomination is written once; if that write was lost, the API still has it. So it has if the
    binding of a nominated pod was given up while its claims were written. Hosts for open slots of domains
    are chosen when they are needed.
    """
    own.store.claims.settle()
    fresh.store.claims.settle()
    for what, own_part, fresh_part in (
        ("the ledger", own.store.nodes.ledger.by_node(), fresh.store.nodes.ledger.by_node()),
        ("the index", _indexed(own), _indexed(fresh)),
        ("the pods on nodes", _placed(own), _placed(fresh)),
        (
            "the nominations",
            _nominated(own) if with_nominations else {},
            _nominated(fresh) if with_nominations else {},
        ),
        ("the gang specs", own.store.specs, fresh.store.specs),
        ("the gang states", _gang_states(own), _gang_states(fresh)),
        ("the devices in use", _held_devices(own), _held_devices(fresh)),
    ):
        if own_part != fresh_part:
            keys = sorted(
                map(str, {k for k in {*own_part, *fresh_part} if own_part.get(k) != fresh_part.get(k)})
            )
            difference = _first_difference(own_part, fresh_part)
            yield f"{what} is not what a fresh list gives, of {keys[:3]}: {difference}"


def _first_difference(own_part: Any, fresh_part: Any) -> str:
    key = min({k for k in {*own_part, *fresh_part} if own_part.get(k) != fresh_part.get(k)}, key=str)
    return f"{own_part.get(key)} instead of {fresh_part.get(key)}"


def _placed(state: SchedulingState) -> dict[Any, Pod]:
    """Placed pods by key. The pod set and rank of a terminating pod do not count."""
    return {
        key: replace(_without_devices(pod), pod_set="", rank=0) if pod.terminating else _without_devices(pod)
        for key, pod in state.store.placed.items()
    }


def _without_devices(pod: Pod) -> Pod:
    """A bound pod without what it needed of devices: only a scheduler that saw it pending knows that."""
    signature = replace(pod.spec.signature, devices=None)
    return replace(pod, spec=replace(pod.spec, signature=signature, device_claims=(), new_claims=()))


def _indexed(state: SchedulingState) -> dict[Any, Any]:
    names = {slot: name for name, slot in state.store.index.slots.numbers.items()}
    return {
        key: (names[one.node], replace(one.shape, devices=None), one.leaving)
        for key, one in state.store.index.pods.items()
    }


def _nominated(state: SchedulingState) -> dict[Any, str]:
    return {key: node for key, (_, node) in state.store.nominations.items()}


def _held_devices(state: SchedulingState) -> dict[Any, Any]:
    supply = state.store.devices.supply()
    return {} if supply is None else dict(supply.holdings.allocations)


def _gang_states(state: SchedulingState) -> dict[Any, Any]:
    return {
        entry.ref: (
            "pending" if entry.state in (EntryState.UNSCHEDULABLE, EntryState.READY) else str(entry.state),
            tuple(pod.key for pod in state.pending(entry.ref)),
            tuple(pod.key for pod in state.bound(entry.ref)),
        )
        for entry in state.entries()
    }
