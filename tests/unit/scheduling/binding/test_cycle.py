"""Gangs and single pods are bound or rejected, each as a whole, one after the other."""

from __future__ import annotations

from dataclasses import replace

from bayplan.model.filter_failure import FilterReason
from bayplan.model.node_rules import Requirement
from bayplan.model.plan import PreemptPod
from bayplan.model.pod_spec import PodAffinity, PodAffinityTerm, Selector, TopologySpread
from bayplan.model.rejection import PreemptionSearchOutcome, Rejection, RejectionReason
from tests.support.gang_snapshots import (
    candidate,
    charter,
    cpu_node,
    cpu_pod,
    decide,
    lone,
    look,
    pods,
    shape,
)


def test_a_gang_that_fits_is_bound_as_a_whole_and_starts() -> None:
    seen = look([cpu_node("a", 2), cpu_node("b", 2)], (), candidate(charter("g", 3), pods("p", 3, gang="g")))
    found = decide(seen)
    assert sorted(found.binds) == ["p-0", "p-1", "p-2"]
    assert max(list(found.binds.values()).count(name) for name in "ab") == 2
    assert found.begun == ("g",)
    assert not found.refused


def test_below_the_minimum_no_pod_is_bound() -> None:
    seen = look([cpu_node("a", 2)], (), candidate(charter("g", 3), pods("p", 3, gang="g")))
    found = decide(seen)
    assert not found.binds
    assert not found.begun
    why = found.refused["g"].rejection
    assert (why.reason, why.minimum, why.existing, why.fit) == (RejectionReason.NO_CAPACITY, 3, 3, 2)
    assert why.pod is not None
    assert why.filter_failure is not None
    assert dict(why.filter_failure.counts) == {(FilterReason.INSUFFICIENT, "cpu"): 1}
    assert len(found.refused["g"].pods) == 3


def test_pods_beyond_the_minimum_are_bound_if_they_fit() -> None:
    seen = look([cpu_node("a", 3)], (), candidate(charter("g", 2), pods("p", 4, gang="g")))
    found = decide(seen)
    assert len(found.binds) == 3
    assert [one.key.name for one in found.refused["g"].pods] == ["p-3"]
    assert found.refused["g"].rejection.fit == 3


def test_later_pods_join_a_bound_gang() -> None:
    standing = tuple(cpu_pod(f"s-{n}", on="a", gang="g") for n in range(2))
    seen = look(
        [cpu_node("a", 3)],
        (),
        candidate(charter("g", 2, started=True), pods("p", 1, gang="g"), bound=standing),
    )
    found = decide(seen)
    assert found.binds == {"p-0": "a"}
    assert not found.begun


def test_a_gang_that_lost_pods_is_completed_only_to_its_minimum_or_not_at_all() -> None:
    standing = (cpu_pod("s", on="a", gang="g"),)
    seen = look([cpu_node("a", 2)], (), candidate(charter("g", 3), pods("p", 2, gang="g"), bound=standing))
    assert not decide(seen).binds


def test_pods_of_a_group_without_a_minimum_are_bound_independently() -> None:
    seen = look([cpu_node("a", 2)], (), candidate(charter("g"), pods("p", 3, gang="g")))
    found = decide(seen)
    assert len(found.binds) == 2
    assert len(found.refused["g"].pods) == 1


def test_two_gangs_never_use_the_same_capacity() -> None:
    first, second = (candidate(charter(name, 3), pods(name, 3, gang=name)) for name in ("f", "s"))
    found = decide(look([cpu_node("a", 4)], (), first, second))
    assert sorted(found.binds) == ["f-0", "f-1", "f-2"]
    assert found.refused["s"].rejection.fit == 1


def test_single_pods_go_to_the_emptiest_node() -> None:
    seen = look([cpu_node("a", 2), cpu_node("b", 4)], (), *(lone(one) for one in pods("p", 3)))
    found = decide(seen)
    assert found.binds["p-0"] == "b"
    assert sorted(found.binds.values()) == ["a", "b", "b"]
    assert not found.begun


def test_equivalent_single_pods_are_rejected_without_another_attempt() -> None:
    seen = look([cpu_node("a", 1)], (), *(lone(one) for one in pods("p", 4)))
    found = decide(seen)
    assert len(found.binds) == 1
    assert sorted(found.refused) == ["p-1", "p-2", "p-3"]
    for name, refuse in found.refused.items():
        assert refuse.rejection.pod is not None
        assert refuse.rejection.pod.name == name


def test_a_gang_with_a_known_rejection_is_not_tried() -> None:
    why = Rejection(RejectionReason.TOO_FEW, 3, 1)
    seen = look([cpu_node("a")], (), candidate(charter("g", 3), pods("p", 1, gang="g"), blocker=why))
    found = decide(seen)
    assert not found.binds
    assert found.refused["g"].rejection == why
    assert found.refused["g"].changed
    again = candidate(charter("g", 3), pods("p", 1, gang="g"), blocker=why, reported=why)
    assert not decide(look([cpu_node("a")], (), again)).refused["g"].changed


def test_a_rejection_is_published_only_if_it_changed() -> None:
    waiting = candidate(charter("g", 3), pods("p", 3, gang="g"))
    why = decide(look([cpu_node("a", 2)], (), waiting)).refused["g"].rejection
    told = replace(waiting, reported=why)
    assert not decide(look([cpu_node("a", 2)], (), told)).refused["g"].changed
    assert decide(look([cpu_node("a", 1)], (), told)).refused["g"].changed


def test_a_gang_keeps_to_one_domain() -> None:
    nodes = [
        cpu_node("a", 2, rack="r1"),
        cpu_node("b", 1, rack="r1"),
        cpu_node("c", 2, rack="r2"),
        cpu_node("d", 2, rack="r2"),
    ]
    found = decide(look(nodes, (), candidate(charter("g", 4, key="rack"), pods("p", 4, gang="g"))))
    assert set(found.binds.values()) == {"c", "d"}
    found = decide(look(nodes, (), candidate(charter("g", 5, key="rack"), pods("p", 5, gang="g"))))
    assert not found.binds
    assert found.refused["g"].rejection.misfit is not None


def test_later_pods_stay_in_the_domain_of_the_bound_pods() -> None:
    nodes = [cpu_node("a", 2, rack="r1"), cpu_node("b", 4, rack="r2")]
    standing = (cpu_pod("s", on="a", gang="g"),)
    group = candidate(charter("g", key="rack"), pods("p", 3, gang="g"), bound=standing)
    found = decide(look(nodes, (), group))
    assert found.binds == {"p-0": "a"}
    assert len(found.refused["g"].pods) == 2


def test_capacity_of_nominated_pods_is_not_taken_by_lower_priority() -> None:
    promised = cpu_pod("high", 2, priority=10)
    nominations = {promised.key: (promised, "a")}
    low = lone(cpu_pod("low", 1, priority=5))
    assert not decide(look([cpu_node("a", 2)], (), low, nominations=nominations)).binds
    high = lone(cpu_pod("higher", 1, priority=11))
    assert decide(look([cpu_node("a", 2)], (), high, nominations=nominations)).binds == {"higher": "a"}


WEB = Selector((Requirement("app", "In", ("web",)),))


def test_a_nominated_pod_does_not_make_a_spread_even() -> None:
    nodes = [cpu_node("a", 4, host="a"), cpu_node("b", 1, host="b")]
    web = shape(labels=(("app", "web"),))
    spread = replace(web, spread=(TopologySpread("host", 1, WEB),))
    promised = cpu_pod("promised", priority=10, like=web)
    running = [cpu_pod("old", on="a", like=web)]
    late = lone(cpu_pod("late", like=spread))
    seen = look(nodes, running, late, nominations={promised.key: (promised, "b")})
    assert not decide(seen).binds  # `a` would have two pods, and `b` none, should it not be bound
    seen = look(nodes, [*running, replace(promised, node="b")], late)
    assert decide(seen).binds == {"late": "a"}


def test_a_nominated_pod_is_no_pod_to_be_near_to() -> None:
    web = shape(labels=(("app", "web"),))
    near = shape(affinity=PodAffinity(required=(PodAffinityTerm("host", WEB, ("ns",)),)))
    promised, friend = cpu_pod("promised", priority=10, like=web), lone(cpu_pod("friend", like=near))
    nodes = [cpu_node("a", 4, host="a")]
    assert not decide(look(nodes, (), friend, nominations={promised.key: (promised, "a")})).binds
    assert decide(look(nodes, [replace(promised, node="a")], friend)).binds == {"friend": "a"}


def test_a_gang_that_loses_pods_in_this_cycle_is_decided_on_in_the_next() -> None:
    low = charter("low", 2, 0, started=True)
    standing = tuple(cpu_pod(f"s-{n}", 2, on="a", gang="low") for n in range(2))
    replacement = candidate(low, pods("p", 1, gang="low"), bound=standing)
    high = lone(cpu_pod("high", 4, priority=10))
    found = decide(look([cpu_node("a", 4), cpu_node("b", 1)], (), high, replacement))
    assert found.displaced == ("s-0", "s-1")
    assert not found.binds  # one pod on `b`, of a gang of two
    assert found.plan.undecided == (low.source,)


def test_its_own_nomination_is_no_obstacle() -> None:
    one = cpu_pod("p", 2)
    found = decide(look([cpu_node("a", 2)], (), lone(one, nominated={one.key: "a"})))
    assert found.binds == {"p": "a"}


def test_reserved_nodes_are_only_for_their_gang_and_for_higher_priority() -> None:
    owner = charter("g", 2, 5)
    kept = owner.source, frozenset({"a"})
    nodes = [cpu_node("a", 2), cpu_node("b", 1)]
    small = [lone(one) for one in pods("p", 2, priority=5)]
    found = decide(look(nodes, (), *small, reserved=kept, charters=[owner]))
    assert found.binds == {"p-0": "b"}
    assert found.refused["p-1"].rejection.reason is RejectionReason.RESERVED
    found = decide(look(nodes, (), lone(cpu_pod("vip", 2, priority=6)), reserved=kept, charters=[owner]))
    assert found.binds == {"vip": "a"}
    found = decide(look(nodes, (), candidate(owner, pods("p", 2, priority=5, gang="g")), reserved=kept))
    assert len(found.binds) == 2


def test_a_nominated_pod_may_use_its_node_even_if_it_is_reserved() -> None:
    owner, one = charter("g", 2, 5), cpu_pod("p", 2, priority=5)
    kept = owner.source, frozenset({"a"})
    found = decide(
        look([cpu_node("a", 2)], (), lone(one, nominated={one.key: "a"}), reserved=kept, charters=[owner])
    )
    assert found.binds == {"p": "a"}


def test_nodes_are_reserved_for_the_first_gang_that_is_pending_long() -> None:
    nodes = [cpu_node("a", 2), cpu_node("b", 2), cpu_node("c", 2)]
    running = [cpu_pod("r-0", 1, on="a"), cpu_pod("r-1", 2, on="b"), cpu_pod("r-2", 2, on="c")]
    long, other = (candidate(charter(n, 3), pods(n, 3, gang=n), since=0.0) for n in ("g", "h"))
    found = decide(look(nodes, running, long, other), now=400.0)
    assert found.refused["g"].reserved_nodes == ("a", "b")
    assert found.refused["h"].reserved_nodes == ()
    assert decide(look(nodes, running, long), now=200.0).refused["g"].reserved_nodes == ()
    kept = long.spec.source, frozenset({"a", "c"})
    assert decide(look(nodes, running, long, reserved=kept), now=400.0).refused["g"].reserved_nodes == (
        "a",
        "c",
    )


def test_no_node_is_reserved_where_it_could_never_help() -> None:
    running = [cpu_pod("r", 2, priority=9, on="a")]
    found = decide(look([cpu_node("a", 2)], running, candidate(charter("g", 2), pods("p", 2, gang="g"))))
    assert found.refused["g"].reserved_nodes == ()


def test_a_gang_that_was_partly_bound_for_too_long_is_preempted() -> None:
    standing = (
        cpu_pod("s-0", on="a", gang="g"),
        cpu_pod("s-1", on="a", gang="g", finished=True, succeeded=True),
    )
    group = candidate(charter("g", 4), pods("p", 2, gang="g"), bound=standing, stale=True)
    found = decide(look([cpu_node("a", 2)], (), group))
    assert found.displaced == ("s-0",)
    (sent,) = (action for action in found.plan.actions if isinstance(action, PreemptPod))
    assert sent.undoes
    assert found.refused["g"].rejection.reason is RejectionReason.UNDONE
    found = decide(look([cpu_node("a", 3)], (), group))  # it fits, but was not bound in time
    assert (found.binds, found.displaced) == ({}, ("s-0",))


def test_a_gang_whose_pods_are_all_bound_is_recorded_as_started() -> None:
    standing = (cpu_pod("s", on="a", gang="g"),)
    assert decide(look([cpu_node("a")], (), candidate(charter("g", 1), (), bound=standing))).begun == ("g",)


def test_a_gang_that_may_not_preempt_is_rejected_with_that_reason() -> None:
    running = [cpu_pod("r", 2, on="a")]
    seen = look([cpu_node("a", 2)], running, lone(cpu_pod("p", 1, priority=5, preempts=False)))
    found = decide(seen)
    assert not found.displaced
    assert found.refused["p"].rejection.preemption is PreemptionSearchOutcome.NOT_ALLOWED
