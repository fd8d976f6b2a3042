"""Gangs with minimums per pod set: missing pods, gated pods, and gangs below their minimum."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bayplan.model.change import GangSpecSeen, PodLost, PodSeen, TopologySeen
from bayplan.model.gang import GangSpec, Group, Locality, PodSet, Segment
from bayplan.model.node import HOSTNAME, Topology
from bayplan.model.plan import Nominate, Plan, PreemptPod
from bayplan.model.pod import PodKey
from bayplan.model.scheduling_rejection import RejectionReason
from bayplan.state.cluster.node_state import FLAT
from bayplan.state.scheduling.queue import EntryState
from bayplan.state.scheduling.state import SchedulingState
from tests.support.scheduling_scene import NOW, binds, board, ends, node, place_of, pod, ref, refusals, step

GRACE = 60.0


def leaf(name: str, count: int, minimum: int, required: str | None = None) -> PodSet:
    return PodSet(name, count, minimum, {"gpu": 2}, Locality(required=required))


def gang(*sets: PodSet, name: str = "job", strict: bool = True, **more: Any) -> GangSpecSeen:
    least = sum(one.minimum for one in sets)
    tree = Group("", sets, len(sets))
    return GangSpecSeen(GangSpec(ref(name), least, tree=tree, created=1.0, strict=strict, **more))


def member(of: str, rank: int, **more: Any) -> PodSeen:
    """A pod of one of the job's pod sets."""
    made = pod("job", rank, **more).pod
    return PodSeen(replace(made, key=PodKey("ns", f"{of}{rank}"), uid=f"{of}{rank}", pod_set=of))


def displaced(plan: Plan) -> set[str]:
    return {
        action.pod.key.name for action in plan.actions if isinstance(action, PreemptPod) and action.undoes
    }


def told(found: SchedulingState) -> tuple[object, ...]:
    why = found.told(ref("job"))
    assert why is not None
    return why.hindrance, why.part, why.there, why.minimum


def runs(*charter: PodSet, **more: Any) -> SchedulingState:
    """Two of each of two pod sets run, and have done so for a while."""
    found = board(node("a", gpus=8), gang(*(charter or (leaf("x", 2, 2), leaf("y", 2, 2))), **more))
    found.apply_all([member(of, rank) for of in "xy" for rank in (0, 1)])
    plan = step(found)
    assert len(binds(plan)) == 4
    ends(found, plan)
    return found


# ── who is missing ─────────────────────────────────────────────────────────────────────────────────


def test_every_pod_set_is_waited_for() -> None:
    found = board(node("a", gpus=20), gang(leaf("x", 2, 2), leaf("y", 2, 2)))
    found.apply_all([member("x", rank) for rank in range(4)] + [member("y", 0)])
    assert place_of(found, "job") is EntryState.INCOMPLETE, "pods of one do not count for the other"
    step(found)
    step(found, NOW + 5)
    assert told(found) == (RejectionReason.TOO_FEW, "y", 1, 2)
    found.apply(member("y", 1))
    assert len(binds(step(found, NOW + 10))) == 6, "those beyond the minimum come along"


def test_optional_segments_are_not_waited_for_and_do_not_count() -> None:
    worker = PodSet("worker", 8, 4, {"gpu": 2}, segments=(Segment(4, "rack"),))
    found = board(node("a", gpus=20), gang(worker))
    found.apply_all([member("worker", rank) for rank in (0, 1, 2, 4, 5)])
    assert place_of(found, "job") is EntryState.INCOMPLETE
    step(found)
    step(found, NOW + 5)
    assert told(found) == (RejectionReason.TOO_FEW, "", 3, 4)
    found.apply(member("worker", 3))
    assert len(binds(step(found, NOW + 10))) == 6


def test_only_gated_pods_of_the_minimum_are_waited_for() -> None:
    found = board(node("a", gpus=20), gang(leaf("x", 2, 1), leaf("y", 1, 1)))
    found.apply_all([member("x", 0), member("x", 1, gates=("g",)), member("y", 0, gates=("g",))])
    assert place_of(found, "job") is EntryState.INCOMPLETE
    step(found)
    step(found, NOW + 5)
    assert told(found)[:2] == (RejectionReason.GATED, "y")
    found.apply(member("y", 0))
    assert binds(step(found, NOW + 10)) == {"x0": "a", "y0": "a"}


def test_a_pod_that_moves_to_another_pod_set_counts_there() -> None:
    found = board(node("a", gpus=20), gang(leaf("x", 2, 2), leaf("y", 1, 1)))
    pods = [member("x", rank) for rank in range(3)]
    found.apply_all(pods)
    assert place_of(found, "job") is EntryState.INCOMPLETE
    found.apply(PodSeen(replace(pods[2].pod, pod_set="y", rank=0)))
    assert place_of(found, "job") is EntryState.READY


def test_counts_follow_the_spec() -> None:
    found = board(node("a", gpus=20))
    found.apply_all([member("x", 0), member("x", 1), member("y", 0)])
    found.apply(gang(leaf("x", 2, 2), leaf("y", 2, 2)))
    assert place_of(found, "job") is EntryState.INCOMPLETE
    found.apply(gang(leaf("x", 2, 2), leaf("y", 2, 1)))
    assert place_of(found, "job") is EntryState.READY


# ── who has fallen ─────────────────────────────────────────────────────────────────────────────────


def test_a_gang_that_stays_below_its_minimum_is_undone_as_a_whole() -> None:
    found = runs()
    found.apply(PodLost(PodKey("ns", "y1")))
    assert displaced(step(found, NOW + 1)) == set()
    assert found.next_due(NOW + 1) <= NOW + 1 + GRACE
    assert displaced(step(found, NOW + GRACE - 1)) == set()
    plan = step(found, NOW + 1 + GRACE)
    assert displaced(plan) == {"x0", "x1", "y0"}
    assert [one.why.hindrance for one in refusals(plan)] == [RejectionReason.TAKEN_BACK]


def test_a_gang_that_is_mended_in_time_stays() -> None:
    found = runs()
    found.apply(PodLost(PodKey("ns", "y1")))
    step(found, NOW + 1)
    found.apply(member("y", 1, uid="new"))
    plan = step(found, NOW + GRACE - 5)
    assert binds(plan) == {"y1": "a"}
    ends(found, plan, NOW + GRACE - 5)
    assert displaced(step(found, NOW + 3 * GRACE)) == set()


def test_a_gang_below_its_minimum_with_all_its_pods_is_tried_once_more() -> None:
    found = runs()
    found.apply(PodLost(PodKey("ns", "y1")))
    step(found, NOW + 1)
    found.apply(member("y", 1, uid="new"))
    assert binds(step(found, NOW + 2 * GRACE)) == {"y1": "a"}, "late, but there is a place"


def test_a_gang_that_cannot_be_repaired_is_undone_in_the_end() -> None:
    found = runs()
    found.apply(PodLost(PodKey("ns", "y1")))
    step(found, NOW + 1)
    other = replace(pod("other", 0).pod, gang=None)
    found.apply(PodSeen(replace(other, node="a")))
    found.apply(member("y", 1, uid="new"))
    assert binds(step(found, NOW + 2)) == {}
    assert displaced(step(found, NOW + 2 + GRACE)) == set(), "its last chance"
    assert displaced(step(found, NOW + 3 + GRACE)) == {"x0", "x1", "y0"}


def test_more_than_the_minimum_may_go() -> None:
    found = runs(leaf("x", 2, 2), leaf("y", 2, 1))
    found.apply(PodLost(PodKey("ns", "y1")))
    for late in (1, 3 * GRACE):
        assert displaced(step(found, NOW + late)) == set()
    found.apply(PodLost(PodKey("ns", "y0")))
    step(found, NOW + 3 * GRACE)
    assert displaced(step(found, NOW + 5 * GRACE)) == {"x0", "x1"}


def test_a_gang_with_succeeded_pods_is_not_undone() -> None:
    found = runs()
    found.apply(PodSeen(replace(found.store.pods[PodKey("ns", "x0")], over=True, succeeded=True)))
    found.apply(PodLost(PodKey("ns", "y1")))
    for late in (1, GRACE + 1, 3 * GRACE):
        assert displaced(step(found, NOW + late)) == set()


def test_a_gang_with_terminating_victims_is_not_undone() -> None:
    found = runs(priority=5)
    found.apply(PodLost(PodKey("ns", "y1")))
    step(found, NOW + 1)
    found.apply(PodSeen(replace(pod("low", 0, on="a").pod, gang=None)))
    found.apply(member("y", 1, uid="new", priority=5))
    plan = step(found, NOW + 2 + GRACE)
    assert [one.pod.key.name for one in plan.actions if isinstance(one, PreemptPod)] == ["low-0"]
    assert found.next_due(NOW + 3 + GRACE) > NOW + 3 + GRACE, "nothing has to be done meanwhile"
    assert displaced(step(found, NOW + 5 + GRACE)) == set()
    found.apply(PodLost(PodKey("ns", "low-0")))
    assert binds(step(found, NOW + 6 + GRACE)) == {"y1": "a"}


def test_other_gangs_never_lose_running_pods_this_way() -> None:
    found = runs(strict=False)
    found.apply(PodLost(PodKey("ns", "y1")))
    for late in (1, GRACE + 1, 5 * GRACE):
        assert displaced(step(found, NOW + late)) == set()


def test_an_undone_gang_starts_over() -> None:
    found = runs()
    for name in ("x0", "x1", "y0", "y1"):
        found.apply(PodLost(PodKey("ns", name)))
    found.apply_all([member("x", 0, uid="n0"), member("x", 1, uid="n1"), member("y", 0, uid="n2")])
    assert place_of(found, "job") is EntryState.INCOMPLETE
    assert not found.store.crews[ref("job")].begun


def test_a_growing_gang_preempts_only_in_its_domain() -> None:
    found = board(node("a", gpus=2), node("b", "r2", gpus=2), gang(leaf("x", 2, 1, "rack"), priority=5))
    found.apply(PodSeen(replace(pod("low", 0, on="b").pod, gang=None)))
    found.apply_all([member("x", rank, priority=5) for rank in (0, 1)])
    plan = step(found)
    assert binds(plan) == {"x0": "a"}
    others = [one for one in plan.actions if isinstance(one, PreemptPod | Nominate)]
    assert others == [], "its rack is full of itself"


# ── topologies ─────────────────────────────────────────────────────────────────────────────────────


def test_a_gang_is_held_against_the_topology_it_names() -> None:
    found = board(node("a"), TopologySeen(Topology("zz", ("rack", HOSTNAME))))
    for asked, expected in (
        (gang(leaf("x", 1, 1, "rack"), topology="zz"), "zz"),
        (gang(leaf("x", 1, 1, "rack")), "dc"),
        (gang(leaf("x", 1, 1)), FLAT.name),
        (gang(leaf("x", 1, 1), strict=False), "dc"),
    ):
        found.apply(asked)
        (candidate,) = found.look([ref("job")], NOW).candidates
        assert candidate.topology == expected
