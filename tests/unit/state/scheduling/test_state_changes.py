"""Single pods, terminating victims, failed writes, and events at the wrong time."""

from __future__ import annotations

from dataclasses import replace

from bayplan.model.change import (
    Change,
    GangSpecLost,
    NodeLost,
    NodeSeen,
    PodLost,
    PodSeen,
    Started,
)
from bayplan.model.node import HOSTNAME, PODS, Node
from bayplan.model.plan import Plan, PreemptPod, ReportUnschedulable
from bayplan.model.pod import PodKey
from bayplan.model.rejection import Rejection, RejectionReason
from bayplan.placement.cluster.node_table import ABSENT
from bayplan.state.pending_queue import NEVER
from bayplan.state.scheduling.queue import EntryState
from bayplan.state.scheduling.state import SchedulingState, single_pod_ref
from bayplan.state.scheduling.state_machine import FLUSH_SECONDS
from tests.support.scheduling_scene import (
    NOW,
    binds,
    board,
    ends,
    gang,
    node,
    place_of,
    pod,
    pods,
    ref,
    refusals,
    step,
)

# ── pods by themselves ─────────────────────────────────────────────────────────────────────────────────


def test_a_single_pod_is_its_own_gang_until_it_has_a_node() -> None:
    state = board(node("a"), pod("alone", 0, gang=None, priority=7), pod("theirs", 0, gang=None, ours=False))
    (head,) = state.heads(NOW)
    candidate = state.snapshot([head], NOW).candidates[0]
    assert (candidate.spec.minimum, candidate.spec.priority) == (1, 7)
    assert head == single_pod_ref(PodKey("ns", "alone-0"))
    ends(state, step(state))
    assert state.state_of(head) is None and not state.store.gang_states
    assert set(state.store.placed) == {PodKey("ns", "alone-0")}


def test_nodes_without_a_host_label_take_pods_but_no_rule_finds_the_label() -> None:
    bare = NodeSeen(Node("bare", {}, {"gpu": 4, PODS: 10}))
    state = board(bare, pod("alone", 0, gang=None))
    land = state.store.nodes.flat.node_index()
    assert land.table.column(HOSTNAME).tolist() == [ABSENT]
    assert binds(step(state)) == {"alone-0": "bare"}


def test_pods_that_are_alike_are_tried_one_after_the_other() -> None:
    state = board(node("a"), *(pod("p", rank, gang=None) for rank in range(40)))
    assert len(binds(step(state))) == 2
    assert state.heads(NOW + 1) == []
    state.apply(node("b"))
    assert len(state.heads(NOW + 1)) == 1
    plans = [step(state, NOW + 1) for _ in range(4)]
    assert sum(len(binds(plan)) for plan in plans) == 2
    assert state.heads(NOW + 1) == []


def test_a_pod_deleted_before_its_attempt_passes_it_to_an_equivalent_pod() -> None:
    state = board(node("a"), *(pod("p", rank, gang=None) for rank in range(4)))
    step(state)
    state.apply(node("b", gpus=2))
    (first,) = state.heads(NOW + 1)
    state.apply(PodLost(PodKey("ns", first.name)))
    assert len(binds(step(state, NOW + 1))) == 1


def test_an_update_that_changes_nothing_we_read_wakes_no_gang() -> None:
    state = board(node("a", gpus=2), pod("one", 0, gang=None), pod("two", 0, gang=None))
    ends(state, step(state))
    state.heads(NOW)
    version, bound = state.store.index.version, next(iter(state.store.placed.values()))
    state.apply(PodSeen(replace(bound, message="why it waited", started=NOW)))
    waits = next(pod for pod in state.store.pods.values() if pod.pending)
    state.apply(PodSeen(replace(waits, message="no room")))
    state.apply(node("a", gpus=2))
    assert not state.store.notes.take_touched()
    assert state.store.index.version == version and state.heads(NOW + 1) == []
    assert state.pending(single_pod_ref(waits.key))[0].message == "no room"


def test_a_pod_that_asks_for_something_else_is_tried_again() -> None:
    state = board(node("a", gpus=2), pod("one", 0, gang=None, gpus=4))
    step(state)
    state.apply(pod("one", 0, gang=None, gpus=2))
    assert binds(step(state, NOW + 1)) == {"one-0": "a"}


def test_an_unschedulable_gang_is_retried_after_a_while_without_any_event() -> None:
    state = board(node("a", gpus=1), pod("one", 0, gang=None))
    step(state)
    due = state.next_due(NOW)
    assert due == NOW + FLUSH_SECONDS and len(refusals(step(state, due))) == 1


# ── others make room ───────────────────────────────────────────────────────────────────────────────────


def making_room(*more: Change) -> tuple[SchedulingState, Plan]:
    low = [pod("low", rank, on="a", gang=None, priority=0) for rank in (0, 1)]
    state = board(node("a"), *low, gang("high", 2, priority=9), *pods("high", 2, priority=9), *more)
    plan = step(state)
    assert {a.pod.key.name for a in plan.actions if isinstance(a, PreemptPod)} == {"low-0", "low-1"}
    assert place_of(state, "high") is EntryState.PREEMPTING
    return state, plan


def test_a_cleared_nomination_may_help_another_pod() -> None:
    state = board(node("a"), node("b"), pod("high", 0, gang=None, gpus=4, priority=9))
    high = state.store.pods[PodKey("ns", "high-0")]
    state.apply(PodSeen(replace(high, spec=replace(high.spec, nominated="a", gates=("wait",)))))
    state.apply_all([gang("job", 4), *pods("job", 4)])
    assert binds(step(state)) == {} and place_of(state, "job") is EntryState.UNSCHEDULABLE
    state.apply(PodSeen(replace(high, spec=replace(high.spec, gates=("wait",)))))
    assert len(binds(step(state, NOW + 1))) == 4


def test_a_nomination_does_not_block_a_pod_of_higher_priority() -> None:
    busy = pod("busy", 0, on="a", gang=None)
    state = board(node("a"), busy, pod("low", 0, gang=None, gpus=4))
    step(state, NOW + 1000)
    assert state.gangs.reserved == (single_pod_ref(PodKey("ns", "low-0")), frozenset({"a"}))
    state.apply(pod("equal", 0, gang=None, created=NOW + 1000))
    assert binds(step(state, NOW + 1001)) == {}
    state.apply(pod("high", 0, gang=None, priority=5, created=NOW + 1001))
    assert binds(step(state, NOW + 1002)) == {"high-0": "a"}


def test_terminating_victims_are_waited_for() -> None:
    state, plan = making_room()
    assert all(state.store.placed[PodKey("ns", f"low-{at}")].terminating for at in (0, 1))
    assert state.store.nodes.ledger.by_node() == {
        "a": {"gpu": 4, PODS: 2}
    }  # they use capacity until they are deleted
    ends(state, plan)
    state.apply(PodLost(PodKey("ns", "low-0")))
    assert step(state, NOW + 0.5) == Plan()
    state.apply(PodLost(PodKey("ns", "low-1")))
    assert set(binds(step(state, NOW + 1))) == {"high-0", "high-1"}
    assert not state.store.nominations and not state.store.preempting


def test_nominations_are_in_the_snapshot_for_other_gangs() -> None:
    state, _ = making_room(pod("late", 0, gang=None))
    look = state.snapshot([single_pod_ref(PodKey("ns", "late-0"))], NOW)
    assert {key.name: node for key, (_, node) in look.nominations.items()} == {"high-0": "a", "high-1": "a"}
    own = state.snapshot([ref("high")], NOW)
    assert not own.nominations and set(own.candidates[0].nominated.values()) == {"a"}
    assert len(own.candidates[0].victims) == 2


def test_a_pod_that_would_not_go_is_a_pod_like_any_other_again() -> None:
    state, plan = making_room()
    for action in plan.actions:
        state.settle(action, "failed" if isinstance(action, PreemptPod) else "done", NOW)
    assert not state.store.preempting and not state.store.placed[PodKey("ns", "low-0")].terminating
    assert place_of(state, "high") is EntryState.READY


def test_a_preempted_pod_created_again_under_its_name_is_another_pod() -> None:
    state, _ = making_room()
    for rank in (0, 1):
        state.apply(pod("low", rank, gang=None, uid=f"new-{rank}"))
    assert set(binds(step(state, NOW + 1))) == {"high-0", "high-1"}


def test_the_nomination_of_a_deleted_pod_is_cleared() -> None:
    state, _ = making_room()
    state.apply(PodLost(PodKey("ns", "high-0")))
    assert set(state.store.nominations) == {PodKey("ns", "high-1")}
    state.apply(GangSpecLost(ref("high")))
    state.apply(PodLost(PodKey("ns", "high-1")))
    assert not state.store.nominations and place_of(state, "high") is None
    state.apply(PodLost(PodKey("ns", "low-0")))  # its preemptor no longer matters
    assert state.store.preempting == {PodKey("ns", "low-1"): ref("high")}


def test_promises_are_known_again_after_a_restart() -> None:
    waits = pod("high", 0, priority=9).pod
    waits = replace(waits, spec=replace(waits.spec, nominated="a"))
    state = board(node("a"), gang("high", 1), PodSeen(waits))
    assert state.store.nominations == {waits.key: (waits, "a")}
    state.apply(PodSeen(replace(waits, spec=replace(waits.spec, nominated=""))))
    assert not state.store.nominations


# ── trouble ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pod_deleted_during_its_bind_frees_its_capacity() -> None:
    state = board(node("a"), gang("job", 2), *pods("job", 2))
    plan = step(state)
    state.apply(PodLost(PodKey("ns", "job-0")))
    assert state.store.nodes.ledger.by_node() == {"a": {"gpu": 2, PODS: 1}}
    ends(state, Plan((plan.actions[1],)))
    state.settle(plan.actions[0], "failed", NOW)
    state.apply(pod("job", 0, uid="again"))
    assert binds(step(state, NOW + 1)) == {"job-0": "a"}


def test_a_pod_made_again_while_its_name_is_bound_is_not_taken_for_the_other() -> None:
    state = board(node("a"), gang("job", 1), pod("job", 0))
    plan = step(state)
    state.apply(pod("job", 0, uid="again"))
    assert state.store.nodes.ledger.by_node() == {} and place_of(state, "job") is EntryState.READY
    again = step(state, NOW + 1)
    state.settle(plan.actions[0], "failed", NOW + 1)
    assert binds(again) == {"job-0": "a"} and place_of(state, "job") is EntryState.BINDING
    assert state.store.nodes.ledger.by_node() == {"a": {"gpu": 2, PODS: 1}}


def test_a_node_deleted_during_binds_is_not_used_by_the_next_attempt() -> None:
    state = board(node("a"), gang("job", 1), pod("job", 0))
    plan = step(state)
    state.apply(NodeLost("a"))
    state.apply(node("b"))
    state.settle(plan.actions[0], "failed", NOW)
    assert binds(step(state, NOW + 5)) == {"job-0": "b"}
    assert state.store.nodes.ledger.by_node() == {"b": {"gpu": 2, PODS: 1}}


def test_a_gang_partially_bound_for_too_long_is_undone() -> None:
    state = board(node("a"), gang("job", 2), *pods("job", 2))
    plan = step(state)
    state.apply(pod("job", 0, on="a"))
    state.apply(NodeSeen(Node("a", {HOSTNAME: "a"}, {"gpu": 2, PODS: 10})))
    state.settle(plan.actions[1], "failed", NOW)
    due = NOW
    while not any(isinstance(action, PreemptPod) for action in plan.actions):
        due = state.next_due(due)
        assert due <= NOW + state.heal_seconds
        plan = step(state, due)
    assert due == NOW + state.heal_seconds
    assert refusals(plan)[0].rejection.reason is RejectionReason.UNDONE
    state.apply(PodLost(PodKey("ns", "job-0")))
    assert place_of(state, "job") is EntryState.INCOMPLETE and not state.gangs.partial


def test_a_gang_undone_only_in_part_is_still_partially_bound() -> None:
    state = board(node("a", gpus=6), gang("job", 3), *pods("job", 3))
    plan = step(state)
    for rank in (0, 1):
        state.apply(pod("job", rank, on="a", started=20.0))
    state.apply(node("a"))
    state.settle(plan.actions[2], "failed", NOW)
    step(state)
    late = NOW + state.heal_seconds
    moves = [action for action in step(state, late).actions if isinstance(action, PreemptPod)]
    state.apply(PodLost(moves[0].pod.key))
    state.settle(moves[1], "failed", late)
    state.heads(late)
    assert list(state.gangs.partial) == [ref("job")]  # the other pods were deleted by us


def test_after_a_restart_it_is_the_same() -> None:
    there = [pod("job", rank, on="a", started=20.0) for rank in (0, 1)]
    state = board(node("a"), gang("job", 3), *there, pod("job", 2))
    assert place_of(state, "job") is EntryState.READY  # called before any time is known
    assert not any(isinstance(action, PreemptPod) for action in step(state).actions)
    late = NOW + state.heal_seconds
    moves = [action for action in step(state, late).actions if isinstance(action, PreemptPod)]
    state.apply(PodLost(moves[0].pod.key))
    state.settle(moves[1], "failed", late)
    state.heads(late)
    assert list(state.gangs.partial) == [ref("job")]


def test_a_gang_whose_pods_all_succeeded_is_not_undone() -> None:
    state = board(node("a"), gang("job", 2), *pods("job", 2))
    plan = step(state)
    state.settle(plan.actions[1], "failed", NOW)
    state.apply(pod("job", 0, on="a"))
    step(state)
    assert list(state.gangs.partial) == [ref("job")]
    state.apply(pod("job", 0, on="a", finished=True, succeeded=True))
    step(state)
    assert not state.gangs.partial


def test_a_gang_that_had_begun_is_never_taken_back() -> None:
    state = board(node("a"), gang("job", 2), *pods("job", 2))
    ends(state, step(state))
    state.apply(node("a", gpus=2))
    state.apply(pod("job", 1, uid="again"))
    step(state, NOW + 1)
    assert not state.gangs.partial
    late = pod("job", 1, uid="again", created=50.0)
    again = board(node("a", gpus=2), gang("job", 2), pod("job", 0, on="a", started=20.0), late)
    step(again)
    assert not again.gangs.partial  # after a restart: the pending pod is younger than the start


def test_everything_twice_is_as_good_as_once() -> None:
    changes: list[Change] = [
        node("a", gpus=8),
        gang("job", 2),
        *pods("job", 2),
        pod("alone", 0, on="a", gang=None),
    ]
    state, twice = board(*changes), board(*(change for change in changes for _ in (0, 1)))
    assert binds(step(state)) == binds(step(twice)) != {}
    assert state.store.nodes.ledger.by_node() == twice.store.nodes.ledger.by_node()
    assert twice.store.index.version == state.store.index.version


def test_a_reset_state_is_empty() -> None:
    state, _ = making_room()
    state.apply(Started())
    assert not (
        state.store.pods
        or state.store.placed
        or state.store.gang_states
        or state.store.index.pods
        or state.store.nodes.by_name
    )
    assert state.heads(NOW) == [] and state.next_due(NOW) == NEVER


def test_an_undecided_gang_does_not_block_the_queue() -> None:
    state = board(node("a"), gang("job", 1), pod("job", 0))
    state.snapshot(state.heads(NOW), NOW)
    state.assume(Plan(), NOW)
    assert place_of(state, "job") is EntryState.BACKOFF and state.next_due(NOW) == NOW + 1


def test_a_reservation_lasts_as_long_as_rejections_renew_it() -> None:
    state = board(node("a", gpus=1), gang("job", 1), pod("job", 0))
    state.snapshot(state.heads(NOW), NOW)
    why = Rejection(RejectionReason.NO_CAPACITY)
    state.assume(Plan((ReportUnschedulable(ref("job"), why, reserved_nodes=("a",)),)), NOW)
    assert state.snapshot([], NOW).reserved == (ref("job"), frozenset({"a"}))
    state.apply(PodLost(PodKey("ns", "job-0")))
    state.heads(NOW)
    assert state.snapshot([], NOW).reserved is None


def test_a_look_keeps_what_it_saw() -> None:
    state = board(node("a"), node("b"))
    look = state.snapshot([], NOW)
    free = look.supply.free.copy()
    state.apply(pod("x", 0, on="a", gang=None))
    state.apply(node("b", gpus=7))
    assert (look.supply.free == free).all() and look.filter_input.node_snapshot.free is look.supply.free
    later = state.snapshot([], NOW)
    assert (later.supply.free != free).any() and later.filter_input.node_snapshot.allocatable.max() == 10
    assert later.filter_input.node_snapshot.allocatable[later.supply.resources["gpu"]].tolist() == [4, 7]
    assert state.snapshot([], NOW).supply is later.supply  # nothing has changed


# ── what happens while a gang is being bound ──────────────────────────────────────────────────────────


def test_pending_pods_are_woken_by_a_node_added_during_the_binds_of_the_others() -> None:
    state = board(node("a", gpus=2), gang("job", 1), *pods("job", 2))
    plan = step(state)
    assert binds(plan) == {"job-0": "a"}
    state.apply(node("b", gpus=2))
    state.next_due(NOW)  # all other pending gangs have been woken
    ends(state, plan)
    assert binds(step(state, NOW + 1)) == {"job-1": "b"}


def test_pending_pods_are_woken_by_capacity_freed_during_the_binds_of_the_others() -> None:
    running = [pod("low", rank, on=name, priority=-1) for rank, name in enumerate("ab")]
    whole = gang("low", 2, priority=-1, disrupt_together=True)
    state = board(node("a", gpus=2), node("b", gpus=2), whole, *running, gang("job", 1), pod("job", 0))
    room = step(state)
    ends(state, room)
    assert {action.pod.key.name for action in room.actions if isinstance(action, PreemptPod)} == {
        "low-0",
        "low-1",
    }
    first = next(key for key in state.store.preempting if state.store.pods[key].node == "a")
    state.apply_all([PodLost(first), pod("job", 1)])
    plan = step(state, NOW + 2)
    assert binds(plan) == {"job-0": "a"}
    state.apply(PodLost(next(iter(state.store.preempting))))
    state.next_due(NOW + 2)
    ends(state, plan, NOW + 2)
    assert binds(step(state, NOW + 3)) == {"job-1": "b"}
