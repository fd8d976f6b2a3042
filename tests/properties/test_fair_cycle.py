"""Whatever the queues: bounds hold, nobody goes in vain, gangs stay whole, and it all comes to rest."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from random import Random

import pytest

from bayplan.model.gang import GangSpec, Ref
from bayplan.model.node import HOSTNAME, PODS, Node
from bayplan.model.plan import Bind, Nominate, Plan, PreemptPod
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import PodSignature, PodSpec
from bayplan.model.quota import Entitlement, FairQueue
from bayplan.scheduling.fair_share.shares import fair_shares
from tests.properties.fair_worlds import World, world

SEEDS = range(100)
ROUNDS = 30


def used(found: World, *, lasting: bool = False) -> Counter[str]:
    """What each queue has, with all below it."""
    sums: Counter[str] = Counter()
    for pod in found.pods.values():
        assert pod.gang is not None
        charter = found.charters[pod.gang]
        if pod.node and (charter.non_preemptible or not lasting):
            name = charter.queue
            while name:
                sums[name] += pod.amounts["gpu"]
                name = found.queues[name].parent
    return sums


def bounds_hold(found: World) -> None:
    for name, amount in used(found).items():
        limit = found.queues[name].entitlements["gpu"].limit
        assert limit is None or amount <= limit, name
    for name, amount in used(found, lasting=True).items():
        quota = found.queues[name].entitlements["gpu"].quota
        assert quota is None or amount <= quota, name
    taken = Counter[str]()
    for pod in found.pods.values():
        taken[pod.node] += pod.amounts["gpu"] if pod.node else 0
    assert all(taken[name] <= node.allocatable["gpu"] for name, node in found.nodes.items())


def gangs_are_whole(found: World, moving: set[Ref]) -> None:
    """But for those of which some pods move."""
    for ref, charter in found.charters.items():
        standing = sum(bool(pod.node) for pod in found.gang(ref))
        assert ref in moving or standing == 0 or standing >= charter.minimum, ref


def nobody_goes_in_vain(found: World, plan: Plan) -> None:
    """Once those who have to go are gone, everybody who was promised room, and who moves, has it."""
    gone = {action.pod.key for action in plan.actions if isinstance(action, PreemptPod)}
    free = {name: node.allocatable["gpu"] for name, node in found.nodes.items()}
    for pod in found.pods.values():
        if pod.node and pod.key not in gone:
            free[pod.node] -= pod.amounts["gpu"]
    promised: dict[Ref, set[PodKey]] = {}
    for action in plan.actions:
        match action:
            case Bind(_, pod, node):
                free[node] -= pod.amounts["gpu"]
            case Nominate(gang, pod, node) if node:
                free[node] -= pod.amounts["gpu"]
                promised.setdefault(gang, set()).add(pod.key)
            case PreemptPod(pod, by):
                charter = found.charters[pod.gang] if pod.gang is not None else None
                assert charter is not None and not charter.non_preemptible
                assert by in {one.gang for one in plan.actions if isinstance(one, Nominate) and one.node}
                if action.moves_to:
                    free[action.moves_to] -= pod.amounts["gpu"]
    assert all(amount >= 0 for amount in free.values()), free
    for gang, keys in promised.items():
        held = sum(bool(pod.node) and pod.key not in gone for pod in found.gang(gang))
        assert held + len(keys) >= found.charters[gang].minimum


@pytest.mark.parametrize("seed", SEEDS)
def test_it_comes_to_rest(seed: int) -> None:
    found, moving = world(seed), set[Ref]()
    for _ in range(ROUNDS):
        plan = found.decide()
        nobody_goes_in_vain(found, plan)
        acts = [action for action in plan.actions if isinstance(action, Bind | PreemptPod | Nominate)]
        if not acts:
            break
        moving |= {
            one.pod.gang for one in acts if isinstance(one, PreemptPod) and one.moves_to and one.pod.gang
        }
        found.carry_out(plan)
        bounds_hold(found)
        gangs_are_whole(found, moving)
    else:
        raise AssertionError("somebody goes or comes for ever")
    gangs_are_whole(found, set())
    everybody_with_a_right_has_it(found)


def everybody_with_a_right_has_it(found: World) -> None:
    """Nobody who fits waits: no gang within all bounds that one node could hold as it is."""
    free = {name: node.allocatable["gpu"] for name, node in found.nodes.items()}
    for pod in found.pods.values():
        if pod.node:
            free[pod.node] -= pod.amounts["gpu"]
    for ref, charter in found.charters.items():
        pods = found.gang(ref)
        if any(pod.node for pod in pods):
            continue
        asked = sum(pod.amounts["gpu"] for pod in pods[: charter.minimum])
        sums, lasting = used(found), used(found, lasting=True)
        name, bounded = charter.queue, False
        while name:
            said = found.queues[name].entitlements["gpu"]
            bounded |= said.limit is not None and sums[name] + asked > said.limit
            bounded |= (
                charter.non_preemptible and said.quota is not None and lasting[name] + asked > said.quota
            )
            name = found.queues[name].parent
        assert bounded or all(amount < asked for amount in free.values()), ref


@pytest.mark.parametrize("seed", range(40))
def test_shares_are_reached_where_pods_are_small(seed: int) -> None:
    """Queues that ask for more than there is end up with their shares, whoever came first."""
    rng = Random(seed)
    queues = {name: small_queue(rng, name, at) for at, name in enumerate(("q0", "q1", "q2"))}
    found = World({"n0": Node("n0", {HOSTNAME: "n0"}, {"gpu": 12, PODS: 99})}, queues, {})
    wanted = {name: {"gpu": rng.randrange(3, 15)} for name in queues}
    for name in rng.sample(sorted(queues), 3):  # one queue after the other comes, and takes what it can get
        for at in range(wanted[name]["gpu"]):
            one_pod(found, f"{name}-{at}", name)
        settle(found)
    shares = fair_shares(queues, wanted, {"gpu": 12})
    if sum(one.entitlements["gpu"].quota or 0 for one in queues.values()) <= 12:
        assert {name: used(found)[name] for name in queues} == {name: shares[name]["gpu"] for name in queues}


def small_queue(rng: Random, name: str, at: int) -> FairQueue:
    said = Entitlement(Fraction(rng.randrange(5)), None, Fraction(rng.randrange(1, 4)))
    return FairQueue(name, entitlements={"gpu": said}, created=float(at))


def one_pod(found: World, name: str, queue: str) -> None:
    ref, key = Ref("test", "Gang", "ns", name), PodKey("ns", name)
    found.charters[ref] = GangSpec(ref, 1, priority=1, queue=queue, created=float(len(found.charters)))
    amounts = {"gpu": 1, PODS: 1}
    wants = PodSpec(PodSignature("ns", amounts=tuple(amounts.items())), 1)
    found.pods[key] = Pod(key, f"uid-{name}", amounts, gang=ref, spec=wants, ours=True, created=1.0)


def settle(found: World) -> None:
    for _ in range(ROUNDS):
        plan = found.decide()
        if not any(isinstance(action, Bind | PreemptPod | Nominate) for action in plan.actions):
            return
        found.carry_out(plan)
    raise AssertionError("somebody goes or comes for ever")
