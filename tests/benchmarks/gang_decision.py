"""How long one decision takes, without any API: gangs that fit, that do not, and very large ones."""

from __future__ import annotations

import statistics
import time

from bayplan.model.change import GangSpecSeen, NodeSeen, PodSeen
from bayplan.model.gang import GangSpec, Ref
from bayplan.model.node import HOSTNAME, Node
from bayplan.model.plan import Bind, Plan, ReportUnschedulable
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import PodSignature, PodSpec
from bayplan.model.profile import Profile
from bayplan.scheduling.binding.cycle import decide_gangs
from bayplan.state.scheduling.state import SchedulingState

NODE = {"cpu": 32_000, "memory": 256 << 30, "pods": 110, "gpu": 8}
ROUNDS = 5
GANG = Ref("bench", "Gang", "default", "gang")


def decisions() -> bool:
    """Print what decisions cost; whether they were fast enough."""
    good = _told("1,000 pods on 5,000 nodes", 5_000, 1_000, 1, 0.1)
    good &= _told("1,000 pods that do not fit 5,000 nodes", 5_000, 1_000, 9, 0.1)
    good &= _told("10,000 pods on 100,000 nodes", 100_000, 10_000, 1, 2.0)
    return good


def _told(what: str, nodes: int, pods: int, gpus: int, limit: float) -> bool:
    board = _board(nodes)
    times = [_once(board, pods, gpus, number) for number in range(ROUNDS)]
    middle = statistics.median(times)
    word = "met" if middle <= limit else "MISSED"
    print(f"decision, {what}: {1000 * middle:.0f} ms (≤ {1000 * limit:.0f}, {word})", flush=True)
    return middle <= limit


def _board(nodes: int) -> SchedulingState:
    board = SchedulingState()
    board.apply_all(
        NodeSeen(Node(f"n{at:06d}", {HOSTNAME: f"n{at:06d}", "rack": f"r{at // 16}"}, NODE))
        for at in range(nodes)
    )
    return board


def _once(board: SchedulingState, pods: int, gpus: int, number: int) -> float:
    """The seconds from the look at the gang to its plan; nothing of it is carried out."""
    gang = Ref(GANG.dialect, GANG.kind, GANG.namespace, f"{GANG.name}-{number}")
    board.apply(GangSpecSeen(GangSpec(gang, minimum=pods, uid=gang.name)))
    amounts = {"cpu": 1000, "memory": 1 << 30, "gpu": gpus, "pods": 1}
    shape = PodSignature("default", amounts=tuple(sorted(amounts.items())), score_requests=(1000, 1 << 30))
    board.apply_all(
        PodSeen(
            Pod(
                PodKey("default", f"{gang.name}-{at}"),
                f"{at}",
                amounts,
                gang=gang,
                spec=PodSpec(shape),
                ours=True,
            )
        )
        for at in range(pods)
    )
    start = time.process_time()
    plan = decide_gangs(board.snapshot([gang], float(number)), Profile(), float(number))
    spent = time.process_time() - start
    _check(plan, pods, gpus)
    return spent


def _check(plan: Plan, pods: int, gpus: int) -> None:
    bound = sum(isinstance(action, Bind) for action in plan.actions)
    refused = any(isinstance(action, ReportUnschedulable) for action in plan.actions)
    assert bound == (pods if gpus <= NODE["gpu"] else 0), plan.actions[:3]
    assert refused == (bound == 0)
