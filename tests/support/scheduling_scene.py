"""Changes seen by the scheduling state (nodes, gangs, pods, queues), a state with them, and one cycle."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from bayplan.model.change import (
    Change,
    FairQueueSeen,
    GangSpecSeen,
    NodeSeen,
    PodSeen,
    TopologySeen,
)
from bayplan.model.gang import GangSpec, Group, Locality, PodSet, Ref
from bayplan.model.node import HOSTNAME, PODS, Topology
from bayplan.model.plan import Bind, Nominate, Plan, PreemptPod, ReportUnschedulable
from bayplan.model.pod_spec import PodSignature, PodSpec
from bayplan.model.profile import Profile
from bayplan.model.quota import Entitlement, FairQueue
from bayplan.model.rejection import RejectionReason
from bayplan.scheduling.binding.cycle import decide_gangs
from bayplan.state.scheduling.queue import EntryState
from bayplan.state.scheduling.state import SchedulingState
from tests.support import model_objects

RACKS = Topology("dc", ("rack", HOSTNAME))
NOW = 100.0


def node(name: str, rack: str = "r1", gpus: int = 4) -> NodeSeen:
    return NodeSeen(model_objects.node(name, {"rack": rack}, gpu=gpus, pods=10))


def ref(name: str) -> Ref:
    return Ref("test", "Job", "ns", name)


def tree(name: str, pods: int, gpus: int = 2, required: str | None = None, priority: int = 0) -> GangSpecSeen:
    """A gang made from a template: it is placed whole, by its tree."""
    main = PodSet("main", pods, pods, {"gpu": gpus}, Locality(required=required))
    return GangSpecSeen(
        GangSpec(
            ref(name), pods, priority=priority, disrupt_together=True, tree=Group("", (main,), 1), created=1.0
        )
    )


def gang(name: str, minimum: int, **more: Any) -> GangSpecSeen:
    return GangSpecSeen(GangSpec(ref(name), minimum, **{"created": 1.0, **more}))


def pod(of: str, rank: int, on: str = "", gpus: int = 2, priority: int = 0, **more: Any) -> PodSeen:
    amounts = {"gpu": gpus, PODS: 1}
    wants = PodSignature("ns", amounts=tuple(amounts.items()))
    known: dict[str, Any] = {"gang": ref(of), "pod_set": "main", "rank": rank} | more
    if gates := known.pop("gates", ()):
        known["spec"] = PodSpec(wants, priority, gates=gates)
    return PodSeen(model_objects.pod(f"{of}-{rank}", wants, on, priority, **known))


def queue(name: str, quota: int | None = 0, limit: int | None = None, **more: Any) -> FairQueueSeen:
    said = Entitlement(None if quota is None else Fraction(quota), None if limit is None else Fraction(limit))
    return FairQueueSeen(FairQueue(name, entitlements={"gpu": said}, **more))


def pods(of: str, count: int, **more: Any) -> Iterable[PodSeen]:
    return (pod(of, rank, **more) for rank in range(count))


def runs(name: str, of: str, gpus: int = 1, on: str = "n1", **more: Any) -> list[Change]:
    """A running gang of one pod."""
    return [gang(name, 1, queue=of, **more), pod(name, 0, on=on, gpus=gpus, started=1.0)]


def waits(name: str, of: str, gpus: int = 1, **more: Any) -> list[Change]:
    return [gang(name, 1, queue=of, **more), pod(name, 0, gpus=gpus)]


def board(*changes: Change) -> SchedulingState:
    found = SchedulingState()
    found.apply_all([TopologySeen(RACKS), *changes])
    return found


def step(found: SchedulingState, now: float = NOW, profile: Profile | None = None) -> Plan:
    heads = found.heads(now)
    plan = decide_gangs(found.snapshot(heads, now), profile or Profile(), now) if heads else Plan()
    found.assume(plan, now)
    return plan


def binds(plan: Plan) -> dict[str, str]:
    return {action.pod.key.name: action.node for action in plan.actions if isinstance(action, Bind)}


def place_of(found: SchedulingState, name: str) -> EntryState | None:
    return found.state_of(ref(name))


def ends(found: SchedulingState, plan: Plan, now: float = NOW, ended: str = "done") -> None:
    """The writes of a plan end, and the API shows the pods where they were bound."""
    for action in plan.actions:
        found.settle(action, ended, now)
        if isinstance(action, Bind) and ended == "done":
            found.apply(PodSeen(replace(found.store.pods[action.pod.key], node=action.node)))


def refusals(plan: Plan) -> list[ReportUnschedulable]:
    return [action for action in plan.actions if isinstance(action, ReportUnschedulable)]


def displaced(plan: Plan) -> dict[str, str]:
    return {action.pod.key.name: action.moves_to for action in plan.actions if isinstance(action, PreemptPod)}


def nominated(plan: Plan) -> dict[str, str]:
    return {action.pod.key.name: action.node for action in plan.actions if isinstance(action, Nominate)}


def why(plan: Plan) -> dict[str, RejectionReason]:
    return {refused.gang.name: refused.rejection.reason for refused in refusals(plan)}
