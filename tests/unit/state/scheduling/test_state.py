"""Gangs with and without templates: when they are tried, and what is reported."""

from __future__ import annotations

from bayplan.model.change import (
    Change,
    GangSpecLost,
    GangSpecSeen,
    NodeLost,
    NodeSeen,
    PodLost,
    TopologySeen,
)
from bayplan.model.gang import GangSpec, Group, PodSet, Segment
from bayplan.model.node import HOSTNAME, PODS, Node, Topology
from bayplan.model.plan import MarkStarted, Plan
from bayplan.model.pod import PodKey
from bayplan.model.rejection import RejectionReason
from bayplan.state.pending_queue import NEVER
from bayplan.state.scheduling.queue import EntryState
from bayplan.state.scheduling.state import SchedulingState
from tests.support.scheduling_scene import (
    NOW,
    RACKS,
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
    tree,
)

# ── gangs made from a template ─────────────────────────────────────────────────────────────────────────


def test_a_gang_waits_until_all_its_pods_are_there() -> None:
    state = board(node("a"), node("b"), tree("job", 3), pod("job", 0), pod("job", 1))
    assert step(state) == Plan()
    assert place_of(state, "job") is EntryState.INCOMPLETE
    state.apply(pod("job", 2))
    assert binds(step(state)) == {"job-0": "a", "job-1": "a", "job-2": "b"}


def test_pods_may_come_before_their_gang() -> None:
    state = board(node("a"), pod("job", 0), tree("job", 1))
    assert binds(step(state)) == {"job-0": "a"}


def test_what_was_decided_is_taken_before_the_api_shows_it() -> None:
    state = board(node("a"), tree("one", 2), *pods("one", 2), tree("two", 1), pod("two", 0))
    plan = step(state)
    assert binds(plan) == {"one-0": "a", "one-1": "a"}
    assert [refusal.gang for refusal in refusals(plan)] == [ref("two")]
    assert place_of(state, "two") is EntryState.UNSCHEDULABLE


def test_the_more_important_gang_goes_first_then_the_older() -> None:
    state = board(node("a"), tree("low", 2), *pods("low", 2), tree("high", 2, priority=5), *pods("high", 2))
    assert set(binds(step(state))) == {"high-0", "high-1"}
    late, early = tree("late", 2), gang("early", 2, created=0.5)
    state = board(node("a"), late, *pods("late", 2), early, *pods("early", 2))
    assert set(binds(step(state))) == {"early-0", "early-1"}


def test_of_equally_old_gangs_the_one_whose_pods_came_first_goes_first() -> None:
    state = board(node("a"), gang("a", 2), gang("b", 2), pod("b", 0), pod("a", 0), pod("b", 1), pod("a", 1))
    assert set(binds(step(state))) == {"b-0", "b-1"}


def test_a_gang_that_did_not_fit_is_tried_again_when_room_appears() -> None:
    state = board(node("a"), tree("one", 2), *pods("one", 2), tree("two", 1), pod("two", 0))
    ends(state, step(state))
    assert step(state, NOW + 1) == Plan()
    state.apply(pod("one", 0, on="a", finished=True))
    assert binds(step(state, NOW + 2)) == {"two-0": "a"}


def test_a_failed_bind_frees_its_capacity_and_is_retried_later() -> None:
    state = board(node("a"), tree("job", 2), *pods("job", 2))
    plan = step(state)
    state.apply(pod("job", 0, on="a"))
    state.settle(plan.actions[1], "failed", NOW)
    assert place_of(state, "job") is EntryState.BACKOFF
    assert state.store.nodes.ledger.by_node() == {"a": {"gpu": 2, PODS: 1}}
    assert step(state, NOW) == Plan()
    assert binds(step(state, NOW + 5)) == {"job-1": "a"}


def test_a_bind_that_was_done_holds_although_the_api_shows_it_late() -> None:
    state = board(node("a"), gang("job", 1), pod("job", 0))
    state.settle(step(state).actions[0], "done", NOW)
    state.apply(pod("job", 0, message="something from before"))
    assert place_of(state, "job") is EntryState.RUNNING
    assert step(state, NOW + 100) == Plan()
    assert state.store.nodes.ledger.by_node() == {"a": {"gpu": 2, PODS: 1}}


def test_lost_pods_are_placed_beside_those_that_stand() -> None:
    nodes = [node("a1"), node("a2"), node("b1", "r2", gpus=8)]
    state = board(
        *nodes, tree("job", 3, required="rack"), pod("job", 0, on="a1"), pod("job", 1), pod("job", 2)
    )
    assert binds(step(state)) == {"job-1": "a2", "job-2": "a2"}


def test_a_node_that_takes_nothing_new_still_says_where_its_gang_is() -> None:
    cordoned = Node("a1", {"rack": "r1", HOSTNAME: "a1"}, {"gpu": 4, PODS: 10}, schedulable=False)
    nodes = [NodeSeen(cordoned), node("a2"), node("b1", "r2", gpus=8)]
    state = board(*nodes, tree("job", 2, required="rack"), pod("job", 0, on="a1"), pod("job", 1))
    assert binds(step(state)) == {"job-1": "a2"}


def test_succeeded_pods_keep_the_rest_in_their_domain_but_use_no_capacity() -> None:
    nodes = [node("a1"), node("b1", "r2", gpus=8)]
    first = [pod("job", rank, on="a1", finished=True, succeeded=True) for rank in (0, 1)]
    state = board(*nodes, tree("job", 4, required="rack"), *first, pod("job", 2), pod("job", 3))
    assert binds(step(state)) == {"job-2": "a1", "job-3": "a1"}


def test_a_domain_that_is_full_is_waited_for_once_part_of_the_gang_ran_there() -> None:
    nodes = [node("a1"), node("b1", "r2", gpus=8)]
    first = pod("job", 0, on="a1", finished=True, succeeded=True)
    others = [pod("other", rank, on="a1") for rank in (0, 1)]
    state = board(*nodes, tree("other", 2), *others, tree("job", 2, required="rack"), first, pod("job", 1))
    assert binds(step(state)) == {}
    state.apply(pod("other", 0, on="a1", finished=True, succeeded=True))
    assert binds(step(state, NOW + 1)) == {"job-1": "a1"}


def test_a_later_round_of_pods_stays_where_the_first_one_was() -> None:
    nodes = [node("a1"), node("b1", "r2", gpus=8)]
    first = [pod("job", rank, on="b1", finished=True, succeeded=True) for rank in (0, 1)]
    state = board(*nodes, tree("job", 2, required="rack"), *first, pod("job", 2), pod("job", 3))
    assert binds(step(state)) == {"job-2": "b1", "job-3": "b1"}


def test_a_segment_is_completed_where_its_first_pods_were() -> None:
    nodes = [node("a1", gpus=8), node("b1", "r2", gpus=8), node("c1", "r3")]
    main = PodSet("main", 8, 8, {"gpu": 2}, segments=(Segment(4, "rack"),))
    asked = GangSpecSeen(GangSpec(ref("job"), 8, tree=Group("", (main,), 1), created=1.0))
    first = [pod("job", rank, on="a1", finished=True, succeeded=True) for rank in range(4)]
    half = [pod("job", rank, on="b1", finished=True, succeeded=True) for rank in (4, 5)]
    state = board(*nodes, asked, *first, *half, pod("job", 6), pod("job", 7))
    assert binds(step(state)) == {"job-6": "b1", "job-7": "b1"}


def test_failed_or_terminating_pods_bind_the_gang_to_no_domain() -> None:
    nodes = [node("a1", gpus=2), node("b1", "r2")]
    past = [
        pod("job", 0, on="a1", finished=True),
        pod("job", 1, on="a1", finished=True, succeeded=True, terminating=True),
    ]
    state = board(*nodes, tree("job", 2, required="rack"), *past, pod("job", 2), pod("job", 3))
    assert binds(step(state)) == {"job-2": "b1", "job-3": "b1"}


def test_a_recreated_pod_is_another_pod() -> None:
    state = board(node("a"), tree("job", 1), pod("job", 0, on="a"))
    state.apply(pod("job", 0, uid="new"))
    assert state.store.nodes.ledger.by_node() == {}
    assert binds(step(state)) == {"job-0": "a"}


def test_everything_can_go_away_again() -> None:
    state = board(node("a"), tree("job", 2), *pods("job", 2), pod("alone", 0, gang=None))
    step(state)
    for change in (
        PodLost(PodKey("ns", "job-0")),
        PodLost(PodKey("ns", "job-1")),
        PodLost(PodKey("ns", "alone-0")),
        GangSpecLost(ref("job")),
        NodeLost("a"),
    ):
        state.apply(change)
    assert not list(state.entries())
    for what in (
        state.store.members,
        state.store.pods,
        state.store.placed,
        state.store.gang_states,
        state.store.nodes.ledger.claims,
        state.store.index.pods,
    ):
        assert not what
    assert not (
        state.store.assumed
        or state.store.nominations
        or state.store.preempting
        or state.store.specs
        or state.gangs.partial
    )


def test_a_topology_that_comes_later_knows_what_is_used() -> None:
    state = SchedulingState()
    changes: list[Change] = [
        node("a"),
        pod("old", 0, on="a", gpus=3),
        TopologySeen(RACKS),
        tree("job", 1),
        pod("job", 0),
    ]
    state.apply_all(changes)
    assert len(refusals(step(state))) == 1


def test_a_topology_is_continued_down_to_the_host() -> None:
    state = SchedulingState()
    racks = TopologySeen(Topology("dc", ("rack",)))
    state.apply_all([racks, node("a"), tree("job", 2, required="rack"), *pods("job", 2)])
    assert binds(step(state)) == {"job-0": "a", "job-1": "a"}


# ── gangs whose pods come one by one ───────────────────────────────────────────────────────────────────


def test_a_gang_without_its_spec_is_pending_and_reported_once() -> None:
    state = board(node("a"), *pods("job", 2))
    assert step(state) == Plan()  # the spec may arrive later
    (told,) = refusals(step(state, state.next_due(NOW)))
    assert told.rejection.reason is RejectionReason.NO_SPEC
    assert step(state, NOW + 1000) == Plan() and state.next_due(NOW + 1000) == NEVER
    state.apply(gang("job", 2))
    assert binds(step(state, NOW + 1001)) == {"job-0": "a", "job-1": "a"}


def test_a_spec_that_is_deleted_and_created_again_counts_as_before() -> None:
    state = board(node("a", gpus=1), gang("job", 2), *pods("job", 2))
    assert place_of(state, "job") is EntryState.READY
    state.apply(GangSpecLost(ref("job")))
    assert place_of(state, "job") is EntryState.INCOMPLETE
    state.apply(gang("job", 2))
    assert place_of(state, "job") is EntryState.READY
    assert state.next_due(NOW) == NOW


def test_too_few_pods_are_reported_once_the_number_has_settled() -> None:
    state = board(node("a"), gang("job", 4))
    for rank in range(3):
        state.apply(pod("job", rank))
        assert step(state, NOW + rank / 10) == Plan()
    (told,) = refusals(step(state, NOW + 5))
    assert (told.rejection.reason, told.rejection.minimum, told.rejection.existing) == (
        RejectionReason.TOO_FEW,
        4,
        3,
    )
    state.apply(PodLost(PodKey("ns", "job-0")))
    assert step(state, NOW + 6) == Plan()  # not again at once
    (told,) = refusals(step(state, state.next_due(NOW + 6)))
    assert told.rejection.existing == 2


def test_facts_that_change_and_change_back_are_not_reported_again() -> None:
    state = board(node("a"), gang("job", 4), *pods("job", 3))
    step(state)
    assert len(refusals(step(state, NOW + 5))) == 1
    state.apply(gang("job", 5))
    step(state, NOW + 6)
    state.apply(gang("job", 4))
    assert step(state, NOW + 60) == Plan() and state.next_due(NOW + 60) == NEVER


def test_a_pod_that_replaces_another_gets_the_report_too() -> None:
    state = board(node("a"), gang("job", 4), *pods("job", 3))
    step(state)
    assert len(refusals(step(state, NOW + 5))) == 1
    state.apply(PodLost(PodKey("ns", "job-0")))
    state.apply(pod("job", 0))
    assert step(state, NOW + 6) == Plan()
    (told,) = refusals(step(state, NOW + 60))
    assert PodKey("ns", "job-0") in {one.key for one in told.pods} and not told.changed


def test_a_lower_minimum_lets_it_go_and_a_higher_one_holds_it_back() -> None:
    state = board(node("a"), gang("job", 3), *pods("job", 2))
    assert state.heads(NOW) == [] and place_of(state, "job") is EntryState.INCOMPLETE
    state.apply(gang("job", 2))
    assert place_of(state, "job") is EntryState.READY
    state.apply(gang("job", 4))
    assert place_of(state, "job") is EntryState.INCOMPLETE and state.heads(NOW) == []


def test_a_gang_that_runs_stays_as_it_is_when_its_minimum_grows() -> None:
    state = board(node("a"), gang("job", 2), *pods("job", 2, on="a"))
    state.apply(gang("job", 4))
    assert place_of(state, "job") is EntryState.RUNNING
    state.apply(pod("job", 2))
    step(state)
    assert not state.gangs.partial and place_of(state, "job") is EntryState.INCOMPLETE


def test_later_pods_of_a_running_gang_join_it_at_once() -> None:
    state = board(node("a"), gang("job", 1), pod("job", 0, on="a"), pod("job", 1))
    assert binds(step(state)) == {"job-1": "a"}


def test_pods_that_come_while_others_are_bound_have_their_turn_afterwards() -> None:
    state = board(node("a", gpus=8), gang("job", 2), *pods("job", 2))
    plan = step(state)
    state.apply(pod("job", 2))
    assert place_of(state, "job") is EntryState.BINDING
    ends(state, plan)
    assert binds(step(state, NOW + 1)) == {"job-2": "a"}


def test_remaining_pods_wait_for_capacity_once_the_others_are_bound() -> None:
    state = board(node("a"), gang("job", 2), *pods("job", 3), pod("other", 0, on="b"))
    plan = step(state)
    assert len(binds(plan)) == 2 and len(refusals(plan)) == 1
    ends(state, plan)
    assert place_of(state, "job") is EntryState.UNSCHEDULABLE and state.heads(NOW) == []
    state.apply(node("b", gpus=8))
    assert list(binds(step(state, NOW + 1)).values()) == ["b"]


def test_a_pod_that_is_held_back_holds_back_its_gang() -> None:
    held = pod("job", 2, gates=("wait",))
    state = board(node("a", gpus=8), gang("job", 2), *pods("job", 2), held)
    step(state)
    (told,) = refusals(step(state, NOW + 5))
    assert told.rejection.reason is RejectionReason.GATED and told.rejection.pod == held.pod.key
    assert {each.key.name for each in told.pods} == {"job-0", "job-1", "job-2"}
    state.apply(pod("job", 2))
    assert len(binds(step(state, NOW + 6))) == 3


def test_pods_without_a_minimum_wait_once_for_the_desired_number() -> None:
    state = board(node("a"), gang("job", 0, desired=2), pod("job", 0))
    assert place_of(state, "job") is EntryState.INCOMPLETE
    state.apply(pod("job", 1))
    ends(state, step(state))
    state.apply(PodLost(PodKey("ns", "job-0")))
    state.apply(pod("job", 0, uid="again"))
    assert binds(step(state, NOW + 1)) == {"job-0": "a"}


def test_an_invalid_gang_is_reported_and_never_tried() -> None:
    state = board(node("a"), gang("job", 1, flaw="priorities differ"), pod("job", 0))
    step(state)
    (told,) = refusals(step(state, NOW + 5))
    assert told.rejection.reason is RejectionReason.INVALID and told.rejection.about == "priorities differ"


def test_that_a_gang_has_begun_is_put_on_record_even_after_a_restart() -> None:
    state = board(node("a"), gang("job", 2), *pods("job", 2, on="a"))
    (begin,) = step(state).actions
    assert begin == MarkStarted(ref("job"))
    assert step(state, NOW + 1) == Plan()
    state.settle(begin, "failed", NOW + 2)
    assert step(state, NOW + 2).actions == (begin,)
    assert board(node("a"), gang("job", 2, started=True), *pods("job", 2, on="a")).heads(NOW) == []
