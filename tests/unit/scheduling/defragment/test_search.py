"""The search for moves: the cheapest gangs leave, whole, in an order in which every place is free."""

from __future__ import annotations

from bayplan.model.change import Change
from bayplan.model.gang import Locality
from bayplan.model.profile import Profile
from bayplan.scheduling.defragment.cost import CostRules, accelerators, move_cost, priority_ranks
from bayplan.scheduling.defragment.problem import (
    DefragmentPlan,
    MovableGang,
    NoPlan,
    fresh_pods,
    required_level,
)
from bayplan.scheduling.defragment.proof import find_proven_plan, first_failure, slots_after
from bayplan.scheduling.defragment.running import running_gangs, snapshot_for_moves, touched_budgets
from bayplan.state.scheduling.snapshot import SchedulingSnapshot
from tests.support.defragment_worlds import RACK, room_request
from tests.support.scheduling_scene import NOW, board, gang, node, pod, ref

COSTS = {"cheap": 1, "fair": 5, "dear": 100}


def running(name: str, on: list[str], gpus: int = 4, *, together: bool = False) -> list[Change]:
    locality = Locality(required=RACK) if together else Locality()
    pods = [pod(name, rank, on=host, gpus=gpus, pod_set="", started=1.0) for rank, host in enumerate(on)]
    return [gang(name, len(on), locality=locality), *pods]


def hall(racks: int = 3, hosts: int = 2) -> list[Change]:
    return [
        node(f"r{rack}h{host}", f"r{rack}") for rack in range(1, racks + 1) for host in range(1, hosts + 1)
    ]


def look(*changes: Change) -> SchedulingSnapshot:
    return snapshot_for_moves(board(*changes), NOW)


def movers(snapshot: SchedulingSnapshot, **costs: int) -> list[MovableGang]:
    found = []
    for one, pods in running_gangs(snapshot).items():
        if one.name in costs:
            spec = snapshot.specs[one]
            level = required_level(spec)
            found.append(
                MovableGang(spec, pods, fresh_pods(pods), costs[one.name], levels=(level,) if level else ())
            )
    return found


def plan(snapshot: SchedulingSnapshot, pods: int, **costs: int) -> DefragmentPlan | NoPlan:
    return find_proven_plan(snapshot, Profile(), room_request(pods, 4), movers(snapshot, **costs))


def moves(found: DefragmentPlan | NoPlan) -> list[tuple[str, tuple[str, ...]]]:
    assert isinstance(found, DefragmentPlan)
    return [(move.gang.ref.name, move.nodes) for move in found.moves]


def test_a_gang_that_fits_needs_no_moves() -> None:
    found = plan(look(*hall()), 2)
    assert moves(found) == []


def test_the_cheapest_gang_leaves() -> None:
    world = look(*hall(), *running("dear", ["r1h1"]), *running("cheap", ["r2h1"]), *running("fair", ["r3h1"]))
    found = plan(world, 2, **COSTS)
    assert [name for name, _ in moves(found)] == ["cheap"]
    assert isinstance(found, DefragmentPlan) and found.cheapest and found.cost == 1
    assert {name[:2] for name in found.nodes} == {"r2"}
    assert slots_after(world, room_request(2, 4), found.moves) == (0, 1)


def test_a_gang_leaves_whole_and_stays_within_its_level() -> None:
    others = [*running("dear", ["r2h1"], 3), *running("fair", ["r3h1"], 3)]
    world = look(*hall(), *running("cheap", ["r1h1", "r1h2"], 1, together=True), *others)
    (move,) = moves(plan(world, 2, cheap=1))
    assert move[0] == "cheap" and len({name[:2] for name in move[1]}) == 1


def test_gangs_that_may_not_move_stay() -> None:
    world = look(*hall(), *running("dear", ["r1h1"]), *running("cheap", ["r2h1"]), *running("fair", ["r3h1"]))
    assert [name for name, _ in moves(plan(world, 2, dear=100))] == ["dear"]
    found = plan(world, 2)
    assert isinstance(found, NoPlan) and (found.fit, found.searched_all) == (1, True)


def test_a_chain_is_made_in_the_order_in_which_places_are_free() -> None:
    """Only r1 is large enough for the request; `cheap` has to leave it for r2, which `fair` leaves for r3."""
    world = look(
        *(node(f"r1h{at}", "r1") for at in (1, 2, 3)), *(node(f"r2h{at}", "r2") for at in (1, 2)),
        node("r3h1", "r3"),
        *running("cheap", ["r1h1", "r1h2"], 4, together=True), *running("fair", ["r2h1"], 4),
    )  # fmt: skip
    found = plan(world, 3, cheap=1, fair=5)
    assert [name for name, _ in moves(found)] == ["fair", "cheap"]
    assert first_failure(world, Profile(), room_request(3, 4), found) is None  # type: ignore[arg-type]


def test_two_gangs_that_would_have_to_swap_have_no_plan() -> None:
    """Each would need the place of the other one before it leaves its own."""
    world = look(node("r1h1", "r1"), node("r1h2", "r1"), node("r2h1", "r2"), *running("cheap", ["r1h1"]),
                 *running("fair", ["r2h1"]))  # fmt: skip
    assert isinstance(plan(world, 2, cheap=1, fair=5), NoPlan)


def test_a_plan_that_does_not_hold_any_more_names_the_gang() -> None:
    before = [*hall(), *running("cheap", ["r1h1"]), *running("fair", ["r2h1"]), *running("dear", ["r3h1"])]
    found = plan(look(*before), 2, **COSTS)
    assert isinstance(found, DefragmentPlan)
    (host,) = found.moves[0].nodes
    later = look(*before, *running("other", [host]))
    assert first_failure(later, Profile(), room_request(2, 4), found) == ref("cheap")


def test_cost_is_the_work_since_the_last_checkpoint_for_all_gpus() -> None:
    rules = CostRules(restart=100, assumed_checkpoint=1000, per_gang=10, per_pod=1)
    pods = [pod("a", rank, on="n1", gpus=2, started=NOW + 1).pod for rank in range(2)]
    now = NOW + 1 + 5000
    assert move_cost(pods, now, rules=rules).lost == 4 * (1000 + 100)
    assert move_cost(pods, now, checkpoint=now - 7, rules=rules).lost == 4 * (7 + 100)
    assert move_cost(pods, now, checkpoint=1.0, rules=rules).lost == 4 * (5000 + 100)
    weighted = move_cost(pods, now, checkpoint=now, lower_priorities=1, rules=rules).weighted
    assert weighted == 2 * 4 * 100 + 10 + 2


def test_priorities_are_ranked() -> None:
    assert priority_ranks([5, 5, -1, 9]) == {-1: 0, 5: 1, 9: 2}


def test_only_devices_count_as_gpus() -> None:
    assert (
        accelerators({"cpu": 4000, "memory": 1 << 30, "pods": 1, "hugepages-2Mi": 4, "nvidia.com/gpu": 8})
        == 8
    )


def test_no_budget_no_touch() -> None:
    assert touched_budgets([pod("a", 0, on="n1").pod], ()) == ()
