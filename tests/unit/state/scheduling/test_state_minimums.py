"""Gangs with minimums per pod set: missing pods, gated pods, and gangs below their minimum."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bayplan.model.change import GangSpecSeen, PodLost, PodSeen, TopologySeen
from bayplan.model.gang import GangSpec, Group, Locality, PodSet, Segment
from bayplan.model.node import HOSTNAME, Topology
from bayplan.model.plan import Nominate, Plan, PreemptPod
from bayplan.model.pod import PodKey
from bayplan.model.rejection import RejectionReason
from bayplan.state.cluster.node_state import FLAT
from bayplan.state.scheduling.queue import EntryState
from bayplan.state.scheduling.state import SchedulingState
from tests.support.scheduling_scene import NOW, binds, board, ends, node, place_of, pod, ref, refusals, step

GRACE = 60.0


def leaf(name: str, count: int, minimum: int, required: str | None = None) -> PodSet:
    return PodSet(name, count, minimum, {"gpu": 2}, Locality(required=required))


def tree_seen(*sets: PodSet, name: str = "job", strict: bool = True, **more: Any) -> GangSpecSeen:
    least = sum(one.minimum for one in sets)
    tree = Group("", sets, len(sets))
    return GangSpecSeen(GangSpec(ref(name), least, tree=tree, created=1.0, strict=strict, **more))


def member(of: str, rank: int, **more: Any) -> PodSeen:
    """A pod of one of the job's pod sets."""
    result = pod("job", rank, **more).pod
    return PodSeen(replace(result, key=PodKey("ns", f"{of}{rank}"), uid=f"{of}{rank}", pod_set=of))


def displaced(plan: Plan) -> set[str]:
    return {
        action.pod.key.name for action in plan.actions if isinstance(action, PreemptPod) and action.undoes
    }


def told(state: SchedulingState) -> tuple[object, ...]:
    why = state.reported(ref("job"))
    assert why is not None
    return why.reason, why.part, why.existing, why.minimum


def runs(*spec: PodSet, **more: Any) -> SchedulingState:
    """Two of each of two pod sets run, and have done so for a while."""
    state = board(node("a", gpus=8), tree_seen(*(spec or (leaf("x", 2, 2), leaf("y", 2, 2))), **more))
    state.apply_all([member(of, rank) for of in "xy" for rank in (0, 1)])
    plan = step(state)
    assert len(binds(plan)) == 4
    ends(state, plan)
    return state


# ── who is missing ─────────────────────────────────────────────────────────────────────────────────


def test_every_pod_set_is_waited_for() -> None:
    state = board(node("a", gpus=20), tree_seen(leaf("x", 2, 2), leaf("y", 2, 2)))
    state.apply_all([member("x", rank) for rank in range(4)] + [member("y", 0)])
    assert place_of(state, "job") is EntryState.INCOMPLETE, "pods of one do not count for the other"
    step(state)
    step(state, NOW + 5)
    assert told(state) == (RejectionReason.TOO_FEW, "y", 1, 2)
    state.apply(member("y", 1))
    assert len(binds(step(state, NOW + 10))) == 6, "those beyond the minimum come along"


def test_optional_segments_are_not_waited_for_and_do_not_count() -> None:
    worker = PodSet("worker", 8, 4, {"gpu": 2}, segments=(Segment(4, "rack"),))
    state = board(node("a", gpus=20), tree_seen(worker))
    state.apply_all([member("worker", rank) for rank in (0, 1, 2, 4, 5)])
    assert place_of(state, "job") is EntryState.INCOMPLETE
    step(state)
    step(state, NOW + 5)
    assert told(state) == (RejectionReason.TOO_FEW, "", 3, 4)
    state.apply(member("worker", 3))
    assert len(binds(step(state, NOW + 10))) == 6


def test_only_gated_pods_of_the_minimum_are_waited_for() -> None:
    state = board(node("a", gpus=20), tree_seen(leaf("x", 2, 1), leaf("y", 1, 1)))
    state.apply_all([member("x", 0), member("x", 1, gates=("g",)), member("y", 0, gates=("g",))])
    assert place_of(state, "job") is EntryState.INCOMPLETE
    step(state)
    step(state, NOW + 5)
    assert told(state)[:2] == (RejectionReason.GATED, "y")
    state.apply(member("y", 0))
    assert binds(step(state, NOW + 10)) == {"x0": "a", "y0": "a"}


def test_a_pod_that_moves_to_another_pod_set_counts_there() -> None:
    state = board(node("a", gpus=20), tree_seen(leaf("x", 2, 2), leaf("y", 1, 1)))
    pods = [member("x", rank) for rank in range(3)]
    state.apply_all(pods)
    assert place_of(state, "job") is EntryState.INCOMPLETE
    state.apply(PodSeen(replace(pods[2].pod, pod_set="y", rank=0)))
    assert place_of(state, "job") is EntryState.READY


def test_counts_follow_the_spec() -> None:
    state = board(node("a", gpus=20))
    state.apply_all([member("x", 0), member("x", 1), member("y", 0)])
    state.apply(tree_seen(leaf("x", 2, 2), leaf("y", 2, 2)))
    assert place_of(state, "job") is EntryState.INCOMPLETE
    state.apply(tree_seen(leaf("x", 2, 2), leaf("y", 2, 1)))
    assert place_of(state, "job") is EntryState.READY


# ── who has fallen ─────────────────────────────────────────────────────────────────────────────────


def test_a_gang_that_stays_below_its_minimum_is_undone_as_a_whole() -> None:
    state = runs()
    state.apply(PodLost(PodKey("ns", "y1")))
    assert displaced(step(state, NOW + 1)) == set()
    assert state.next_due(NOW + 1) <= NOW + 1 + GRACE
    assert displaced(step(state, NOW + GRACE - 1)) == set()
    plan = step(state, NOW + 1 + GRACE)
    assert displaced(plan) == {"x0", "x1", "y0"}
    assert [one.rejection.reason for one in refusals(plan)] == [RejectionReason.UNDONE]


def test_a_gang_that_is_mended_in_time_stays() -> None:
    state = runs()
    state.apply(PodLost(PodKey("ns", "y1")))
    step(state, NOW + 1)
    state.apply(member("y", 1, uid="new"))
    plan = step(state, NOW + GRACE - 5)
    assert binds(plan) == {"y1": "a"}
    ends(state, plan, NOW + GRACE - 5)
    assert displaced(step(state, NOW + 3 * GRACE)) == set()


def test_a_gang_below_its_minimum_with_all_its_pods_is_tried_once_more() -> None:
    state = runs()
    state.apply(PodLost(PodKey("ns", "y1")))
    step(state, NOW + 1)
    state.apply(member("y", 1, uid="new"))
    assert binds(step(state, NOW + 2 * GRACE)) == {"y1": "a"}, "late, but there is a place"


def test_a_gang_that_cannot_be_repaired_is_undone_in_the_end() -> None:
    state = runs()
    state.apply(PodLost(PodKey("ns", "y1")))
    step(state, NOW + 1)
    other = replace(pod("other", 0).pod, gang=None)
    state.apply(PodSeen(replace(other, node="a")))
    state.apply(member("y", 1, uid="new"))
    assert binds(step(state, NOW + 2)) == {}
    assert displaced(step(state, NOW + 2 + GRACE)) == set(), "its last chance"
    assert displaced(step(state, NOW + 3 + GRACE)) == {"x0", "x1", "y0"}


def test_more_than_the_minimum_may_go() -> None:
    state = runs(leaf("x", 2, 2), leaf("y", 2, 1))
    state.apply(PodLost(PodKey("ns", "y1")))
    for late in (1, 3 * GRACE):
        assert displaced(step(state, NOW + late)) == set()
    state.apply(PodLost(PodKey("ns", "y0")))
    step(state, NOW + 3 * GRACE)
    assert displaced(step(state, NOW + 5 * GRACE)) == {"x0", "x1"}


def test_a_gang_with_succeeded_pods_is_not_undone() -> None:
    state = runs()
    state.apply(PodSeen(replace(state.store.pods[PodKey("ns", "x0")], finished=True, succeeded=True)))
    state.apply(PodLost(PodKey("ns", "y1")))
    for late in (1, GRACE + 1, 3 * GRACE):
        assert displaced(step(state, NOW + late)) == set()


def test_a_gang_with_terminating_victims_is_not_undone() -> None:
    state = runs(priority=5)
    state.apply(PodLost(PodKey("ns", "y1")))
    step(state, NOW + 1)
    state.apply(PodSeen(replace(pod("low", 0, on="a").pod, gang=None)))
    state.apply(member("y", 1, uid="new", priority=5))
    plan = step(state, NOW + 2 + GRACE)
    assert [one.pod.key.name for one in plan.actions if isinstance(one, PreemptPod)] == ["low-0"]
    assert state.next_due(NOW + 3 + GRACE) > NOW + 3 + GRACE, "nothing has to be done meanwhile"
    assert displaced(step(state, NOW + 5 + GRACE)) == set()
    state.apply(PodLost(PodKey("ns", "low-0")))
    assert binds(step(state, NOW + 6 + GRACE)) == {"y1": "a"}


def test_other_gangs_never_lose_running_pods_this_way() -> None:
    state = runs(strict=False)
    state.apply(PodLost(PodKey("ns", "y1")))
    for late in (1, GRACE + 1, 5 * GRACE):
        assert displaced(step(state, NOW + late)) == set()


def test_an_undone_gang_starts_over() -> None:
    state = runs()
    for name in ("x0", "x1", "y0", "y1"):
        state.apply(PodLost(PodKey("ns", name)))
    state.apply_all([member("x", 0, uid="n0"), member("x", 1, uid="n1"), member("y", 0, uid="n2")])
    assert place_of(state, "job") is EntryState.INCOMPLETE
    assert not state.store.gang_states[ref("job")].started


def test_a_growing_gang_preempts_only_in_its_domain() -> None:
    state = board(node("a", gpus=2), node("b", "r2", gpus=2), tree_seen(leaf("x", 2, 1, "rack"), priority=5))
    state.apply(PodSeen(replace(pod("low", 0, on="b").pod, gang=None)))
    state.apply_all([member("x", rank, priority=5) for rank in (0, 1)])
    plan = step(state)
    assert binds(plan) == {"x0": "a"}
    others = [one for one in plan.actions if isinstance(one, PreemptPod | Nominate)]
    assert others == [], "its rack is full of itself"


# ── topologies ─────────────────────────────────────────────────────────────────────────────────────


def test_a_gang_is_held_against_the_topology_it_names() -> None:
    state = board(node("a"), TopologySeen(Topology("zz", ("rack", HOSTNAME))))
    for asked, expected in (
        (tree_seen(leaf("x", 1, 1, "rack"), topology="zz"), "zz"),
        (tree_seen(leaf("x", 1, 1, "rack")), "dc"),
        (tree_seen(leaf("x", 1, 1)), FLAT.name),
        (tree_seen(leaf("x", 1, 1), strict=False), "dc"),
    ):
        state.apply(asked)
        (candidate,) = state.snapshot([ref("job")], NOW).candidates
        assert candidate.topology == expected


def test_a_gang_that_lacks_the_same_pods_as_before_its_binds_is_reported_again() -> None:
    state = board(node("a", gpus=20), tree_seen(leaf("x", 2, 2)), member("x", 0))
    step(state)
    (report,) = refusals(step(state, NOW + 5))
    state.apply(member("x", 1))
    assert len(binds(step(state, NOW + 10))) == 2  # and the pods are gone before the writes are answered
    state.apply_all([PodLost(PodKey("ns", "x0")), member("x", 2), PodLost(PodKey("ns", "x1"))])
    (again,) = [refused for seconds in range(11, 90) for refused in refusals(step(state, NOW + seconds))]
    assert again.rejection == report.rejection and again.changed
